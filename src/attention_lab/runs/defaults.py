"""What the config of an earlier run does not know yet."""

from collections.abc import Mapping
from typing import Any, cast

from attention_lab.composition.build import component_defaults
from attention_lab.composition.classes import Trust
from attention_lab.settings.checking import Section
from attention_lab.settings.schema import ADAMW, Config, TrainSettings

_NO_PART_OF_A_RUN = ("resume", "trust")


def with_defaults(config: Mapping[str, Any], trust: Trust = ()) -> Config:
    """Returns a run's config with the settings that have come up since, so that it is the same as its equal of today.

    Args:
        config: what a run wrote, of whatever version. Sections that it lacks and that have no default stay away.
        trust: whose classes it may name.
    """
    found = _filled(TrainSettings, {name: component_defaults(name, section, trust) for name, section in config.items()})
    if isinstance(found.get("optimizer"), dict):
        found["optimizer"] = {"_target_": ADAMW, **found["optimizer"]}
    return {name: section for name, section in found.items() if name in config or name not in _NO_PART_OF_A_RUN}


def _filled(kind: type[Section], given: Mapping[str, Any]) -> Config:
    found = dict(given)
    for name, field in kind.model_fields.items():
        if name not in found and not field.is_required():
            default = field.get_default(call_default_factory=True)
            found[name] = default.model_dump() if isinstance(default, Section) else default
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, Section) and isinstance(found.get(name), dict):
            found[name] = _filled(inner, cast(Config, found[name]))
    return found
