"""The order of the rows in training, which a seed decides."""

from collections.abc import Iterator, Sized

from torch.utils.data import Sampler

from attention_lab.data.hashing import random_bits


class SeededShuffle(Sampler[int]):
    """Every row once an epoch, in an order that depends on the seed and the epoch alone.

    Args:
        rows: what to shuffle.
        seed: decides the order.
    """

    def __init__(self, rows: Sized, seed: int) -> None:
        self.rows = rows
        self.seed = seed
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Chooses the order for an epoch; Lightning calls this before each."""
        self.epoch = epoch

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[int]:
        return iter(random_bits(len(self), self.seed, self.epoch).argsort(kind="stable").tolist())
