"""Several processes on this machine that train one network, started as torchrun starts its workers.

`torch.multiprocessing.start_processes` is what torchrun's agent starts functions with, and watches them by. The agent
itself (`elastic_launch`) takes over the signals and starts its workers in one call, so that nothing could keep Ctrl-C
from workers that still import, and of a worker's exception it keeps the text alone.
"""

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from multiprocessing import get_context, resource_tracker
from multiprocessing.connection import Connection
from typing import TypeVar, cast

from torch.distributed import TCPStore  # pyright: ignore[reportPrivateImportUsage] - it is documented there
from torch.multiprocessing.spawn import (
    ProcessContext,
    ProcessExitedException,
    _prctl_pr_set_pdeathsig,  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue] - as its own workers do
    start_processes,
)

from attention_lab.errors import Interrupted, SettingError
from attention_lab.launch.world import ProcessLost, ended_by_launcher

Result = TypeVar("Result")

_SIGNALS = (signal.SIGINT, signal.SIGTERM)

_LAST_STEP = 600
"""Seconds that a process may take to end its step and write its checkpoint, once it is told to stop."""

# Which signal it ends whom with, it would tell on the terminal.
logging.getLogger("torch.multiprocessing").setLevel(logging.CRITICAL)


def launch(work: Callable[..., Result], count: int, *arguments: object) -> Result:
    """Runs a function in several new processes, each with the environment that torchrun gives.

    They end with this process, however it ends. What the first of them logs is logged here; the others are silent.

    Args:
        work: what to run; a function that a new process can import.
        count: how many processes.
        arguments: for the function.

    Returns:
        What it returned in the first process.

    Raises:
        SettingError, OSError: it raised that in the first process.
        Interrupted: this process, or one of them, was told to stop.
        ProcessLost: one of them has gone; the others have been ended, too.
    """
    if not hasattr(signal, "pthread_sigmask"):
        reason = "needs several processes, which are started on Linux and macOS only; use 1"
        raise SettingError("trainer.devices", count, reason)
    # Here, and not in the first of them, so that its port is free for certain.
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    receiver, sender = get_context("spawn").Pipe(duplex=False)
    listener = _Listener(receiver)
    with _blocked_signals():
        given = (os.getpid(), count, store.port, sender, work, arguments)
        context = start_processes(_run, given, count, join=False)
    assert context is not None
    sender.close()
    listener.start()
    try:
        _wait(context, listener)
    except ProcessExitedException as lost:
        listener.join()
        if isinstance(listener.heard, Exception):
            raise listener.heard from None
        for signum in _SIGNALS:
            # Told by the process itself, or by the system.
            if lost.exit_code in (128 + signum, -signum):
                raise Interrupted(signum) from None
        raise ProcessLost(count, lost.error_index, lost.exit_code) from lost
    listener.join()
    return cast(Result, listener.heard)


def _wait(context: ProcessContext, listener: "_Listener") -> None:
    """Waits until all processes are done or one has failed, and hands a signal on, so that all end their step."""
    try:
        while not context.join():
            pass
    except Interrupted as stop:
        # While they still import, there is no step to end.
        running = [process for process in context.processes if process.is_alive() and listener.heard is not None]
        for process in running:
            os.kill(process.pid, stop.signum)
        for process in running:
            process.join(_LAST_STEP)
        raise
    finally:
        for process in context.processes:
            process.kill()
            process.join()


class _Listener(threading.Thread):
    """Logs here what the first process logs, and keeps what else it said: that it begins, what it returned or raised.

    `heard` is None as long as it has said nothing.
    """

    def __init__(self, receiver: Connection) -> None:
        super().__init__(daemon=True)
        self.heard: object = None
        self._receiver = receiver

    def run(self) -> None:
        with suppress(EOFError):
            while True:
                heard = self._receiver.recv()
                if isinstance(heard, logging.LogRecord):
                    logging.getLogger(heard.name).handle(heard)
                else:
                    self.heard = heard


class _Telling(logging.Handler):
    """Sends log records through a connection, which has no lock that a killed process could keep."""

    def __init__(self, sender: Connection) -> None:
        super().__init__()
        self._sender = sender

    def emit(self, record: logging.LogRecord) -> None:
        # As text, since not everything that is logged can be sent.
        plain = {**vars(record), "msg": self.format(record), "args": None, "exc_info": None, "exc_text": None}
        self._sender.send(logging.makeLogRecord(plain))


def _run(
    number: int,
    launched_by: int,
    count: int,
    port: int,
    sender: Connection,
    work: Callable[..., object],
    arguments: tuple[object, ...],
) -> None:
    """Does the work in one of the processes, and leaves with the status that says how it went."""
    # Who kills the launching process means all of them; this one may have been importing then.
    _prctl_pr_set_pdeathsig(signal.SIGKILL)
    if os.getppid() != launched_by:
        sys.exit(1)
    for signum in _SIGNALS:
        # Until training handles signals itself, there is nothing to save, and a process that waits for the others in
        # PyTorch would run no handler of Python's: once these are gone, for half an hour.
        signal.signal(signum, signal.SIG_DFL)
    os.environ |= _environment(number, count, port)
    logging.raiseExceptions = False
    logging.getLogger().setLevel(logging.INFO)
    logging.getLogger().addHandler(_Telling(sender) if number == 0 else logging.NullHandler())
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        if number == 0:
            sender.send("begun")
        result = work(*arguments)
        if number == 0:
            sender.send(result)
    except Interrupted as stop:
        sys.exit(128 + stop.signum)
    except Exception as error:
        if number == 0 and isinstance(error, (SettingError, OSError)):
            sender.send(error)
            sys.exit(1)
        # Where another process is gone, or has told already, this one is ended before it says a word.
        if ended_by_launcher(seconds=1.0 if number == 0 else 5.0):
            sys.exit(1)
        raise


def _environment(number: int, count: int, port: int) -> dict[str, str]:
    """Returns the variables by which torchrun tells a process its place."""
    place = {"RANK": number, "LOCAL_RANK": number, "GROUP_RANK": 0, "WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count}
    store = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "TORCHELASTIC_USE_AGENT_STORE": True}
    run = {"TORCHELASTIC_RUN_ID": "attention_lab", "TORCHELASTIC_RESTART_COUNT": 0}
    return {name: str(value) for name, value in {**place, **store, **run}.items()}


@contextmanager
def _blocked_signals() -> Generator[None]:
    """Blocks signals here and in the processes that are started: while these import, Ctrl-C would be a traceback.

    Python starts its own resource tracker in the same way; first, since that unblocks the signals in the end.
    """
    resource_tracker.ensure_running()
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
