"""What saves time is in force where the time is spent, and nowhere else."""

import gc
import subprocess
import sys
import weakref
from typing import Any

import pytest
import torch
from lightning.pytorch import Trainer

from attention_lab.training.tuning import frozen_heap

SMALL = ("experiment=smoke", "trainer=cpu", "trainer.max_steps=2", "hydra.run.dir=run")

IN_A_FRESH_PROCESS = """
import torch
from attention_lab.training.tuning import flush_denormals
torch.set_num_threads(2)
flush_denormals()
small = torch.full((1 << 20,), 1e-30)
assert not (small * 1e-10).any(), "a thread of the forward pass"
weights = torch.full((1 << 20,), 1e-30, requires_grad=True)
(weights * 1e-30 * 1e-10).sum().backward()
assert not weights.grad.any(), "a thread of the backward pass"
"""


def has_denormals() -> bool:
    return bool(torch.tensor(1e-30) * 1e-10 > 0)


def test_every_thread_takes_denormals_for_zero():
    subprocess.run([sys.executable, "-c", IN_A_FRESH_PROCESS], check=True)


def test_both_commands_take_denormals_for_zero_and_training_freezes_the_heap(command, monkeypatch):
    frozen: list[int] = []
    fit = Trainer.fit

    def watched(*args: Any, **kwargs: Any) -> None:
        frozen.append(gc.get_freeze_count())
        fit(*args, **kwargs)

    monkeypatch.setattr(Trainer, "fit", watched)
    assert has_denormals()
    assert command("train.py", *SMALL) == 0
    assert not has_denormals()
    assert frozen[0] > 100_000
    assert gc.get_freeze_count() == 0
    torch.set_flush_denormal(False)
    # Even what it refuses, it refuses after.
    assert command("evaluate.py", "checkpoint=missing.ckpt") == 2
    assert not has_denormals()


def test_a_training_that_fails_leaves_nothing_frozen():
    with pytest.raises(KeyError), frozen_heap():
        {}[gc.get_freeze_count()]
    assert gc.get_freeze_count() == 0


def test_what_an_earlier_run_has_left_is_not_kept():
    class Run:
        pass

    run = Run()
    run.itself = run
    left = weakref.ref(run)
    gc.disable()
    try:
        del run
        assert left() is not None
        with frozen_heap():
            assert left() is None
    finally:
        gc.enable()
