"""What was wrong with a command line that Hydra refused, in one line that a person can use."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from attention_lab.errors import SettingError
from attention_lab.settings.checking import suggestion, unknown


def explain(error: Exception, arguments: Sequence[str], config_dir: Path, config_name: str) -> str:
    """Returns one line that names the setting, its value and what is allowed.

    Args:
        error: what stopped Hydra before the job began.
        arguments: the command line, without the program's name.
        config_dir: the folder of the config groups.
        config_name: the top config.
    """
    # A missing config file is an OSError to Hydra, too.
    if not isinstance(error, HydraException) and (isinstance(error, OSError) or "configure handler" in str(error)):
        return _unwritable(error, arguments)
    groups = _groups(config_dir, config_name)
    settings = _setting_names(config_dir, config_name)
    for text in arguments:
        if text.startswith("-"):
            continue
        try:
            override = OverridesParser.create().parse_override(text)
        except HydraException:
            return (
                f"{text} cannot be read; write setting=value, without spaces around the =, and put quotes around a "
                "value with special characters"
            )
        if override.is_sweep_override() and not {"-m", "--multirun"} & set(arguments):
            return f"{text} gives several values; that needs -m, as in: -m {text}"
        if override.is_add() and override.key_or_group in groups:
            return f"{text} is written without the plus: {text.removeprefix('+')}"
        complaint = _wrong_choice(override, groups, settings) or _wrong_name(override, groups, settings)
        if complaint:
            return complaint
    return next((line for line in str(error).splitlines() if line.strip()), repr(error))


def _unwritable(error: Exception, arguments: Sequence[str]) -> str:
    given = [text for text in arguments if text.startswith(("hydra.run.dir=", "hydra.sweep.dir="))]
    reason = error.strerror if isinstance(error, OSError) else "a file in it cannot be opened"
    return f"{given[-1] if given else 'hydra.run.dir'} cannot be written: {reason}; choose another folder"


def check_choices(overrides: Sequence[str], config_dir: Path, config_name: str) -> None:
    """Refuses what Hydra would take for something else: `task=[copy,reverse]` is no sweep and `task={}` no choice.

    Raises:
        SettingError: a group is given anything but a name.
    """
    groups = _groups(config_dir, config_name)
    for override in OverridesParser.create().parse_overrides(list(overrides)):
        choices = groups.get(override.key_or_group)
        if choices is not None and isinstance(override.value(), (list, dict)):
            text = override.input_line
            hint = f"use one of {', '.join(choices)}; several at once go as -m {override.key_or_group}=A,B"
            raise SettingError(f"{text} is not a choice; {hint}")


def check_no_choice(arguments: Sequence[str], config_dir: Path, config_name: str) -> None:
    """Refuses to choose another task, model or the like for a run that goes on.

    Raises:
        SettingError: a group is given.
    """
    for text in arguments:
        if text.partition("=")[0] in _groups(config_dir, config_name):
            raise SettingError(f"{text} cannot change when a run goes on; start a new one")


def _groups(config_dir: Path, config_name: str) -> dict[str, list[str]]:
    """Returns the choices of every config group that a top config has."""
    defaults = yaml.safe_load((config_dir / f"{config_name}.yaml").read_text())["defaults"]
    groups = [name for entry in defaults if isinstance(entry, dict) for name in entry]
    names = [name for name in groups if not name.startswith("override ")]
    return {name: sorted(file.stem for file in (config_dir / name).glob("*.yaml")) for name in names}


def _wrong_choice(override: Override, groups: dict[str, list[str]], settings: Sequence[str]) -> str | None:
    group = override.key_or_group
    choices = groups.get(group)
    if choices is None or override.is_delete():
        return None
    # Only a group that the config does not need, such as `experiment`, may be left out.
    optional = not any(name.startswith(f"{group}.") for name in settings)
    for value in _values(override):
        if value not in choices and not (optional and value is None):
            return f"{group}={value} is not a choice{suggestion(str(value), choices)}"
    return None


def _values(override: Override) -> Iterator[Any]:
    """Yields every value of an override: several in a sweep."""
    if override.is_sweep_override():
        yield from override.sweep_iterator()
    else:
        yield override.value()


def _wrong_name(override: Override, groups: dict[str, list[str]], settings: Sequence[str]) -> str | None:
    name = override.key_or_group
    if name.startswith(("hydra.", "hydra/")) or name in groups or name in settings:
        return None
    return str(unknown(name, override.value(), [*groups, *settings]))


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
