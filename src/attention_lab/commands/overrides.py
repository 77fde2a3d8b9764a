"""What was wrong with a command line that Hydra refused, in one line that a person can use."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from attention_lab.configuration.checking import suggestion, unknown


def explain(error: Exception, arguments: Sequence[str], config_dir: Path, config_name: str) -> str:
    """Returns one line that names the setting, its value and what is allowed.

    Args:
        error: what Hydra or OmegaConf raised.
        arguments: the command line, without the program's name.
        config_dir: the folder of the config groups.
        config_name: the top config.
    """
    overrides = [argument for argument in arguments if not argument.startswith("-")]
    groups = _groups(config_dir)
    for text in overrides:
        try:
            override = OverridesParser.create().parse_override(text)
        except HydraException:
            return f"{text} cannot be read; write setting=value, and put quotes around a value with special characters"
        complaint = _wrong_choice(override, groups) or _wrong_name(override, groups, config_dir, config_name)
        if complaint:
            return complaint
    return next(line for line in str(error).splitlines() if line.strip())


def _groups(config_dir: Path) -> dict[str, list[str]]:
    """Returns the choices of every config group of ours."""
    folders = [folder for folder in config_dir.iterdir() if folder.is_dir() and folder.name != "hydra"]
    return {folder.name: sorted(file.stem for file in folder.glob("*.yaml")) for folder in folders}


def _wrong_choice(override: Override, groups: dict[str, list[str]]) -> str | None:
    choices = groups.get(override.key_or_group)
    if choices is None or override.is_delete():
        return None
    values = [value for value in _values(override) if value not in (*choices, None)]
    if not values:
        return None
    return f"{override.key_or_group}={values[0]} is not a choice{suggestion(str(values[0]), choices)}"


def _values(override: Override) -> Iterator[Any]:
    """Yields every value of an override: several in a sweep."""
    if override.is_sweep_override():
        yield from override.sweep_iterator()
    else:
        yield override.value()


def _wrong_name(override: Override, groups: dict[str, list[str]], config_dir: Path, config_name: str) -> str | None:
    name = override.key_or_group
    known = [*groups, *_setting_names(config_dir, config_name)]
    if name.startswith("hydra.") or name.startswith("hydra/") or name in known:
        return None
    if any(setting.startswith(f"{name}.") for setting in known):
        return f"{name}={override.value()} is a section; set what is inside{suggestion(name, known)}"
    return str(unknown(name, override.value(), known))


def _setting_names(config_dir: Path, config_name: str) -> list[str]:
    """Returns the full name of every setting of the default config."""
    GlobalHydra.instance().clear()
    try:
        with initialize_config_dir(str(config_dir), version_base="1.3"):
            return list(_leaves(OmegaConf.to_container(compose(config_name))))
    except (HydraException, OmegaConfBaseException):
        return []


def _leaves(config: Any, prefix: str = "") -> Iterator[str]:
    for name, value in config.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"
