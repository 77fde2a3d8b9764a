"""Paths and settings as a user would type them: what is printed can be pasted into a shell."""

import re
import shlex
import shutil
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

_typed_in: ContextVar[Path | None] = ContextVar("typed_in", default=None)


@contextmanager
def typed_in(folder: Path) -> Generator[None]:
    """Takes a folder for the one in which the user types, whatever the working directory is meanwhile."""
    token = _typed_in.set(folder)
    try:
        yield
    finally:
        _typed_in.reset(token)


def here() -> Path:
    """Returns the folder in which the user types."""
    return _typed_in.get() or Path.cwd()


def short(path: Path) -> str:
    """Returns a path as short as it can be said in the user's folder."""
    text = str(path.relative_to(here()) if path.is_relative_to(here()) else path)
    return f"./{text}" if text.startswith("-") else text


def shown(path: Path) -> str:
    """Returns a path as short as it can be typed in the user's folder, in quotes where a shell needs them."""
    return shlex.quote(short(path))


def typed(setting: str, value: Path | str | Sequence[Path]) -> str:
    """Returns `setting=value` as it is typed: quoted for Hydra's grammar, and then for the shell."""
    if isinstance(value, (str, Path)):
        return shlex.quote(f"{setting}={quoted(_text(value))}")
    return shlex.quote(f"{setting}=[{','.join(quoted(_text(path)) for path in value)}]")


def program(name: str) -> str:
    """Returns how a program of this environment is called: in full where the environment is not activated."""
    return name if shutil.which("python") == sys.executable else shown(Path(sys.executable).parent / name)


def look_at(folder: Path) -> str:
    """Returns the command that shows a run, or all runs in a folder, in TensorBoard.

    There a run is called by its path from the folder, so that a single one, in its own, has to be given its name.
    """
    where, named = short(folder), (folder / "tensorboard").is_dir()
    if named and not set(",:") & set(where):
        option = f"--logdir_spec {shlex.quote(f'{folder.name}:{where}')}"
    else:
        # TensorBoard would take a comma or a colon for the end of a name.
        option = f"--logdir {shlex.quote(where)}"
    return f"{program('tensorboard')} {option} --samples_per_plugin images=1000"


def quoted(text: str) -> str:
    """Returns a text so that Hydra reads it as this text: no number, list, choice of several or reference to a setting.

    Backslashes count double before a quote (Hydra's grammar) and before `${` (OmegaConf's), and nowhere else.
    """
    if re.fullmatch(r"[\w./*?-]+", text, re.ASCII) and not re.fullmatch(_NO_TEXT, text, re.IGNORECASE):
        return text
    text = re.sub(r"(\\+)(?=\"|$)", lambda found: found[1] * 2, no_reference(text))
    return '"' + text.replace('"', r"\"") + '"'


def no_reference(text: str) -> str:
    """Returns a text so that OmegaConf takes no `${` in it for a reference to a setting."""
    return re.sub(r"(\\*)\$\{", lambda found: found[1] * 2 + r"\${", text)


_NO_TEXT = r"[-.\d_e]*\d[-.\d_e]*|-?(inf|nan)|true|false|null"
"""What Hydra reads as a number, a truth value or nothing."""


def _text(value: Path | str) -> str:
    return short(value) if isinstance(value, Path) else value
