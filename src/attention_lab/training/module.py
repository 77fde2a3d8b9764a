"""The Lightning module: what happens in a training step, in a validation step and in a test."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NoReturn, cast

import torch
from jaxtyping import Float
from lightning.pytorch import LightningModule
from lightning.pytorch.utilities.types import OptimizerLRScheduler
from torch import Tensor, nn

from attention_lab.attention.packing import Packing
from attention_lab.composition.training import OptimizerFactory, WeightGroups
from attention_lab.data.batches import Batch
from attention_lab.metrics.sequence import DecodedExactMatch, TeacherForcedScores, token_loss
from attention_lab.models.inference import greedy_decode
from attention_lab.models.model import MAX_CELLS, ModelOutput, SequenceModel, Tokens
from attention_lab.runs.checkpoint import CHECKPOINT_FORMAT
from attention_lab.settings.schema import Config
from attention_lab.tasks.vocabulary import PAD
from attention_lab.training.schedule import warmup_then_cosine

SOLVED = 0.99
"""A task counts as solved at the first validation with at least this exact match."""


class DivergedError(ArithmeticError):
    """A loss is not finite.

    Args:
        what: which loss.
        step: after how many steps.
        loss: its value.
    """

    def __init__(self, what: str, step: int, loss: float) -> None:
        super().__init__(f"the {what} of step {step} is {loss}")
        self.what = what
        self.step = step
        self.loss = loss


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


def _tokens_of(batch: Sequence[Batch]) -> Float[Tensor, ""]:
    return torch.stack([(part.labels != PAD).sum() for part in batch]).sum().float()


def weight_groups(network: nn.Module, weight_decay: float) -> WeightGroups:
    """Returns a network's weights as AdamW takes them, so that only matrices decay."""
    weights = list(network.parameters())
    return [
        {"params": [each for each in weights if each.dim() > 1], "weight_decay": weight_decay},
        {"params": [each for each in weights if each.dim() <= 1], "weight_decay": 0.0},
    ]


def _adamw(
    groups: WeightGroups, learning_rate: float, fused: bool, *, betas: tuple[float, float]
) -> torch.optim.Optimizer:
    return torch.optim.AdamW(groups, lr=learning_rate, betas=betas, fused=fused)


