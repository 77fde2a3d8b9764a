"""The settings that `train.py` would have, for programs of this checkout that are not started through Hydra."""

from collections.abc import Sequence
from pathlib import Path

from hydra import compose, initialize_config_dir

from attention_lab.cli.job import plain
from attention_lab.errors import SettingError
from attention_lab.settings.checking import build, suggestion
from attention_lab.settings.schema import TrainSettings

CHECKOUT = Path(__file__).parents[3]
"""Where the package's source, `train.py` and the configs lie."""

_CONFIGS = CHECKOUT / "configs"


def choices(group: str) -> list[str]:
    """Returns the names that a config group offers, such as those of `attention`.

    Raises:
        SettingError: there are none, as where the package was installed without its folder.
    """
    names = sorted(file.stem for file in (_CONFIGS / group).glob("*.yaml"))
    if not names:
        reason = f"has no configs in {_CONFIGS / group}; run from a checkout installed with `pip install -e`"
        raise SettingError(group, reason=reason)
    return names


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
        SettingError: one of them cannot be used.
    """
    with initialize_config_dir(str(_CONFIGS), version_base="1.3"):
        return build(TrainSettings, plain(compose("train", list(overrides))), "")
