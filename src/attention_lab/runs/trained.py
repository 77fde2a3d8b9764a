"""A checkpoint is everything that evaluation needs; and it may be anybody's file.

From the file come the network, the task and what the data are. How to run comes from the user: the device, the
processes that assemble batches, every folder. Nothing else in its config is looked at.
"""

import glob
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from attention_lab.composition.build import build_data, build_run
from attention_lab.composition.classes import Trust
from attention_lab.data.module import SequenceData
from attention_lab.errors import SettingError
from attention_lab.models.model import SequenceModel
from attention_lab.runs.checkpoint import CheckpointFile, Solved, read_checkpoint
from attention_lab.runs.defaults import with_defaults
from attention_lab.runs.examples import examples_in
from attention_lab.runs.folder import BEST, latest_run
from attention_lab.runs.structure import is_alike
from attention_lab.settings.checking import build
from attention_lab.settings.schema import Config, TrainedSettings
from attention_lab.tasks.pairs import Pairs
from attention_lab.tasks.task import Task

_MOST_TOKENS = 2**18
"""Tokens of a batch where only a file says how large that is."""


class Trained(NamedTuple):
    """What a checkpoint holds, brought back to life.

    Attributes:
        config: the config of the run that wrote it, as plain types; what it did not know yet has its default.
        settings: what of it says which network learned what, checked.
        step: optimiser steps behind it.
        solved: when its run had solved the task; None if it had not by then.
        task: what it learned.
        data: the splits it was trained and must be tested on, drawn when they are asked for.
        network: with the checkpoint's weights, in evaluation mode, on the CPU.
    """

    config: Config
    settings: TrainedSettings
    step: int
    solved: Solved | None
    task: Task
    data: SequenceData
    network: SequenceModel[Any]


def load_trained(path: Path | str, batch_size: int | None = None, trust: Trust = ()) -> Trained:
    """Loads a checkpoint, from wherever it lies now and whatever device wrote it.

    Args:
        path: the file.
        batch_size: sequences a batch when it is evaluated; as in training where not given.
        trust: packages besides this one whose classes its config may name.

    Raises:
        SettingError: it is missing, broken, foreign, or does not fit its own config.
    """
    file = read_checkpoint(Path(path))
    try:
        settings = build(TrainedSettings, _learned(file.config), "")
        task, sketch = build_run(settings, trust, sketch=True)
    except SettingError as error:
        names = [name for name, field in TrainedSettings.model_fields.items() if field.is_required()]
        hint = f"; SequenceTraining(config=...) is given a run's whole config, with {', '.join(names)}"
        reason = f"holds a config that this version refuses: {error}{'' if set(names) <= set(file.config) else hint}"
        raise SettingError("checkpoint", path, reason) from error
    # First of all: a file that claims to hold a larger network than it does must not take the memory for it.
    own = fitting_weights(file, sketch)
    _, network = build_run(settings, trust)
    network.load_state_dict(own)
    fitting = max(1, _MOST_TOKENS // (settings.data.max_length + 1))
    batches = settings.data.changed(batch_size=batch_size or min(settings.data.batch_size, fitting))
    rows = None
    if isinstance(task, Pairs):
        task.symbols, rows = examples_in(file, settings.data.vocab_size)
    data = build_data(task, batches, settings.seed, splits=(), rows=rows)
    return Trained(with_defaults(file.config, trust), settings, file.step, file.solved, task, data, network.eval())


def fitting_weights(
    file: CheckpointFile,
    network: SequenceModel[Any],
    setting: str = "checkpoint",
    otherwise: str = "holds weights that do not fit its own config",
) -> dict[str, Tensor]:
    """Returns the weights in a checkpoint, if they are what a network says they must be.

    Args:
        file: the checkpoint.
        network: the network, or a sketch of it.
        setting: what a user calls the checkpoint.
        otherwise: what to say of weights that are not.

    Raises:
        SettingError: a weight is missing, or one too many, or of another shape or type, or no number.
    """
    expected = network.state_dict()
    own = {name: each for name, each in file.weights.items() if isinstance(each, Tensor)}
    if own.keys() != file.weights.keys() or own.keys() != expected.keys() or not _all_alike(own, expected):
        raise SettingError(setting, file.path, otherwise)
    if not all(each.isfinite().all() for each in own.values()):
        raise SettingError(setting, file.path, "holds weights that are no numbers: its run has diverged")
    return own


def find_checkpoints(named: str | list[str]) -> list[Path]:
    """Returns the files that paths and patterns name, each once, in the order they were named.

    Args:
        named: a path, or a pattern like `runs/*/checkpoints/best.ckpt` (whose files come in the order of their names,
            2 before 10), or `latest` (the best checkpoint of the run that was written to last), or a list of those.

    Raises:
        SettingError: a pattern fits no file, or there is no run yet.
    """
    found: list[Path] = []
    for name in [named] if isinstance(named, str) else named:
        if name == "latest" and not os.path.lexists(name):
            found.append(latest_run("checkpoint", BEST) / BEST)
            continue
        if not glob.has_magic(name) or os.path.lexists(name):
            found.append(Path(name))
            continue
        files = sorted(glob.glob(name, recursive=True), key=_in_order)
        fitting = [Path(file) for file in files if Path(file).is_file()]
        if not fitting:
            raise SettingError("checkpoint", name, f"fits no file (looked for it in {Path.cwd()})")
        found += fitting
    return list(dict.fromkeys(found))


def _in_order(path: str) -> list[tuple[int, str]]:
    """Returns what sorts paths by their names, and numbers in these by their size."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"([0-9]+)", path)]


def untrained_network(settings: TrainedSettings, trust: Trust = ()) -> SequenceModel[Any]:
    """Returns the network as it was before its first step."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        return build_run(settings, trust)[1].eval()


def _learned(config: Mapping[str, Any]) -> Config:
    """Returns what of a run's config says which network learned what; how it was run is left out."""
    found = {name: config[name] for name in TrainedSettings.model_fields if name in config}
    data = found.get("data")
    if isinstance(data, dict):
        found["data"] = {name: value for name, value in data.items() if name not in ("num_workers", "path")}
    return found


def _all_alike(given: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> bool:
    return all(is_alike(given[name], expected[name]) for name in expected)
