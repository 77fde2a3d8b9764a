"""What holds for all tests: shape annotations of the package are checked, and no test changes how a CPU computes."""

import gc
import hashlib
import logging
import os
import runpy
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

# As the commands do: without it the tests crawl on a machine that does anything else besides. Workers share the cores,
# so each takes one, and so do the processes that tests start.
os.environ.setdefault("GOMP_SPINCOUNT", "10000")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
import torch
from filelock import FileLock
from hydra.core.global_hydra import GlobalHydra
from hypothesis import HealthCheck, settings
from jaxtyping import install_import_hook

# This has to come before the first import of the package.
install_import_hook("attention_lab", "beartype.beartype")

# Plain runs try a few examples of each property, always the same; `--hypothesis-profile=full` tries many.
for profile, examples in {"plain": 20, "full": 100}.items():
    settings.register_profile(
        profile, max_examples=examples, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
    )
settings.load_profile("plain")


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """Says that no workers are started for a few tests that were named; for all, xdist counts the cores."""
    return None if config.args == config.getini("testpaths") else 0


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begins with what takes minutes, so that no worker is left with it when the others are done."""
    items.sort(key=lambda item: "many_kills" not in item.name)


def pytest_collection_finish() -> None:
    """Takes what was imported and collected out of the collector's sight, which would walk over all of it each time."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _denormals() -> Iterator[None]:
    """Gives every test numbers below 1e-38, on its own thread, whatever a command has done in this process before."""
    torch.set_flush_denormal(False)
    yield
    torch.set_flush_denormal(False)


ROOT = Path(__file__).parents[1]

Command = Callable[..., int]
Training = Callable[..., Path]


@contextmanager
def commands(folder: Path) -> Iterator[Command]:
    """Runs scripts in a folder, as a user would, and returns their exit status; leaves this process as it was."""
    handlers = logging.getLogger().handlers[:]
    signals = {signum: signal.getsignal(signum) for signum in (signal.SIGINT, signal.SIGTERM)}

    def run(script: str, *arguments: str, full_error: str = "0") -> int:
        GlobalHydra.instance().clear()
        patch.setattr(sys, "argv", [script, *arguments])
        patch.setenv("HYDRA_FULL_ERROR", full_error)
        # A training does the same, and undoes it at its end.
        gc.freeze()
        try:
            runpy.run_path(str(ROOT / script), run_name="__main__")
        except SystemExit as end:
            return int(end.code or 0)
        return 0

    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        yield run
    for signum, handler in signals.items():
        signal.signal(signum, handler)
    for handler in [handler for handler in logging.getLogger().handlers if handler not in handlers]:
        logging.getLogger().removeHandler(handler)
        handler.close()


@pytest.fixture
def command(tmp_path: Path) -> Iterator[Command]:
    """Runs a script in an empty folder."""
    with commands(tmp_path) as run:
        yield run


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Training:
    """Trains with some settings and returns the run's folder, to be read or copied: all tests share it."""
    own = tmp_path_factory.getbasetemp()
    shared = (own if worker_id == "master" else own.parent) / "trained"

    def train(*settings: str) -> Path:
        folder = shared / hashlib.sha256(repr(settings).encode()).hexdigest()[:16]
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / "lock"):
            if not (folder / "run/metrics.json").exists():
                with commands(folder) as run:
                    assert run("train.py", *settings, "hydra.run.dir=run") == 0
                torch.set_flush_denormal(False)
        return folder / "run"

    return train
