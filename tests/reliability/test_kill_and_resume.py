"""A training that is killed again and again and goes on each time ends as one that never was: bit for bit."""

import functools
import hashlib
import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

ROOT = Path(__file__).parents[2]

# Dropout and drawn positions take random numbers at every step, and epochs of seven batches end in the middle.
RUN = (
    "experiment=smoke",
    "trainer.accelerator=cpu",
    "trainer.max_steps=60",
    "trainer.validate_every=5",
    "data.train_size=200",
    "data.batch_size=32",
    "model.dropout=0.1",
    "position_sampling.range=64",
    "callbacks.attention_maps=false",
)


def start(folder: Path, *settings: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(ROOT / "train.py"), *settings],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def begun(process: subprocess.Popen[str]) -> bool:
    """Waits until training begins; says whether it does."""
    assert process.stdout is not None
    return any(line.startswith("Training") for line in process.stdout)


def finish(process: subprocess.Popen[str]) -> None:
    said = process.communicate(timeout=120)[0]
    assert process.returncode == 0, said


def content(run: Path, name: str) -> dict[str, Any]:
    return torch.load(run / "checkpoints" / f"{name}.ckpt", weights_only=True)


def digest(part: Any) -> str:
    """Returns a hash of all numbers in a nested structure."""
    total = hashlib.sha256()

    def add(value: Any) -> None:
        if isinstance(value, dict):
            for key in sorted(value, key=str):
                total.update(str(key).encode())
                add(value[key])
        elif isinstance(value, (list, tuple)):
            for item in value:
                add(item)
        elif isinstance(value, torch.Tensor):
            total.update(value.numpy().tobytes())
        else:
            total.update(repr(value).encode())

    add(part)
    return total.hexdigest()


def state(run: Path, name: str) -> dict[str, str]:
    """Returns hashes of all that a training consists of."""
    saved = content(run, name)
    kept = ("state_dict", "optimizer_states", "lr_schedulers", "global_step")
    return {part: digest(saved[part]) for part in kept} | {
        "random": digest(saved["callbacks"]["ExactResume"]),
        "best": digest(saved["callbacks"]["BestAndLast"]),
    }


def scalars(run: Path) -> dict[str, list[tuple[int, float]]]:
    """Returns every scalar as it lies on disk, whatever a reader would make of it."""
    found: dict[str, list[tuple[int, float]]] = {}
    for path in sorted((run / "tensorboard").glob("events*")):
        for event in EventFileLoader(str(path)).Load():
            for value in event.summary.value:
                if value.metadata.plugin_data.plugin_name == "scalars":
                    number = value.tensor.float_val[0]
                    found.setdefault(value.tag, []).append((event.step, number))
    return found


def numbers(run: Path) -> dict[str, Any]:
    metrics = json.loads((run / "metrics.json").read_text())
    return {name: value for name, value in metrics.items() if name not in ("train/seconds", "checkpoint")}


def assert_same(interrupted: Path, whole: Path, signalled: bool = False) -> None:
    """Holds all that two trainings have left against each other.

    A signal ends training in good order: the step that was the last one then is logged, as at any end.
    """
    for name in ("last", "best"):
        assert state(interrupted, name) == state(whole, name)
    assert numbers(interrupted) == numbers(whole)
    assert (interrupted / "alignment.jsonl").read_bytes() == (whole / "alignment.jsonl").read_bytes()
    curves = scalars(interrupted)
    for tag, points in curves.items():
        steps = [step for step, _ in points]
        assert steps == sorted(set(steps)), f"{tag} goes back, or has a step twice"
    expected = scalars(whole)
    if signalled:
        for tag in ("train/loss", "train/learning_rate"):
            more = set(curves[tag]) - set(expected[tag])
            assert len(more) <= 1
            expected[tag] = sorted({*expected[tag], *more})
    assert curves == expected
    assert not list(interrupted.rglob("*.part"))


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Callable[[int], Path]:
    """Returns the folder of a training in so many processes that nothing has stopped."""

    @functools.cache
    def trained(processes: int) -> Path:
        folder = tmp_path_factory.mktemp("whole")
        finish(start(folder, *RUN, f"trainer.devices={processes}", "hydra.run.dir=run"))
        return folder / "run"

    return trained


def kill_until_done(folder: Path, processes: int, kills: int, seed: int, pause: float) -> int:
    """Trains in a folder, killed at random moments, until there were enough kills; then lets it finish.

    Returns:
        How often it was killed in the middle of its training.
    """
    chance = random.Random(seed)
    killed = 0
    settings = [*RUN, f"trainer.devices={processes}", "hydra.run.dir=run"]
    while killed < kills:
        with start(folder, *settings) as process:
            assert begun(process)
            settings = ["resume=run"]
            time.sleep(chance.uniform(0, pause))
            process.send_signal(signal.SIGKILL)
        if process.returncode == 0:
            return killed
        killed += 1
    finish(start(folder, *settings))
    return killed


@pytest.mark.slow
def test_a_kill_changes_nothing(whole, tmp_path):
    assert kill_until_done(tmp_path, processes=1, kills=1, seed=1, pause=0.7) == 1
    assert_same(tmp_path / "run", whole(1))


@pytest.mark.slow
@pytest.mark.parametrize(("processes", "kills"), [(1, 20), (2, 10)])
def test_many_kills_change_nothing(whole, tmp_path, processes, kills):
    # The first half second of two processes goes into finding each other.
    assert kill_until_done(tmp_path, processes, kills, seed=2, pause=0.3 * processes) == kills
    assert_same(tmp_path / "run", whole(processes))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("signum", "moment", "processes"),
    [(signal.SIGTERM, "step     5 ", 1), (signal.SIGINT, "step    30 ", 1), (signal.SIGTERM, "step    30 ", 2)],
)
def test_a_signal_changes_nothing(whole, tmp_path, signum, moment, processes):
    with start(tmp_path, *RUN, f"trainer.devices={processes}", "hydra.run.dir=run") as process:
        assert process.stdout is not None
        assert any(line.startswith(moment) for line in process.stdout)
        process.send_signal(signum)
        process.communicate(timeout=30)
    assert process.returncode == 128 + signum
    finish(start(tmp_path, "resume=run"))
    assert_same(tmp_path / "run", whole(processes), signalled=True)
