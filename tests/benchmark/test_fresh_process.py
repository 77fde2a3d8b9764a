"""A measurement's process begins with its own memory, and how it fails is told in a line."""

import os
import signal
import time
from functools import partial

import numpy as np
import pytest

from attention_lab.benchmark.fresh_process import MeasurementError, in_fresh_process, peak_resident_bytes


@pytest.mark.slow
def test_the_memory_of_the_parent_is_not_the_childs() -> None:
    large = np.ones(60_000_000)
    assert 2**20 < in_fresh_process(peak_resident_bytes) < large.nbytes / 2


@pytest.mark.slow
def test_memory_that_was_given_back_still_counts() -> None:
    before = peak_resident_bytes()
    len(np.ones((before + 160_000_000) // 8))
    assert peak_resident_bytes() > before + 150_000_000


def test_an_exception_is_told_in_its_last_line() -> None:
    with pytest.raises(MeasurementError, match=r"^ValueError: invalid literal for int\(\) with base 10: 'many'$"):
        in_fresh_process(partial(int, "many"))


def test_a_process_that_is_killed_is_told() -> None:
    with pytest.raises(MeasurementError, match=r"^killed by signal 9, as happens when memory runs out$"):
        in_fresh_process(partial(signal.raise_signal, signal.SIGKILL))


def test_what_takes_too_long_is_ended() -> None:
    with pytest.raises(MeasurementError, match=r"^took more than 1 s$"):
        in_fresh_process(partial(time.sleep, 60), timeout=1)


def test_what_is_printed_does_not_get_between() -> None:
    assert in_fresh_process(partial(print, "loud")) is None


def test_a_tight_heap_is_that_of_the_process_only() -> None:
    variable = "MALLOC_MMAP_THRESHOLD_"
    assert in_fresh_process(partial(os.getenv, variable), tight_heap=True) == str(2**18)
    assert in_fresh_process(partial(os.getenv, variable)) == os.getenv(variable)
