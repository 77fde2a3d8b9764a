"""Which folder a command is about. Light: nothing here needs torch, so that it can be said before Hydra begins."""

import fcntl
import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from attention_lab.errors import SettingError


class Occupied(SettingError):
    """A folder that another run has, so that nothing in it may be touched."""


RUNS = Path("outputs/train")
"""Where runs land, unless they are told to land elsewhere."""

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
        raise SettingError(f"resume={named} goes on with one run; leave -m out")
    begun_with = value_of("init_from", arguments)
    if begun_with is not None:
        raise SettingError(f"init_from={begun_with} starts a new run, but resume={named} goes on with an old one")
    elsewhere = value_of("hydra.run.dir", arguments)
    if elsewhere is not None:
        raise SettingError(f"hydra.run.dir={elsewhere} does not go with resume={named}: a run goes on in its folder")
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
    if any(folder.glob("checkpoints/*.ckpt")):
        raise Occupied(
            f"hydra.run.dir={folder} holds a run already; choose a new folder, or go on with that run: resume={folder}"
        )


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


def _named(named: str) -> Path:
    folder = Path(named).absolute()
    if folder.is_file() and folder.suffix == ".ckpt":
        raise SettingError(
            f"resume={named} is a file; give the folder of its run, {folder.parent.parent}, or init_from={named} to "
            "start a new run from its weights"
        )
    if not folder.is_dir():
        raise SettingError(f"resume={named} does not exist (looked for it in {Path.cwd()})")
    if not (folder / _CONFIG).is_file():
        raise SettingError(f"resume={named} is not the folder of a run: it has no {_CONFIG}")
    return folder


def _latest() -> Path:
    """Returns the run that was written to last."""
    configs = [*RUNS.glob(f"*/{_CONFIG}"), *RUNS.glob(f"*/*/{_CONFIG}")]
    runs = [config.parents[1].absolute() for config in configs]
    if not runs:
        raise SettingError(f"resume=latest finds no run in {RUNS.absolute()}")
    return max(runs, key=_last_written)


def _last_written(run: Path) -> float:
    return max(path.stat().st_mtime for path in (run, run / "train.log", run / "checkpoints") if path.exists())
