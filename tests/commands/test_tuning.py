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


def test_both_commands_take_denormals_for_zero(command):
    assert has_denormals()
    assert command("train.py", *SMALL) == 0
    assert not has_denormals()
    torch.set_flush_denormal(False)
    assert command("evaluate.py", "checkpoint=run/checkpoints/best.ckpt", "lengths=[]", "hydra.run.dir=seen") == 0
    assert not has_denormals()


def test_what_was_there_before_training_is_not_looked_at_until_its_end(command, monkeypatch):
    frozen: list[int] = []
    fit = Trainer.fit
    monkeypatch.setattr(
        Trainer, "fit", lambda *args, **kwargs: frozen.append(gc.get_freeze_count()) or fit(*args, **kwargs)
    )
    assert command("train.py", *SMALL) == 0
    assert frozen[0] > 100_000
    assert gc.get_freeze_count() == 0


def test_a_training_that_fails_leaves_nothing_frozen():
    with pytest.raises(KeyError), frozen_heap():
        {}[gc.get_freeze_count()]
    assert gc.get_freeze_count() == 0


def test_a_sweep_does_not_keep_what_its_last_run_has_left(command, monkeypatch):
    trainers: list[weakref.ref[Trainer]] = []
    alive: list[int] = []
    fit = Trainer.fit

    def watched(self: Trainer, *args: Any, **kwargs: Any) -> None:
        alive.append(sum(trainer() is not None for trainer in trainers))
        trainers.append(weakref.ref(self))
        fit(self, *args, **kwargs)

    monkeypatch.setattr(Trainer, "fit", watched)
    assert command("train.py", "-m", *SMALL[:3], "seed=0,1,2", "hydra.sweep.dir=sweep") == 0
    assert alive == [0, 0, 0]
