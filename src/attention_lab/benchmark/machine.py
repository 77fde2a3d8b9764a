"""The machine that figures are measured on: what it is, its clock and its memory, and who has it when."""

import platform
import re
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import torch

from attention_lab.benchmark.fresh_process import in_fresh_process, peak_resident_bytes
from attention_lab.benchmark.settings import DeviceSettings
from attention_lab.errors import SettingError

Rates = Mapping[str, Sequence[float]]
"""Tokens per second of each contender, round by round; the first one is the reference."""


class Machine:
    """A device at a precision.

    Raises:
        SettingError: a GPU is asked for and there is none.
    """

    def __init__(self, settings: DeviceSettings) -> None:
        if settings.device == "gpu" and not torch.cuda.is_available():
            raise SettingError("device", "gpu", "needs a CUDA GPU and none is visible; use device=cpu")
        if settings.threads is not None:
            torch.set_num_threads(settings.threads)
        self.is_gpu = settings.device != "cpu" and torch.cuda.is_available()
        self.device = torch.device("cuda" if self.is_gpu else "cpu")
        able = self.is_gpu and torch.cuda.is_bf16_supported()
        mixed = settings.precision == "bf16-mixed" or (settings.precision == "auto" and able)
        self.precision = "bf16-mixed" if mixed else "32-true"

    def computing(self) -> AbstractContextManager[Any]:
        """Returns the context in which networks run at this precision."""
        mixed = self.precision == "bf16-mixed"
        return torch.autocast(self.device.type, torch.bfloat16) if mixed else nullcontext()

    def seconds(self, run: Callable[[], object]) -> float:
        """Returns how long a call takes, the GPU's work included."""
        self._wait()
        start = time.perf_counter()
        run()
        self._wait()
        return time.perf_counter() - start

    def peak_bytes(self, run: Callable[[], object]) -> int:
        """Returns a GPU's peak memory during a call on top of what it held before, or a CPU process's peak so far."""
        if not self.is_gpu:
            run()
            return peak_resident_bytes()
        self._wait()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        run()
        self._wait()
        return torch.cuda.max_memory_allocated() - before

    def mebibytes(self, measure: Callable[[int], int], steps: int, timeout: int | None = None) -> float:
        """Returns the MiB that steps take in a fresh process, on a CPU on top of one that does all else alike.

        Args:
            measure: takes a number of steps and returns `peak_bytes`.
            steps: how many to take.
            timeout: seconds that a process may take.

        Raises:
            MeasurementError: a process failed.
        """
        peak = in_fresh_process(partial(measure, steps), timeout, tight_heap=True)
        baseline = 0 if self.is_gpu else in_fresh_process(partial(measure, 0), timeout, tight_heap=True)
        return max(peak - baseline, 0) / 2**20

    def description(self) -> dict[str, str | int]:
        """Returns what to know about figures that were measured here."""
        return {
            "device": torch.cuda.get_device_name() if self.is_gpu else _processor(),
            "precision": self.precision,
            "threads": torch.get_num_threads(),
            "torch": torch.__version__,
            "python": platform.python_version(),
            "system": platform.platform(),
        }

    def _wait(self) -> None:
        if self.is_gpu:
            torch.cuda.synchronize()


def _processor() -> str:
    """Returns the name under which the CPU is sold, where the system tells."""
    info = Path("/proc/cpuinfo")
    name = re.search(r"^model name\s*:\s*(.+)$", info.read_text(), re.MULTILINE) if info.exists() else None
    return name[1] if name else platform.processor() or platform.machine()


def take_turns(
    contenders: Mapping[str, Callable[[int], int]], warm_up: int, work: int, rounds: int, machine: Machine
) -> Rates:
    """Lets contenders run by turns, A B C, A B C, ...: whatever else the machine does slows all of them alike.

    Args:
        contenders: by name, what does an amount of work and returns how many tokens came of it.
        warm_up: amount of work before the clock runs.
        work: amount of work a round.
        rounds: how often each has its turn.
        machine: whose clock is used.
    """
    for run in contenders.values():
        run(warm_up)
    rates: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, run in contenders.items():
            tokens: list[int] = []
            seconds = machine.seconds(lambda run=run, tokens=tokens: tokens.append(run(work)))
            rates[name].append(tokens[0] / seconds)
    return rates


def median_ratios(rates: Rates) -> dict[str, float]:
    """Returns how many times as fast as each the reference was: the medians of the ratios within rounds."""
    reference = next(iter(rates.values()))
    return {
        name: statistics.median(ours / theirs for ours, theirs in zip(reference, own, strict=True))
        for name, own in rates.items()
    }
