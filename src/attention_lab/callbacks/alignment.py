"""Logs how well every head aligns, beside how well the task is solved."""

import itertools
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer

from attention_lab.data.batches import Batch
from attention_lab.metrics.alignment import AlignmentScores, Head
from attention_lab.models.model import ModelOutput, SequenceModel
from attention_lab.training.module import SequenceTraining


class AlignmentMonitor(Callback):
    """Logs each head's `alignment_hit_rate/<name>/layer_<i>/head_<j>` and `alignment_mass/...` at each validation.

    The best head's are `val/alignment_hit_rate` and `val/alignment_mass`.

    Args:
        network: the network that is trained; one with attention from target to source.

    Attributes:
        hit_rate: every head's at the last validation, (layers, H), on the CPU.
    """

    def __init__(self, network: SequenceModel[Any]) -> None:
        layers = network.alignment_layers
        self.network = network
        self.scores = AlignmentScores(len(layers), layers[0].num_heads)
        self.hit_rate = torch.zeros(len(layers), layers[0].num_heads)

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        assert isinstance(pl_module, SequenceTraining)
        pl_module.observers.append(self.observe)

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        assert isinstance(pl_module, SequenceTraining)
        pl_module.observers.remove(self.observe)

    def on_validation_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.scores.reset()
        self.scores.to(pl_module.device)

    def observe(self, batch: Batch, output: ModelOutput) -> None:
        """Takes in a part of the validation split, and the maps that the network made of it."""
        maps = self.network.alignment_maps(output.attention, batch.target.size(1), batch.source.size(1))
        self.scores.update(maps, batch.alignment, batch.source)

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        # Counted on every process, since counts are gathered from all; written by the first.
        scores = self.scores.heads()
        attention = self.network.alignment_attention
        self.hit_rate = scores.hit_rate.cpu()
        best = scores.best(attention)
        assert best is not None
        for name in ("hit_rate", "mass"):
            pl_module.log(f"val/alignment_{name}", scores.of(best)[name])
        if trainer.sanity_checking:
            return
        figures = {
            f"alignment_{name}/{attention}/layer_{layer}/head_{head}": scores.of(Head(attention, layer, head))[name]
            for layer, head in itertools.product(*map(range, scores.mass.shape))
            for name in ("hit_rate", "mass")
        }
        for logger in trainer.loggers:
            logger.log_metrics(figures, trainer.global_step)
