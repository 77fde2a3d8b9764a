"""The classes that a config names. The only place where a config chooses a class."""

import importlib
import inspect
import re
from collections.abc import Sequence
from typing import TypeVar

from attention_lab.errors import SettingError
from attention_lab.settings.schema import Component, Config

T = TypeVar("T")

Trust = Sequence[str] | None
"""The packages, besides this one, whose classes a config may name; None where the user wrote it, who may name any.

A checkpoint's config is foreign input: of no other package anything is imported, let alone called.
"""

_LONGEST_NAME = 300
"""Characters of a class's full name."""

# At most ten names: whoever imports a module imports every package around it, one inside the other.
_CLASS = re.compile(r"((?!__)[A-Za-z_]\w*)((?:\.(?!__)[A-Za-z_]\w*){0,8})\.(?!__)[A-Za-z_]\w*", re.ASCII)


def class_of(component: Component, base: type[T], section: str, trust: Trust) -> type[T]:
    """Returns the class that a component names, if it is of the right kind and of a package that may be named.

    Raises:
        SettingError: it is not, or there is none of that name.
    """
    target = component.get("_target_")
    of_whom = "" if trust is None else " of attention_lab"

    def wrong(more: str = "") -> SettingError:
        return SettingError(f"{section}._target_", target, f"is not a {base.__name__}{of_whom}{more}")

    match = _CLASS.fullmatch(target) if isinstance(target, str) and len(target) <= _LONGEST_NAME else None
    if match is None:
        raise wrong()
    if trust is not None and match[1] not in ("attention_lab", *trust):
        raise wrong(f"; if you trust the package {match[1]}, say so: trust={match[1]}")
    module, _, name = match[0].rpartition(".")
    try:
        found = getattr(importlib.import_module(module), name, None)
    except ImportError as error:
        # Of the module itself, or of something that it needs?
        there = error.name is not None and not f"{module}.".startswith(f"{error.name}.")
        raise wrong(f": {error}" if there else f": there is no module {module}") from None
    if found is None:
        raise wrong(f": {module} has no {name}")
    if not (isinstance(found, type) and issubclass(found, base)):
        raise wrong()
    if inspect.isabstract(found):
        missing: frozenset[str] = getattr(found, "__abstractmethods__", frozenset())
        raise wrong(f": it does not define {', '.join(sorted(missing))}")
    return found


def own_settings(component: Component) -> Config:
    """Returns what a component says besides its class."""
    return {name: value for name, value in component.items() if name != "_target_"}
