"""What is wrong with a command line that Hydra refuses, in one line that a person can use.

Hydra says what it stumbled over, not who put it there. So the config is composed again and again, from nothing to all
that was typed: the first override whose addition makes it fail is the one to talk about.
"""

from collections.abc import Mapping, Sequence
from typing import cast

import yaml
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf

from attention_lab.cli.arguments import Arguments, first_line, leaves, parse, settings_in
from attention_lab.cli.configs import Configs, members
from attention_lab.errors import SettingError, as_written
from attention_lab.settings.checking import suggestion, unknown


def check(configs: Configs, arguments: Arguments) -> None:
    """Refuses what Hydra would take for something else, which no composing shows.

    Raises:
        SettingError: several values without -m, several names for what is one choice, or an empty section for one.
    """
    for override in arguments.parsed():
        text, name = str(override.input_line), override.key_or_group
        if override.is_sweep_override() and not arguments.multirun:
            raise SettingError(text, reason=f"gives several values; that needs -m, as in: -m {text}")
        # Alternatives have one by default; of what has a list by default, such as callbacks, there may be several.
        alternatives = not override.is_sweep_override() and isinstance(override.value(), list)
        if (alternatives or override.value() == {}) and not name.startswith("hydra"):
            choices = configs.choices(name, arguments.overrides)
            if choices and (override.value() == {} or name in configs.compose([]).hydra.runtime.choices):
                hint = f"use one of {', '.join(choices)}; several at once go as -m {name}=A,B"
                raise SettingError(text, reason=f"is not a choice; {hint}")


def explained(configs: Configs, overrides: Sequence[str], multirun: bool) -> SettingError | None:
    """Returns what is wrong with overrides; None if a config can be composed with them.

    Args:
        configs: the files that it is composed from.
        overrides: what was typed.
        multirun: whether they may have several values, each for a run of its own.
    """
    parsed = [parse(text) for text in overrides]
    try:
        runs = members(configs, parsed) if multirun else [list(overrides)]
    except HydraException as error:
        return SettingError("-m", reason=f"cannot be done: {first_line(error)}")
    broken = next((run for run in runs if configs.failure(run)), None)
    if broken is None:
        return None
    text, wrong = _first_wrong(configs, broken)
    swept = {override.get_key_element() for override in parsed if override.is_sweep_override()}
    chosen = [choice for choice in broken if choice.partition("=")[0] in swept and choice != text]
    if chosen and any(text in run and not configs.failure(run) for run in runs):
        return SettingError(wrong.setting, wrong.value, f"{wrong.reason} (in the run with {' '.join(chosen)})")
    return wrong


def _first_wrong(configs: Configs, overrides: Sequence[str]) -> tuple[str, SettingError]:
    """Returns the first override of one run that stops composing, and what is wrong with it."""
    parsed = [configs.parser().parse_override(text) for text in overrides]
    # Hydra, too, chooses the files first, and then changes what they say.
    parsed.sort(key=lambda override: (override.key_or_group != "hydra.searchpath", not _choices(configs, override)))
    texts = [str(override.input_line) for override in parsed]
    try:
        config = configs.compose([])
    except Exception as error:
        return "", SettingError(f"{configs.name}.yaml", reason=f"cannot be used: {_said(error)}")
    for number, override in enumerate(parsed):
        try:
            config = configs.compose(texts[: number + 1])
        except Exception as error:
            choices = _choices(configs, override, texts[:number])
            groups = [str(group) for group in config.hydra.runtime.choices]
            # Of what may be several, there is no single choice to be found.
            several = isinstance(OmegaConf.select(config, override.key_or_group), DictConfig) and not override.is_add()
            chosen_before = override.key_or_group in groups or several
            if choices and not override.is_delete() and (chosen_before or override.is_add()):
                return texts[number], _wrong_choice(override, choices, chosen_before, error)
            return texts[number], _wrong_setting(override, config, groups, error)
    return "", SettingError(" ".join(overrides), reason="cannot be composed in this order")


def _choices(configs: Configs, override: Override, before: Sequence[str] = ()) -> list[str]:
    """Returns what may be chosen where an override chooses a file; a section merges into what is chosen."""
    return [] if isinstance(override.value(), dict) else configs.choices(override.key_or_group, before)


def _wrong_choice(override: Override, choices: list[str], chosen_before: bool, error: Exception) -> SettingError:
    text, name, value = str(override.input_line), override.key_or_group, override.value()
    if chosen_before and override.package is not None:
        return SettingError(text, reason=f"has no place to go; write {name}={as_written(value)}")
    if chosen_before and (override.is_add() or override.is_force_add()):
        return SettingError(text, reason=f"is written without the plus: {text.lstrip('+')}")
    wrong = [
        each for each in (cast(list[object], value) if isinstance(value, list) else [value]) if each not in choices
    ]
    if wrong:
        return SettingError(name, value, f"is not a choice{suggestion(str(wrong[0]), choices)}")
    return SettingError(text, reason=f"cannot be used: {_said(error)} (in {name}/{value}.yaml or what it names)")


def _wrong_setting(override: Override, config: DictConfig, groups: list[str], error: Exception) -> SettingError:
    text, name = str(override.input_line), override.key_or_group
    hydras = name.startswith("hydra")
    known = [*_names(config, hydras), *(group for group in groups if group.startswith("hydra") == hydras)]
    sections = {leaf.rpartition(".")[0] for leaf in known}
    for setting, given in settings_in(override):
        if setting not in known and setting not in sections and not override.is_add():
            if override.is_delete():
                return SettingError(text, reason=f"takes away what is not there{suggestion(setting, known)}")
            return unknown(setting, given, known)
    if override.is_add() and name in known:
        return SettingError(text, reason=f"is there already; without the plus it changes: {text.lstrip('+')}")
    return SettingError(text, reason=f"cannot be used: {_said(error)}")


def _said(error: BaseException) -> str:
    """Returns what stopped composing, in one line; a file and a line of it where YAML knows them."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        return f"{mark.name}, line {mark.line + 1}: {error.problem or error.context}"
    cause = error.__cause__
    return _said(cause) if cause is not None and not str(error).strip() else first_line(error)


def _names(config: DictConfig, hydras: bool) -> list[str]:
    """Returns the full names of all settings: of the command, or of Hydra itself."""
    # As it is written: what a setting refers to does not matter.
    written = cast(Mapping[str, object], OmegaConf.to_container(config, resolve=False))
    return [name for key, value in written.items() if (key == "hydra") == hydras for name, _ in leaves(key, value)]
