"""What Python and PyTorch would spend time on in vain."""

import gc
from collections.abc import Generator
from contextlib import contextmanager

import torch


def flush_denormals() -> None:
    """Takes single-precision numbers below 1.2e-38 for zero: with these a CPU computes many times as slowly.

    They come up once a task is solved, in attention as sharp as it should be and in Adam's moments; training can take a
    third longer from there on. It holds for the rest of the process, and for the threads that PyTorch starts later. A
    CPU that cannot do it goes on as before.
    """
    torch.set_flush_denormal(True)


@contextmanager
def frozen_heap() -> Generator[None]:
    """Keeps Python's garbage collector off what is there already, half a million objects of imported libraries.

    Looking through them takes it 0.2 s, about once in a thousand training steps.
    """
    # Otherwise what the last run of a sweep has left would be kept as well.
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
