"""Which of the processes that train one network this one is, and who has launched them. Light: torch is not needed."""

import os
import signal
import time
from collections.abc import Mapping
from types import FrameType

from attention_lab.errors import Interrupted, SettingError

_TASKS = "SLURM_STEP_NUM_TASKS"
"""By this variable srun, unlike the batch job around it, says how many processes it has started."""


class ProcessLost(Exception):
    """One of several processes that train together has ended before its time."""

    def __init__(self, count: int, number: int, status: int) -> None:
        super().__init__(
            f"trainer.devices={count}: process {number} has ended with status {status}, and the others cannot go on "
            "without it; resume=FOLDER goes on with all of them"
        )


def launcher(environment: Mapping[str, str] = os.environ) -> str:
    """Returns what has launched this process and its like: `torchrun` (or our own launch), `srun`, or nothing."""
    if "TORCHELASTIC_RUN_ID" in environment:
        return "torchrun"
    return "srun" if int(environment.get(_TASKS, 1)) > 1 else ""


def rank(environment: Mapping[str, str] = os.environ) -> int:
    """Returns the number of this process in its world; 0 is the first, or the only one."""
    by = {"torchrun": "RANK", "srun": "SLURM_PROCID"}.get(launcher(environment))
    return 0 if by is None else int(environment.get(by, 0))


def check_world_size(devices: int, environment: Mapping[str, str] = os.environ, nodes: int = 1) -> None:
    """Refuses a training by other than as many processes as there are.

    Raises:
        SettingError: torchrun or srun has started another number of them, or should have for several machines.
    """
    by = launcher(environment)
    if by:
        size = int(environment["WORLD_SIZE" if by == "torchrun" else _TASKS])
        if size != devices * nodes:
            on = f" on each of trainer.num_nodes={nodes}" if nodes > 1 else ""
            reason = f"{on} does not fit {by}, which has started {size} processes".strip()
            raise SettingError("trainer.devices", devices, reason)
    elif nodes > 1:
        reason = "needs torchrun or srun to start the processes on every machine"
        raise SettingError("trainer.num_nodes", nodes, reason)


def ended_by_launcher(seconds: float) -> bool:
    """Waits for the launcher to end this process because another one has ended.

    What one process refuses, all do, and the first one says so. Who ends before it makes the launcher end the first in
    the middle of that, with its line unsaid; so the others wait.

    Args:
        seconds: how long at most; a launcher that ends nobody (srun does not, unless it is told to) has none.

    Returns:
        False if nothing has happened: then the fault is this process's own.
    """
    for signum in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signum, interrupt)
    try:
        time.sleep(seconds)
    except Interrupted:
        return True
    return False


def interrupt(signum: int, _: FrameType | None) -> None:
    """Handles a signal by raising `Interrupted`; further ones are ignored, since they would tear what that started."""
    for further in (signal.SIGINT, signal.SIGTERM):
        signal.signal(further, signal.SIG_IGN)
    raise Interrupted(signum)
