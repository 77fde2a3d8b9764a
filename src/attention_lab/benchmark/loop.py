"""`loop`: what the loop of `train.py` costs beside a plain one that learns the same."""

import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from attention_lab.benchmark.fresh_process import MeasurementError
from attention_lab.benchmark.machine import Machine
from attention_lab.benchmark.plain_loop import PlainLoop
from attention_lab.benchmark.results import Row, log, write_results
from attention_lab.benchmark.settings import DeviceSettings, LoopSettings
from attention_lab.cli.composing import checkout
from attention_lab.evaluation.scoring import teacher_forced
from attention_lab.report.tables import as_markdown
from attention_lab.runs.checkpoint import Solved
from attention_lab.runs.trained import Trained, load_trained, untrained_network
from attention_lab.settings.checking import build
from attention_lab.settings.schema import TrainSettings
from attention_lab.training.module import SOLVED
from attention_lab.training.tuning import flush_denormals

EXPERIMENT = "fixed_length_reverse"
"""The smallest network there is, so that what surrounds its steps counts most."""

WARM_UP = 50
"""Steps before the clock runs."""


_CPU = torch.device("cpu")


class Loop(NamedTuple):
    """What was measured of one loop.

    Attributes:
        name: what it is called.
        milliseconds: of a step, round by round.
        solved: when each run had solved the task; None if it never did.
    """

    name: str
    milliseconds: list[float]
    solved: list[Solved | None]


def run(settings: LoopSettings, out: Path) -> str:
    """Measures, leaves `loop.json`, `loop.csv` and `loop.md` in a folder, and returns the table.

    Raises:
        MeasurementError: `train.py` failed.
        SettingError: there is no clone.
    """
    # Both loops are to compute alike.
    flush_denormals()
    machine = Machine(DeviceSettings(threads=settings.threads, device="cpu", precision="32-true"))
    plain, command = Loop("plain loop of PyTorch", [], []), Loop("train.py", [], [])
    for number in range(settings.rounds):
        log(f"round {number + 1} of {settings.rounds}")
        _time_both(plain, command, settings, machine)
    for seed in range(settings.seeds):
        log(f"seed {seed}")
        trained, _ = run_command([f"seed={seed}"], settings.threads)
        command.solved.append(trained.solved)
        plain.solved.append(PlainRun(trained, machine).until_solved())
    loops = [plain, command]
    rows, table = loop_rows(loops), loop_table(loops)
    extra = extra_milliseconds(command, plain)
    write_results(
        out / "loop", settings, machine, rows, table, experiment=EXPERIMENT, extra_milliseconds=extra, loops=rows
    )
    return table


def run_command(overrides: Sequence[str], threads: int | None) -> tuple[Trained, float]:
    """Trains with `train.py` in a fresh process; returns its best checkpoint and the seconds of training.

    Raises:
        MeasurementError: it failed.
        SettingError: there is no clone.
    """
    train = checkout() / "train.py"
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        arguments = [f"experiment={EXPERIMENT}", "trainer=cpu", *overrides, f"hydra.run.dir={run}"]
        done = subprocess.run(
            [sys.executable, str(train), *arguments],
            capture_output=True,
            text=True,
            check=False,
            env=os.environ | ({} if threads is None else {"OMP_NUM_THREADS": str(threads)}),
        )
        if done.returncode:
            lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
            raise MeasurementError(f"train.py {' '.join(arguments)} failed: {lines[-1]}")
        metrics = json.loads((run / "metrics.json").read_text())
        return load_trained(run / "checkpoints" / "best.ckpt"), metrics["train/seconds"]


class PlainRun:
    """A run of `train.py` anew, by a plain loop from its network as it was before the first step.

    Its sources are all of one length, so that it was trained on whole batches.
    """

    def __init__(self, trained: Trained, machine: Machine) -> None:
        self.network = untrained_network(trained.settings)
        settings = build(TrainSettings, trained.config, "")
        self._loop = PlainLoop(self.network, self.network.logits, settings, machine)
        self._data = trained.data
        trained.data.endless = True
        self._batches = iter(trained.data.train_dataloader())
        self._trainer = settings.trainer

    def run(self, steps: int) -> None:
        """Takes so many steps."""
        for batch in itertools.islice(self._batches, steps):
            self._loop.step(batch)

    def until_solved(self) -> Solved | None:
        """Trains with the run's own budget, validated when the run was, and stops as soon as the task is solved."""
        every, start = self._trainer.validate_every, time.monotonic()
        for step in range(every, self._trainer.max_steps + 1, every):
            self.run(every)
            if teacher_forced(self.network, self._data.val_dataloader(), _CPU)["exact_match"] >= SOLVED:
                return Solved(step, time.monotonic() - start)
        return None


def _time_both(plain: Loop, command: Loop, settings: LoopSettings, machine: Machine) -> None:
    """Times the same steps of both loops; what comes before and after them in `train.py` is a shorter run's time."""
    (_, short), (trained, long) = (
        run_command([f"trainer.max_steps={steps}", f"trainer.validate_every={steps}"], settings.threads)
        for steps in (WARM_UP, WARM_UP + settings.steps)
    )
    command.milliseconds.append(1000 * (long - short) / settings.steps)
    again = PlainRun(trained, machine)
    again.run(WARM_UP)
    plain.milliseconds.append(1000 * machine.seconds(lambda: again.run(settings.steps)) / settings.steps)


def extra_milliseconds(loop: Loop, reference: Loop) -> float:
    """Returns what a step takes beyond one of the reference: the median of the rounds' differences."""
    rounds = zip(loop.milliseconds, reference.milliseconds, strict=True)
    return statistics.median(own - others for own, others in rounds)


def loop_rows(loops: Sequence[Loop]) -> list[Row]:
    """Returns one row a loop; the first one is the reference. Steps and seconds are None where a run solved nothing."""
    return [
        {
            "loop": loop.name,
            "milliseconds": statistics.median(loop.milliseconds),
            "extra_milliseconds": extra_milliseconds(loop, loops[0]),
            "rounds": loop.milliseconds,
            "steps_to_solve": [solved and solved.step for solved in loop.solved],
            "seconds_to_solve": [solved and solved.seconds for solved in loop.solved],
        }
        for loop in loops
    ]


def loop_table(loops: Sequence[Loop]) -> str:
    """Returns a row a loop as Markdown; the first one is the reference."""
    rows = [
        [
            loop.name,
            f"{statistics.median(loop.milliseconds):.2f}",
            f"{extra_milliseconds(loop, loops[0]):.2f}",
            ", ".join("–" if solved is None else str(solved.step) for solved in loop.solved),
            ", ".join("–" if solved is None else f"{solved.seconds:.2f}" for solved in loop.solved),
        ]
        for loop in loops
    ]
    return as_markdown(["loop", "ms a step", "ms more", "steps to 99 %", "seconds"], rows)
