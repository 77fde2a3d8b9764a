"""What was chosen of each config group, under the names that were typed; only Hydra knows them."""

from collections.abc import Mapping
from typing import cast

from hydra import compose
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import OmegaConf

from attention_lab.errors import SettingError
from attention_lab.settings.checking import suggestion
from attention_lab.settings.schema import Config


def with_names(config: Config) -> Config:
    """Returns a composed config that needs no config folder any more.

    It says what the choices were called (`choices`), and a task that lists others by name holds their configs under
    these names instead. The config of a run that goes on says so already.

    Raises:
        SettingError: a task lists one that does not exist.
    """
    if config.get("resume") is not None:
        return config
    hydra = HydraConfig.get()
    overridden = {str(text).lstrip("+").partition("=")[0] for text in hydra.overrides.task}
    choices = {
        group: choice
        for group, choice in cast(Mapping[str, object], hydra.runtime.choices).items()
        # Whoever names another class has not got what the choice stands for.
        if isinstance(choice, str) and not group.startswith("hydra/") and f"{group}._target_" not in overridden
    }
    if not choices:
        return config
    named = {**config, "choices": choices}
    task = config.get("task")
    if isinstance(task, dict) and isinstance(task.get("tasks"), list):
        named["task"] = {**task, "tasks": [_task(each, task["tasks"]) for each in task["tasks"]]}
    return named


def _task(named: object, listed: list[object]) -> object:
    """Returns the config of a task under its name; what is no name stays as it is."""
    if not isinstance(named, str):
        return named
    there = GlobalHydra.instance().config_loader().get_group_options("task")
    if named not in there:
        raise SettingError(
            "task.tasks", listed, f"holds {named}, which is not the name of a task{suggestion(named, there)}"
        )
    composed = compose(HydraConfig.get().job.config_name, [f"task={named}"])
    return {named: OmegaConf.to_container(composed.task, resolve=True)}
