"""A training that was stopped goes on as if it never had been: the same numbers, to the last bit."""

import pytest
import torch
from lightning.pytorch import Callback

from attention_lab.errors import Interrupted
from tests.training.tiny import At, points, run, signalled, terminate

# Dropout and drawn positions take random numbers at every step, and an epoch of eight batches ends in the middle.
RUN = ("trainer.max_steps=12", "trainer.validate_every=4", "model.dropout=0.1", "position_sampling.range=64")


class InValidation(Callback):
    """Is told to stop in the middle of the validation after a step."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_validation_batch_end(self, trainer, pl_module, *_):
        if trainer.global_step == self.step:
            terminate(pl_module)


class InAStep(Callback):
    """Is told to stop after the first of a step's batches."""

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        if batch_idx == 5 * trainer.accumulate_grad_batches:
            terminate(pl_module)


@pytest.mark.parametrize("limit", ["null", pytest.param("2", marks=pytest.mark.slow), "0.4"])
def test_a_step_of_several_batches_is_finished_before_it_stops(tmp_path, monkeypatch, limit):
    settings = (*RUN, "trainer.accumulate_grad_batches=3", f"trainer.limit_train_batches={limit}")
    whole = run(tmp_path / "whole", *settings)
    with monkeypatch.context() as patched:
        signalled(patched, InAStep())
        with pytest.raises(Interrupted):
            run(tmp_path / "run", *settings)
    assert torch.load(tmp_path / "run/checkpoints/last.ckpt")["global_step"] == 6
    resumed = run(tmp_path / "run", *settings, f"resume={tmp_path / 'run'}")
    torch.testing.assert_close(resumed["state_dict"], whole["state_dict"], rtol=0, atol=0)


@pytest.mark.parametrize(
    ("stop", "step"),
    [
        pytest.param(At(5, terminate), 5, id="between"),
        pytest.param(At(8, terminate), 8, id="before its validation", marks=pytest.mark.slow),
        pytest.param(InValidation(4), 4, id="in a validation", marks=pytest.mark.slow),
        pytest.param(InValidation(12), 12, id="in the last", marks=pytest.mark.slow),
    ],
)
def test_it_goes_on_as_if_nothing_had_been(tmp_path, monkeypatch, stop, step):
    whole = run(tmp_path / "whole", *RUN)
    with monkeypatch.context() as patched:
        signalled(patched, stop)
        with pytest.raises(Interrupted):
            run(tmp_path / "run", *RUN)
    resumed = run(tmp_path / "run", *RUN, f"resume={tmp_path / 'run'}")
    for part in ("state_dict", "global_step", "lr_schedulers", "callbacks"):
        torch.testing.assert_close(resumed[part], whole[part], rtol=0, atol=0)
    # Where it was stopped, the last step is logged, as at any end.
    expected = points(tmp_path / "whole")
    for tag in ("train/loss", "train/learning_rate"):
        expected[tag] = sorted({*expected[tag], step})
    assert points(tmp_path / "run") == expected
