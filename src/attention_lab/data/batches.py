"""Batches: rows of a split as padded tensors, cut out of whole columns."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from datasets import Dataset
from jaxtyping import Integer
from torch import Tensor
from torch.utils import data

from attention_lab.data.splits import ragged_column
from attention_lab.tasks.vocabulary import BOS, EOS, PAD

NOWHERE = -1
"""The alignment of tokens that come from no source token: EOS and padding."""


class Batch(NamedTuple):
    """Some rows, padded on the right.

    Attributes:
        source: the source and EOS, (B, S).
        target: what the decoder reads: BOS and the target, (B, T).
        labels: what it should say: the target and EOS, (B, T).
        alignment: the source position each label comes from, NOWHERE for EOS and padding, (B, T).
    """

    source: Integer[Tensor, "B S"]
    target: Integer[Tensor, "B T"]
    labels: Integer[Tensor, "B T"]
    alignment: Integer[Tensor, "B T"]

    def part(self, rows: slice, num_sources: int, num_targets: int) -> "Batch":
        """Returns some rows, as far as their tokens reach."""
        return Batch(self.source[rows, :num_sources], *(column[rows, :num_targets] for column in self[1:]))

    def pieces(self, rows: int) -> Iterator["Batch"]:
        """Yields the same rows, at most so many at a time."""
        yield from map(Batch._make, zip(*(column.split(rows) for column in self), strict=True))


class SequenceRows(data.Dataset[Batch]):
    """A split seen by a data loader that fetches a whole batch at once (PyTorch's `__getitems__`)."""

    def __init__(self, dataset: Dataset) -> None:
        self._source, self._source_offsets = ragged_column(dataset, "source")
        self._target, self._target_offsets = ragged_column(dataset, "target")
        self._alignment, _ = ragged_column(dataset, "alignment")

    @classmethod
    def of(cls, columns: Mapping[str, np.ndarray]) -> "SequenceRows":
        """Returns rows that lie in such columns as `columns` returns."""
        rows = cls.__new__(cls)
        rows._source, rows._source_offsets = columns["source"], columns["source_offsets"]
        rows._target, rows._target_offsets = columns["target"], columns["target_offsets"]
        rows._alignment = columns["alignment"]
        return rows

    @property
    def columns(self) -> dict[str, np.ndarray]:
        """All tokens in a row, and where each sequence begins and ends; an alignment ends where its target does."""
        return {
            "source": self._source,
            "source_offsets": self._source_offsets,
            "target": self._target,
            "target_offsets": self._target_offsets,
            "alignment": self._alignment,
        }

    @property
    def aligned(self) -> bool:
        """Whether it is known of any target token where it comes from."""
        return bool((self._alignment >= 0).any())

    def of_length(self, length: int) -> "SequenceRows":
        """Returns the rows whose sources have so many symbols."""
        (chosen,) = np.nonzero(self.source_lengths == length)

        def cut(values: np.ndarray, offsets: np.ndarray) -> np.ndarray:
            parts = [values[offsets[row] : offsets[row + 1]] for row in chosen]
            return np.concatenate([values[:0], *parts])

        lengths = {"source": self.source_lengths[chosen], "target": np.diff(self._target_offsets)[chosen]}
        return SequenceRows.of(
            {
                "source": cut(self._source, self._source_offsets),
                "target": cut(self._target, self._target_offsets),
                "alignment": cut(self._alignment, self._target_offsets),
                **{f"{name}_offsets": np.concatenate([[0], each.cumsum()]) for name, each in lengths.items()},
            }
        )

    def __len__(self) -> int:
        return len(self._source_offsets) - 1

    @property
    def lengths(self) -> Integer[np.ndarray, " N"]:
        """Each row's length: of source and target together, specials not counted."""
        return self.source_lengths + np.diff(self._target_offsets)

    @property
    def source_lengths(self) -> Integer[np.ndarray, " N"]:
        """Each source's length, specials not counted."""
        return np.diff(self._source_offsets)

    def __getitem__(self, index: int) -> Batch:
        return self.__getitems__([range(len(self))[index]])

    def __getitems__(self, indices: Sequence[int]) -> Batch:
        rows = np.asarray(indices)
        source = _padded(self._source, self._source_offsets, rows, end=EOS)
        labels = _padded(self._target, self._target_offsets, rows, end=EOS)
        alignment = _padded(self._alignment, self._target_offsets, rows, end=NOWHERE, padding=NOWHERE)
        target = np.concatenate([np.full((len(rows), 1), BOS), labels[:, :-1]], axis=1)
        # EOS is only ever said, never read: the rows that are shorter than the longest have padding in its place.
        target[target == EOS] = PAD
        return Batch(*(torch.from_numpy(part) for part in (source, target, labels, alignment)))


class LikeLengths(data.Dataset[Sequence[Batch]]):
    """Hands out each batch as a few parts of like lengths, each padded only as far as it needs.

    A random batch of lengths 1 to 16 is padding for the most part. Batches of one length each have none, but their
    gradients pull this way and that: reverse then needs more than twice the steps. So the batch stays a random one and
    is cut into parts; a step that sums over the parts does what it would do on the whole, up to rounding.

    Args:
        rows: where the batches come from.
        parts: how many parts to cut a batch into, at most; one pads the whole batch to its longest row.
    """

    def __init__(self, rows: SequenceRows, parts: int) -> None:
        self.rows = rows
        self.parts = parts
        self._lengths = rows.lengths

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Sequence[Batch]:
        return [self.rows[index]]

    def __getitems__(self, indices: Sequence[int]) -> Sequence[Batch]:
        numbers = np.asarray(indices)
        by_length = numbers[self._lengths[numbers].argsort(kind="stable")]
        whole = self.rows.__getitems__(by_length.tolist())
        cuts = [0, *least_padding(self._lengths[by_length], self.parts), len(by_length)]
        sources = self.rows.source_lengths[by_length]
        targets = self._lengths[by_length] - sources
        return [
            whole.part(slice(first, last), int(sources[first:last].max()) + 1, int(targets[first:last].max()) + 1)
            for first, last in pairwise(cuts)
        ]


def least_padding(lengths: Integer[np.ndarray, " N"], parts: int) -> list[int]:
    """Says where to cut rows into parts so that all of them together have as little padding as can be.

    Rows of one length stay together, so that there are no more parts than lengths.

    Args:
        lengths: of the rows, ascending.
        parts: how many parts there are to be.

    Returns:
        The first row of every part but the first.
    """
    if parts == 1:
        return []
    longest, starts, counts = np.unique(lengths, return_index=True, return_counts=True)
    # Of a part from the i-th to the j-th length; each row has a special token at the end of source and of target.
    tokens = (starts + counts - starts[:, None]) * (longest + 2.0)
    tokens[np.tril_indices(len(longest), -1)] = np.inf
    least, choices = tokens[0], []
    for _ in range(min(parts, len(longest)) - 1):
        # What comes before the part that begins with the i-th length is cut as well as can be.
        all_tokens = least[:-1, None] + tokens[1:]
        choices.append(all_tokens.argmin(axis=0) + 1)
        least = all_tokens.min(axis=0)
    cuts: list[int] = []
    last = len(longest) - 1
    for choice in reversed(choices):
        first = choice[last]
        cuts.append(int(starts[first]))
        last = first - 1
    return cuts[::-1]


def _padded(
    values: np.ndarray, offsets: np.ndarray, rows: np.ndarray, end: int, padding: int = PAD
) -> Integer[np.ndarray, "B L"]:
    lengths = (offsets[rows + 1] - offsets[rows])[:, None]
    place = np.arange(lengths.max() + 1)
    inside = (offsets[rows][:, None] + place).clip(max=len(values) - 1)
    return np.where(place < lengths, values[inside].astype(np.int64), np.where(place == lengths, end, padding))


_READABLE = 12


def readable_rows(rows: SequenceRows, count: int) -> list[int]:
    """Chooses the rows that are easiest to read when drawn: not too long, with as many different symbols as can be.

    Returns:
        The numbers of at most `count` rows of one length.
    """
    lengths = rows.source_lengths
    short = lengths[lengths <= _READABLE]
    wanted = short.max() if len(short) else lengths.min()
    candidates = np.flatnonzero(lengths == wanted)[:256]
    variety = [len(np.unique(source)) for source in rows.__getitems__(candidates.tolist()).source.numpy()]
    return candidates[np.argsort(variety, kind="stable")[::-1]][:count].tolist()


def spread_rows(rows: SequenceRows, count: int) -> list[int]:
    """Chooses `count` rows at even distances, so that all lengths have their turn; fewer if there are fewer."""
    count = min(count, len(rows))
    return [(2 * number + 1) * len(rows) // (2 * count) for number in range(count)]
