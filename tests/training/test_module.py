"""A training step, a validation, the optimiser's schedule, what goes into a checkpoint; and use without the command."""

import csv
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from torch import Tensor
from torch.optim import Optimizer
from torch.utils._python_dispatch import TorchDispatchMode

from attention_lab.callbacks.alignment import AlignmentMonitor
from attention_lab.data.batches import Batch
from attention_lab.data.module import SequenceData
from attention_lab.data.sampling import SourceSpace
from attention_lab.metrics.alignment import Head
from attention_lab.models.decoder_only import DecoderOnly
from attention_lab.models.encoder_decoder import EncoderDecoder
from attention_lab.models.encoder_only import EncoderOnly
from attention_lab.runs.checkpoint import CHECKPOINT_FORMAT
from attention_lab.tasks.reverse import Reverse
from attention_lab.training import module as module_file
from attention_lab.training.module import DivergedError, SequenceTraining

make_data = partial(
    SequenceData, Reverse(), SourceSpace(1, 11, 7), {"train": 101, "validation": 13, "test": 13}, 23, seed=5
)


def make_module(max_steps: int = 7, warmup_steps: int = 3, kind: type = EncoderDecoder) -> SequenceTraining:
    torch.manual_seed(0)
    return SequenceTraining(
        kind(10, d_model=24, num_heads=3, d_ff=17),
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
    monkeypatch.setattr(
        SequenceTraining, "trainer", SimpleNamespace(global_step=0, world_size=1, accumulate_grad_batches=1)
    )
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


class Largest(TorchDispatchMode):
    """Notes how many numbers the largest tensor has that is made meanwhile."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        for each in made if isinstance(made, (tuple, list)) else (made,):
            if isinstance(each, Tensor):
                self.numbers = max(self.numbers, each.numel())
        return made


def looked_at(module: SequenceTraining, batch: Batch) -> tuple[int, dict[str, Tensor], dict[str, float]]:
    """Returns the largest tensor of a validation step that is looked at, its scores, and those of its heads."""
    monitor = AlignmentMonitor(module.network)
    monitor.setup(Mock(spec=Trainer), module, "fit")
    with torch.no_grad(), Largest() as largest:
        module.validation_step(batch, 0)
    monitor.teardown(Mock(spec=Trainer), module, "fit")
    heads = monitor.scores.heads()
    return largest.numbers, module._scores.compute(), heads.of(Head(module.network.alignment_attention, 0, 1))


# Its map is of source and target together.
@pytest.mark.parametrize(("kind", "side"), [(EncoderDecoder, 212), (DecoderOnly, 424), (EncoderOnly, 212)])
def test_validation_makes_no_larger_maps_than_there_is_room_for(kind, side, monkeypatch):
    data = SequenceData(Reverse(), SourceSpace(211, 211, 7), {"train": 1, "validation": 13, "test": 1}, 13, seed=5)
    (batch,) = data.val_dataloader()
    size, scores, heads = looked_at(make_module(kind=kind).eval(), batch)
    assert size == 13 * 3 * side**2
    monkeypatch.setattr(module_file, "MAX_CELLS", 2 * side**2)
    less, same_scores, same_heads = looked_at(make_module(kind=kind).eval(), batch)
    assert less == 2 * 3 * side**2
    torch.testing.assert_close(same_scores, scores)
    assert same_heads == pytest.approx(heads)


def test_validation_makes_no_maps_where_nobody_looks():
    data = SequenceData(Reverse(), SourceSpace(211, 211, 7), {"train": 1, "validation": 13, "test": 1}, 13, seed=5)
    (batch,) = data.val_dataloader()
    with torch.no_grad(), Largest() as largest:
        make_module().eval().validation_step(batch, 0)
    assert largest.numbers < 13 * 212**2


def test_a_loss_that_is_no_number_is_told_with_its_step():
    module = make_module()
    module.network.output.weight.data.fill_(torch.nan)
    with pytest.raises(DivergedError) as diverged:
        fit(module, make_data(), 7)
    assert (diverged.value.what, diverged.value.step) == ("training loss", 1)


@pytest.mark.filterwarnings("ignore:Checkpoint directory:UserWarning")
def test_a_trainer_of_ones_own_ends_after_its_epochs_and_validates_each(tmp_path):
    def own_trainer(max_epochs: int, logger: CSVLogger | bool) -> Trainer:
        quiet = {"enable_progress_bar": False, "enable_model_summary": False}
        kept = ModelCheckpoint(tmp_path / "kept")
        return Trainer(accelerator="cpu", max_epochs=max_epochs, logger=logger, callbacks=[kept], **quiet)

    logger = CSVLogger(tmp_path)
    trainer = own_trainer(2, logger)
    module, data = make_module(), make_data()
    trainer.fit(module, data)
    assert (trainer.current_epoch, trainer.global_step) == (2, 10)
    rows = list(csv.DictReader((Path(logger.log_dir) / "metrics.csv").read_text().splitlines()))
    assert [int(row["step"]) for row in rows if row["val/loss"]] == [5, 10]
    assert [int(row["step"]) for row in rows if row["train/loss"]] == [1, 5, 10]
    (tested,) = trainer.test(module, data, verbose=False)
    assert list(tested) == ["test/loss", "test/token_accuracy", "test/exact_match", "test/decoded_exact_match", "step"]
    (answers,) = trainer.predict(module, data)
    assert answers.shape[0] == 13
    # What Lightning's own callback has kept goes on, too.
    more = own_trainer(3, logger=False)
    more.fit(make_module(), data, ckpt_path=trainer.checkpoint_callback.best_model_path, weights_only=True)
    assert more.global_step == 15


def test_loading_without_a_network_says_what_to_do_instead():
    with pytest.raises(TypeError, match=r"attention_lab.load\('some.ckpt'\)"):
        SequenceTraining.load_from_checkpoint("some.ckpt")


def test_without_a_config_a_checkpoint_is_lightnings_alone(tmp_path):
    module = make_module()
    module.config = None
    fit(module, make_data(), 1).save_checkpoint(tmp_path / "some.ckpt")
    assert "attention_lab" not in torch.load(tmp_path / "some.ckpt", weights_only=True)
