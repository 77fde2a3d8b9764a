"""Ctrl-C and SIGTERM: one of them ends a run, and a whole sweep with it, whoever runs its members."""

import multiprocessing
import os
import signal
from contextlib import suppress
from types import FrameType

from attention_lab.errors import Interrupted

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Signals:
    """What this process has been told, and what it is doing.

    A run in this very process is interrupted by an exception. While other processes run the members of a sweep, they
    are told, and this one waits for what they give back: whoever raised here would have them killed in the middle.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self.running = False
        self.waits_for_work = False

    def listen(self, waits_for_work: bool = False) -> None:
        """Begins to handle signals, with nothing received so far.

        Args:
            waits_for_work: whether this process runs members of a sweep that another one hands to it.
        """
        self.waits_for_work = waits_for_work
        for signum in _SIGNALS:
            # Not a KeyboardInterrupt: Lightning would catch it and exit with 1.
            signal.signal(signum, self._handle)

    def _handle(self, signum: int, _: FrameType | None) -> None:
        for further in _SIGNALS:
            # Once is enough; another one would tear what the first has started.
            signal.signal(further, signal.SIG_IGN)
        self.received = signum
        workers = multiprocessing.active_children()
        if not self.running and (workers or self.waits_for_work):
            for worker in workers:
                with suppress(ProcessLookupError):
                    os.kill(worker.pid or 0, signum)
            return
        raise Interrupted(signum)
