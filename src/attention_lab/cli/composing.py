"""The settings that `train.py` would have, for programs of this checkout that are not started through Hydra."""

from collections.abc import Sequence
from pathlib import Path

from hydra import compose, initialize_config_dir

from attention_lab.cli.job import plain
from attention_lab.errors import SettingError
from attention_lab.settings.checking import build, suggestion
from attention_lab.settings.schema import TrainSettings


def checkout() -> Path:
    """Returns where `train.py`, the configs and the package's source lie.

    Raises:
        SettingError: nowhere, as the package was installed without them.
    """
    folder = Path(__file__).parents[3]
    if not (folder / "configs" / "train.yaml").is_file():
        reason = "needs train.py and the configs, which no wheel holds; clone the repository and `pip install -e .`"
        raise SettingError("attention_lab", reason=reason)
    return folder


def choices(group: str) -> list[str]:
    """Returns the names that a config group offers, such as those of `attention`.

    Raises:
        SettingError: there is no clone.
    """
    return sorted(file.stem for file in (checkout() / "configs" / group).glob("*.yaml"))


def check_choice(setting: str, name: str, known: Sequence[str]) -> None:
    """Refuses a name that is not among those known.

    Raises:
        SettingError: it is not.
    """
    if name not in known:
        raise SettingError(setting, name, f"is not a choice{suggestion(name, known)}")


def compose_settings(overrides: Sequence[str]) -> TrainSettings:
    """Returns the settings of `python train.py OVERRIDES`.

    Raises:
        SettingError: one of them cannot be used, or there is no clone.
    """
    with initialize_config_dir(str(checkout() / "configs"), version_base="1.3"):
        return build(TrainSettings, plain(compose("train", list(overrides))), "")
