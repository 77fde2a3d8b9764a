"""The training of `train.py` as a plain loop of PyTorch: the same weights after every step, and nothing besides."""

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor, nn

from attention_lab.benchmark.machine import Machine
from attention_lab.composition.training import build_optimizer
from attention_lab.data.batches import Batch
from attention_lab.settings.schema import TrainSettings
from attention_lab.training.module import batch_loss, weight_groups
from attention_lab.training.schedule import warmup_then_cosine


class PlainLoop:
    """Trains a network.

    Args:
        network: what learns.
        predict: returns its logits, as `SequenceModel.logits` does.
        settings: of the optimiser, and how many steps its schedule has.
        machine: where to run.
    """

    def __init__(
        self,
        network: nn.Module,
        predict: Callable[..., Tensor],
        settings: TrainSettings,
        machine: Machine,
    ) -> None:
        self._network = network.to(machine.device).train()
        self._predict = predict
        self._machine = machine
        optimizer = settings.optimizer
        self._gradient_clip = optimizer.gradient_clip
        groups = weight_groups(network, optimizer.weight_decay)
        self._optimizer = build_optimizer(optimizer)(groups, optimizer.learning_rate, True)
        schedule = partial(
            warmup_then_cosine,
            warmup_steps=optimizer.warmup_steps,
            max_steps=settings.trainer.max_steps,
            final=optimizer.final_learning_rate / optimizer.learning_rate,
        )
        self._scheduler = torch.optim.lr_scheduler.LambdaLR(self._optimizer, schedule)

    def step(self, batch: Sequence[Batch]) -> None:
        """Learns from one batch, given as parts that lie on the machine's device."""
        with self._machine.computing():
            loss = batch_loss(self._predict, batch)
        self._optimizer.zero_grad()
        loss.backward()
        if self._gradient_clip:
            torch.nn.utils.clip_grad_norm_(self._network.parameters(), self._gradient_clip)
        self._optimizer.step()
        self._scheduler.step()
