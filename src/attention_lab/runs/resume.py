"""What goes on from what: a run from its last checkpoint, or a new one from another's weights."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from attention_lab.errors import SettingError
from attention_lab.models.model import SequenceModel
from attention_lab.runs.checkpoint import FIRST_RESUMABLE, read_ours
from attention_lab.runs.events import forget_after
from attention_lab.runs.files import write_text
from attention_lab.runs.folder import Finished
from attention_lab.runs.paths import typed
from attention_lab.settings.schema import TrainSettings

_MAY_CHANGE = (
    "trainer.max_steps",
    "trainer.accelerator",
    "early_stopping.",
    "callbacks.",
    "data.num_workers",
)
"""Settings, or sections, that decide when a run ends, where it runs and how it is watched.

Of these, `trainer.max_steps` stretches the learning rate's schedule, and another accelerator rounds differently.
"""

_ENDS = ("trainer.max_steps", "early_stopping.")


class LastCheckpoint(NamedTuple):
    """Where a run goes on from: a file, and how many steps lie behind it."""

    path: Path
    step: int


def checkpoint_of(settings: TrainSettings, config: dict[str, Any], run_dir: Path) -> LastCheckpoint | None:
    """Returns the checkpoint to go on from; None if the run is new, or was stopped before it had one.

    Args:
        settings: what is asked for now.
        config: the same as plain types.
        run_dir: the run's folder.

    Raises:
        SettingError: the run is done, was another one than is asked for now, or its checkpoint cannot be gone on from.
    """
    last = run_dir / "checkpoints" / "last.ckpt"
    if settings.resume is None:
        return None
    if not last.exists():
        if (run_dir / "checkpoints" / "best.ckpt").exists():
            raise SettingError(f"resume={settings.resume} has lost its checkpoints/last.ckpt")
        return None
    content = read_ours(last, "resume")
    ours = content["attention_lab"]
    if ours["format"] < FIRST_RESUMABLE:
        raise SettingError(
            f"resume={settings.resume} was written by an earlier version, which kept too little to go on from (format "
            f"{ours['format']}, below {FIRST_RESUMABLE}); {typed('init_from', last)} starts a new run with its weights"
        )
    changed = _changed(flat(ours["config"]), flat(config))
    done, asked = content["global_step"], settings.trainer.max_steps
    finished = _steps_scored(run_dir) == done and not any(name.startswith(_ENDS) for name in changed)
    if done > asked or finished:
        raise Finished(
            "trainer.max_steps",
            asked,
            f"leaves nothing to do: resume={settings.resume} has ended after {done} steps; ask for more",
        )
    return LastCheckpoint(last, done)


def make_ready(run_dir: Path, config: dict[str, Any], record: Mapping[str, str], last: LastCheckpoint | None) -> None:
    """Writes down what is going to be trained, and takes away what is going to be written again.

    Args:
        run_dir: the run's folder.
        config: its config, as plain types.
        record: what else is known of how it was asked for, by file name; left as it was where a run goes on.
        last: the checkpoint that it goes on from, if it does.
    """
    forget_after(run_dir / "tensorboard", -1 if last is None else last.step)
    (run_dir / "metrics.json").unlink(missing_ok=True)
    hydra = run_dir / ".hydra"
    hydra.mkdir(exist_ok=True)
    for name, text in ({} if last is not None else record).items():
        write_text(text, hydra / name)
    write_text(yaml.safe_dump(config, sort_keys=False, allow_unicode=True), hydra / "config.yaml")


def _steps_scored(run_dir: Path) -> int | None:
    """Returns after how many steps the run's final figures were made, if they were."""
    try:
        return json.loads((run_dir / "metrics.json").read_text())["train/steps"]
    except (OSError, ValueError, KeyError, TypeError):
        return None


def flat(config: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Returns every setting of a config under its full name, but for what only says how a run began."""
    found: dict[str, Any] = {}
    for name, value in config.items():
        if isinstance(value, dict):
            found |= flat(value, f"{prefix}{name}.")
        elif f"{prefix}{name}" != "resume":
            found[f"{prefix}{name}"] = value
    return found


def _changed(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Returns the settings that are others than they were.

    Raises:
        SettingError: one of them may not be.
    """
    changed = [name for name in {**before, **now} if before.get(name) != now.get(name)]
    for name in changed:
        if not name.startswith(_MAY_CHANGE):
            raise SettingError(
                f"{name}={now.get(name)} cannot change when a run goes on (it was {before.get(name)}); start a new "
                "one, with init_from=... if it is to begin with these weights"
            )
    return changed


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