class SequenceTraining(LightningModule):
    """Teaches a network the next token, with a warm-up-then-cosine schedule.

    Args:
        network: what learns.
        learning_rate: peak of the schedule.
        final_learning_rate: its end.
        warmup_steps: steps until the peak.
        max_steps: steps until the end.
        weight_decay: decoupled weight decay, of matrices; biases and the gains of layer norms keep their size, as usual
            since BERT.
        betas: decay rates of AdamW's two moments, where no `optimizer` is given.
        optimizer: makes an optimizer of weight groups, a learning rate, and whether its kernels may be fused; where it
            is not given, AdamW.
        config: the run's whole config, as plain types. It goes into every checkpoint, which can be evaluated only with
            it; without one, a checkpoint is Lightning's alone.
        examples: pairs to test on, as plain types and tensors, which go into every checkpoint beside it.

    Attributes:
        observers: are shown every part of a validation batch and what the network made of it, attention included.
            Without any, validation makes no attention maps.
        solved: the step and the seconds of the first validation at which the task counted as solved, if there was one.
        training_loss: the one that was logged last; None before the first.
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
        betas: tuple[float, float] = (0.9, 0.98),
        optimizer: OptimizerFactory | None = None,
        config: Config | None = None,
        examples: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.network = network
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.make_optimizer = optimizer or partial(_adamw, betas=betas)
        self.config = config
        self.examples = examples
        self.observers: list[Callable[[Batch, ModelOutput], None]] = []
        self.solved: dict[str, float] | None = None
        self._schedule = partial(
            warmup_then_cosine,
            warmup_steps=warmup_steps,
            max_steps=max_steps,
            final=final_learning_rate / learning_rate,
        )
        self._scores = TeacherForcedScores()
        self._decoded = DecodedExactMatch()
        self.training_loss: float | None = None
        self._loss: Tensor | None = None
        # Of a step of several batches, so far.
        self._sum: Tensor | float = 0.0
        self._tokens: Tensor | float = 0.0
        self._rate = 0.0
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
        if self.trainer.accumulate_grad_batches > 1:
            return self._summed(loss, batch)
        if self.trainer.world_size > 1:
            tokens = _tokens_of(batch)
            # So that the mean over processes is the mean over all tokens.
            loss = loss * (tokens / self.trainer.strategy.reduce(tokens.clone(), reduce_op="mean"))
        self._loss = loss.detach()
        return loss

    def _summed(self, loss: Tensor, batch: Sequence[Batch]) -> Tensor:
        """Returns the sum over a batch's tokens: how many the whole step has is known only once all its batches were.

        Lightning's mean of the batches' means would give the tokens of a shorter batch more weight.
        """
        tokens = _tokens_of(batch)
        self._tokens += tokens
        summed = loss * tokens
        self._sum += summed.detach()
        return summed

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        self._rate = optimizer.param_groups[0]["lr"]
        batches = self.trainer.accumulate_grad_batches
        if batches > 1:
            # The mean over processes, as gradients are; Lightning has divided each batch's loss by their number.
            tokens = self.trainer.strategy.reduce(cast(Tensor, self._tokens), reduce_op="mean")
            for weights in self.network.parameters():
                if weights.grad is not None:
                    weights.grad *= batches / tokens
            self._loss = self._sum / tokens
            self._sum = self._tokens = 0.0

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        every: int = self.trainer.log_every_n_steps  # pyright: ignore[reportAttributeAccessIssue] - set by a connector
        if self.trainer.global_step == 1 or self.trainer.global_step % every == 0:
            self.log_step()

    def log_step(self) -> None:
        """Logs the loss and the learning rate of the last step, on every process at once; once a step.

        Not at every step, since a GPU has to wait for each number that is looked at; and past Lightning's own `log`,
        which takes half a millisecond a scalar.

        Raises:
            DivergedError: the loss is not finite.
        """
        if self._loss is None:
            return
        self.training_loss = loss = float(self.trainer.strategy.reduce(self._loss, reduce_op="mean"))
        self._loss = None
        self._refuse_to_diverge("training loss", loss)
        for logger in self.loggers:
            logger.log_metrics({"train/loss": loss, "train/learning_rate": self._rate}, self.trainer.global_step)

    def _refuse_to_diverge(self, what: str, loss: float) -> None:
        if not math.isfinite(loss):
            raise DivergedError(what, self.trainer.global_step, loss)

    def on_validation_start(self) -> None:
        # Before any callback can write a checkpoint: who goes on from that has lost no step.
        self.log_step()

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        """Scores a batch, and shows the observers what the network made of it."""
        looked_at = bool(self.observers)
        for part in batch.pieces(self._rows_at_a_time(batch)) if looked_at else (batch,):
            output = self.network(part.source, part.target, need_weights=looked_at)
            self._scores.update(output.logits, part.labels)
            for observe in self.observers:
                observe(part, output)

    def _rows_at_a_time(self, batch: Batch) -> int:
        """Returns of how many rows the maps fit into memory at a time."""
        return max(1, MAX_CELLS // self.network.map_side(batch.source.size(1), batch.target.size(1)) ** 2)

    def on_validation_epoch_end(self) -> None:
        scores = self._scores.compute()
        self._refuse_to_diverge("validation loss", float(scores["loss"]))
        if self.solved is None and scores["exact_match"] >= SOLVED:
            self.solved = {"step": self.trainer.global_step, "seconds": round(self.seconds, 2)}
        self._log_scores("val", scores)

    def test_step(self, batch: Batch, batch_idx: int) -> None:
        """Scores a batch, teacher-forced and decoded."""
        self._scores.update(self.network(batch.source, batch.target).logits, batch.labels)
        # A token beyond the length of the labels comes too late to be right.
        self._decoded.update(greedy_decode(self.network, batch.source, batch.labels.size(1)), batch.labels)

    def on_test_epoch_end(self) -> None:
        self._log_scores("test", {**self._scores.compute(), "decoded_exact_match": self._decoded.compute()})
        self._decoded.reset()

    def predict_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """Returns what the network answers when it reads its own output: tokens, EOS included, then PAD, (B, T)."""
        return greedy_decode(self.network, batch.source, batch.labels.size(1))

    def _log_scores(self, split: str, scores: dict[str, Tensor]) -> None:
        # Lightning counts from 0 and would write the validation after step 50 at step 49; `step` overrules it.
        step = {"step": float(self.trainer.global_step)}
        self.log_dict({**{f"{split}/{name}": value for name, value in scores.items()}, **step})
        self._scores.reset()

    def configure_optimizers(self) -> OptimizerLRScheduler:
        groups = weight_groups(self.network, self.weight_decay)
        # Lightning does not clip what a fused optimizer might unscale, in any mixed precision.
        optimizer = self.make_optimizer(groups, self.learning_rate, self.trainer.precision == "32-true")
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, self._schedule)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        if self.config is not None:
            checkpoint["attention_lab"] = {
                "format": CHECKPOINT_FORMAT,
                "config": self.config,
                "solved": self.solved,
                "seconds": self.seconds,
                **({} if self.examples is None else {"examples": self.examples}),
            }

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        ours = checkpoint.get("attention_lab", {})
        self.solved, self._seconds_before = ours.get("solved"), ours.get("seconds", 0.0)

    @classmethod
    def load_from_checkpoint(cls, checkpoint_path: object, *_: object, **__: object) -> NoReturn:
        """Refuses: Lightning would call the constructor without a network."""
        raise TypeError(
            f"{cls.__name__} cannot be made without a network; attention_lab.load({str(checkpoint_path)!r}) returns a "
            "checkpoint's, and Trainer.fit(module, data, ckpt_path=...) goes on with a module"
        )
