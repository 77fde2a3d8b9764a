"""A checkpoint is everything that evaluation needs; and it may be anybody's file."""

import glob
import os
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from attention_lab.composition.build import build_data, build_network, build_task
from attention_lab.composition.compatibility import check_sampling, check_sequences
from attention_lab.data.module import SequenceData
from attention_lab.errors import SettingError
from attention_lab.models.model import SequenceModel
from attention_lab.runs.checkpoint import read_ours
from attention_lab.settings.checking import build
from attention_lab.settings.schema import TrainSettings
from attention_lab.tasks.task import Task


class Solved(NamedTuple):
    """When a run first answered 99 % of the validation sequences right: after how many steps, and seconds."""

    step: int
    seconds: float


class Trained(NamedTuple):
    """What a checkpoint holds, brought back to life.

    Attributes:
        config: the config of the run that wrote it, as plain types.
        settings: the same, checked.
        step: optimiser steps behind it.
        solved: when its run had solved the task; None if it had not by then.
        task: what it learned.
        data: the splits it was trained and must be tested on, drawn when they are asked for.
        network: with the checkpoint's weights, in evaluation mode, on the CPU.
    """

    config: dict[str, Any]
    settings: TrainSettings
    step: int
    solved: Solved | None
    task: Task
    data: SequenceData
    network: SequenceModel[Any]


def load_trained(path: Path, batch_size: int | None = None) -> Trained:
    """Loads a checkpoint, from wherever it lies now and whatever device wrote it.

    Args:
        path: the file.
        batch_size: sequences a batch when it is evaluated; as in training where not given.

    Raises:
        SettingError: it is missing, broken, foreign, or does not fit its own config.
    """
    content = read_ours(path)
    ours, weights = content["attention_lab"], content["state_dict"]
    config: dict[str, Any] = ours["config"]
    try:
        settings = build(TrainSettings, config, "")
        task = build_task(settings.task)
        parts = (settings.model, settings.attention, settings.position, settings.data, settings.position_sampling)
        sketch = build_network(*parts, longest=task.longest, sketch=True)
        check_sequences(sketch, task, settings.data)
        check_sampling(sketch, settings.position_sampling, task, settings.data)
    except SettingError as error:
        raise SettingError(f"checkpoint={path} holds a config that this version refuses: {error}") from error
    # First of all: a file that claims to hold a larger network than it does must not take the memory for it.
    own = _fitting(weights, sketch, path)
    network = build_network(*parts, longest=task.longest)
    network.load_state_dict(own)
    batches = settings.data if batch_size is None else replace(settings.data, batch_size=batch_size)
    data = build_data(task, batches, settings.seed, splits=())
    return Trained(config, settings, content["global_step"], _solved(ours.get("solved")), task, data, network.eval())


def find_checkpoints(named: str | list[str]) -> list[Path]:
    """Returns the files that paths and patterns name, each once, in the order they were named.

    Args:
        named: a path, or a pattern like `runs/*/checkpoints/best.ckpt` (whose files come in alphabetical order), or a
            list of those.

    Raises:
        SettingError: a pattern fits no file.
    """
    found: list[Path] = []
    for name in [named] if isinstance(named, str) else named:
        if not glob.has_magic(name) or os.path.lexists(name):
            found.append(Path(name))
            continue
        fitting = [Path(file) for file in sorted(glob.glob(name, recursive=True)) if Path(file).is_file()]
        if not fitting:
            raise SettingError(f"checkpoint={name} fits no file (looked for it in {Path.cwd()})")
        found += fitting
    return list(dict.fromkeys(found))


def untrained_network(settings: TrainSettings) -> SequenceModel[Any]:
    """Returns the network as it was before its first step."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        return build_network(
            settings.model,
            settings.attention,
            settings.position,
            settings.data,
            settings.position_sampling,
            longest=build_task(settings.task).longest,
        ).eval()


def _solved(found: object) -> Solved | None:
    step, seconds = (found.get(name) for name in Solved._fields) if isinstance(found, dict) else (None, None)
    return Solved(step, float(seconds)) if isinstance(step, int) and isinstance(seconds, (int, float)) else None


def _fitting(weights: dict[str, Any], sketch: SequenceModel[Any], path: Path) -> dict[str, Tensor]:
    """Returns the network's own weights, if they are what the sketch of the network says they must be.

    Raises:
        SettingError: a weight is missing, or one too many, or of another shape or type, or no number.
    """
    prefix = "network."
    own = {str(name).removeprefix(prefix): value for name, value in weights.items() if str(name).startswith(prefix)}
    expected = sketch.state_dict()
    if own.keys() != expected.keys() or not all(_alike(own[name], expected[name]) for name in expected):
        raise SettingError(f"checkpoint={path} holds weights that do not fit its own config")
    if not all(each.isfinite().all() for each in own.values()):
        raise SettingError(f"checkpoint={path} holds weights that are no numbers: its run has diverged")
    return own


def _alike(given: object, expected: Tensor) -> bool:
    return (
        isinstance(given, Tensor)
        and given.shape == expected.shape
        and given.dtype == expected.dtype
        and given.layout == expected.layout
        and given.device.type == "cpu"
        # Others may repeat one number as often as they like, and take no space until they are looked at.
        and given.is_contiguous()
    )
