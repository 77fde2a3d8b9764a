"""Which rows go together: like lengths, so that padding is small, in an order that a seed decides."""

import math
from collections.abc import Iterator

import numpy as np
from jaxtyping import Integer
from torch.utils.data import Sampler

from attention_lab.data.hashing import random_bits

_POOL = 2
"""How many batches are sorted by length together.

More leave less padding but also batches of one length only, whose gradients pull this way and that: of 16 together,
reverse needs twice the steps of 2 together.
"""


class LengthBatchSampler(Sampler[list[int]]):
    """Deals shuffled rows into batches of like lengths; every row comes once an epoch.

    The order depends on the seed and the epoch alone, not on workers or on what was drawn before.

    Args:
        lengths: each row's length.
        batch_size: rows a batch; an epoch's last batch may hold fewer.
        seed: decides the order.
        shuffle: False deals the rows in the order of their lengths, always the same way.
    """

    def __init__(
        self, lengths: Integer[np.ndarray, " N"], batch_size: int, seed: int = 0, shuffle: bool = True
    ) -> None:
        self.lengths = lengths
        self.batch_size = batch_size
        self.seed = seed
        self.shuffle = shuffle
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Chooses the order for an epoch; Lightning calls this before each."""
        self.epoch = epoch

    def __len__(self) -> int:
        return math.ceil(len(self.lengths) / self.batch_size)

    def __iter__(self) -> Iterator[list[int]]:
        if not self.shuffle:
            return iter(self._deal(self.lengths.argsort(kind="stable")))
        order = random_bits(len(self.lengths), self.seed, self.epoch).argsort(kind="stable")
        size = _POOL * self.batch_size
        pools = [order[start : start + size] for start in range(0, len(order), size)]
        batches = [batch for pool in pools for batch in self._deal(pool[self.lengths[pool].argsort(kind="stable")])]
        turns = random_bits(len(batches), self.seed, self.epoch, 1).argsort(kind="stable")
        return iter([batches[turn] for turn in turns])

    def _deal(self, rows: np.ndarray) -> list[list[int]]:
        return [rows[start : start + self.batch_size].tolist() for start in range(0, len(rows), self.batch_size)]
