"""The YAML files that a command composes its settings from, and what composing them would give."""

import re
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra import version
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.utils import compute_search_path_dir, create_config_search_path
from hydra.core.config_search_path import ConfigSearchPath, SearchPathQuery
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.core.utils import setup_globals
from hydra.errors import MissingConfigException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from attention_lab.errors import SettingError
from attention_lab.runs.naming import run_name
from attention_lab.settings.checking import suggestion


def _run_name(*, _root_: DictConfig) -> str:
    """Names a run in the config: `${run_name:}`. What is the same for all runs of a sweep is no part of a name."""
    hydra = _root_.hydra
    # As typed: a reference in them may lead nowhere.
    overrides = [str(text) for text in OmegaConf.to_container(hydra.overrides.task, resolve=False) or ()]
    return run_name(str(hydra.runtime.choices.task), overrides, list(hydra.job.config.override_dirname.exclude_keys))


OmegaConf.register_new_resolver("run_name", _run_name, replace=True)


class Configs:
    """Hydra's loader with the folders and the top config of one command.

    Args:
        folder: where the top config lies; absolute, or `pkg://` and a package.
        name: the top config.
        more: a further folder, which comes after it.

    Raises:
        SettingError: a folder or the top config does not exist.
    """

    def __init__(self, folder: str, name: str, more: Path | None = None) -> None:
        version.setbase("1.3")
        setup_globals()
        self.search_path: ConfigSearchPath = create_config_search_path(folder)
        if more is not None:
            if not more.is_dir():
                raise SettingError("--config-dir", str(more), f"does not exist (looked for it in {Path.cwd()})")
            anchor = SearchPathQuery(provider="schema")
            self.search_path.prepend("command-line", f"file://{more.absolute()}", anchor)
        self.loader = ConfigLoaderImpl(self.search_path)
        self.folder = folder
        self.name = name
        try:
            self.loader.ensure_main_config_source_available()
        except MissingConfigException as error:
            raise SettingError("--config-path", folder, "is not a folder with configs in it") from error
        if not self.loader.repository.config_exists(name):
            there = [config for config in self.loader.get_group_options("") if not config.startswith("_")]
            raise SettingError("--config-name", name, f"is not a config{suggestion(name, there)}")

    @classmethod
    def asked_for(cls, flags: Any, own: Path, name: str) -> "Configs":
        """Returns what Hydra's flags ask for; `--config-path` is relative to the folder of the script.

        Args:
            flags: what Hydra's parser has read.
            own: the command's own folder of configs.
            name: its top config.
        """
        folder = str(own)
        if flags.config_path is not None:
            folder = str(compute_search_path_dir(str(own), None, flags.config_path))
        return cls(folder, flags.config_name or name, flags.config_dir and Path(flags.config_dir))

    def compose(self, overrides: Sequence[str]) -> DictConfig:
        """Returns the composed config, Hydra's own part included.

        Raises:
            Exception: of Hydra, OmegaConf, YAML or Python; whatever stopped it.
        """
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # Of a folder of the search path that is not there, Hydra only warns.
            warnings.filterwarnings("error", message="provider=.* is not available")
            return self.loader.load_configuration(self.name, list(overrides), RunMode.RUN)

    def failure(self, overrides: Sequence[str]) -> Exception | None:
        """Returns what stops composing with these overrides, if anything does."""
        try:
            self.compose(overrides)
        except Exception as error:
            return error
        return None

    def parser(self) -> OverridesParser:
        """Returns Hydra's parser of overrides; a pattern among them, such as `task=glob(*)`, finds its choices here."""
        return OverridesParser.create(self.loader)

    def choices(self, group: str, overrides: Sequence[str]) -> list[str]:
        """Returns the names that a config group offers; none where there is no such group."""
        return self.loader.get_group_options(group, config_name=self.name, overrides=_search_path(overrides))

    def written_in(self, setting: str, overrides: Sequence[str]) -> Path | None:
        """Returns the file of the user's choice that a setting's value comes from; None if it is no such file's.

        Args:
            setting: its full name.
            overrides: what was typed.
        """
        chosen: Path | None = None
        repository = self.loader._parse_overrides_and_create_caching_repo(self.name, _search_path(overrides))[1]  # pyright: ignore[reportPrivateUsage] - the one way to the files
        for override in self.parser().parse_overrides(list(overrides)):
            if override.key_or_group == setting:
                return None
            file = f"{override.key_or_group}/{override.value()}"
            if repository.config_exists(file) and (loaded := repository.load_config(file)) is not None:
                package = loaded.header["package"] or override.key_or_group.replace("/", ".")
                inside = setting if package == "_global_" else setting.removeprefix(f"{package}.")
                if re.fullmatch(r"[\w.]+", inside) and OmegaConf.select(loaded.config, inside) is not None:
                    chosen = Path(str(loaded.path).removeprefix("file://")) / f"{file}.yaml"
        return chosen


def _search_path(overrides: Sequence[str]) -> list[str]:
    return [text for text in overrides if text.lstrip("+").startswith("hydra.searchpath=")]


def members(configs: Configs, overrides: Sequence[Override]) -> list[list[str]]:
    """Returns the overrides of each run of a sweep.

    Raises:
        HydraException: a value is no list of several, but an interval to search in.
    """
    from hydra._internal.core_plugins.basic_sweeper import BasicSweeper

    for override in overrides:
        override.config_loader = configs.loader
    return [list(member) for member in BasicSweeper.split_arguments(list(overrides), None)[0]]
