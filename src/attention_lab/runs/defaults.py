"""What the config of an earlier run does not know yet."""

from dataclasses import MISSING, Field, asdict, fields, is_dataclass
from typing import Any, cast, get_type_hints

from attention_lab.composition.build import component_defaults
from attention_lab.settings.schema import TrainSettings


def with_defaults(config: dict[str, Any]) -> dict[str, Any]:
    """Returns a run's config with the settings that have come up since, so that it is the same as its equal of today.

    Args:
        config: what a run wrote, of whatever version. Sections that it lacks and that have no default stay away.
    """
    hints = get_type_hints(TrainSettings)
    found = {name: component_defaults(name, section) for name, section in config.items()}
    for field in fields(TrainSettings):
        kind, given = hints[field.name], found.get(field.name, _default(field))
        if is_dataclass(kind) and isinstance(given, dict):
            known = {each.name: _default(each) for each in fields(kind) if each.default is not MISSING}
            found[field.name] = {**given, **{name: value for name, value in known.items() if name not in given}}
        elif given is not MISSING and field.name != "resume":
            found[field.name] = given
    return found


def _default(field: "Field[Any]") -> object:
    default = field.default
    return asdict(cast(Any, default)) if is_dataclass(default) else default
