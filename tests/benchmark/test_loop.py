"""The plain loop takes the very steps of `train.py`, and both are timed and told."""

import csv
import json
import logging
import runpy
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from hydra.core.global_hydra import GlobalHydra

from attention_lab.benchmark import loop
from attention_lab.benchmark.__main__ import main
from attention_lab.benchmark.fresh_process import MeasurementError
from attention_lab.benchmark.loop import Loop, PlainRun, extra_milliseconds, loop_rows, loop_table, run_command
from attention_lab.benchmark.machine import Machine
from attention_lab.benchmark.settings import DeviceSettings
from attention_lab.runs.checkpoint import Solved
from attention_lab.runs.trained import Trained

SMALL = "data.train_size=131 data.validation_size=17 data.test_size=17 data.batch_size=47 data.min_length=5"
SHORT = "data.max_length=5 trainer.max_steps=8 trainer.validate_every=4 optimizer.weight_decay=0.1 seed=7"


@pytest.fixture(scope="module")
def trained() -> Trained:
    """A run of three steps an epoch, so that it meets two batches that are not whole; by `train.py` in this process."""

    def train(arguments: list[str], **_: object) -> "subprocess.CompletedProcess[str]":
        GlobalHydra.instance().clear()
        patch.setattr(sys, "argv", arguments[1:])
        with pytest.raises(SystemExit) as end:
            runpy.run_path(arguments[1], run_name="__main__")
        return subprocess.CompletedProcess(arguments, end.value.code, "", "")

    handlers, signals = logging.getLogger().handlers[:], (signal.SIGINT, signal.SIGTERM)
    before = {signum: signal.getsignal(signum) for signum in signals}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HYDRA_FULL_ERROR", "0")
        patch.setattr(loop, "subprocess", SimpleNamespace(run=train))
        trained, seconds = run_command([*SMALL.split(), *SHORT.split()], threads=1)
    assert seconds > 0
    for signum, handler in before.items():
        signal.signal(signum, handler)
    for handler in [handler for handler in logging.getLogger().handlers if handler not in handlers]:
        logging.getLogger().removeHandler(handler)
        handler.close()
    return trained


@pytest.fixture
def again(trained: Trained) -> PlainRun:
    return PlainRun(trained, Machine(DeviceSettings(device="cpu")))


def test_the_plain_loop_takes_the_same_steps(trained: Trained, again: PlainRun) -> None:
    assert trained.step == 8
    before = [weights.clone() for weights in again.network.parameters()]
    again.run(3)
    again.run(5)
    assert all(not torch.equal(old, new) for old, new in zip(before, again.network.parameters(), strict=True))
    weights, expected = again.network.state_dict(), trained.network.state_dict()
    for each in (weights, expected):
        # Softmax takes no notice of it, so its gradient is rounding, which AdamW makes as large as all others.
        del each["blocks.0.attn.w_k.bias"]
    torch.testing.assert_close(weights, expected)


def test_it_tells_at_which_validation_the_task_was_solved(again: PlainRun, monkeypatch: pytest.MonkeyPatch) -> None:
    scores = iter([0.5, 0.99])
    monkeypatch.setattr(loop, "teacher_forced", lambda *_: {"exact_match": next(scores)})
    solved = again.until_solved()
    assert solved is not None
    assert solved.step == 8
    assert solved.seconds > 0


def test_it_ends_with_the_budget(again: PlainRun) -> None:
    assert again.until_solved() is None


def test_a_run_that_fails_is_told_in_a_line() -> None:
    with pytest.raises(MeasurementError, match=r"^train\.py .* failed: error: trainer\.max_step=3 is not a setting"):
        run_command(["trainer.max_step=3"], threads=None)


@pytest.mark.slow
def test_train_py_runs_in_a_fresh_process() -> None:
    trained, seconds = run_command([*SMALL.split(), *SHORT.split()], threads=1)
    assert trained.step == 8
    assert seconds > 0


def test_loop_leaves_tables(
    trained: Trained, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []

    def run(overrides: list[str], threads: int | None) -> tuple[Trained, float]:
        assert threads is None
        asked.append(overrides)
        # A run of 53 steps takes three times 7 ms longer than one of 50.
        steps = int(overrides[0].partition("=")[2])
        return trained._replace(solved=Solved(40, 0.5)), 0.2 + 0.007 * steps

    monkeypatch.setattr(loop, "run_command", run)
    assert main(["loop", "--steps", "3", "--rounds", "2", "--seeds", "1", "--out", str(tmp_path)]) == 0
    timed = [[f"trainer.max_steps={steps}", f"trainer.validate_every={steps}"] for steps in (50, 53)]
    assert asked == [*timed, *timed, ["seed=0"]]
    assert {path.name for path in tmp_path.iterdir()} == {"loop.json", "loop.csv", "loop.md"}
    assert (tmp_path / "loop.md").read_text() in capsys.readouterr().out
    report = json.loads((tmp_path / "loop.json").read_text())
    plain, command = report["loops"]
    assert command["rounds"] == pytest.approx([7.0, 7.0])
    assert len(plain["rounds"]) == 2
    assert 0 < plain["milliseconds"] == pytest.approx(7.0 - report["extra_milliseconds"])
    assert (command["steps_to_solve"], plain["steps_to_solve"]) == ([40], [None])
    assert len(list(csv.DictReader((tmp_path / "loop.csv").read_text().splitlines()))) == 2


PLAIN = Loop("plain", [5.0, 8.0, 5.2], [Solved(60, 0.4), Solved(100, 0.625)])
COMMAND = Loop("train.py", [5.5, 11.0, 5.4], [Solved(80, 0.75), None])


def test_a_slow_round_is_slow_for_both() -> None:
    # Differences of 0.5, 3.0 and 0.2.
    assert extra_milliseconds(COMMAND, PLAIN) == pytest.approx(0.5)
    assert extra_milliseconds(PLAIN, PLAIN) == 0


def test_the_table_of_loops() -> None:
    assert loop_table([PLAIN, COMMAND]).splitlines() == [
        "| loop | ms a step | ms more | steps to 99 % | seconds |",
        "| --- | --- | --- | --- | --- |",
        "| plain | 5.20 | 0.00 | 60, 100 | 0.40, 0.62 |",
        "| train.py | 5.50 | 0.50 | 80, – | 0.75, – |",
    ]
    assert [row["seconds_to_solve"] for row in loop_rows([PLAIN, COMMAND])] == [[0.4, 0.625], [0.75, None]]
