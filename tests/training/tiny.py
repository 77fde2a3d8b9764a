"""Trainings of a fraction of a second, in this process and without a command line."""

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from hydra import compose, initialize_config_dir
from lightning.pytorch import Callback, LightningModule, Trainer
from omegaconf import OmegaConf
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

from attention_lab.commands import train
from attention_lab.settings.checking import build
from attention_lab.settings.schema import TrainSettings

CONFIGS = Path(__file__).parents[2] / "configs"

TINY = (
    "experiment=smoke",
    "trainer=cpu",
    "data.train_size=64",
    "data.batch_size=8",
    "data.validation_size=16",
    "data.test_size=16",
    "data.max_length=4",
    "model.d_model=8",
    "model.num_heads=2",
    "model.d_ff=8",
    "callbacks.attention_maps=false",
    "callbacks.num_samples=0",
)


def tiny(*overrides: str) -> dict[str, Any]:
    """Returns the config of the smallest training there is."""
    with initialize_config_dir(str(CONFIGS), version_base="1.3"):
        config = OmegaConf.to_container(compose("train", [*TINY, *overrides]), resolve=True)
    return cast(dict[str, Any], config)


def run(folder: Path, *overrides: str) -> dict[str, Any]:
    """Trains into a folder and returns its last checkpoint."""
    config = tiny(*overrides)
    train.train(build(TrainSettings, config, ""), folder)
    return torch.load(folder / "checkpoints" / "last.ckpt", weights_only=True)


def points(folder: Path) -> dict[str, list[int]]:
    """Returns the steps at which each scalar was logged, as they lie on disk."""
    found: dict[str, list[int]] = {}
    for path in sorted((folder / "tensorboard").glob("events*")):
        for event in EventFileLoader(str(path)).Load():
            for value in event.summary.value:
                if value.metadata.plugin_data.plugin_name == "scalars":
                    found.setdefault(value.tag, []).append(event.step)
    return found


class At(Callback):
    """Does something after a step."""

    def __init__(self, step: int, do: Callable[[LightningModule], object]) -> None:
        self.step = step
        self.do = do

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if trainer.global_step == self.step:
            self.do(pl_module)


def signalled(monkeypatch: pytest.MonkeyPatch, *callbacks: Callback) -> None:
    """Adds callbacks to the trainings that follow, before all others."""
    usual = train._callbacks
    monkeypatch.setattr(train, "_callbacks", lambda *arguments: [*callbacks, *usual(*arguments)])


def terminate(_: LightningModule) -> None:
    signal.raise_signal(signal.SIGTERM)
