"""Several processes that train one network: who starts them, and what becomes of them."""

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from attention_lab.errors import Interrupted, SettingError
from attention_lab.settings.checking import build
from attention_lab.settings.schema import TrainSettings

_NUMBER = "LOCAL_RANK"
"""By this variable Lightning, like torchrun, knows which of the processes of a machine this one is."""


def rank(environment: Mapping[str, str] = os.environ) -> int:
    """Returns the number of this process among those that train together; 0 is the first, or the only one."""
    by = {"torchrun": "RANK", "srun": "SLURM_PROCID"}.get(_starter(environment), _NUMBER)
    return int(environment.get(by, 0))


def started_by_another(environment: Mapping[str, str] = os.environ) -> bool:
    """Says whether torchrun or SLURM's srun has started this process and its like."""
    return bool(_starter(environment))


def check_processes(devices: int, environment: Mapping[str, str] = os.environ) -> None:
    """Refuses a training by other than as many processes as there are.

    Raises:
        SettingError: torchrun or srun has started another number of them.
    """
    starter = _starter(environment)
    if starter:
        there = int(environment["WORLD_SIZE" if starter == "torchrun" else _TASKS])
        if there != devices:
            raise SettingError(f"trainer.devices={devices} does not fit {starter}, which has started {there} processes")


_TASKS = "SLURM_STEP_NUM_TASKS"
"""By this variable srun, unlike the batch job around it, says how many processes it has started."""


def _starter(environment: Mapping[str, str]) -> str:
    if "TORCHELASTIC_RUN_ID" in environment:
        return "torchrun"
    return "srun" if int(environment.get(_TASKS, 1)) > 1 else ""


class ProcessLost(Exception):
    """One of several processes that train together has ended before its time."""

    def __init__(self, count: int, number: int, status: int) -> None:
        super().__init__(
            f"trainer.devices={count}: process {number} has ended with status {status}, and the others cannot go on "
            "without it; resume=FOLDER goes on with all of them"
        )


@contextmanager
def companions(count: int, config: dict[str, Any], run_dir: str) -> Generator[None]:
    """Starts the other processes of a training and ends them with it; none where something else has started them all.

    If one of them ends before its time, training ends as well: it would wait for that one for ever.

    Args:
        count: processes of the training, this one included.
        config: the run's config.
        run_dir: its folder.

    Raises:
        ProcessLost: one of them ended, and training failed for that.
    """
    if count == 1 or started_by_another() or rank() > 0:
        yield
        return
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    there = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "NODE_RANK": "0"}
    os.environ.update({**there, _NUMBER: "0"})
    others = [_started({**os.environ, _NUMBER: str(number)}, config, run_dir) for number in range(1, count)]
    over = threading.Event()
    threading.Thread(target=_watch, args=(others, over), daemon=True).start()
    try:
        yield
    except Exception as error:
        if not isinstance(error, SettingError):
            # Whoever was to answer next notices at once, mostly.
            time.sleep(0.5)
            lost = _lost(others)
            if lost is not None:
                raise lost from error
        raise
    else:
        over.set()
        for process in others:
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=10)
    finally:
        over.set()
        for name in (*there, _NUMBER):
            del os.environ[name]
        for process in others:
            # Still there where training failed or was interrupted: it has nothing to write, and may wait for long.
            process.kill()
            process.wait()


def _started(environment: dict[str, str], config: dict[str, Any], run_dir: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "attention_lab.launch.processes"],
        stdin=subprocess.PIPE,
        env=environment,
        text=True,
        # Ctrl-C is for the first process alone, which tells the others when and where to stop.
        start_new_session=True,
    )
    assert process.stdin is not None
    process.stdin.write(json.dumps({"config": config, "run_dir": run_dir}))
    process.stdin.close()
    return process


def _watch(others: list[subprocess.Popen[str]], over: threading.Event) -> None:
    """Ends this process if it still waits, long after, for one that is gone: a GPU's library may do so for hours."""
    while not over.wait(0.5):
        lost = _lost(others)
        if lost is not None and not over.wait(10):
            print(f"error: {lost}", file=sys.stderr, flush=True)
            for process in others:
                process.kill()
            os._exit(1)


def _lost(others: list[subprocess.Popen[str]]) -> ProcessLost | None:
    # A signal to all of them ends each in its own time, with its own status.
    for number, process in enumerate(others, 1):
        status = process.poll()
        if status not in (None, 0, 130, 143):
            return ProcessLost(len(others) + 1, number, status)
    return None


def _main() -> None:
    """Trains as one of the others: as it is told on standard input, and silently."""
    if sys.platform == "linux":
        # PR_SET_PDEATHSIG: whoever kills the first process has killed this one.
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    for signum in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signum, _stop)
    try:
        told = json.load(sys.stdin)
        from pathlib import Path

        from attention_lab.commands.train import train

        train(build(TrainSettings, told["config"], ""), Path(told["run_dir"]))
    except Interrupted as stop:
        sys.exit(128 + stop.signum)
    except SettingError:
        # The first process says the same, and says it aloud.
        sys.exit(2)


def _stop(signum: int, _: object) -> None:
    raise Interrupted(signum)


if __name__ == "__main__":
    _main()
