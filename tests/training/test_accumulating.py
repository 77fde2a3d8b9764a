"""A step of several batches is a step of one large batch: the same mean over tokens, the same gradients and loss."""

from pathlib import Path

import pytest
import torch
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

from tests.training.tiny import run

# Gradients as they are, which AdamW would divide by their size; sequences of 1 to 4 symbols have other numbers of
# tokens in every batch.
SETTINGS = ("optimizer=sgd", "optimizer.warmup_steps=1", "trainer.max_steps=5", "trainer.validate_every=5")


def losses(folder: Path) -> list[float]:
    # The second one holds the test figures.
    file = min((folder / "tensorboard").glob("events*"))
    values = [value for event in EventFileLoader(str(file)).Load() for value in event.summary.value]
    return [value.tensor.float_val[0] for value in values if value.tag == "train/loss"]


@pytest.mark.parametrize("clip", [0.0, 0.05])
def test_it_is_one_large_batch(tmp_path, clip):
    more = (*SETTINGS, f"optimizer.gradient_clip={clip}", "trainer.log_every_n_steps=1")
    large = run(tmp_path / "large", *more, "data.batch_size=32")
    small = run(tmp_path / "small", *more, "data.batch_size=8", "trainer.accumulate_grad_batches=4")
    torch.testing.assert_close(small["state_dict"], large["state_dict"], rtol=1e-5, atol=1e-6)
    assert len(losses(tmp_path / "small")) == 5
    assert losses(tmp_path / "small") == pytest.approx(losses(tmp_path / "large"), rel=1e-5)


def test_a_mean_of_means_would_be_another(tmp_path):
    large = run(tmp_path / "large", *SETTINGS, "data.batch_size=32")
    other = run(tmp_path / "other", *SETTINGS, "data.batch_size=8")
    with pytest.raises(AssertionError):
        torch.testing.assert_close(other["state_dict"], large["state_dict"], rtol=1e-5, atol=1e-6)
