"""Checkpoints from Python: load one, ask it, look at where it looked."""

from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import torch

from attention_lab.composition.build import Trust
from attention_lab.data.module import SequenceData
from attention_lab.evaluation.answering import Answer, answer, read_symbols
from attention_lab.models.model import SequenceModel
from attention_lab.runs.trained import Trained, load_trained
from attention_lab.settings.schema import Config
from attention_lab.tasks.task import Task

__all__ = ["Answer", "Checkpoint", "load"]


@dataclass(frozen=True)
class Checkpoint:
    """A trained network and what it learned.

    Attributes:
        trained: everything that lies in the file.
    """

    trained: Trained

    @property
    def network(self) -> SequenceModel[Any]:
        """The network, in evaluation mode: `network(source, target, need_weights=True)` takes token ids."""
        return self.trained.network

    @property
    def task(self) -> Task:
        """What it learned."""
        return self.trained.task

    @property
    def data(self) -> SequenceData:
        """The splits that it was trained on and must be tested on, drawn when they are asked for."""
        return self.trained.data

    @property
    def config(self) -> Config:
        """The config of the run that wrote it, as plain types."""
        return self.trained.config

    @property
    def step(self) -> int:
        """Optimiser steps behind it."""
        return self.trained.step

    def answer(self, source: str | Sequence[int]) -> Answer:
        """Lets the network answer one source.

        Args:
            source: symbols, from 0: `"3 1 4"` or `[3, 1, 4]`.

        Raises:
            SettingError: it is empty, too long, or holds what is no symbol of the task's.
        """
        symbols = read_symbols(source) if isinstance(source, str) else source
        return answer(self.trained, symbols, next(self.network.parameters()).device)


def load(path: str | PathLike[str], device: str | torch.device = "cpu", trust: Trust = ()) -> Checkpoint:
    """Loads a checkpoint that `train.py` wrote. It may be anybody's: nothing in it is run.

    Args:
        path: the file.
        device: where the network goes.
        trust: packages besides this one whose classes the file may name.

    Raises:
        SettingError: it is missing, broken, foreign, or does not fit its own config.
    """
    trained = load_trained(Path(path), trust=trust)
    trained.network.to(device)
    return Checkpoint(trained)
