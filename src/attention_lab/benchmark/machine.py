"""The machine that figures are measured on: what it is, what runs on it, and its clock and memory."""

import platform
import re
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch

from attention_lab.benchmark.alone import peak_resident_bytes
from attention_lab.benchmark.options import BenchmarkError


class Machine:
    """A device at a precision.

    Args:
        device: `auto`, `cpu` or `gpu`.
        precision: `auto`, `32-true` or `bf16-mixed`.
        threads: threads on a CPU; None leaves the choice to PyTorch.

    Raises:
        BenchmarkError: a GPU is asked for and there is none.
    """

    def __init__(self, device: str, precision: str, threads: int | None) -> None:
        if device == "gpu" and not torch.cuda.is_available():
            raise BenchmarkError("--device gpu needs a CUDA GPU and none is visible; use --device cpu")
        if threads is not None:
            torch.set_num_threads(threads)
        self.is_gpu = device != "cpu" and torch.cuda.is_available()
        self.device = torch.device("cuda" if self.is_gpu else "cpu")
        mixed = precision == "bf16-mixed" or (precision == "auto" and self.is_gpu and torch.cuda.is_bf16_supported())
        self.precision = "bf16-mixed" if mixed else "32-true"

    def computing(self) -> AbstractContextManager[Any]:
        """Returns the context in which networks run at this precision."""
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.precision == "bf16-mixed")

    def seconds(self, run: Callable[[], object]) -> float:
        """Returns how long a call takes, the GPU's work included."""
        self._wait()
        start = time.perf_counter()
        run()
        self._wait()
        return time.perf_counter() - start

    def peak_bytes(self, run: Callable[[], object]) -> int:
        """Returns a GPU's peak memory during a call on top of what it held before, or a CPU process's peak so far.

        A CPU process's peak has a meaning only next to that of a process that did everything else alike.
        """
        if not self.is_gpu:
            run()
            return peak_resident_bytes()
        self._wait()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        run()
        self._wait()
        return torch.cuda.max_memory_allocated() - before

    def described(self) -> dict[str, Any]:
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
