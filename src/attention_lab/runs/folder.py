"""Which folder a command is about. Light: nothing here needs torch, so that it can be said before Hydra begins."""

import fcntl
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from attention_lab.errors import SettingError
from attention_lab.runs.paths import here, short, typed


class Occupied(SettingError):
    """A folder that another run has, so that nothing in it may be touched."""


class Finished(SettingError):
    """A run that is to go on and has nothing left to do."""


RUNS = Path("outputs/train")
"""Where runs land, unless they are told to land elsewhere."""

CONFIG = Path(".hydra", "config.yaml")
"""What makes a folder that of a run."""

SWEEP = "multirun.yaml"
"""What makes a folder that of a sweep: Hydra writes down there how it was asked for, before its first run begins."""


def named_run(named: str) -> Path:
    """Returns the folder of a run, or of a sweep, that a user names.

    Raises:
        SettingError: there is none.
    """
    if named == "latest":
        return _latest()
    folder = (here() / named).absolute()
    if folder.suffix == ".ckpt" and os.path.isfile(folder):
        run = folder.parent.parent
        hint = (
            f"give the folder of its run, {typed('resume', run)}, or {typed('init_from', folder)} to start a new run "
        )
        raise SettingError("resume", named, f"is a file; {hint}from its weights")
    if not os.path.isdir(folder):
        raise SettingError("resume", named, f"does not exist (looked for it in {here()})")
    if not (folder / CONFIG).is_file() and not (folder / SWEEP).is_file():
        raise SettingError("resume", named, f"is not the folder of a run: it has no {CONFIG}")
    return folder


def goes_on(folder: Path) -> bool:
    """Says whether there is a run in a folder that can go on."""
    return (folder / CONFIG).is_file() and any(folder.glob("checkpoints/*.ckpt"))


def check_unused(folder: Path) -> None:
    """Refuses a folder in which a training has written checkpoints.

    Raises:
        Occupied: there are some.
    """
    if any(folder.glob("checkpoints/*.ckpt")):
        hint = f"choose a new folder, or go on with that run: {typed('resume', folder)}"
        raise Occupied("hydra.run.dir", short(folder), f"holds a run already; {hint}")


@contextmanager
def held(folder: Path) -> Generator[None]:
    """Keeps any other process from training in a folder; the lock ends with the process, however that ends.

    Raises:
        Occupied: another process trains there.
    """
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise Occupied(f"hydra.run.dir={folder} is in use: another process trains there") from None
    except OSError:
        # Some network file systems have no locks; training goes on without.
        pass
    try:
        yield
    finally:
        os.close(handle)


def _latest() -> Path:
    """Returns the run that was written to last."""
    configs = [*(here() / RUNS).glob(f"*/{CONFIG}"), *(here() / RUNS).glob(f"*/*/{CONFIG}")]
    runs = [config.parents[1].absolute() for config in configs]
    if not runs:
        raise SettingError("resume", "latest", f"finds no run in {here() / RUNS}")
    return max(runs, key=_last_written)


def _last_written(run: Path) -> float:
    return max(path.stat().st_mtime for path in (run, run / "train.log", run / "checkpoints") if path.exists())
