"""A measurement's process begins with its own memory, and how it fails is told in a line."""

import subprocess
import sys

import numpy as np
import pytest

from attention_lab.benchmark.alone import Failed, run_alone

LAYER = "attention_lab.benchmark.layer"
PEAK = "from attention_lab.benchmark.alone import peak_resident_bytes as peak; print(peak())"


def test_the_memory_of_the_parent_is_not_the_childs() -> None:
    held = np.ones(60_000_000)
    child = int(subprocess.run([sys.executable, "-c", PEAK], capture_output=True, text=True, check=True).stdout)
    assert 2**20 < child < held.nbytes / 2


def test_memory_that_was_given_back_still_counts() -> None:
    before = "import numpy as np; len(np.ones(20_000_000)); "
    plain, more = (
        int(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
        for code in ("import numpy as np; " + PEAK, before + PEAK)
    )
    assert 140e6 < more - plain < 180e6


def test_an_exception_is_told_in_its_last_line() -> None:
    with pytest.raises(Failed, match=r"^TypeError: .*unexpected keyword argument 'heads'"):
        run_alone(LAYER, {"heads": 3})


def test_what_takes_too_long_is_ended() -> None:
    endless = {
        "component": {"_target_": "torch.nn.RNN"},
        "need_weights": False,
        "length": 7,
        "batch_size": 1,
        "d_model": 3,
        "num_heads": 1,
        "d_ff": 3,
        "steps": 1,
        "repeats": 10**7,
        "device": "cpu",
        "precision": "auto",
        "threads": 1,
    }
    with pytest.raises(Failed, match=r"^took more than 1 s$"):
        run_alone(LAYER, endless, timeout=1)
