"""Attention Lab: small Transformers learn tasks whose correct attention is known.

What `__all__` names is a promise; everything else may change. It is imported when it is first asked for, since torch
takes seconds, and a command's `--help` needs none of it.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from attention_lab.api import (
        Answer,
        Checkpoint,
        EncoderDecoder,
        Reverse,
        SequenceData,
        SequenceTraining,
        SourceSpace,
        Task,
        load,
    )

__all__ = [
    "Answer",
    "Checkpoint",
    "EncoderDecoder",
    "Reverse",
    "SequenceData",
    "SequenceTraining",
    "SourceSpace",
    "Task",
    "load",
]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from attention_lab import api

    return getattr(api, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
