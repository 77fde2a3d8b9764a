"""Drawing distinct sources for one split."""

import itertools
import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Bool, Integer

from attention_lab.data.hashing import content_hash, random_bits
from attention_lab.tasks.vocabulary import FIRST_SYMBOL

Split = Literal["train", "validation", "test"]

SHARES: dict[Split, range] = {"test": range(0, 1), "validation": range(1, 2), "train": range(2, 10)}
"""The content hash deals all sequences into ten shares; these are each split's own."""

NUM_SHARES = 10

SPLITS: tuple[Split, ...] = ("train", "validation", "test")


def belongs_to(split: Split, sources: Integer[np.ndarray, "N L"]) -> Bool[np.ndarray, " N"]:
    """Says which sequences a split may hold.

    The content alone decides, so that no seed, size or option can ever put one sequence into two splits.
    """
    share = content_hash(sources) % np.uint64(NUM_SHARES)
    return (share >= SHARES[split].start) & (share < SHARES[split].stop)


@dataclass(frozen=True)
class SourceSpace:
    """All sources that a run may draw: which symbols, which lengths.

    Attributes:
        min_length: shortest source, in symbols.
        max_length: longest source, in symbols.
        vocab_size: how many symbols there are.
        unique_symbols: whether a symbol may occur only once in a source.
    """

    min_length: int
    max_length: int
    vocab_size: int
    unique_symbols: bool = False

    @property
    def lengths(self) -> range:
        """Every length that a source may have."""
        return range(self.min_length, self.max_length + 1)

    @property
    def dtype(self) -> np.dtype[np.integer]:
        """The smallest signed integer type that holds every token."""
        return np.min_scalar_type(-(FIRST_SYMBOL + self.vocab_size))

    def num_sequences(self, length: int) -> int:
        """Returns how many sources of a length there are, over all splits."""
        return math.perm(self.vocab_size, length) if self.unique_symbols else self.vocab_size**length

    def all_sequences(self, length: int) -> Integer[np.ndarray, "N L"]:
        """Returns every source of a length, over all splits."""
        if self.unique_symbols:
            rows = itertools.permutations(range(self.vocab_size), length)
            symbols = np.fromiter(rows, dtype=(self.dtype, length))
        else:
            number = np.arange(self.num_sequences(length))[:, None]
            symbols = number // self.vocab_size ** np.arange(length) % self.vocab_size
        return (symbols + FIRST_SYMBOL).astype(self.dtype)

    def draw(self, count: int, length: int, *key: int) -> Integer[np.ndarray, "N L"]:
        """Returns at most `count` random sources of a length, the same ones for the same key; some may be equal."""
        if self.unique_symbols and self.vocab_size < 4 * length**2:
            bits = random_bits(count * self.vocab_size, *key).reshape(count, self.vocab_size)
            symbols = bits.argsort(axis=1, kind="stable")[:, :length].astype(np.uint64)
        else:
            symbols = random_bits(count * length, *key).reshape(count, length) % np.uint64(self.vocab_size)
        if self.unique_symbols:
            # With that many symbols, over eight sources in ten are free of repetitions by chance.
            ordered = np.sort(symbols, axis=1)
            symbols = symbols[(ordered[:, 1:] != ordered[:, :-1]).all(axis=1)]
        return (symbols + np.uint64(FIRST_SYMBOL)).astype(self.dtype)


def draw_split(space: SourceSpace, split: Split, size: int, seed: int) -> list[Integer[np.ndarray, "N L"]]:
    """Draws distinct sources for a split, as evenly over the lengths as can be.

    Short lengths run out first (there are only ten sequences of one digit); what they cannot give, the others give
    instead.

    Args:
        space: what sources there are.
        split: which share of them to draw from.
        size: how many to draw.
        seed: the same seed gives the same sources on every machine.

    Returns:
        One array a length, shortest first. In all they are fewer than `size` only if the split's share holds no more.
    """
    whole = {length: _whole_share(space, split, size, length) for length in space.lengths}
    by_scarcity = sorted(space.lengths, key=lambda length: _capacity(whole[length]))
    found: dict[int, Integer[np.ndarray, "N L"]] = {}
    missing = size
    for index, length in enumerate(by_scarcity):
        quota = math.ceil(missing / (len(by_scarcity) - index))
        key = (seed, SHARES[split].start, length)
        share = whole[length]
        found[length] = _draw(space, split, quota, length, key) if share is None else _pick(share, quota, key)
        missing -= len(found[length])
    return [found[length] for length in space.lengths]


def _whole_share(space: SourceSpace, split: Split, size: int, length: int) -> Integer[np.ndarray, "N L"] | None:
    """All that a split may hold of a length; None where that is far more than anybody wants."""
    plenty = max(4096, size * 5 * NUM_SHARES // (2 * len(SHARES[split])))
    if space.num_sequences(length) > plenty:
        return None
    sources = space.all_sequences(length)
    return sources[belongs_to(split, sources)]


def _capacity(share: np.ndarray | None) -> float:
    return math.inf if share is None else float(len(share))


def _pick(share: np.ndarray, count: int, key: tuple[int, ...]) -> np.ndarray:
    return share[random_bits(len(share), *key).argsort(kind="stable")[:count]]


def _draw(space: SourceSpace, split: Split, count: int, length: int, key: tuple[int, ...]) -> np.ndarray:
    # The share holds at least 2.5 times what is wanted, so every round finds a good part of it.
    found = np.empty((0, length), dtype=space.dtype)
    for attempt in itertools.count():
        if len(found) >= count:
            break
        candidates = (count - len(found)) * NUM_SHARES // len(SHARES[split]) + 64
        # Long sequences a few at a time, so that drawing them does not take gigabytes.
        candidates = min(candidates, max(64, 2**24 // length))
        more = space.draw(candidates, length, *key, attempt)
        found = np.concatenate([found, more[belongs_to(split, more)]])
        _, first = np.unique(content_hash(found), return_index=True)
        found = found[np.sort(first)]
    return found[:count]
