"""What goes on from what: a run from its last checkpoint, or a new one from another's weights."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from attention_lab.errors import NOT_GIVEN, SettingError
from attention_lab.models.model import SequenceModel
from attention_lab.runs.checkpoint import FIRST_RESUMABLE, CheckpointFile, read_checkpoint
from attention_lab.runs.defaults import with_defaults
from attention_lab.runs.events import keep_events
from attention_lab.runs.files import remove_leftovers, write_text
from attention_lab.runs.folder import HISTORY, Finished
from attention_lab.runs.history import keep_moments
from attention_lab.runs.paths import typed
from attention_lab.runs.trained import fitting_weights
from attention_lab.settings.schema import Config, TrainSettings

_MAY_CHANGE = (
    "trainer.max_steps",
    "trainer.accelerator",
    "early_stopping.",
    "callbacks.",
    "logger.",
    "trainer.profiler",
    "trainer.log_every_n_steps",
    "trainer.max_time",
    "trainer.detect_anomaly",
    "data.num_workers",
    # Where the pairs lie, but not what they are.
    "data.path",
)
"""Settings, or sections, that decide when a run ends, where it runs and how it is watched.

Of these, `trainer.max_steps` stretches the learning rate's schedule, and another accelerator rounds differently.
"""

_ENDS = ("trainer.max_steps", "trainer.max_time", "early_stopping.")


def checkpoint_of(settings: TrainSettings, config: Config, run_dir: Path) -> CheckpointFile | None:
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
            raise SettingError("resume", settings.resume, "has lost its checkpoints/last.ckpt")
        return None
    file = read_checkpoint(last, "resume")
    if file.format < FIRST_RESUMABLE:
        raise SettingError(
            "resume",
            settings.resume,
            f"was written by an earlier version, which kept too little to go on from (format {file.format}, below "
            f"{FIRST_RESUMABLE}); {typed('init_from', last)} starts a new run with its weights",
        )
    changed = _changed(flat(with_defaults(file.config, settings.trust)), flat(with_defaults(config, settings.trusted)))
    asked = settings.trainer.max_steps
    finished = _steps_scored(run_dir) == file.step and not any(name.startswith(_ENDS) for name in changed)
    if file.step > asked or finished:
        raise Finished(
            "trainer.max_steps",
            asked,
            f"leaves nothing to do: resume={settings.resume} has ended after {file.step} steps; ask for more",
        )
    return file


def make_ready(run_dir: Path, config: Config, record: Mapping[str, str], last: CheckpointFile | None) -> None:
    """Writes down what is going to be trained, and takes away what is going to be written again.

    Args:
        run_dir: the run's folder.
        config: its config, as plain types.
        record: what else is known of how it was asked for, by file name; left as it was where a run goes on.
        last: the checkpoint that it goes on from, if it does; checked, since now there is no way back.
    """
    remove_leftovers(run_dir)
    step = -1 if last is None else last.step
    keep_events(run_dir / "tensorboard", step)
    keep_moments(run_dir / HISTORY, step)
    (run_dir / "metrics.json").unlink(missing_ok=True)
    hydra = run_dir / ".hydra"
    for folder in (hydra, run_dir / "checkpoints"):
        folder.mkdir(exist_ok=True)
    for name, text in ({} if last is not None else record).items():
        write_text(text, hydra / name)
    write_text(yaml.safe_dump(config, sort_keys=False, allow_unicode=True), hydra / "config.yaml")


def take_weights(network: SequenceModel[Any], named: str) -> None:
    """Starts a network from the weights in a checkpoint, of whatever training.

    Raises:
        SettingError: the file is not a checkpoint of `train.py`, or its network has another shape.
    """
    file = read_checkpoint(Path(named), "init_from")
    other = "holds the weights of another network; choose the same model, attention, position and data.vocab_size"
    network.load_state_dict(fitting_weights(file, network, "init_from", other))


def flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, object]:
    """Returns every setting of a config under its full name, but for what only says how a run began."""
    found: dict[str, object] = {}
    for name, value in config.items():
        if isinstance(value, dict):
            found |= flat(value, f"{prefix}{name}.")
        elif f"{prefix}{name}" != "resume":
            found[f"{prefix}{name}"] = value
    return found


def _changed(before: Mapping[str, object], now: Mapping[str, object]) -> list[str]:
    """Returns the settings that are others than they were.

    Raises:
        SettingError: one of them may not be.
    """
    changed = [name for name in {**before, **now} if before.get(name, NOT_GIVEN) != now.get(name, NOT_GIVEN)]
    for name in changed:
        if not name.startswith(_MAY_CHANGE):
            raise SettingError(
                name,
                now.get(name),
                f"cannot change when a run goes on (it was {before.get(name)}); start a new one, with init_from=... if "
                "it is to begin with these weights",
            )
    return changed


def _steps_scored(run_dir: Path) -> int | None:
    """Returns after how many steps the run's final figures were made, if they were."""
    try:
        return json.loads((run_dir / "metrics.json").read_text())["train/steps"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
