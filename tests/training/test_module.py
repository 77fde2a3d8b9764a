"""A training step, the optimiser's schedule, and what goes into a checkpoint."""

from functools import partial
from types import SimpleNamespace

import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor
from torch.optim import Optimizer

from attention_lab.data.batches import Batch
from attention_lab.data.module import SequenceData
from attention_lab.data.sampling import SourceSpace
from attention_lab.models.encoder_decoder import EncoderDecoder
from attention_lab.runs.checkpoint import CHECKPOINT_FORMAT
from attention_lab.tasks.reverse import Reverse
from attention_lab.training.module import SequenceTraining

make_data = partial(
    SequenceData, Reverse(), SourceSpace(1, 11, 7), {"train": 101, "validation": 13, "test": 13}, 23, seed=5
)


def make_module(max_steps: int = 7, warmup_steps: int = 3) -> SequenceTraining:
    torch.manual_seed(0)
    return SequenceTraining(
        EncoderDecoder(10, d_model=24, num_heads=3, d_ff=17),
        learning_rate=1e-2,
        final_learning_rate=1e-3,
        warmup_steps=warmup_steps,
        max_steps=max_steps,
        weight_decay=0.01,
        betas=(0.9, 0.98),
        config={"seed": 5},
    )


class Rates(Callback):
    """Notes the learning rate of every step."""

    def __init__(self) -> None:
        self.seen: list[float] = []

    def on_before_optimizer_step(self, trainer: Trainer, pl_module: LightningModule, optimizer: Optimizer) -> None:
        self.seen.append(optimizer.param_groups[0]["lr"])


def fit(module: SequenceTraining, data: SequenceData, max_steps: int, *callbacks: Callback) -> Trainer:
    trainer = Trainer(
        callbacks=list(callbacks),
        accelerator="cpu",
        max_steps=max_steps,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        limit_val_batches=0,
    )
    trainer.fit(module, data)
    return trainer


def loss_and_gradients(batch: list[Batch], monkeypatch: pytest.MonkeyPatch) -> tuple[Tensor, list[Tensor]]:
    module = make_module()
    monkeypatch.setattr(SequenceTraining, "trainer", SimpleNamespace(global_step=0, world_size=1))
    loss = module.training_step(batch, 0)
    loss.backward()
    return loss.detach(), [weight.grad for weight in module.parameters() if weight.grad is not None]


def test_cutting_a_batch_into_parts_changes_neither_loss_nor_gradients(monkeypatch):
    whole, parts = (next(iter(make_data(parts=number).train_dataloader())) for number in (1, 3))
    assert (len(whole), len(parts)) == (1, 3)
    loss, gradients = loss_and_gradients(whole, monkeypatch)
    loss_of_parts, gradients_of_parts = loss_and_gradients(parts, monkeypatch)
    torch.testing.assert_close(loss_of_parts, loss)
    torch.testing.assert_close(gradients_of_parts, gradients)


def test_the_learning_rate_moves_with_every_step_and_ends_where_it_should():
    rates = Rates()
    fit(make_module(), make_data(), 7, rates)
    seen = rates.seen
    assert seen[:3] == pytest.approx([1e-2 / 3, 2e-2 / 3, 1e-2])
    assert seen[2:] == sorted(seen[2:], reverse=True)
    assert seen[-1] == pytest.approx(1e-3)


def test_a_checkpoint_holds_plain_types_the_config_and_the_schedule(tmp_path):
    trainer = fit(make_module(), make_data(), 2)
    trainer.save_checkpoint(tmp_path / "some.ckpt")
    content = torch.load(tmp_path / "some.ckpt", weights_only=True)
    seconds = content["attention_lab"].pop("seconds")
    assert 0 < seconds < 60
    assert content["attention_lab"] == {"format": CHECKPOINT_FORMAT, "config": {"seed": 5}, "solved": None}
    assert content["global_step"] == 2
    assert content["lr_schedulers"][0]["last_epoch"] == 2
    assert content["optimizer_states"][0]["state"]
