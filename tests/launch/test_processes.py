"""What becomes of functions that are run in new processes: any that these can import will do."""

import logging
import os
import signal
from pathlib import Path

import pytest

from attention_lab.errors import Interrupted
from attention_lab.launch.processes import launch
from attention_lab.launch.world import ProcessLost


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
