"""The data module: splits on demand, and batches that no number of workers changes."""

from itertools import islice

import pytest
import torch
from lightning.pytorch import LightningModule, Trainer
from torch import nn

from attention_lab.data.batches import Batch
from attention_lab.data.module import SequenceData
from attention_lab.data.sampling import SourceSpace, Split
from attention_lab.data.splits import make_split
from attention_lab.tasks.reverse import Reverse

SIZES: dict[Split, int] = {"train": 53, "validation": 31, "test": 29}
SPACE = SourceSpace(2, 11, 7)


def sequence_data(seed: int = 5, num_workers: int = 0, parts: int = 1) -> SequenceData:
    return SequenceData(Reverse(), SPACE, SIZES, 13, seed, num_workers, parts, endless=True)


def plain(batch: Batch) -> list[object]:
    return [part.tolist() for part in batch]


def batches(data: SequenceData, split: Split) -> list[list[object]]:
    return [plain(batch) for batch in data.loader(split)]


PER_EPOCH = 5


def training(data: SequenceData, epoch: int = 0) -> list[list[list[object]]]:
    batches = islice(data.train_dataloader(), epoch * PER_EPOCH, (epoch + 1) * PER_EPOCH)
    return [[plain(part) for part in batch] for batch in batches]


@pytest.mark.parametrize(("split", "size"), SIZES.items())
def test_each_split_has_its_own_size(split: Split, size: int) -> None:
    data = sequence_data()
    assert len(data.rows(split)) == size
    assert [len(batch.source) for batch in data.loader(split)].count(13) == size // 13
    assert sum(len(batch.source) for batch in data.loader(split)) == size


@pytest.mark.parametrize("split", SIZES)
def test_batches_hold_the_rows_of_their_split(split: Split) -> None:
    dealt = [tuple(row[row > 2].tolist()) for batch in sequence_data().loader(split) for row in batch.source]
    expected = make_split(Reverse(), SPACE, split, SIZES[split], 5)["source"]
    assert sorted(dealt) == sorted(map(tuple, expected))


def test_every_training_row_comes_once_an_epoch() -> None:
    dealt = [tuple(row) for batch in training(sequence_data()) for part in batch for row in part[0]]
    assert len(dealt) == SIZES["train"]
    stripped = sorted(tuple(token for token in row if token > 2) for row in dealt)
    assert stripped == sorted(map(tuple, make_split(Reverse(), SPACE, "train", SIZES["train"], 5)["source"]))


def test_parts_hold_the_rows_of_the_batch_by_length_and_with_less_padding() -> None:
    whole, parts = training(sequence_data(parts=1)), training(sequence_data(parts=3))
    assert list(map(len, parts)) == [3, 3, 3, 3, 1 if len(whole[-1][0][0]) == 1 else 3]
    for (one,), several in zip(whole, parts, strict=True):
        strip = [
            sorted(tuple(token for token in row if token) for part in batch for row in part[0])
            for batch in ([one], several)
        ]
        assert strip[0] == strip[1]
        widths = [len(part[0][0]) for part in several]
        assert widths == sorted(widths)
        assert max(widths) == len(one[0][0])
    padding = [sum(row.count(0) for batch in dealt for part in batch for row in part[0]) for dealt in (whole, parts)]
    assert padding[1] < padding[0] / 2


def test_a_split_is_drawn_once() -> None:
    data = sequence_data()
    assert data.rows("train") is data.rows("train")


def test_the_same_seed_gives_the_same_batches() -> None:
    assert training(sequence_data(5), 3) == training(sequence_data(5), 3)


def test_another_seed_gives_other_batches() -> None:
    assert training(sequence_data(5)) != training(sequence_data(6))


def test_training_is_shuffled_by_the_epoch_and_the_rest_is_not() -> None:
    data = sequence_data()
    assert training(data, 0) != training(data, 1)
    assert batches(data, "validation") == batches(data, "validation")


class Watch(LightningModule):
    """Notes what it is shown."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(()))
        self.seen: list[list[list[object]]] = []

    def training_step(self, batch: list[Batch], batch_idx: int) -> torch.Tensor:
        self.seen.append([plain(part) for part in batch])
        return self.weight

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        raise AssertionError("there is nothing to validate")

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=1.0)


def test_lightning_trains_on_them_in_this_order() -> None:
    watch = Watch()
    quiet = {
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    Trainer(accelerator="cpu", max_steps=2 * PER_EPOCH, limit_val_batches=0, **quiet).fit(watch, sequence_data())
    assert watch.seen == training(sequence_data(), 0) + training(sequence_data(), 1)


def test_epochs_are_those_of_the_endless_batches_and_end() -> None:
    data = sequence_data()
    data.endless = False
    loader = data.train_dataloader()
    assert len(loader) == PER_EPOCH
    epochs = [[[plain(part) for part in batch] for batch in loader] for _ in range(2)]
    assert epochs == [training(sequence_data(), 0), training(sequence_data(), 1)]


def test_what_is_not_trained_on_comes_by_length() -> None:
    widths = [batch.source.size(1) for batch in sequence_data().loader("test")]
    assert widths == sorted(widths)


@pytest.mark.parametrize("split", ["validation", "test"])
def test_an_empty_split_is_refused_when_it_is_asked_for(split: Split) -> None:
    # The only sequence there is belongs to the training split.
    data = SequenceData(Reverse(), SourceSpace(1, 1, 1), SIZES, 13, 5)
    assert len(data.rows("train")) == 1
    with pytest.raises(ValueError, match=f"{split} split"):
        data.rows(split)


# One core is no fault of the loader's, and Python 3.12 warns of every fork of a process with threads.
@pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_workers_change_nothing() -> None:
    loaders = (sequence_data(num_workers=number, parts=2).train_dataloader() for number in (0, 2))
    alone, helped = ([[plain(part) for part in batch] for batch in islice(loader, 12)] for loader in loaders)
    assert alone == helped


def test_a_batch_stays_where_it_is_on_a_cpu_and_is_moved_elsewhere():
    made = sequence_data()
    batch = next(iter(made.train_dataloader()))
    assert made.transfer_batch_to_device(batch, torch.device("cpu"), 0) is batch
    moved = made.transfer_batch_to_device(batch, torch.device("meta"), 0)
    assert all(tensor.is_meta for part in moved for tensor in part)
    assert [type(part) for part in moved] == [type(part) for part in batch]
