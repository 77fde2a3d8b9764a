"""Which folder a command is about. Light: nothing here needs torch, so that it can be said before Hydra begins."""

import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import yaml
from filelock import FileLock, Timeout

from attention_lab.errors import SettingError
from attention_lab.runs.paths import here, short, typed


class Occupied(SettingError):
    """A folder that another run has, so that nothing in it may be touched."""


class Finished(SettingError):
    """A run that is to go on and has nothing left to do."""


RUNS = Path("outputs/train")
"""Where runs land, unless they are told to land elsewhere."""

BEST = Path("checkpoints", "best.ckpt")
"""Where a run keeps its best checkpoint."""

HISTORY = "alignment.jsonl"
"""Where a run keeps how its alignment formed, a line a validation."""

RUN_FILES = ("metrics.json", "train.log", HISTORY, str(BEST), "checkpoints/last.ckpt", ".hydra/config.yaml")
RUN_FOLDERS = ("checkpoints", "tensorboard", ".hydra")
"""What a training writes into its folder."""

CONFIG = Path(".hydra", "config.yaml")
"""What makes a folder that of a run."""

OVERRIDES = Path(".hydra", "overrides.yaml")
"""What was typed when the run began; written by Hydra."""

SWEEP = "multirun.yaml"
"""What makes a folder that of a sweep: Hydra writes down there how it was asked for, before its first run begins."""


def named_run(named: str) -> Path:
    """Returns the folder of a run, or of a sweep, that a user names.

    Raises:
        SettingError: there is none.
    """
    if named == "latest":
        return latest_run("resume")
    # Path's own methods raise for a name that no file can have.
    if not os.path.exists(here() / named):
        raise SettingError("resume", named, f"does not exist (looked for it in {here()})")
    folder = (here() / named).resolve()
    if folder.is_file():
        run = typed("resume", folder.parents[1]) if folder.suffix == ".ckpt" else "with .hydra/ and checkpoints/"
        hint = f"give the folder of its run, {run}, or {typed('init_from', folder)} to start a new run from its weights"
        raise SettingError("resume", named, f"is a file; {hint}")
    if not (folder / CONFIG).is_file() and not (folder / SWEEP).is_file():
        raise SettingError("resume", named, f"is not the folder of a run: it has no {CONFIG}")
    return folder


def goes_on(folder: Path) -> bool:
    """Says whether there is a run in a folder that can go on."""
    return (folder / CONFIG).is_file() and any(folder.glob("checkpoints/*.ckpt"))


def asked_for(folder: Path) -> list[str]:
    """Returns the names of the settings that were typed when a run began; none where that is not written down."""
    try:
        typed_then = yaml.safe_load((folder / OVERRIDES).read_text())
    except (OSError, ValueError, yaml.YAMLError):
        return []
    return [str(override).lstrip("+~").partition("=")[0] for override in typed_then or ()]


def check_unused(folder: Path) -> None:
    """Refuses a folder in which a training has written checkpoints.

    Raises:
        Occupied: there are some.
    """
    # What cannot be a folder, Hydra will say when it comes to make it.
    with suppress(OSError):
        if any(folder.glob("checkpoints/*.ckpt")):
            hint = f"choose a new folder, or go on with that run: {typed('resume', folder)}"
            raise Occupied("hydra.run.dir", short(folder), f"holds a run already; {hint}")


def check_places(folder: Path, files: Sequence[str], folders: Sequence[str]) -> None:
    """Refuses a folder in which something stands in the place of what is going to be written, before that takes hours.

    Args:
        folder: where to.
        files: what will be files.
        folders: what will be folders.

    Raises:
        Occupied: one of the first is a folder, or one of the second is none.
    """
    wrong = [name for name in files if (folder / name).is_dir()]
    wrong += [name for name in folders if (folder / name).exists() and not (folder / name).is_dir()]
    if wrong:
        what = "a folder" if wrong[0] in files else "a file"
        raise Occupied("hydra.run.dir", short(folder), f"has {what} in the place of {wrong[0]}; choose another folder")


@contextmanager
def locked(folder: Path) -> Generator[None]:
    """Keeps any other process from training in a folder; the lock ends with the process, however that ends.

    Raises:
        Occupied: another process trains there.
    """
    path = folder / ".lock"
    lock = FileLock(path, timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise Occupied("hydra.run.dir", folder, "is in use: another process trains there") from None
    except (OSError, NotImplementedError):
        # Some network file systems have no locks; training goes on without.
        pass
    try:
        yield
    finally:
        if lock.is_locked:
            # Before it is released: who opens the file meanwhile finds that it is gone, and makes another.
            with suppress(OSError):
                path.unlink()
        lock.release()


def latest_run(setting: str, holds: Path = CONFIG) -> Path:
    """Returns the run that was written to last, alone or in a sweep.

    Args:
        setting: what asks for it.
        holds: the file, in a folder of its own, that it must hold.

    Raises:
        SettingError: there is none.
    """
    files = [*(here() / RUNS).glob(f"*/{holds}"), *(here() / RUNS).glob(f"*/*/{holds}")]
    if not files:
        raise SettingError(setting, "latest", f"finds no run with {holds} in {here() / RUNS}")
    return max((file.parents[1].absolute() for file in files), key=_last_written)


def _last_written(run: Path) -> float:
    return max(path.stat().st_mtime for path in (run, run / "train.log", run / "checkpoints") if path.exists())
