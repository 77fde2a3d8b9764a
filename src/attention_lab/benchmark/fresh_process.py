"""Measures in a fresh process, so that no other measurement has left anything in its memory."""

import os
import pickle
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar, cast

T = TypeVar("T")

_TIGHT_HEAP = {"MALLOC_MMAP_THRESHOLD_": str(2**18)}
"""Makes glibc give tensors that are freed back to the system, in place of a heap that falls into pieces as it grows."""


class MeasurementError(Exception):
    """A process ended without a result; says why in one line."""


def in_fresh_process(measure: Callable[[], T], timeout: int | None = None, *, tight_heap: bool = False) -> T:
    """Calls a function in a process of its own and returns its result.

    Args:
        measure: what to call: a function of a module that is quick to import, with its arguments. These and the result
            travel by pickle.
        timeout: seconds that the process may take; None waits for ever.
        tight_heap: give tensors that are freed back to the system at once, as a measurement of memory wants it.

    Raises:
        MeasurementError: it took too long, was killed (as the system does when memory runs out), or raised an error.
    """
    try:
        done = subprocess.run(
            [sys.executable, "-m", __name__],
            input=pickle.dumps(measure),
            capture_output=True,
            timeout=timeout,
            check=False,
            env=os.environ | (_TIGHT_HEAP if tight_heap else {}),
        )
    except subprocess.TimeoutExpired:
        raise MeasurementError(f"took more than {timeout} s") from None
    if done.returncode < 0:
        raise MeasurementError(f"killed by signal {-done.returncode}, as happens when memory runs out")
    if done.returncode:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        raise MeasurementError(lines[-1] if lines else f"exit code {done.returncode}")
    return cast(T, pickle.loads(done.stdout))


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


if __name__ == "__main__":
    # Nothing else that is printed may come between.
    answer, sys.stdout = sys.stdout, sys.stderr
    pickle.dump(pickle.load(sys.stdin.buffer)(), answer.buffer)
