"""The splits as Hugging Face datasets: source, target and alignment as compact integer columns."""

import logging
from typing import Any, cast

import numpy as np
import pyarrow as pa
from datasets import Dataset
from jaxtyping import Integer

from attention_lab.data.sampling import SourceSpace, Split, draw_split
from attention_lab.errors import SettingError
from attention_lab.tasks.task import Task

log = logging.getLogger(__name__)


def make_split(task: Task, space: SourceSpace, split: Split, size: int, seed: int) -> Dataset:
    """Draws a split's sources and works out their targets and alignments.

    The rows lie in memory, sorted by length. Nothing is cached on disk, so nothing there can be stale or pile up.

    Args:
        task: what to learn.
        space: which sources there are.
        split: which share of them this is.
        size: how many rows to make; where there are not as many, the log says so.
        seed: the same seed gives the same rows.

    Returns:
        Columns `source`, `target` and `alignment`, lists of integers without special tokens or padding.

    Raises:
        SettingError: not a single sequence belongs to this split, or what the task gives is no alignment.
    """
    sources = [rows for rows in draw_split(space, split, size, seed) if len(rows)]
    found = sum(map(len, sources))
    if not found:
        reason = f"with vocab_size={space.vocab_size} leaves no sequence for the {split} split"
        raise SettingError("max_length", space.max_length, f"{reason}; use longer sequences or more symbols")
    if found < size:
        log.warning(
            "The %s split holds %d sequences; no more different ones exist, although %d were asked for.",
            split,
            found,
            size,
        )
    alignments = [_alignment(task, rows) for rows in sources]
    targets = [task.targets(rows, alignment) for rows, alignment in zip(sources, alignments, strict=True)]
    longest = max(rows.shape[1] for rows in sources)
    columns = {
        "source": _list_column(sources, space.dtype),
        "target": _list_column(targets, space.dtype),
        "alignment": _list_column(alignments, np.min_scalar_type(-longest)),
    }
    return Dataset(pa.table(columns))


def ragged_column(
    dataset: Dataset, name: str
) -> tuple[Integer[np.ndarray, " values"], Integer[np.ndarray, " offsets"]]:
    """Returns a list column as it lies in memory: all values in a row, and where each list begins and ends."""
    column = cast(pa.ListArray, dataset.data.column(name).combine_chunks())
    return column.values.to_numpy(), column.offsets.to_numpy()


def _alignment(task: Task, sources: Integer[np.ndarray, "N S"]) -> Integer[np.ndarray, "N T"]:
    count, length = sources.shape
    alignment = np.asarray(task.alignment(sources))
    if alignment.ndim != 2 or len(alignment) != count or not alignment.size:
        reason = f"gave an alignment of shape {alignment.shape} for {count} sources; as many rows are due"
        raise SettingError("task", task.name, reason)
    if alignment.min() < 0 or alignment.max() >= length:
        reason = f"gave positions from {alignment.min()} to {alignment.max()} for sources of length {length}"
        raise SettingError("task", task.name, f"{reason}; they lie between 0 and {length - 1}")
    return alignment


def _list_column(groups: list[np.ndarray], dtype: np.dtype[Any]) -> Any:
    lengths = np.concatenate([np.full(len(rows), rows.shape[1]) for rows in groups])
    offsets = np.concatenate([[0], lengths.cumsum()]).astype(np.int32)
    values = np.concatenate([rows.ravel() for rows in groups]).astype(dtype)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values))
