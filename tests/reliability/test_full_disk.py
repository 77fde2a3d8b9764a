"""No room left in the middle of a training: what was written before is whole, the exit status tells, and it goes on."""

import resource
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]


def train(folder: Path, *settings: str) -> subprocess.Popen[str]:
    command = [sys.executable, str(ROOT / "train.py"), *settings]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_a_full_disk_costs_nothing_that_was_saved(tmp_path):
    with train(
        tmp_path, "experiment=smoke", "trainer=cpu", "trainer.max_steps=1000000", "hydra.run.dir=run"
    ) as process:
        assert process.stdout is not None
        assert any(line.startswith("step    30") for line in process.stdout)
        # From here on no file may grow beyond what is there: the system answers as it does when a disk is full.
        room = (tmp_path / "run/checkpoints/last.ckpt").stat().st_size - 4096
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (room, room))
        _, complaints = process.communicate(timeout=60)
    assert process.returncode == 1
    assert len(complaints.splitlines()) == 1, complaints
    assert "hydra.run.dir=" in complaints
    assert "File too large" in complaints
    assert not list((tmp_path / "run/checkpoints").glob("*.part"))
    steps = {
        name: torch.load(tmp_path / f"run/checkpoints/{name}.ckpt", weights_only=True)["global_step"]
        for name in ("best", "last")
    }
    assert steps["last"] >= 20
    with train(tmp_path, "resume=run", f"trainer.max_steps={steps['last'] + 20}") as process:
        said, complaints = process.communicate(timeout=120)
    assert process.returncode == 0, complaints
    assert f"step {steps['last'] + 20:5d}" in said
