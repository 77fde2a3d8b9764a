"""Which process this is, and who has launched it."""

import signal
from collections.abc import Iterator

import pytest

from attention_lab.errors import SettingError
from attention_lab.launch import world
from attention_lab.launch.world import check_world_size, ended_by_launcher, launcher, rank

TORCHRUN = {"TORCHELASTIC_RUN_ID": "none", "RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "4"}
SRUN = {"SLURM_STEP_NUM_TASKS": "4", "SLURM_PROCID": "2", "SLURM_NTASKS": "4"}
BOTH = {**SRUN, **TORCHRUN}
BATCH_JOB = {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "4", "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1"}


@pytest.mark.parametrize(
    ("environment", "by", "number"),
    [
        ({}, "", 0),
        (TORCHRUN, "torchrun", 3),
        (SRUN, "srun", 2),
        (BATCH_JOB, "", 0),
        (BOTH, "torchrun", 3),
    ],
)
def test_the_environment_says_who_and_which(environment, by, number):
    assert launcher(environment) == by
    assert rank(environment) == number


@pytest.mark.parametrize("environment", [TORCHRUN, SRUN])
def test_another_number_of_processes_is_refused(environment):
    check_world_size(4, environment)
    with pytest.raises(SettingError, match=r"trainer.devices=2 does not fit \w+run, which has started 4 processes"):
        check_world_size(2, environment)


def test_nothing_is_refused_where_nothing_was_launched():
    check_world_size(2, BATCH_JOB)


@pytest.fixture
def _handlers() -> Iterator[None]:
    handlers = {signum: signal.getsignal(signum) for signum in (signal.SIGINT, signal.SIGTERM)}
    yield
    for signum, handler in handlers.items():
        signal.signal(signum, handler)


@pytest.mark.usefixtures("_handlers")
def test_who_waits_for_the_launcher_is_ended_by_it_or_is_not(monkeypatch):
    assert not ended_by_launcher(seconds=0.01)
    monkeypatch.setattr(world.time, "sleep", lambda _: signal.raise_signal(signal.SIGTERM))
    assert ended_by_launcher(seconds=10.0)
    # Once is enough.
    signal.raise_signal(signal.SIGTERM)


def test_a_lost_process_is_told_with_its_status():
    assert str(world.ProcessLost(2, 1, -9)).startswith("trainer.devices=2: process 1 has ended with status -9")
