"""Logs how well the best head aligns."""

from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from attention_lab.data.batches import Batch
from attention_lab.metrics.alignment import AlignmentScores


class AlignmentMonitor(Callback):
    """Logs `val/alignment_hit_rate` and `val/alignment_mass` of the best head at each validation.

    Args:
        attention: the attention whose rows are target tokens and whose columns are source tokens.
    """

    def __init__(self, attention: str) -> None:
        self.attention = attention
        self.scores = AlignmentScores()

    def on_validation_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.scores.reset()
        self.scores.to(pl_module.device)

    def on_validation_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Batch,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        self.scores.update(outputs["attention"][self.attention], batch.alignment)

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        scores = self.scores.heads()
        best = scores.best()
        pl_module.log("val/alignment_hit_rate", scores.hit_rate[best])
        pl_module.log("val/alignment_mass", scores.mass[best])
