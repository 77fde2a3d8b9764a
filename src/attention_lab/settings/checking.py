"""Holds a plain config against the signature of what it is for: no unknown key, no wrong type, no missing value."""

import difflib
import inspect
import re
import sys
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, TypeVar

from attention_lab.errors import SettingError, as_written

T = TypeVar("T")


def build(make: Callable[..., T], config: object, where: str, **given: object) -> T:
    """Calls `make` with the settings of a config section.

    The signature is the schema: a setting is known if `make` has a parameter of that name, and right if its value has
    that parameter's type. A section whose parameter is a dataclass is built in turn.

    Args:
        make: a dataclass, another class, or a function with annotated parameters.
        config: the section, as plain types.
        where: the section's full name, such as `model`, or "" for the whole config.
        given: arguments that do not come from the config.

    Raises:
        SettingError: a setting is unknown, missing or of a wrong type, or `make` refused it with a ValueError.
    """
    try:
        return factory(make, config, where, given_later=given)(**given)
    except SettingError:
        raise
    except ValueError as error:
        raise SettingError(_join(where, error)) from error


def factory(make: Callable[..., T], config: object, where: str, given_later: Iterable[str]) -> Callable[..., T]:
    """Returns `make` with the settings of a config section filled in and checked, to be called with the rest.

    What `make` refuses with a ValueError is a SettingError if it begins with the name of a setting of this section;
    otherwise the fault lies with an argument that was given later, and the caller knows what that is called.
    """
    if not isinstance(config, Mapping):
        raise SettingError(f"{where}={config!r} is not a section with settings of its own")
    section = typing.cast(Mapping[str, object], config)
    known = settings_of(make, besides=given_later)
    for name in section:
        if name not in known:
            raise unknown(_join(where, name), section[name], [_join(where, other) for other in known])
    values = {name: _checked(section[name], known[name].annotation, _join(where, name)) for name in section}
    for name, parameter in known.items():
        if name not in section and parameter.default is parameter.empty:
            raise SettingError(f"{_join(where, name)} is missing; it has no default")

    def made(*arguments: object, **more: object) -> T:
        try:
            return make(*arguments, **values, **more)
        except SettingError as error:
            if error.setting not in known:
                # It was given later, and whoever gave it knows what it is called.
                raise
            raise error.inside(where) from error
        except ValueError as error:
            # Constructors begin their complaint with `name=value`; a user needs the full name.
            name = re.match(r"\w+", str(error))
            if name and name.group() in known:
                raise SettingError(_join(where, error)) from error
            raise

    return made


def settings_of(make: Callable[..., object], besides: Iterable[str] = ()) -> dict[str, inspect.Parameter]:
    """Returns the parameters of `make` that a config may set, with resolved annotations."""
    target = make.__init__ if inspect.isclass(make) else make
    hints = typing.get_type_hints(target)
    parameters = inspect.signature(make).parameters
    return {
        name: parameter.replace(annotation=hints.get(name, object))
        for name, parameter in parameters.items()
        if name not in besides
    }


def unknown(name: str, value: object, known: Iterable[str]) -> SettingError:
    """Returns the complaint about a setting that does not exist, with the nearest names that do.

    Args:
        name: what was asked for.
        value: what it was to be.
        known: the full names of the settings that there are.
    """
    asked = name
    while isinstance(value, Mapping) and value:
        # `+trainr.max_steps=3` arrives as a section; it is the setting inside that the user knows.
        inner, value = next(iter(typing.cast(Mapping[str, object], value).items()))
        asked = _join(asked, inner)
    names = [setting for setting in known if not setting.endswith("._target_")]
    section = name.rpartition(".")[0]
    inside = [setting for setting in names if setting.rpartition(".")[0] == section]
    return SettingError(f"{asked}={value} is not a setting{suggestion(name, names, otherwise=inside)}")


def suggestion(given: str, known: Iterable[str], otherwise: Iterable[str] | None = None) -> str:
    """Returns `; did you mean ...?`, or `; use one of ...` where no name is near.

    Args:
        given: what was asked for.
        known: what there is.
        otherwise: what to list where nothing is near, if not all there is.
    """
    choices = sorted(known)
    near = difflib.get_close_matches(given, choices, n=2, cutoff=0.75)
    # `max_steps` or `optimizer.max_steps`: the right name in no section or in a wrong one.
    last = given.rpartition(".")[2]
    near += [name for name in choices if name.rpartition(".")[2] == last and name not in near]
    # `lr` for `learning_rate`.
    near += [name for name in choices if last in (_initials(name), _initials(name) + "s") and name not in near]
    if near:
        return f"; did you mean {' or '.join(near[:3])}?"
    listed = sorted(choices if otherwise is None else otherwise)
    return f"; use one of {', '.join(listed)}" if listed else "; there are none in that section"


def _initials(name: str) -> str:
    words = name.rpartition(".")[2].split("_")
    return "".join(word[:1] for word in words) if len(words) > 1 else ""


def _join(where: str, name: object) -> str:
    """Puts a section's name before a setting's, or before a complaint that begins with one."""
    return f"{where}.{name}" if where else str(name)


def _checked(value: object, wanted: Any, where: str) -> object:
    if inspect.isclass(wanted) and hasattr(wanted, "__dataclass_fields__"):
        return build(wanted, value, where)
    if not _fits(value, wanted):
        raise SettingError(f"{where}={as_written(value)} is not {_said(wanted)}")
    return _converted(value, wanted)


def _converted(value: object, wanted: Any) -> object:
    """Makes whole numbers floats wherever floats are wanted."""
    arguments = typing.get_args(wanted)
    if isinstance(value, list):
        return [_converted(item, arguments[0]) for item in typing.cast(list[object], value)]
    if isinstance(value, int) and not isinstance(value, bool) and float in (wanted, *arguments):
        return float(value)
    return value


def _fits(value: object, wanted: Any) -> bool:
    origin, arguments = typing.get_origin(wanted), typing.get_args(wanted)
    if origin is Literal:
        return value in arguments
    if origin in (typing.Union, types.UnionType):
        return any(_fits(value, option) for option in arguments)
    if origin in (list, tuple):
        return isinstance(value, list) and all(_fits(item, arguments[0]) for item in typing.cast(list[object], value))
    if wanted is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= sys.float_info.max
    if wanted is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, origin or wanted)


def _said(wanted: Any) -> str:
    names = {int: "a whole number", float: "a number", bool: "true or false", str: "text", types.NoneType: "null"}
    origin, arguments = typing.get_origin(wanted), typing.get_args(wanted)
    if origin is Literal:
        return f"one of {', '.join(map(str, arguments))}"
    if origin in (typing.Union, types.UnionType):
        return " or ".join(map(_said, arguments))
    if origin in (list, tuple):
        return f"a list whose every item is {_said(arguments[0])}"
    return names.get(wanted, "a section of settings")
