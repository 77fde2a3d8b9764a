"""Whole commands, run in this process: one import of torch serves them all."""

import logging
import runpy
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hydra.core.global_hydra import GlobalHydra

ROOT = Path(__file__).parents[2]

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
