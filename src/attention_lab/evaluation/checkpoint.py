"""A checkpoint is everything that evaluation needs; and it may be anybody's file."""

import glob
import os
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from attention_lab.compatibility import check_sampling, check_sequences
from attention_lab.composition import build_data, build_network, build_task
from attention_lab.configuration.checking import SettingError, build
from attention_lab.configuration.settings import TrainSettings
from attention_lab.data.module import SequenceData
from attention_lab.models.model import SequenceModel
from attention_lab.tasks.task import Task
from attention_lab.training.module import CHECKPOINT_FORMAT


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
    content = _read(path)
    ours, weights = content.get("attention_lab"), content.get("state_dict")
    step = content.get("global_step")
    if not (
        isinstance(ours, dict)
        and isinstance(ours.get("config"), dict)
        and isinstance(weights, dict)
        and isinstance(step, int)
    ):
        raise SettingError(f"checkpoint={path} was not written by attention_lab's train.py")
    if ours.get("format") != CHECKPOINT_FORMAT:
        raise SettingError(
            f"checkpoint={path} has format {ours.get('format')}; this version reads format {CHECKPOINT_FORMAT}"
        )
    config: dict[str, Any] = ours["config"]
    try:
        settings = build(TrainSettings, config, "")
        task = build_task(settings.task)
        network = build_network(
            settings.model, settings.attention, settings.position, settings.data, settings.position_sampling
        )
        check_sequences(network, task, settings.data)
        check_sampling(network, settings.position_sampling, task, settings.data)
    except SettingError as error:
        raise SettingError(f"checkpoint={path} holds a config that this version refuses: {error}") from error
    _load_weights(network, weights, path)
    batches = settings.data if batch_size is None else replace(settings.data, batch_size=batch_size)
    data = build_data(task, batches, settings.seed, splits=())
    return Trained(config, settings, step, _solved(ours.get("solved")), task, data, network.eval())


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
            settings.model, settings.attention, settings.position, settings.data, settings.position_sampling
        ).eval()


def _read(path: Path) -> dict[str, Any]:
    try:
        if path.is_dir():
            inside = path / "checkpoints" / "best.ckpt"
            hint = f"; try checkpoint={inside}" if inside.is_file() else ""
            raise SettingError(f"checkpoint={path} is a folder, not a file{hint}")
        if not path.exists():
            raise SettingError(f"checkpoint={path} does not exist (looked for it in {Path.cwd()})")
        if not path.is_file():
            raise SettingError(f"checkpoint={path} is not a regular file")
        with warnings.catch_warnings(action="ignore"):
            # What PyTorch has to say about a foreign file's format is no help to anybody.
            content = torch.load(path, map_location="cpu", weights_only=True)
    except SettingError:
        raise
    except Exception as error:
        # There is no end to what a foreign file can make an unpickler raise.
        raise SettingError(f"checkpoint={path} is broken, or is no checkpoint at all") from error
    return content if isinstance(content, dict) else {}


def _solved(found: object) -> Solved | None:
    step, seconds = (found.get(name) for name in Solved._fields) if isinstance(found, dict) else (None, None)
    return Solved(step, float(seconds)) if isinstance(step, int) and isinstance(seconds, (int, float)) else None


def _load_weights(network: SequenceModel[Any], weights: dict[str, Any], path: Path) -> None:
    prefix = "network."
    own: dict[str, Tensor] = {
        name.removeprefix(prefix): value for name, value in weights.items() if name.startswith(prefix)
    }
    try:
        network.load_state_dict(own, strict=True)
    except (RuntimeError, AttributeError, TypeError) as error:
        raise SettingError(f"checkpoint={path} holds weights that do not fit its own config") from error
    if not all(weights.isfinite().all() for weights in network.state_dict().values()):
        raise SettingError(f"checkpoint={path} holds weights that are no numbers: its run has diverged")
