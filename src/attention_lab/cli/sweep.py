"""A sweep: how it goes on after a break, and what it says at its end."""

import argparse
from collections.abc import Sequence
from glob import escape
from pathlib import Path
from typing import cast

import yaml

from attention_lab.cli.arguments import Arguments, parse, settings_in
from attention_lab.cli.job import Outcome
from attention_lab.errors import SettingError
from attention_lab.runs.folder import SWEEP
from attention_lab.runs.paths import look_at, program, typed
from attention_lab.settings.schema import Config

_TO_TYPE_AGAIN = ("hydra.sweep.subdir", "hydra.searchpath")
"""Of Hydra's own settings, those that decide which runs there are and what they are called."""


def continued(arguments: Arguments, folder: Path) -> Arguments:
    """Returns the command line that goes on with a sweep: what was typed when it began, and what is typed now.

    Only settings are taken from the sweep's own record. Who runs it and where files are looked for, the user says.

    Args:
        arguments: what is typed now.
        folder: the sweep's.

    Raises:
        SettingError: the sweep's record cannot be read, or something would make other runs of it.
    """
    try:
        hydra = cast(Config, yaml.safe_load((folder / SWEEP).read_text(encoding="utf-8")))["hydra"]
        before = [parse(text) for text in hydra["overrides"]["task"]]
        hydras = [parse(text) for text in hydra["overrides"]["hydra"]]
        sources = {source["provider"]: str(source["path"]) for source in hydra["runtime"]["config_sources"]}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, yaml.YAMLError) as error:
        raise SettingError("resume", str(folder), f"cannot go on: its {SWEEP} cannot be read") from error
    more = arguments.flags.config_dir
    if (added := sources.get("command-line")) and (more is None or str(Path(more).absolute()) != added):
        raise SettingError("resume", str(folder), f"was begun with --config-dir {added}; give that again")
    now = {override.key_or_group: override for override in arguments.without("resume", "hydra.sweep.dir").parsed()}
    for override in hydras:
        if override.key_or_group in _TO_TYPE_AGAIN and override.key_or_group not in now:
            raise SettingError("resume", str(folder), f"was begun with {override.input_line}; give that again")
    texts: list[str] = []
    for override in before:
        for name, value in settings_in(override):
            if name.endswith("_target_") and not str(value).startswith("attention_lab."):
                hint = f"type the whole command again, with hydra.sweep.dir={folder} resume=auto"
                raise SettingError("resume", str(folder), f"was begun with code of {value}; {hint}")
        change = now.pop(override.key_or_group, override)
        if change.input_line != override.input_line and override.is_sweep_override():
            raise _other_runs(str(change.input_line))
        if override.key_or_group not in ("resume", "trust") or change is not override:
            texts.append(str(change.input_line))
    for override in now.values():
        if override.is_sweep_override():
            raise _other_runs(str(override.input_line))
        texts.append(str(override.input_line))
    flags = argparse.Namespace(**{**vars(arguments.flags), "multirun": True})
    return Arguments(flags, tuple(texts))


def _other_runs(text: str) -> SettingError:
    return SettingError(text, reason="would make other runs of a sweep that goes on; start a new one")


def commands(folder: Path) -> list[str]:
    """Returns what can be done with the runs of a sweep, as lines that can be pasted."""
    pattern = f"{escape(str(folder))}/*/checkpoints/best.ckpt"
    return [
        f"Compare them:           {program('python')} evaluate.py {typed('checkpoint', Path(pattern))}",
        f"Look at the attention:  {look_at(folder)}",
        f"Go on with the sweep:   {program('python')} train.py {typed('resume', folder)}",
    ]


def summary(outcomes: Sequence[Outcome], folder: Path) -> list[str]:
    """Returns a line on each run of a sweep: its name and what came out, or why nothing did; a reason once."""
    first: dict[str, str] = {}
    names = [_name(outcome, folder) for outcome in outcomes]
    lines: list[str] = []
    for name, outcome in zip(names, outcomes, strict=True):
        text = outcome.text
        if outcome.status and text in first:
            text = f"as {first[text]}"
        first.setdefault(outcome.text, name)
        lines.append(f"  {name.ljust(max(map(len, names)))}   {'failed: ' if outcome.status else ''}{text}")
    return [f"{sum(not outcome.status for outcome in outcomes)} of {len(outcomes)} runs are done:", *lines]


def complaints(outcomes: Sequence[Outcome], folder: Path) -> list[str]:
    """Returns a line on each reason for which runs failed, with the runs and what they, and not all of them,
    were asked for."""
    failed: dict[str, list[str]] = {}
    alike = (
        set[str].intersection(*(set(outcome.overrides) for outcome in outcomes)) if len(outcomes) > 1 else set[str]()
    )
    for outcome in outcomes:
        if outcome.status:
            own = " ".join(text for text in outcome.overrides if text not in alike)
            failed.setdefault(outcome.text, []).append(f"{_name(outcome, folder)}: {own}")
    return [f"{reason} ({'; '.join(runs)})" for reason, runs in failed.items()]


def status_of(outcomes: Sequence[Outcome]) -> int:
    """Returns the exit status of a sweep: of a signal, or 2 if only the user's mistakes failed, else 1; 0 if none."""
    found = {outcome.status for outcome in outcomes} - {0}
    signals = [status for status in found if status > 128]
    return max(signals) if signals else 0 if not found else 2 if found == {2} else 1


def _name(outcome: Outcome, folder: Path) -> str:
    return str(outcome.folder.relative_to(folder) if outcome.folder.is_relative_to(folder) else outcome.folder)
