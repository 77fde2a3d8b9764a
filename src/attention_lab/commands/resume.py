"""What goes on from what: a run from its last checkpoint, or a new one from another's weights."""

from pathlib import Path
from typing import Any

import yaml

from attention_lab.commands.terminal import shown
from attention_lab.configuration.checking import SettingError
from attention_lab.configuration.settings import TrainSettings
from attention_lab.models.model import SequenceModel
from attention_lab.report.files import write_text
from attention_lab.training.checkpoint_file import CHECKPOINT_FORMAT, read_ours
from attention_lab.training.event_files import forget_after

_MAY_CHANGE = (
    "trainer.max_steps",
    "trainer.accelerator",
    "early_stopping.",
    "callbacks.",
    "data.num_workers",
)
"""Settings, or sections, that decide when a run ends and how it is watched, but not what its steps are."""


def prepare(settings: TrainSettings, config: dict[str, Any], run_dir: Path, writes: bool = True) -> Path | None:
    """Makes a run's folder ready to go on in: what was logged after its last checkpoint is going to be logged again.

    Args:
        settings: what is asked for now.
        config: the same as plain types.
        run_dir: the run's folder.
        writes: whether this process is the one that changes files.

    Returns:
        The checkpoint to go on from; None if the run was stopped before it had one, and begins anew.

    Raises:
        SettingError: the run is done, was another one than is asked for now, or its checkpoint cannot be gone on from.
    """
    last = run_dir / "checkpoints" / "last.ckpt"
    if not last.exists():
        if (run_dir / "checkpoints" / "best.ckpt").exists():
            raise SettingError(f"resume={settings.resume} has lost its checkpoints/last.ckpt")
        if writes:
            forget_after(run_dir / "tensorboard", -1)
        return None
    content = read_ours(last, "resume")
    ours = content["attention_lab"]
    if ours["format"] != CHECKPOINT_FORMAT:
        raise SettingError(
            f"resume={settings.resume} was written by an earlier version, which kept too little to go on from (format "
            f"{ours['format']}, not {CHECKPOINT_FORMAT}); init_from={shown(last)} starts a new run with its weights"
        )
    _check_unchanged(flat(ours["config"]), flat(config))
    done, asked = content["global_step"], settings.trainer.max_steps
    if done > asked or (done == asked and (run_dir / "metrics.json").exists()):
        raise SettingError(
            f"trainer.max_steps={asked} leaves nothing to do: resume={settings.resume} has done {done} steps; ask for "
            "more"
        )
    if not writes:
        return last
    forget_after(run_dir / "tensorboard", done)
    if flat(ours["config"]) != flat(config):
        write_text(yaml.safe_dump(config, sort_keys=False), run_dir / ".hydra" / "config.yaml")
    return last


def flat(config: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Returns every setting of a config under its full name, but for what only says how a run began."""
    found: dict[str, Any] = {}
    for name, value in config.items():
        if isinstance(value, dict):
            found |= flat(value, f"{prefix}{name}.")
        elif f"{prefix}{name}" != "resume":
            found[f"{prefix}{name}"] = value
    return found


def _check_unchanged(before: dict[str, Any], now: dict[str, Any]) -> None:
    for name in before.keys() | now.keys():
        old, new = before.get(name), now.get(name)
        if old != new and not name.startswith(_MAY_CHANGE):
            raise SettingError(
                f"{name}={new} cannot change when a run goes on (it was {old}); start a new one, with init_from=... if "
                "it is to begin with these weights"
            )


def take_weights(network: SequenceModel[Any], named: str) -> None:
    """Starts a network from the weights in a checkpoint, of whatever training.

    Raises:
        SettingError: the file is not a checkpoint of `train.py`, or its network has another shape.
    """
    weights = read_ours(Path(named), "init_from")["state_dict"]
    try:
        network.load_state_dict({name.removeprefix("network."): value for name, value in weights.items()})
    except (RuntimeError, AttributeError, TypeError) as error:
        raise SettingError(
            f"init_from={named} holds the weights of another network; choose the same model, attention, position and "
            "data.vocab_size"
        ) from error
