"""The pairs that a checkpoint keeps: those it is to be tested on, since no rule could make them anew."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from attention_lab.data.batches import NOWHERE, SequenceRows
from attention_lab.data.sampling import Split
from attention_lab.errors import SettingError
from attention_lab.runs.checkpoint import CheckpointFile
from attention_lab.settings.schema import MOST_EVALUATED
from attention_lab.tasks.vocabulary import FIRST_SYMBOL

_KEPT: tuple[Split, ...] = ("validation", "test")

_LONGEST_SYMBOL = 1000
"""Characters."""


class Examples(NamedTuple):
    """What the symbols of a file's pairs are called, and the pairs to test on."""

    symbols: Sequence[str]
    rows: Mapping[Split, SequenceRows]


def as_plain(examples: Examples) -> dict[str, Any]:
    """Returns what a checkpoint keeps, as plain types and tensors."""
    rows = {
        split: {
            name: torch.from_numpy(column.astype(np.int32)) for name, column in examples.rows[split].columns.items()
        }
        for split in _KEPT
    }
    return {"symbols": list(examples.symbols), **rows}


def examples_in(file: CheckpointFile, vocab_size: int) -> Examples:
    """Returns the pairs in a checkpoint, which may be anybody's.

    Args:
        file: the checkpoint.
        vocab_size: how many symbols its network knows.

    Raises:
        SettingError: there are none, or they are not what they must be.
    """
    ours = cast(Mapping[str, object], file.content["attention_lab"])
    kept = ours.get("examples")
    try:
        if not isinstance(kept, dict):
            raise ValueError("has no examples")
        symbols = kept.get("symbols")
        if not isinstance(symbols, list) or len(symbols) != vocab_size:
            raise ValueError(f"does not name {vocab_size} symbols")
        if not all(isinstance(symbol, str) and 0 < len(symbol) <= _LONGEST_SYMBOL for symbol in symbols):
            raise ValueError("has symbols that are no names")
        rows: dict[Split, SequenceRows] = {split: _rows(kept.get(split), vocab_size) for split in _KEPT}
    except ValueError as error:
        raise SettingError("checkpoint", file.path, f"cannot be tested: its section examples {error}") from error
    return Examples(symbols, rows)


def _rows(kept: object, vocab_size: int) -> SequenceRows:
    names = ("source", "source_offsets", "target", "target_offsets", "alignment")
    if not isinstance(kept, dict) or set(kept) != set(names):
        raise ValueError("lacks a split, or a column of it")
    columns = {name: _numbers(kept[name]) for name in names}
    sources, targets = columns["source_offsets"], columns["target_offsets"]
    for values, offsets in (("source", sources), ("target", targets), ("alignment", targets)):
        if len(offsets) < 2 or offsets[0] != 0 or offsets[-1] != len(columns[values]) or (np.diff(offsets) < 1).any():
            raise ValueError("has sequences without a token, or beyond its tokens")
    if len(sources) != len(targets):
        raise ValueError("has more sources than targets, or fewer")
    for values in ("source", "target"):
        tokens = columns[values]
        if tokens.min() < FIRST_SYMBOL or tokens.max() >= FIRST_SYMBOL + vocab_size:
            raise ValueError("holds tokens that its network does not know")
    longest = np.repeat(np.diff(sources), np.diff(targets))
    if columns["alignment"].min() < NOWHERE or (columns["alignment"] >= longest).any():
        raise ValueError("aligns with places that are not there")
    return SequenceRows.of(columns)


def _numbers(kept: object) -> np.ndarray:
    if not (type(kept) is Tensor and kept.layout == torch.strided and kept.dtype == torch.int32 and kept.dim() == 1):
        raise ValueError("holds what is no list of whole numbers")
    # Others may repeat one number as often as they like.
    if not kept.is_contiguous() or not 0 < len(kept) <= MOST_EVALUATED:
        raise ValueError("holds more numbers than there may be, or none")
    return kept.numpy()
