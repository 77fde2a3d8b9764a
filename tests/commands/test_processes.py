"""What only a process of its own can show: what it imports, and how it ends at a signal."""

import os
import pty
import re
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
        "heavy = {'torch', 'lightning', 'datasets', 'matplotlib', 'numpy', 'jaxtyping'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    command = [sys.executable, "-c", code, str(ROOT / script), *flags]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert ("Usage" in done.stdout) == (flags == ["--help"])
    assert not list(tmp_path.iterdir())


def start(folder: Path, *settings: str) -> subprocess.Popen[str]:
    command = [
        sys.executable,
        str(ROOT / "train.py"),
        "experiment=smoke",
        "trainer=cpu",
        "hydra.run.dir=run",
        *settings,
    ]
    return subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def wait_for(line: str, process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    while line not in process.stdout.readline():
        assert process.poll() is None


@pytest.mark.parametrize(
    ("signum", "status"), [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.slow)]
)
def test_a_signal_ends_training_with_a_usable_checkpoint(signum, status, tmp_path):
    with start(tmp_path, "trainer.max_steps=1000000", "early_stopping.threshold=null") as process:
        wait_for("step ", process)
        process.send_signal(signum)
        sent = time.monotonic()
        said, complaints = process.communicate(timeout=60)
    # On lines of their own, below what the terminal shows of the keys.
    assert re.search(
        r"^\nInterrupted after step \d+\.\nGo on with it:  \S*python train\.py resume=run\n", said, re.MULTILINE
    )
    assert process.returncode == status, complaints
    assert time.monotonic() - sent < 10
    assert complaints == ""
    assert torch.load(tmp_path / "run/checkpoints/last.ckpt", weights_only=True)["global_step"] >= 10


@pytest.mark.parametrize(("signum", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("line", ["Training", "step    20"])
@pytest.mark.slow
def test_a_signal_is_heard_before_the_first_step_and_after_the_last(signum, status, line, tmp_path):
    with start(tmp_path, "data.test_size=20000") as process:
        wait_for(line, process)
        process.send_signal(signum)
        _, complaints = process.communicate(timeout=60)
    assert process.returncode == status, complaints
    assert complaints == ""
    assert not (tmp_path / "run/metrics.json").exists()


@pytest.mark.slow
@pytest.mark.parametrize(("signum", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_to_the_whole_group_is_no_error_of_its_workers(signum, status, tmp_path):
    with start(tmp_path, "trainer.max_steps=1000000", "data.num_workers=2") as process:
        wait_for("step ", process)
        os.killpg(process.pid, signum)
        try:
            _, complaints = process.communicate(timeout=30)
        finally:
            process.kill()
    assert process.returncode == status, complaints
    assert complaints == ""
    assert torch.load(tmp_path / "run/checkpoints/last.ckpt", weights_only=True)["global_step"] >= 10


@pytest.mark.slow
def test_somebody_at_a_terminal_is_told_at_once_what_takes_seconds(tmp_path):
    ours, its = pty.openpty()
    command = [sys.executable, str(ROOT / "evaluate.py"), "checkpoint=nowhere.ckpt"]
    done = subprocess.run(command, cwd=tmp_path, stdout=its, stderr=subprocess.PIPE, text=True, check=False)
    assert os.read(ours, 1000) == b"Loading PyTorch ...\r\n"
    assert done.returncode == 2
    assert done.stderr.startswith("error: checkpoint=nowhere.ckpt ")
    os.close(ours)
    os.close(its)
