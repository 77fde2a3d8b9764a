"""The training of `train.py` as a plain loop of PyTorch: the same weights after every step, and nothing besides."""

import itertools
import time
from functools import partial

import torch

from attention_lab.evaluation.checkpoint import Solved, Trained, untrained_network
from attention_lab.metrics.sequence import TeacherForcedScores
from attention_lab.models.inference import evaluation_mode
from attention_lab.training.module import SOLVED, batch_loss, weight_groups
from attention_lab.training.schedule import warmup_then_cosine


class PlainLoop:
    """Trains the network of a run anew, on a CPU, from the weights that the run began with.

    Args:
        trained: the run. Its sources are all of one length, so that it was trained on whole batches.
    """

    def __init__(self, trained: Trained) -> None:
        self._data = trained.data
        self._settings = trained.settings
        self.network = untrained_network(trained.settings).train()
        optimizer, max_steps = trained.settings.optimizer, trained.settings.trainer.max_steps
        self._optimizer = torch.optim.AdamW(
            weight_groups(self.network, optimizer.weight_decay),
            lr=optimizer.learning_rate,
            betas=(optimizer.betas[0], optimizer.betas[1]),
            fused=True,
        )
        schedule = partial(
            warmup_then_cosine,
            warmup_steps=optimizer.warmup_steps,
            max_steps=max_steps,
            final=optimizer.final_learning_rate / optimizer.learning_rate,
        )
        self._scheduler = torch.optim.lr_scheduler.LambdaLR(self._optimizer, schedule)
        self._batches = iter(self._data.train_dataloader())

    def run(self, steps: int) -> None:
        """Takes so many steps."""
        for batch in itertools.islice(self._batches, steps):
            loss = batch_loss(self.network.logits, batch)
            self._optimizer.zero_grad()
            loss.backward()
            if self._settings.optimizer.gradient_clip:
                torch.nn.utils.clip_grad_norm_(self.network.parameters(), self._settings.optimizer.gradient_clip)
            self._optimizer.step()
            self._scheduler.step()

    def until_solved(self) -> Solved | None:
        """Trains with the run's own budget, validated when the run was, and stops as soon as the task is solved."""
        trainer, start = self._settings.trainer, time.monotonic()
        for step in range(trainer.validate_every, trainer.max_steps + 1, trainer.validate_every):
            self.run(trainer.validate_every)
            if self._exact_match() >= SOLVED:
                return Solved(step, time.monotonic() - start)
        return None

    def _exact_match(self) -> float:
        scores = TeacherForcedScores()
        with evaluation_mode(self.network):
            for batch in self._data.val_dataloader():
                scores.update(self.network(batch.source, batch.target).logits, batch.labels)
        return float(scores.compute()["exact_match"])
