"""Which folder a command is about. Light: nothing here needs torch, so that it can be said before Hydra begins."""

import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from attention_lab.errors import SettingError


class Occupied(SettingError):
    """A folder that another run has, so that nothing in it may be touched."""


RUNS = Path("outputs/train")
"""Where runs land, unless they are told to land elsewhere."""

RUN_FILES = ("metrics.json", "train.log", "checkpoints/best.ckpt", "checkpoints/last.ckpt", ".hydra/config.yaml")
RUN_FOLDERS = ("checkpoints", "tensorboard", ".hydra")
"""What a training writes into its folder."""

_CONFIG = Path(".hydra", "config.yaml")


def value_of(setting: str, arguments: Sequence[str]) -> str | None:
    """Returns what the command line gives a setting, as it was typed; the last one counts."""
    given = [text.partition("=")[2] for text in arguments if text.startswith(f"{setting}=")]
    return given[-1].strip("'\"") if given else None


def resumed_run(arguments: Sequence[str]) -> Path | None:
    """Returns the folder of the run that is to go on, if one is.

    Args:
        arguments: the command line, without the program's name.

    Raises:
        SettingError: there is no such run, or the command line asks for something else besides.
    """
    named = value_of("resume", arguments)
    if named in (None, "null", ""):
        return None
    if {"-m", "--multirun"} & set(arguments):
        raise SettingError("resume", named, "goes on with one run; leave -m out")
    begun_with = value_of("init_from", arguments)
    if begun_with is not None:
        raise SettingError("init_from", begun_with, f"starts a new run, but resume={named} goes on with an old one")
    elsewhere = value_of("hydra.run.dir", arguments)
    if elsewhere is not None:
        reason = f"does not go with resume={named}: a run goes on in its folder"
        raise SettingError("hydra.run.dir", elsewhere, reason)
    return _latest() if named == "latest" else _named(named)


def refuse_used(arguments: Sequence[str]) -> None:
    """Refuses a folder that holds a run already, before Hydra writes into it.

    Raises:
        SettingError: the command line names such a folder.
    """
    named = value_of("hydra.run.dir", arguments)
    if named is not None:
        check_unused(Path(named))


def check_unused(folder: Path) -> None:
    """Refuses a folder in which a training has written checkpoints.

    Raises:
        Occupied: there are some.
    """
    # What cannot be a folder, Hydra will say when it comes to make it.
    with suppress(OSError):
        if any(folder.glob("checkpoints/*.ckpt")):
            reason = f"holds a run already; choose a new folder, or go on with that run: resume={folder}"
            raise Occupied("hydra.run.dir", folder, reason)


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
        raise Occupied("hydra.run.dir", folder, f"has {what} in the place of {wrong[0]}; choose another folder")


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


def _named(named: str) -> Path:
    # Path's own methods raise for a name that no file can have.
    if not os.path.exists(named):
        raise SettingError("resume", named, f"does not exist (looked for it in {Path.cwd()})")
    folder = Path(named).resolve()
    if folder.is_file():
        run = folder.parents[1] if folder.suffix == ".ckpt" else "with .hydra/ and checkpoints/"
        hint = f"give the folder of its run, {run}, or init_from={named} to start a new run from its weights"
        raise SettingError("resume", named, f"is a file; {hint}")
    if not (folder / _CONFIG).is_file():
        raise SettingError("resume", named, f"is not the folder of a run: it has no {_CONFIG}")
    return folder


def _latest() -> Path:
    """Returns the run that was written to last."""
    configs = [*RUNS.glob(f"*/{_CONFIG}"), *RUNS.glob(f"*/*/{_CONFIG}")]
    runs = [config.parents[1].absolute() for config in configs]
    if not runs:
        raise SettingError("resume", "latest", f"finds no run in {RUNS.absolute()}")
    return max(runs, key=_last_written)


def _last_written(run: Path) -> float:
    return max(path.stat().st_mtime for path in (run, run / "train.log", run / "checkpoints") if path.exists())
