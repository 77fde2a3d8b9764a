"""The order of the rows in training, which a seed decides."""

import itertools
from collections.abc import Iterator, Sized

from torch.utils.data import Sampler

from attention_lab.data.hashing import random_bits


class EndlessBatches(Sampler[list[int]]):
    """Batches of random rows, one after the other without end: every row once an epoch, and then over again.

    The n-th batch depends on the seed and on n alone, so that a training can go on from any step as if it had never
    stopped. An epoch's last batch is smaller where the rows do not divide.

    Args:
        rows: what to deal, at least one.
        batch_size: rows a batch.
        seed: decides the order.
        first: the number of the first batch to deal.
    """

    def __init__(self, rows: Sized, batch_size: int, seed: int, first: int = 0) -> None:
        self.rows = rows
        self.batch_size = batch_size
        self.seed = seed
        self.first = first

    @property
    def batches_per_epoch(self) -> int:
        """How many batches deal every row once."""
        return -(-len(self.rows) // self.batch_size)

    def __iter__(self) -> Iterator[list[int]]:
        first_epoch, place = divmod(self.first, self.batches_per_epoch)
        for epoch in itertools.count(first_epoch):
            order = random_bits(len(self.rows), self.seed, epoch).argsort(kind="stable")
            for begin in range(place * self.batch_size, len(order), self.batch_size):
                yield order[begin : begin + self.batch_size].tolist()
            place = 0
