"""What only a process of its own can show: what it imports, and how it ends at a signal."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("script", ["train.py", "evaluate.py"])
@pytest.mark.parametrize("flags", [["--help"], ["--cfg", "job"]], ids=["help", "cfg"])
def test_help_and_config_are_shown_without_importing_torch(script, flags, tmp_path):
    code = (
        "import runpy, sys; sys.argv = [sys.argv[1], *sys.argv[2:]]\n"
        "runpy.run_path(sys.argv[0], run_name='__main__')\n"
        "heavy = {'torch', 'lightning', 'datasets', 'matplotlib'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    command = [sys.executable, "-c", code, str(ROOT / script), *flags]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert ("Usage" in done.stdout) == (flags == ["--help"])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("signum", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_training_with_a_usable_checkpoint(signum, status, tmp_path):
    settings = ["experiment=smoke", "trainer=cpu", "trainer.max_steps=1000000", "early_stopping.threshold=null"]
    command = [sys.executable, str(ROOT / "train.py"), *settings, "hydra.run.dir=run"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        while "step" not in process.stdout.readline():
            assert process.poll() is None
        process.send_signal(signum)
        sent = time.monotonic()
        _, complaints = process.communicate(timeout=60)
    assert process.returncode == status, complaints
    assert time.monotonic() - sent < 10
    assert complaints == ""
    assert torch.load(tmp_path / "run/checkpoints/last.ckpt", weights_only=True)["global_step"] >= 10
