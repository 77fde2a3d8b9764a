"""Paths as a user would type them."""

import shlex
from pathlib import Path


def shown(path: Path) -> str:
    """Returns a path as short as it can be typed here, in quotes where a shell needs them."""
    here = Path.cwd()
    return shlex.quote(str(path.relative_to(here) if path.is_relative_to(here) else path))
