"""A mixture is scored task by task, and each of its tasks is shown."""

import pytest
import torch

from attention_lab.data.batches import SequenceRows, readable_rows
from attention_lab.data.module import SequenceData
from attention_lab.data.sampling import SourceSpace
from attention_lab.data.splits import make_split
from attention_lab.evaluation.ablation import head_means
from attention_lab.evaluation.examples import example_rows
from attention_lab.evaluation.mixture import each_task
from attention_lab.evaluation.scoring import accuracy, head_scores
from attention_lab.models.encoder_decoder import EncoderDecoder
from attention_lab.tasks.copy import Copy
from attention_lab.tasks.mixture import Mixture
from attention_lab.tasks.reverse import Reverse
from attention_lab.tasks.rotate import Rotate

CPU = torch.device("cpu")
MIXTURE = Mixture([Copy(), Reverse(), Rotate()])


@pytest.fixture(scope="module")
def data() -> SequenceData:
    sizes = {"train": 1, "validation": 41, "test": 53}
    return SequenceData(MIXTURE, SourceSpace(2, 5, 5), sizes, batch_size=11, seed=3)


def test_what_the_parts_say_adds_up_to_the_whole(data):
    torch.manual_seed(0)
    network = EncoderDecoder(8, d_model=12, num_heads=3, d_ff=7).eval()
    validation, test = list(data.loader("validation")), list(data.loader("test"))
    records = each_task(network, MIXTURE, validation, test, head_means(network, validation, CPU), CPU)
    assert [record.task for record in records] == ["copy", "reverse", "rotate"]
    assert sum(record.sequences for record in records) == 53
    tokens = torch.zeros(3)
    for batch in test:
        for number in range(3):
            rows = torch.from_numpy(MIXTURE.asked(batch.source.numpy()) == number)
            tokens[number] += (batch.alignment[rows] >= 0).sum()
    whole = head_scores(network, test, CPU)
    for head in range(3):
        mass = sum(record.heads[head].mass * count for record, count in zip(records, tokens, strict=True))
        assert float(mass / tokens.sum()) == pytest.approx(float(whole.mass[0, head]), rel=1e-5)
    exact = sum(record.exact_match * record.sequences for record in records) / 53
    assert exact == pytest.approx(accuracy(network, test, CPU)["exact_match"], abs=1e-6)


def test_a_single_task_has_no_parts():
    assert each_task(EncoderDecoder(8), Copy(), [], [], torch.zeros(1, 8, 16), CPU) == []


def test_the_examples_shown_take_turns_among_the_tasks(data):
    rows = data.rows("test")
    chosen = example_rows(MIXTURE, rows, 5)
    asked = MIXTURE.asked(rows.__getitems__(chosen).source.numpy()).tolist()
    assert asked == [0, 1, 2, 0, 1]
    assert len(set(chosen)) == 5


def test_the_examples_of_a_single_task_are_the_readable_ones():
    rows = SequenceRows(make_split(Reverse(), SourceSpace(2, 7, 5), "validation", 41, seed=3))
    assert example_rows(Reverse(), rows, 3) == readable_rows(rows, 3)
