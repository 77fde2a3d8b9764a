"""Runs a measurement in a fresh process, so that no other one has left anything in its memory."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

TIGHT_HEAP = {"MALLOC_MMAP_THRESHOLD_": str(2**18)}
"""Makes glibc give tensors that are freed back to the system, in place of a heap that falls into pieces as it grows."""


class Failed(Exception):
    """A process ended without an answer; says why in one line."""


def run_alone(
    module: str, question: dict[str, Any], timeout: int | None = None, environment: dict[str, str] | None = None
) -> dict[str, Any]:
    """Starts a module that calls `answer` as a process and returns what it answers.

    Args:
        module: the module's full name.
        question: plain types.
        timeout: seconds that it may take.
        environment: variables on top of this process's own.

    Raises:
        Failed: it took too long, was killed (as the system does when memory runs out), or raised an exception.
    """
    try:
        done = subprocess.run(
            [sys.executable, "-m", module],
            input=json.dumps(question),
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
            env=os.environ | (environment or {}),
        )
    except subprocess.TimeoutExpired:
        raise Failed(f"took more than {timeout} s") from None
    if done.returncode < 0:
        raise Failed(f"killed by signal {-done.returncode}, as happens when memory runs out")
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        raise Failed(lines[-1] if lines else f"exit code {done.returncode}")
    return json.loads(done.stdout.splitlines()[-1])


def answer(measure: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Reads the question from standard input and writes the answer as the last line of standard output."""
    print(json.dumps(measure(json.load(sys.stdin))))


def peak_resident_bytes() -> int:
    """Returns the most memory that this process has held at any time so far."""
    status = Path("/proc/self/status")
    if status.exists():
        # `ru_maxrss` would start at what the *parent* held: Linux carries it over when a process becomes another one.
        peak = re.search(r"^VmHWM:\s+(\d+) kB$", status.read_text(), re.MULTILINE)
        if peak:
            return 1024 * int(peak[1])
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
