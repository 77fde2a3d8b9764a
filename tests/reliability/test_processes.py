"""Two processes that train together: the numbers of one, the files of one, and no waiting for one that is gone."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

# Many processes, each of which imports everything first.
pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
# Nothing is random but what a seed decides alike for any number of processes; batches and splits do not divide by two.
RUN = ("experiment=smoke", "trainer.accelerator=cpu", "data.batch_size=17", "data.validation_size=41")


def train(
    folder: Path, *settings: str, by: tuple[str, ...] = (), start_new_session: bool = False
) -> subprocess.Popen[str]:
    command = [sys.executable, *by, str(ROOT / "train.py"), *RUN, *settings]
    return subprocess.Popen(
        command,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=start_new_session,
    )


def finish(process: subprocess.Popen[str]) -> str:
    said, complaints = process.communicate(timeout=120)
    assert process.returncode == 0, complaints
    return said


@pytest.fixture(scope="module", params=["own", "torchrun"])
def runs(request, tmp_path_factory) -> tuple[Path, Path]:
    """Returns the folders of one training by one process, and by two: started by the first, or by torchrun."""
    folder = tmp_path_factory.mktemp("runs")
    finish(train(folder, "hydra.run.dir=one"))
    torchrun = ("-m", "torch.distributed.run", "--nproc-per-node=2", f"--master-port={29500 + os.getpid() % 1000}")
    finish(train(folder, "trainer=ddp", "hydra.run.dir=two", by=torchrun if request.param == "torchrun" else ()))
    return folder / "one", folder / "two"


def scalars(run: Path) -> dict[tuple[str, int], float]:
    events = [event for path in run.glob("tensorboard/events*") for event in EventFileLoader(str(path)).Load()]
    values = [(event.step, value) for event in events for value in event.summary.value]
    return {
        (value.tag, step): value.tensor.float_val[0]
        for step, value in values
        if value.metadata.plugin_data.plugin_name == "scalars"
    }


def test_two_processes_log_what_one_logs(runs):
    one, two = (scalars(run) for run in runs)
    assert {"train/loss", "val/loss", "val/exact_match", "val/alignment_mass"} <= {tag for tag, _ in one}
    assert two == pytest.approx(one, rel=1e-5, abs=1e-6)


def test_two_processes_train_the_network_of_one(runs):
    one, two = (torch.load(run / "checkpoints/last.ckpt", weights_only=True) for run in runs)
    assert two["global_step"] == one["global_step"]
    for name, value in one["state_dict"].items():
        # A bias of all keys changes no attention: its gradient is rounding, which AdamW makes large.
        if not name.endswith("w_k.bias"):
            torch.testing.assert_close(two["state_dict"][name], value, rtol=1e-4, atol=1e-5)


def test_the_same_weights_have_the_same_metrics(runs, tmp_path):
    # A step too small to change anything, so that both validate the checkpoint they begin with.
    still = ("optimizer.learning_rate=1e-30", "optimizer.final_learning_rate=0", "trainer.max_steps=1")
    found = []
    for devices in (1, 2):
        folder = tmp_path / str(devices)
        settings = (*still, f"init_from={runs[0]}/checkpoints/best.ckpt", f"trainer.devices={devices}")
        finish(train(tmp_path, *settings, f"hydra.run.dir={folder}"))
        figures = {tag: value for (tag, _), value in scalars(folder).items() if tag.startswith(("val/", "alignment"))}
        found.append(figures | json.loads((folder / "metrics.json").read_text()))
    for figures in found:
        del figures["checkpoint"], figures["train/seconds"]
    assert found[1] == pytest.approx(found[0], rel=1e-6, abs=1e-6)


def test_one_process_writes(runs):
    for run in runs:
        assert sorted(path.name for path in run.iterdir()) == sorted(path.name for path in runs[0].iterdir())
        lines = (run / "train.log").read_text().splitlines()
        assert len([line for line in lines if "Training reverse" in line]) == 1


@pytest.mark.parametrize("lost", [0, 1])
def test_a_process_that_is_gone_ends_the_others_in_one_line(lost, tmp_path):
    with train(tmp_path, "trainer=ddp", "trainer.max_steps=1000000", "hydra.run.dir=run") as process:
        assert process.stdout is not None
        assert any(line.startswith("step    20") for line in process.stdout)
        # Python's own resource tracker is the first child, and is none of them.
        listing = ["pgrep", "-P", str(process.pid), "-f", "spawn_main"]
        first, second = map(int, subprocess.run(listing, capture_output=True, text=True, check=True).stdout.split())
        os.kill(first if lost == 0 else second, signal.SIGKILL)
        sent = time.monotonic()
        _, complaints = process.communicate(timeout=60)
    assert process.returncode == 1
    assert time.monotonic() - sent < 30
    assert len(complaints.splitlines()) == 1, complaints
    assert f"trainer.devices=2: process {lost} has ended with status -9" in complaints
    assert torch.load(tmp_path / "run/checkpoints/last.ckpt", weights_only=True)["global_step"] >= 10


@pytest.mark.parametrize("seconds", [0.05, 2.5])
def test_ctrl_c_ends_two_processes_that_have_just_started_without_a_word(tmp_path, seconds):
    process = train(tmp_path, "trainer=ddp", "hydra.run.dir=run", start_new_session=True)
    assert process.stdout is not None
    assert any(line.startswith("Training") for line in process.stdout)
    time.sleep(seconds)
    os.killpg(process.pid, signal.SIGINT)
    sent = time.monotonic()
    _, complaints = process.communicate(timeout=60)
    assert (process.returncode, complaints) == (130, "")
    assert time.monotonic() - sent < 10


def test_more_processes_than_sequences_are_refused(tmp_path):
    process = train(tmp_path, "trainer.devices=18")
    _, complaints = process.communicate(timeout=60)
    assert process.returncode == 2
    assert complaints.startswith("error: trainer.devices=18 ")
    assert len(complaints.splitlines()) == 1


@pytest.mark.parametrize("attempt", range(5))
def test_what_all_refuse_the_first_one_says_and_leaves_no_folder(tmp_path, attempt):
    port = 29500 + (os.getpid() + attempt) % 1000
    torchrun = ("-m", "torch.distributed.run", "--nproc-per-node=2", f"--master-port={port}")
    process = train(tmp_path, "trainer=ddp", "model.num_heads=7", "hydra.run.dir=zz", by=torchrun)
    said, complaints = process.communicate(timeout=120)
    # What torchrun has to say about it comes after.
    ours = [line for line in complaints.splitlines() if line.startswith("error: ") or "Error:" in line]
    assert len([line for line in ours if line.startswith("error: model.num_heads=7 ")]) == 1, complaints
    assert not [line for line in ours if "FileNotFoundError" in line or "Interrupted" in line], complaints
    assert said == ""
    assert not (tmp_path / "zz").exists()
