"""The three splits of a task, ready to be trained and evaluated on."""

from typing import Any

import torch
from lightning.pytorch import LightningDataModule
from torch.utils.data import DataLoader

from attention_lab.data.batches import Batch, SequenceRows
from attention_lab.data.sampler import LengthBatchSampler
from attention_lab.data.sampling import SourceSpace, Split
from attention_lab.data.splits import make_split
from attention_lab.tasks.task import Task


class SequenceData(LightningDataModule):
    """Draws each split when it is first asked for and deals it in batches.

    Args:
        task: what to learn.
        space: which sources there are.
        sizes: how many distinct sequences each split should hold.
        batch_size: sequences a batch.
        seed: decides the sequences and the order of training batches.
        num_workers: processes that assemble batches; they change nothing but speed.
    """

    def __init__(
        self,
        task: Task,
        space: SourceSpace,
        sizes: dict[Split, int],
        batch_size: int,
        seed: int,
        num_workers: int = 0,
    ) -> None:
        super().__init__()
        self.batch_size = batch_size
        self.seed = seed
        self.num_workers = num_workers
        self._task = task
        self._space = space
        self._sizes = sizes
        self._rows: dict[Split, SequenceRows] = {}

    def rows(self, split: Split) -> SequenceRows:
        """Returns a split's rows.

        Raises:
            ValueError: no sequence belongs to it.
        """
        if split not in self._rows:
            made = make_split(self._task, self._space, split, self._sizes[split], self.seed)
            self._rows[split] = SequenceRows(made)
        return self._rows[split]

    def loader(self, split: Split) -> DataLoader[Batch]:
        """Returns a split in batches: training shuffled anew each epoch, the others by length."""
        rows = self.rows(split)
        return DataLoader(
            rows,
            batch_sampler=LengthBatchSampler(rows.lengths, self.batch_size, self.seed, shuffle=split == "train"),
            collate_fn=_as_it_is,
            num_workers=self.num_workers,
            persistent_workers=self.num_workers > 0,
            pin_memory=torch.cuda.is_available(),
        )

    def train_dataloader(self) -> DataLoader[Batch]:
        return self.loader("train")

    def val_dataloader(self) -> DataLoader[Batch]:
        return self.loader("validation")


def _as_it_is(batch: Any) -> Any:
    return batch
