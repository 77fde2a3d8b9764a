"""The three splits of a task, ready to be trained and evaluated on."""

import signal
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from lightning.pytorch import LightningDataModule
from torch.utils.data import BatchSampler, DataLoader, Dataset, Sampler

from attention_lab.data.batches import Batch, LikeLengths, SequenceRows
from attention_lab.data.sampler import EndlessBatches, OneEpoch
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
        parts: parts of like lengths that a training batch is cut into, at most; they change nothing but speed, either.
        endless: deal training batches without end, epoch after epoch, to a trainer that counts steps alone.
        limit: training batches an epoch at most, or their share; None deals all.
        rows: splits that are there already, and need not be drawn.
    """

    def __init__(
        self,
        task: Task,
        space: SourceSpace,
        sizes: dict[Split, int],
        batch_size: int,
        seed: int,
        num_workers: int = 0,
        parts: int = 1,
        endless: bool = False,
        limit: int | float | None = None,
        rows: Mapping[Split, SequenceRows] | None = None,
    ) -> None:
        super().__init__()
        self.batch_size = batch_size
        self.seed = seed
        self.num_workers = num_workers
        self.parts = parts
        self.endless = endless
        self.limit = limit
        self.task = task
        self._space = space
        self._sizes = sizes
        self._rows: dict[Split, SequenceRows] = dict(rows or {})

    def rows(self, split: Split) -> SequenceRows:
        """Returns a split's rows.

        Raises:
            SettingError: no sequence belongs to it, or the task gives no alignment of one.
        """
        if split not in self._rows:
            made = make_split(self.task, self._space, split, self._sizes[split], self.seed)
            self._rows[split] = SequenceRows(made)
        return self._rows[split]

    def loader(self, split: Split) -> DataLoader[Batch]:
        """Returns a split in batches of like lengths, always in the same order."""
        return self._in_order(split, (0, 1))

    def train_dataloader(self) -> DataLoader[Sequence[Batch]]:
        """Returns random batches of the training split, each as parts of like lengths; an epoch unless it is endless.

        It begins with the batch of the trainer's next step, where there is a trainer, and deals its process's share.
        """
        rows = self.rows("train")
        first = 0 if self.trainer is None else self.trainer.global_step * self.trainer.accumulate_grad_batches
        deal = EndlessBatches if self.endless else OneEpoch
        batches = deal(rows, self.batch_size, self.seed, first, self._share, self.limit)
        return self._loader(LikeLengths(rows, self.parts), batches)

    def val_dataloader(self) -> DataLoader[Batch]:
        """Returns the process's share of the validation split, every row of which belongs to exactly one."""
        return self._in_order("validation", self._share)

    def test_dataloader(self) -> DataLoader[Batch]:
        """Returns the process's share of the test split."""
        return self._in_order("test", self._share)

    def predict_dataloader(self) -> DataLoader[Batch]:
        """Returns the same: what is to be answered."""
        return self.test_dataloader()

    def transfer_batch_to_device(self, batch: Any, device: torch.device, dataloader_idx: int) -> Any:
        """Leaves a batch where it is on a CPU: looking through all its tensors takes Lightning 0.04 ms a step."""
        return batch if device.type == "cpu" else super().transfer_batch_to_device(batch, device, dataloader_idx)

    @property
    def _share(self) -> tuple[int, int]:
        return (0, 1) if self.trainer is None else (self.trainer.global_rank, self.trainer.world_size)

    def _in_order(self, split: Split, share: tuple[int, int]) -> DataLoader[Batch]:
        rows = self.rows(split)
        return self._loader(rows, BatchSampler(range(share[0], len(rows), share[1]), self.batch_size, drop_last=False))

    def _loader(self, rows: Dataset[Any], batches: Sampler[list[int]]) -> DataLoader[Any]:
        return DataLoader(
            rows,
            batch_sampler=batches,
            collate_fn=_as_it_is,
            worker_init_fn=_deaf_to_the_keyboard,
            num_workers=self.num_workers,
            persistent_workers=self.num_workers > 0,
            pin_memory=torch.cuda.is_available(),
            # Without one, every pass over the data would take a number out of the stream that dropout draws from.
            generator=torch.Generator(),
        )


def _deaf_to_the_keyboard(_: int) -> None:
    """Leaves Ctrl-C, which a terminal sends to workers as well, to the process that they work for."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _as_it_is(batch: Any) -> Any:
    return batch
