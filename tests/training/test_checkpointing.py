"""Which steps stay on disk: the last one, and the best one before it."""

from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from lightning.pytorch import LightningModule, Trainer

from attention_lab.training.checkpointing import BestAndLast


def validated(folder: Path, mode: str, scores: list[float], kept: BestAndLast | None = None) -> BestAndLast:
    """Lets the callback see validations, of which the n-th is after step n; a file holds the number of its step."""
    callback = kept or BestAndLast(folder, "val/loss", mode)
    first = max([int(path.read_text()) for path in folder.iterdir()], default=0)
    for step, score in enumerate(scores, first + 1):
        trainer = Mock(spec=Trainer, sanity_checking=False, is_global_zero=True)
        trainer.callback_metrics = {"val/loss": torch.tensor(score)}
        trainer.save_checkpoint.side_effect = lambda path, step=step: (
            path.with_name("new").write_text(str(step)) and path.with_name("new").replace(path)
        )
        callback.on_validation_end(trainer, Mock(spec=LightningModule))
    return callback


def steps(folder: Path) -> dict[str, int]:
    return {path.stem: int(path.read_text()) for path in folder.iterdir()}


@pytest.mark.parametrize(
    ("mode", "scores", "best"),
    [("min", [3.0], 1), ("min", [3.0, 1.0, 2.0], 2), ("max", [1.0, 3.0, 2.0], 2), ("min", [1.0, 1.0], 1)],
)
def test_best_is_the_first_of_the_best_and_last_the_last(tmp_path, mode, scores, best):
    validated(tmp_path, mode, scores)
    assert steps(tmp_path) == {"best": best, "last": len(scores)}


def test_what_was_best_is_known_where_it_goes_on(tmp_path):
    state = validated(tmp_path, "min", [2.0]).state_dict()
    on = BestAndLast(tmp_path, "val/loss", "min")
    on.load_state_dict(state)
    validated(tmp_path, "min", [3.0], on)
    assert steps(tmp_path) == {"best": 1, "last": 2}
    validated(tmp_path, "min", [1.0], on)
    assert steps(tmp_path) == {"best": 3, "last": 3}


def test_the_sanity_check_is_no_validation(tmp_path):
    trainer = Mock(spec=Trainer, sanity_checking=True)
    BestAndLast(tmp_path, "val/loss", "min").on_validation_end(trainer, Mock(spec=LightningModule))
    trainer.save_checkpoint.assert_not_called()
