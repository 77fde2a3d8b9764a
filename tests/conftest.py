"""What holds for all tests: shape annotations of the package are checked, and no test changes how a CPU computes."""

import logging
import os
import runpy
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

# As the commands do: without it the tests crawl on a machine that does anything else besides.
os.environ.setdefault("GOMP_SPINCOUNT", "10000")

import pytest
import torch
from hydra.core.global_hydra import GlobalHydra
from jaxtyping import install_import_hook

# This has to come before the first import of the package.
install_import_hook("attention_lab", "beartype.beartype")


@pytest.fixture(autouse=True)
def _denormals() -> Iterator[None]:
    """Gives every test numbers below 1e-38, on its own thread, whatever a command has done in this process before."""
    torch.set_flush_denormal(False)
    yield
    torch.set_flush_denormal(False)


ROOT = Path(__file__).parents[1]

Command = Callable[..., int]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Command]:
    """Runs a script in an empty folder, as a user would, and returns its exit status."""
    monkeypatch.chdir(tmp_path)
    handlers = logging.getLogger().handlers[:]

    def run(script: str, *arguments: str, full_error: str = "0") -> int:
        GlobalHydra.instance().clear()
        monkeypatch.setattr(sys, "argv", [script, *arguments])
        monkeypatch.setenv("HYDRA_FULL_ERROR", full_error)
        try:
            runpy.run_path(str(ROOT / script), run_name="__main__")
        except SystemExit as end:
            return int(end.code or 0)
        return 0

    signals = {signum: signal.getsignal(signum) for signum in (signal.SIGINT, signal.SIGTERM)}
    yield run
    for signum, handler in signals.items():
        signal.signal(signum, handler)
    for handler in [handler for handler in logging.getLogger().handlers if handler not in handlers]:
        logging.getLogger().removeHandler(handler)
        handler.close()
