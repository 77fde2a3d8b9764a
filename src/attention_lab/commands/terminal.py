"""What is said on the terminal: how far a command is, and of what libraries say only what a user can act on."""

import logging
import os
import threading
import time
import warnings
from collections.abc import Callable, Generator
from contextlib import contextmanager

from lightning.fabric.utilities.warnings import PossibleUserWarning

from attention_lab.callbacks.progress import bar

log = logging.getLogger(__name__)


@contextmanager
def parts_of_work(number: int) -> Generator[Callable[[str], None]]:
    """Gives what says which of so many parts begins, and when: a line each, and on a terminal a bar below them."""
    started, begun = time.monotonic(), 0

    def begin(part: str) -> None:
        nonlocal begun
        drawn.clear()
        log.info("%5.1f s   %s", time.monotonic() - started, part)
        # What has begun is not done yet.
        drawn.update(begun - drawn.n)
        begun += 1

    with bar(number, "part") as drawn:
        yield begin


def quiet_libraries() -> None:
    """Silences tips, banners and advice that does not apply here; real warnings and errors still come through."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    for library in ("lightning.pytorch", "lightning.fabric", "torch.utils.flop_counter", "fontTools"):
        logging.getLogger(library).setLevel(logging.WARNING)
    # It is asked for, or it says nothing.
    logging.getLogger("lightning.pytorch.callbacks.model_summary").setLevel(logging.INFO)
    # "Consider more workers", "fewer batches than the logging interval": measured, and not true of data this small.
    warnings.filterwarnings("ignore", category=PossibleUserWarning)
    # Figures show a box in its place; the page knows more letters.
    warnings.filterwarnings("ignore", message="Glyph .* missing from font")
    if threading.excepthook is not _hand_on:
        _hooks.append(threading.excepthook)
        threading.excepthook = _hand_on
    # Lightning 2.6 calls what PyTorch 2.13 deprecates.
    warnings.filterwarnings("ignore", message=r".*isinstance\(treespec, LeafSpec\)")


_hooks = [threading.excepthook]


def _hand_on(error: threading.ExceptHookArgs) -> None:
    """Leaves out what TensorBoard's writing thread would print: it hands the same error to the thread that logs."""
    if type(error.thread).__name__ != "_AsyncWriterThread":
        _hooks[-1](error)
