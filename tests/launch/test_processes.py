"""What becomes of functions that are run in new processes: any that these can import will do."""

import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from threading import Timer

import pytest
from torch.distributed import init_process_group

from attention_lab.errors import Interrupted
from attention_lab.launch.processes import launch
from attention_lab.launch.world import ProcessLost, interrupt


def test_the_first_process_answers_and_logs_and_the_world_is_torchruns(caplog):
    handlers = {signum: signal.getsignal(signum) for signum in (signal.SIGINT, signal.SIGTERM)}
    with caplog.at_level(logging.INFO):
        assert launch(logging.getLogger("some").info, 2, "rank %s", 7) is None
    assert caplog.messages == ["rank 7"]
    assert handlers == {signum: signal.getsignal(signum) for signum in handlers}
    assert "RANK" not in os.environ


@pytest.mark.slow
@pytest.mark.parametrize(("name", "value"), [("RANK", "0"), ("WORLD_SIZE", "2"), ("MASTER_ADDR", "127.0.0.1")])
def test_each_process_is_told_its_place(name, value):
    assert launch(os.getenv, 2, name) == value


def test_what_the_first_refuses_is_raised_here(tmp_path):
    with pytest.raises(FileNotFoundError) as missing:
        launch(os.listdir, 2, str(tmp_path / "missing"))
    assert missing.value.filename == str(tmp_path / "missing")


@pytest.mark.slow
@pytest.mark.parametrize(("signum", "raised"), [(signal.SIGKILL, ProcessLost), (signal.SIGTERM, Interrupted)])
def test_a_process_that_is_killed_and_one_that_is_told_to_stop(signum, raised):
    with pytest.raises(raised):
        launch(signal.raise_signal, 2, signum)


@pytest.mark.slow
def test_one_that_waits_for_another_in_pytorch_stops_at_once():
    nobody = "tcp://127.0.0.1:1?rank=1&world_size=2"
    before = signal.signal(signal.SIGTERM, interrupt)
    told = Timer(8.0, os.kill, [os.getpid(), signal.SIGTERM])
    try:
        told.start()
        started = time.monotonic()
        with pytest.raises(Interrupted):
            launch(init_process_group, 1, "gloo", nobody)
    finally:
        told.cancel()
        signal.signal(signal.SIGTERM, before)
    assert time.monotonic() - started < 20


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [0.2, 1.0, 2.0])
def test_who_kills_the_launcher_ends_all_even_while_they_import(seconds):
    code = "import time, attention_lab.launch.processes as p; print('now', flush=True); p.launch(time.sleep, 2, 99)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as launcher:
        assert launcher.stdout is not None
        assert launcher.stdout.readline() == "now\n"
        time.sleep(seconds)
        children = Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children").read_text().split()
        launcher.kill()
    assert children
    ends = time.monotonic() + 30
    while left := [child for child in children if Path("/proc", child).exists()]:
        assert time.monotonic() < ends, left
        time.sleep(0.1)


@pytest.mark.slow
def test_a_fault_is_told_with_its_traceback():
    with pytest.raises(Exception, match="invalid literal for int"):
        launch(int, 1, "x")


@pytest.mark.slow
def test_nothing_is_left_behind():
    def children() -> set[str]:
        return {text for path in Path("/proc/self/task").glob("*/children") for text in path.read_text().split()}

    launch(os.getpid, 2)
    before = children()
    launch(os.getpid, 2)
    assert children() == before
