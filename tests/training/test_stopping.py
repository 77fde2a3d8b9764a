"""How a training ends: at its last step, once it is solved, or at a signal."""

import signal
from unittest.mock import Mock

import pytest
import torch
from lightning.pytorch import LightningModule, Trainer

from attention_lab.errors import Interrupted
from attention_lab.training.stopping import StopWhenSolved
from tests.training.tiny import At, points, run, signalled, terminate


@pytest.mark.parametrize(
    ("max_steps", "logged"),
    [
        pytest.param(1, [1], marks=pytest.mark.slow),
        (9, [1, 5, 9]),
        pytest.param(11, [1, 5, 10, 11], marks=pytest.mark.slow),
    ],
)
def test_the_first_and_the_last_step_are_logged_and_the_last_is_validated(tmp_path, max_steps, logged):
    last = run(tmp_path, f"trainer.max_steps={max_steps}", "trainer.validate_every=5")
    assert last["global_step"] == max_steps
    found = points(tmp_path)
    assert found["train/loss"] == found["train/learning_rate"] == logged
    assert found["val/loss"] == [step for step in logged if step % 5 == 0 or step == max_steps]


def test_who_stops_early_has_logged_the_last_step(tmp_path):
    last = run(tmp_path, "trainer.max_steps=20", "trainer.validate_every=7", "early_stopping.threshold=1000")
    assert last["global_step"] == 7
    assert points(tmp_path)["train/loss"] == [1, 7]


@pytest.mark.parametrize("signum", [pytest.param(signal.SIGINT, marks=pytest.mark.slow), signal.SIGTERM])
def test_a_signal_finishes_the_step_logs_it_and_writes_a_checkpoint(tmp_path, monkeypatch, signum):
    handlers = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
    signalled(monkeypatch, At(3, lambda _: signal.raise_signal(signum)))
    with pytest.raises(Interrupted) as stop:
        run(tmp_path)
    assert stop.value.signum == signum
    assert torch.load(tmp_path / "checkpoints/last.ckpt", weights_only=True)["global_step"] == 3
    assert points(tmp_path)["train/loss"] == [1, 3]
    assert not (tmp_path / "metrics.json").exists()
    assert [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)] == handlers


@pytest.mark.slow
def test_weights_that_are_no_numbers_are_not_written_at_a_signal(tmp_path, monkeypatch):
    def spoil(module: LightningModule) -> None:
        next(iter(module.parameters())).data.fill_(torch.nan)
        terminate(module)

    signalled(monkeypatch, At(3, spoil))
    with pytest.raises(Interrupted):
        run(tmp_path)
    assert not list(tmp_path.glob("checkpoints/*"))


@pytest.mark.parametrize(
    ("mode", "threshold", "value", "stops"),
    [
        ("min", 0.5, 0.5, True),
        ("min", 0.5, 0.6, False),
        ("max", 0.5, 0.6, True),
        ("max", 0.5, 0.4, False),
        ("min", None, 0.0, False),
        ("min", 0.5, float("nan"), False),
    ],
)
def test_a_threshold_stops_in_its_direction_and_is_remembered(mode, threshold, value, stops):
    trainer = Mock(spec=Trainer, callback_metrics={"val/loss": torch.tensor(value)}, should_stop=False)
    module = Mock(spec=LightningModule)
    stop = StopWhenSolved("val/loss", mode, threshold)
    stop.on_train_start(trainer, module)
    assert trainer.should_stop is False
    stop.on_validation_end(trainer, module)
    assert trainer.should_stop is stops
    again, trainer.should_stop = StopWhenSolved("val/loss", mode, threshold), False
    again.load_state_dict(stop.state_dict())
    again.on_train_start(trainer, module)
    assert trainer.should_stop is stops
