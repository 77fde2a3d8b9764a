"""`loop`: what the loop of `train.py` costs beside a plain one that learns the same."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from attention_lab.benchmark.choices import CHECKOUT
from attention_lab.benchmark.loop_table import Loop, extra_milliseconds, loop_rows, loop_table
from attention_lab.benchmark.machine import Machine
from attention_lab.benchmark.options import BenchmarkError, LoopOptions
from attention_lab.benchmark.plain_loop import PlainLoop
from attention_lab.runs.files import write_csv, write_json, write_text
from attention_lab.runs.trained import Trained, load_trained
from attention_lab.training.tuning import flush_denormals

EXPERIMENT = "fixed_length_reverse"
"""The smallest network there is, so that what surrounds its steps counts most."""

WARM_UP = 50
"""Steps before the clock runs."""


class Finished(NamedTuple):
    """A run of `train.py`.

    Attributes:
        trained: its best checkpoint.
        seconds: what training took, by its `metrics.json`.
    """

    trained: Trained
    seconds: float


def run_loop(options: LoopOptions, out: Path) -> str:
    """Measures, leaves `loop.json`, `loop.csv` and `loop.md` in a folder, and returns the table.

    Raises:
        BenchmarkError: `train.py` failed.
    """
    # Both loops are to compute alike.
    flush_denormals()
    machine = Machine("cpu", "32-true", options.threads)
    plain, command = Loop("plain loop of PyTorch", [], []), Loop("train.py", [], [])
    for number in range(options.rounds):
        _say(f"round {number + 1} of {options.rounds}")
        _time_both(plain, command, options, machine)
    for seed in range(options.seeds):
        _say(f"seed {seed}")
        trained = run_command([f"seed={seed}"], options.threads).trained
        command.solved.append(trained.solved)
        plain.solved.append(PlainLoop(trained).until_solved())
    loops = (plain, command)
    content: dict[str, Any] = {
        "options": asdict(options),
        "machine": machine.described(),
        "experiment": EXPERIMENT,
        "extra_milliseconds": extra_milliseconds(command, plain),
        "loops": loop_rows(loops),
    }
    write_json(content, out / "loop.json")
    write_csv([{name: _cell(value) for name, value in row.items()} for row in loop_rows(loops)], out / "loop.csv")
    write_text(loop_table(loops), out / "loop.md")
    return loop_table(loops)


def run_command(overrides: Sequence[str], threads: int | None) -> Finished:
    """Trains with `train.py` in a fresh process.

    Raises:
        BenchmarkError: it failed.
    """
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        asked = [f"experiment={EXPERIMENT}", "trainer=cpu", *overrides, f"hydra.run.dir={run}"]
        done = subprocess.run(
            [sys.executable, str(CHECKOUT / "train.py"), *asked],
            capture_output=True,
            text=True,
            check=False,
            env=os.environ | ({} if threads is None else {"OMP_NUM_THREADS": str(threads)}),
        )
        if done.returncode:
            lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
            raise BenchmarkError(f"train.py {' '.join(asked)} failed: {lines[-1]}")
        metrics = json.loads((run / "metrics.json").read_text())
        return Finished(load_trained(run / "checkpoints" / "best.ckpt"), metrics["train/seconds"])


def _time_both(plain: Loop, command: Loop, options: LoopOptions, machine: Machine) -> None:
    """Times the same steps of both loops; what comes before and after them in `train.py` is a shorter run's time."""
    short, long = (
        run_command([f"trainer.max_steps={steps}", f"trainer.validate_every={steps}"], options.threads)
        for steps in (WARM_UP, WARM_UP + options.steps)
    )
    command.milliseconds.append(1000 * (long.seconds - short.seconds) / options.steps)
    loop = PlainLoop(long.trained)
    loop.run(WARM_UP)
    plain.milliseconds.append(1000 * machine.seconds(lambda: loop.run(options.steps)) / options.steps)


def _cell(value: object) -> object:
    return " ".join(f"{each:.4g}" for each in value if each is not None) if isinstance(value, list) else value


def _say(what: str) -> None:
    print(what, file=sys.stderr, flush=True)
