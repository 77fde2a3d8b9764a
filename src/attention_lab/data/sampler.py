"""The order of the rows in training, which a seed decides."""

import itertools
from collections.abc import Iterator, Sized

from torch.utils.data import Sampler

from attention_lab.data.hashing import random_bits
from attention_lab.errors import SettingError


class EndlessBatches(Sampler[list[int]]):
    """Batches of random rows, one after the other without end: every row once an epoch, and then over again.

    The n-th batch depends on the seed and on n alone, so that a training can go on from any step as if it had never
    stopped. An epoch's last batch is smaller where the rows do not divide.

    Several processes that train together deal each a share of every batch. A batch with fewer rows than processes is
    then left out.

    Args:
        rows: what to deal, at least one.
        batch_size: rows a batch.
        seed: decides the order.
        first: the number of the first batch to deal.
        share: which of the processes this is, from 0, and how many there are.
        limit: batches an epoch at most, or their share; None deals all.

    Raises:
        SettingError: there are more processes than rows in any batch.
    """

    def __init__(
        self,
        rows: Sized,
        batch_size: int,
        seed: int,
        first: int = 0,
        share: tuple[int, int] = (0, 1),
        limit: int | float | None = None,
    ) -> None:
        self.rows = rows
        self.batch_size = batch_size
        self.seed = seed
        self.first = first
        self.process, self.num_processes = share
        self.limit = limit
        if min(len(rows), batch_size) < self.num_processes:
            reason = (
                f"and {len(rows)} rows are too few for {self.num_processes} processes to have a share of every batch"
            )
            raise SettingError("batch_size", batch_size, reason)

    @property
    def batches_per_epoch(self) -> int:
        """How many batches deal every row once, or as many rows as the limit leaves."""
        full, rest = divmod(len(self.rows), self.batch_size)
        batches = full + (rest >= self.num_processes)
        if self.limit is None:
            return batches
        return min(batches, self.limit) if isinstance(self.limit, int) else max(1, int(batches * self.limit))

    def __iter__(self) -> Iterator[list[int]]:
        first_epoch, place = divmod(self.first, self.batches_per_epoch)
        for epoch in itertools.count(first_epoch):
            order = random_bits(len(self.rows), self.seed, epoch).argsort(kind="stable")
            for number in range(place, self.batches_per_epoch):
                batch = order[number * self.batch_size : (number + 1) * self.batch_size]
                yield batch[self.process :: self.num_processes].tolist()
            place = 0


class OneEpoch(EndlessBatches):
    """The same batches, an epoch each time they are gone through: first what is left of the one it begins in."""

    def __len__(self) -> int:
        return self.batches_per_epoch

    def __iter__(self) -> Iterator[list[int]]:
        share = (self.process, self.num_processes)
        batches = EndlessBatches(self.rows, self.batch_size, self.seed, self.first, share, self.limit)
        left = self.batches_per_epoch - self.first % self.batches_per_epoch
        self.first += left
        return itertools.islice(batches, left)
