"""What was typed: Hydra's flags and overrides, read once by Hydra's own parsers."""

import argparse
import contextlib
import glob
import io
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from hydra._internal.utils import get_args_parser
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import ChoiceSweep, Override, QuotedString
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from attention_lab.errors import SettingError
from attention_lab.runs.paths import here, no_reference, quoted
from attention_lab.settings.lightning import PASSED_ON, REFUSED

PATHS = ("checkpoint", "init_from", "resume", "data.path")
"""Settings that name a file or a folder: one that is there is meant literally, however Hydra would read its name."""


@dataclass(frozen=True)
class Arguments:
    """A command line.

    Args:
        flags: Hydra's flags, such as `--multirun`.
        overrides: everything else, in Hydra's grammar.
    """

    flags: argparse.Namespace
    overrides: tuple[str, ...]

    @property
    def multirun(self) -> bool:
        """Whether this is a sweep of several runs."""
        return self.flags.multirun or self.value_of("hydra.mode") == "MULTIRUN"

    @property
    def only_shows(self) -> bool:
        """Whether something is to be shown, and nothing run."""
        flags = self.flags
        return bool(flags.help or flags.hydra_help or flags.cfg or flags.info or flags.shell_completion)

    def parsed(self) -> list[Override]:
        """Returns the overrides as Hydra understands them."""
        return [parse(text) for text in self.overrides]

    def value_of(self, setting: str) -> object:
        """Returns what a setting is given, with references to others resolved; None if it is not given.

        Raises:
            SettingError: it refers to what does not exist.
        """
        for override in self.parsed():
            if override.key_or_group == setting and not override.is_sweep_override():
                try:
                    return OmegaConf.create({"value": override.value()}).value
                except OmegaConfBaseException as error:
                    raise SettingError(str(override.input_line), reason=first_line(error)) from error
        return None

    def without(self, *settings: str) -> "Arguments":
        """Returns the same command line with some settings left out."""
        kept = [str(override.input_line) for override in self.parsed() if override.key_or_group not in settings]
        return replace(self, overrides=tuple(kept))

    def plus(self, *overrides: str) -> "Arguments":
        """Returns the same command line with more at its end."""
        return replace(self, overrides=(*self.overrides, *overrides))


def read(arguments: Sequence[str], path_setting: str) -> Arguments:
    """Reads a command line.

    Args:
        arguments: the words after the program's name.
        path_setting: the setting that somebody forgot who types a path alone.

    Raises:
        SettingError: a flag does not exist, an override cannot be read, or a setting is given twice.
        SystemExit: a flag such as `--version` has been answered.
    """
    flags = _flags(arguments)
    overrides = tuple(_literal(text) for text in flags.overrides)
    for text in overrides:
        like_a_path = "/" in text or text.endswith(".ckpt") or os.path.exists(here() / text)
        if "=" not in text and not text.startswith("~") and like_a_path:
            raise SettingError(text, reason=f"is a path alone; write {path_setting}={quoted(text)}")
    read_ones = Arguments(flags, overrides)
    _check_once(read_ones.parsed(), read_ones.multirun)
    return read_ones


def parse(text: str) -> Override:
    """Returns one override as Hydra understands it.

    Raises:
        SettingError: Hydra's grammar has no such thing.
    """
    try:
        override = OverridesParser.create().parse_override(text)
        if override.key_or_group:
            return override
    except (HydraException, ValueError, RecursionError):
        # Whatever it is, the next line says it in the user's words.
        pass
    name, _, value = text.partition("=")
    example = f", as in {name}={quoted(value)}" if name and value else ""
    hint = (
        f"write setting=value, without spaces around the =, and quotes around a value with special characters{example}"
    )
    raise SettingError(text or "''", reason=f"cannot be read; {hint}")


def first_line(error: BaseException) -> str:
    """Returns the line of an error that says what is wrong; the further ones say where in the program."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def _flags(arguments: Sequence[str]) -> argparse.Namespace:
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            # Other than parse_args, this takes flags between overrides, too.
            flags = get_args_parser().parse_intermixed_args(arguments)
    except SystemExit as end:
        if not end.code:
            raise
        flag = next((text for text in arguments if text.startswith("-")), "")
        hint = f"settings are written without dashes, like {flag.strip('-').partition('=')[0] or 'seed'}=VALUE"
        reason = said.getvalue().strip().rpartition("error: ")[2]
        raise SettingError(f"{flag}: {reason}; {hint}, and --help shows what there is") from None
    if flags.experimental_rerun is not None:
        raise SettingError("--experimental-rerun", reason="runs whatever a pickled file says; use resume=FOLDER")
    return flags


def _literal(text: str) -> str:
    name, _, value = text.partition("=")
    if name.lstrip("+") in PATHS and value and os.path.exists(here() / value):
        return f"{name}={quoted(value)}"
    if name == "source" and value not in ("", "null") and value[0] not in "[\"'":
        # A text of the user's own, with commas and colons as they are, if it is neither a list nor quoted already.
        return f"{name}={quoted(value)}"
    # Arguments of Lightning's that no file lists. Two pluses: they may stand in the config of a run that goes on.
    section, _, argument = name.partition(".")
    return f"++{text}" if section == "trainer" and argument in (*PASSED_ON, *REFUSED) else text


def _check_once(overrides: Sequence[Override], multirun: bool) -> None:
    """Refuses what is given twice, since the last one would count, and in a sweep even of sections that merge.

    Raises:
        SettingError: there is such a setting.
    """
    first: dict[str, Override] = {}
    for override in overrides:
        names = {name for name, _ in settings_in(override)}
        if multirun:
            names.add(override.get_key_element().lstrip("+~"))
        for name in sorted(names & set(first)):
            what = f"{first[name].input_line} and {override.input_line}"
            once = "give one of them several values, as in: -m SETTING=A,B" if multirun else "give it once"
            raise SettingError(name, reason=f"is given twice, by {what}; {once}")
        first |= dict.fromkeys(names, override)


def settings_in(override: Override) -> Iterator[tuple[str, object]]:
    """Yields the full names of the settings that an override gives, and the values, of each of its choices."""
    value: object = override._value  # pyright: ignore[reportPrivateUsage] - a sweep's choices have no other way out
    for choice in value.list if isinstance(value, ChoiceSweep) else [value]:
        yield from leaves(override.get_key_element().lstrip("+~"), choice)


def leaves(name: str, value: object) -> Iterator[tuple[str, object]]:
    """Yields the full name and the value of everything in a section that is no section itself."""
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from leaves(f"{name}.{key}", inner)
    else:
        yield name, value.text if isinstance(value, QuotedString) else value


def where_it_was_typed(config: DictConfig, base: Path) -> DictConfig:
    """Returns a config whose paths are meant from the folder where the user typed them, if the job works elsewhere."""
    if base == Path.cwd():
        return config

    def absolute(path: str) -> str:
        if path == "latest" or Path(path).is_absolute():
            return no_reference(path)
        literal = base / path
        return no_reference(str(literal if literal.exists() else Path(glob.escape(str(base))) / path))

    for name in PATHS:
        value = OmegaConf.select(config, name)
        if isinstance(value, str):
            OmegaConf.update(config, name, absolute(value))
        elif OmegaConf.is_list(value):
            OmegaConf.update(config, name, [absolute(str(path)) for path in value])
    return config
