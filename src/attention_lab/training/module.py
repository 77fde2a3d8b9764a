"""The Lightning module: what happens in a training step and in a validation step."""

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from lightning.pytorch import LightningModule
from lightning.pytorch.utilities.types import OptimizerLRScheduler
from torch import Tensor, nn

from attention_lab.attention.packing import Packing
from attention_lab.data.batches import Batch
from attention_lab.errors import SettingError
from attention_lab.metrics.sequence import TeacherForcedScores, token_loss
from attention_lab.models.model import SequenceModel, Tokens
from attention_lab.runs.checkpoint import CHECKPOINT_FORMAT
from attention_lab.tasks.vocabulary import PAD
from attention_lab.training.schedule import warmup_then_cosine

LOG_EVERY = 10
"""Steps between two that log the training loss."""

SOLVED = 0.99
"""A task counts as solved at the first validation with at least this exact match."""


def batch_loss(predict: Callable[[Tokens, Tokens], Tensor], batch: Sequence[Batch]) -> Float[Tensor, ""]:
    """Returns the mean loss over the real tokens of all parts of a batch, in nats.

    Args:
        predict: returns the logits of sources and targets, as `SequenceModel.logits` does.
        batch: the parts; the tensors of a single one are handed over as they are.
    """
    if len(batch) == 1:
        return token_loss(predict(batch[0].source, batch[0].target), batch[0].labels)
    labels = [part.labels for part in batch]
    logits = predict([part.source for part in batch], [part.target for part in batch])
    return token_loss(logits, Packing.of(labels).pack(labels))


def weight_groups(network: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Returns a network's weights as AdamW takes them, so that only matrices decay."""
    weights = list(network.parameters())
    return [
        {"params": [each for each in weights if each.dim() > 1], "weight_decay": weight_decay},
        {"params": [each for each in weights if each.dim() <= 1], "weight_decay": 0.0},
    ]


class SequenceTraining(LightningModule):
    """Teaches a network the next token, with AdamW and a warm-up-then-cosine schedule.

    Args:
        network: what learns.
        learning_rate: peak of the schedule.
        final_learning_rate: its end.
        warmup_steps: steps until the peak.
        max_steps: steps until the end.
        weight_decay: decoupled weight decay, of matrices; biases and the gains of layer norms keep their size, as usual
            since BERT.
        betas: decay rates of AdamW's two moments.
        config: the run's whole config, as plain types; it goes into every checkpoint.
    """

    def __init__(
        self,
        network: SequenceModel[Any],
        *,
        learning_rate: float,
        final_learning_rate: float,
        warmup_steps: int,
        max_steps: int,
        weight_decay: float,
        betas: tuple[float, float],
        config: dict[str, Any],
    ) -> None:
        super().__init__()
        self.network = network
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.betas = betas
        self.config = config
        self._schedule = partial(
            warmup_then_cosine,
            warmup_steps=warmup_steps,
            max_steps=max_steps,
            final=final_learning_rate / learning_rate,
        )
        self.validation_scores = TeacherForcedScores()
        self.solved: dict[str, float] | None = None
        self._seconds_before = 0.0
        self._started = time.monotonic()

    @property
    def seconds(self) -> float:
        """What training took so far, together with what it had taken where it goes on."""
        return self._seconds_before + time.monotonic() - self._started

    def on_train_start(self) -> None:
        self._started = time.monotonic()

    def training_step(self, batch: Sequence[Batch], batch_idx: int) -> Tensor:
        """Returns the mean loss over the tokens of all parts of the batch."""
        loss = batch_loss(self.network.logits, batch)
        if self.trainer.world_size > 1:
            loss = loss * self._weight(batch)
        if self._is_logged:
            # Not at every step, since a GPU has to wait for each number that is looked at.
            whole = self.trainer.strategy.reduce(loss.detach(), reduce_op="mean")
            self._refuse_to_diverge("training loss", self.trainer.global_step + 1, whole)
            self._write({"train/loss": whole})
        return loss

    def _weight(self, batch: Sequence[Batch]) -> Tensor:
        """Returns what this process's share counts, so that the mean over processes is the mean over all tokens."""
        tokens = torch.stack([(part.labels != PAD).sum() for part in batch]).sum().float()
        return tokens / self.trainer.strategy.reduce(tokens.clone(), reduce_op="mean")

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        if self._is_logged:
            self._write({"train/learning_rate": optimizer.param_groups[0]["lr"]})

    @property
    def _is_logged(self) -> bool:
        return (self.trainer.global_step + 1) % LOG_EVERY == 0

    def _write(self, scalars: dict[str, Any]) -> None:
        """Logs what belongs to a training step, past Lightning's own `log`, which takes half a millisecond a scalar."""
        if self.logger is not None:
            self.logger.log_metrics(scalars, self.trainer.global_step + 1)

    def _refuse_to_diverge(self, what: str, step: int, loss: Tensor) -> None:
        if not loss.isfinite():
            raise SettingError(
                f"optimizer.learning_rate={self.learning_rate} made training diverge: the {what} of step {step} is "
                f"{float(loss)}; use a smaller one (what was written before is as good as it was)"
            )

    def validation_step(self, batch: Batch, batch_idx: int) -> dict[str, Any]:
        """Scores a batch and hands what the network said, attention included, to the callbacks."""
        output = self.network(batch.source, batch.target, need_weights=True)
        self.validation_scores.update(output.logits, batch.labels)
        return output._asdict()

    def on_validation_epoch_end(self) -> None:
        scores = {f"val/{name}": value for name, value in self.validation_scores.compute().items()}
        self._refuse_to_diverge("validation loss", self.trainer.global_step, scores["val/loss"])
        if self.solved is None and scores["val/exact_match"] >= SOLVED:
            self.solved = {"step": self.trainer.global_step, "seconds": round(self.seconds, 2)}
        # Lightning counts from 0 and would write the validation after step 50 at step 49; `step` overrules it.
        self.log_dict({**scores, "step": float(self.trainer.global_step)})
        self.validation_scores.reset()

    def configure_optimizers(self) -> OptimizerLRScheduler:
        optimizer = torch.optim.AdamW(
            weight_groups(self.network, self.weight_decay),
            lr=self.learning_rate,
            betas=self.betas,
            # Lightning does not clip what a fused optimizer might unscale, in any mixed precision.
            fused=self.trainer.precision == "32-true",
        )
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, self._schedule)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["attention_lab"] = {
            "format": CHECKPOINT_FORMAT,
            "config": self.config,
            "solved": self.solved,
            "seconds": self.seconds,
        }

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        ours = checkpoint["attention_lab"]
        self.solved, self._seconds_before = ours["solved"], ours["seconds"]
