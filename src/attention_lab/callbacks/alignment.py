"""Logs how well every head aligns, beside how well the task is solved."""

from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from attention_lab.callbacks.writer import writer_of
from attention_lab.data.batches import Batch
from attention_lab.metrics.alignment import AlignmentScores, Head
from attention_lab.models.model import SequenceModel

_CHARTS = {
    "When heads lock on": {
        "hit rate of every head, and exact match": ["Multiline", ["alignment_hit_rate/.*", "val/exact_match"]],
        "mass of every head, and exact match": ["Multiline", ["alignment_mass/.*", "val/exact_match"]],
    }
}
"""TensorBoard's custom scalars: does a head lock on before the task is solved, or after?"""


class AlignmentMonitor(Callback):
    """Logs each head's `alignment_hit_rate/<name>/layer_<i>/head_<j>` and `alignment_mass/...` at each validation.

    The best head's are `val/alignment_hit_rate` and `val/alignment_mass`.

    Args:
        attention: the attention whose rows are target tokens and whose columns are source tokens.
        num_layers: its layers.
        num_heads: heads of each.
    """

    def __init__(self, attention: str, num_layers: int, num_heads: int) -> None:
        self.attention = attention
        self.scores = AlignmentScores(num_layers, num_heads)
        self._heads = [Head(attention, layer, head) for layer in range(num_layers) for head in range(num_heads)]

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        writer = writer_of(trainer)
        if writer is not None:
            writer.add_custom_scalars(_CHARTS)

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
        network = pl_module.network
        assert isinstance(network, SequenceModel)
        maps = network.alignment_maps(outputs["attention"], batch.target.size(1), batch.source.size(1))
        self.scores.update(maps, batch.alignment, batch.source)

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        # Counted on every process, since counts are gathered from all; written by the first.
        scores = self.scores.heads()
        head = scores.best(self.attention)
        assert head is not None
        best = scores.of(head)
        for name in ("hit_rate", "mass"):
            pl_module.log(f"val/alignment_{name}", best[name])
        writer = writer_of(trainer)
        if writer is None:
            return
        for head in self._heads:
            figures = scores.of(head)
            for name in ("hit_rate", "mass"):
                tag = f"alignment_{name}/{head.attention}/layer_{head.layer}/head_{head.head}"
                writer.add_scalar(tag, figures[name], trainer.global_step)
