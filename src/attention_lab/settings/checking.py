"""Holds a plain config against the types of what it is for: no unknown key, no wrong type, no missing value.

pydantic does the checking. What it finds is read from the fields of its errors and becomes a `SettingError`.
"""

import difflib
import inspect
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Literal, NotRequired, Required, TypeVar

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError, with_config
from typing_extensions import TypedDict

from attention_lab.errors import SettingError

T = TypeVar("T")

STRICT = ConfigDict(
    strict=True, extra="forbid", frozen=True, allow_inf_nan=False, arbitrary_types_allowed=True, protected_namespaces=()
)
"""Nothing is guessed: text is no number and true is none either. A whole number is one wherever a number is wanted."""


class Section(BaseModel):
    """A section of the config with a fixed set of settings, which cannot be changed once they are checked."""

    model_config = STRICT

    def changed(self: T, **settings: object) -> T:
        """Returns the same section with other values, checked as these were.

        Raises:
            SettingError: a value cannot be used.
        """
        return build(type(self), {**vars(self), **settings}, "")


def build(make: Callable[..., T], config: object, where: str, **given: object) -> T:
    """Calls `make` with the settings of a config section.

    Args:
        make: a `Section`; or a class or function whose signature is the schema: a setting is known if there is a
            parameter of that name, and right if its value has that parameter's type.
        config: the section, as plain types.
        where: the section's full name, such as `model`, or "" for the whole config.
        given: arguments that do not come from the config.

    Raises:
        SettingError: a setting is unknown, missing, of a wrong type or out of its range, or `make` refused it.
    """
    if inspect.isclass(make) and _fields_of(make):
        return typing.cast(T, _validated(make, _fields_of(make), config, where))
    return factory(make, config, where, given_later=given)(**given)


def factory(make: Callable[..., T], config: object, where: str, given_later: Iterable[str]) -> Callable[..., T]:
    """Returns `make` with the settings of a config section filled in and checked, to be called with the rest.

    A `SettingError` of `make` about one of these settings gets the section's name. About an argument that was given
    later it stays as it is, since whoever gave that knows what it is called.
    """
    known = settings_of(make, besides=given_later)
    fields = {name: parameter.annotation for name, parameter in known.items()}
    values = _validated(_schema(known), fields, config, where)

    def made(*arguments: object, **more: object) -> T:
        try:
            return make(*arguments, **values, **more)
        except SettingError as error:
            if error.setting in known:
                raise error.inside(where) from error
            raise
        except ValueError as error:
            # A class of the user's own need not know our errors.
            raise SettingError(where, reason=f"cannot be built: {error}") from error

    return made


def settings_of(make: Callable[..., object], besides: Iterable[str] = ()) -> dict[str, inspect.Parameter]:
    """Returns the parameters of `make` that a config may set, with resolved annotations.

    What a class takes as `**more`, its base class takes.
    """
    calls: list[Callable[..., object]] = [make]
    if inspect.isclass(make):
        calls = [vars(base)["__init__"] for base in make.__mro__[:-1] if "__init__" in vars(base)]
    found: dict[str, inspect.Parameter] = {}
    for call in calls:
        hints = typing.get_type_hints(call)
        parameters = list(inspect.signature(call).parameters.values())[1 if inspect.isclass(make) else 0 :]
        for each in parameters:
            if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD):
                found.setdefault(each.name, each.replace(annotation=hints.get(each.name, Any)))
        if all(each.kind is not each.VAR_KEYWORD for each in parameters):
            break
    return {name: parameter for name, parameter in found.items() if name not in besides}


def _schema(known: Mapping[str, inspect.Parameter]) -> type:
    """Returns the type of a section that may have these settings, and must have those without a default."""
    fields: dict[str, object] = {}
    for name, parameter in known.items():
        required = parameter.default is parameter.empty
        fields[name] = Required[parameter.annotation] if required else NotRequired[parameter.annotation]
    # Not a model: a model's own methods would clash with settings of their names, such as `copy`.
    return with_config(STRICT)(TypedDict("Settings", fields))  # pyright: ignore[reportArgumentType] (not known before)


def _validated(schema: type, fields: Mapping[str, object], config: object, where: str) -> Any:
    try:
        return TypeAdapter(schema).validate_python(config)
    except ValidationError as error:
        found = error.errors(include_url=False)
    # A misspelt name is the reason why the right one is missing.
    first = min(found, key=lambda each: each["type"] not in _UNKNOWN)
    raise _as_setting_error(first, fields, config, where)


_UNKNOWN = ("extra_forbidden", "invalid_key")

_BOUNDS = {
    "greater_than_equal": "must be at least {ge}",
    "greater_than": "must be above {gt}",
    "less_than_equal": "must be at most {le}",
    "less_than": "must be below {lt}",
    "string_too_short": "must have at least {min_length} characters",
    "string_too_long": "must have at most {max_length} characters",
    "too_short": "must have at least {min_length} items",
    "too_long": "must have at most {max_length} items",
}


def _as_setting_error(
    found: Mapping[str, Any], fields: Mapping[str, object], config: object, where: str
) -> SettingError:
    """Says in the user's words what pydantic has found.

    Args:
        found: its first error.
        fields: the type of each setting of the outermost section.
        config: what was checked.
        where: its name.
    """
    setting, value, kind, path = where, config, None, list(found["loc"])
    while path and path[0] in fields and isinstance(value, Mapping):
        name = str(path.pop(0))
        setting, kind, value = _join(setting, name), fields[name], value.get(name)
        fields = _fields_of(kind)
    context = found.get("ctx", {})
    match found["type"]:
        case "missing":
            return SettingError(setting, reason="is missing; it has no default")
        case "extra_forbidden" | "invalid_key":
            return unknown(_join(setting, path[0]), found["input"], [_join(setting, name) for name in fields])
        case "value_error":
            error = context["error"]
            return (
                error.inside(setting) if isinstance(error, SettingError) else SettingError(setting, value, str(error))
            )
        case bound if bound in _BOUNDS:
            each = " each" if path else ""
            return SettingError(setting, value, _BOUNDS[bound].format(**context) + each)
        case _ if kind is None or fields:
            return SettingError(setting, value, "is not a section with settings of its own")
        case _:
            return SettingError(setting, value, f"is not {_described(kind)}")


def _fields_of(kind: object) -> Mapping[str, object]:
    """Returns the type of each setting of a section; nothing where it is none."""
    if isinstance(kind, type) and issubclass(kind, Section):
        return {name: field.annotation for name, field in kind.model_fields.items()}
    return {}


def _described(kind: Any) -> str:
    """Returns what a type is called by somebody who writes a config."""
    names = {int: "a whole number", float: "a number", bool: "true or false", str: "text", types.NoneType: "null"}
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is Annotated:
        return _described(arguments[0])
    if origin is Literal:
        return f"one of {', '.join(map(str, arguments))}"
    if origin in (typing.Union, types.UnionType):
        return " or ".join(map(_described, arguments))
    if origin in (list, tuple):
        return f"a list whose every item is {_described(arguments[0])}"
    return names.get(
        kind, "a section of settings" if (origin or kind) is dict else f"a {getattr(kind, '__name__', kind)}"
    )


def unknown(name: str, value: object, known: Iterable[str]) -> SettingError:
    """Returns the error about a setting that does not exist, with the nearest names that do.

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
    return SettingError(asked, value, f"is not a setting{suggestion(name, names, otherwise=inside)}")


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
    """Puts a section's name before a setting's."""
    return f"{where}.{name}" if where else str(name)
