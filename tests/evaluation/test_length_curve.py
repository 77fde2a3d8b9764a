"""Length curves: the lengths that were asked for, with sequences that nobody can have trained on."""

from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from attention_lab.composition.build import build_data
from attention_lab.errors import SettingError
from attention_lab.evaluation.length_curve import default_lengths, draw_length, draw_lengths, length_curve
from attention_lab.evaluation.records import LengthRecord
from attention_lab.metrics.alignment import Head
from attention_lab.models.encoder_decoder import EncoderDecoder
from attention_lab.positions.sinusoidal import PositionalEncoding
from attention_lab.runs.trained import Trained
from attention_lab.settings.schema import DataSettings, EvaluateSettings
from attention_lab.tasks.copy import Copy
from attention_lab.tasks.duplicate import Duplicate
from attention_lab.tasks.mixture import Mixture
from attention_lab.tasks.reverse import Reverse
from attention_lab.tasks.task import Task

DATA = DataSettings(
    min_length=2,
    max_length=12,
    vocab_size=5,
    unique_symbols=False,
    train_size=100,
    validation_size=10,
    test_size=13,
    batch_size=7,
    num_workers=0,
)


def network(max_len: int = 50) -> EncoderDecoder:
    torch.manual_seed(0)
    return EncoderDecoder(8, d_model=12, num_heads=3, d_ff=7, position=partial(PositionalEncoding, max_len=max_len))


def curve(lengths: list[int], data: DataSettings = DATA, max_len: int = 50) -> list[LengthRecord]:
    model, head = network(max_len), Head("decoder_cross", 0, 1)
    drawn = {length: draw_length(model, Reverse(), data, length, seed=3) for length in lengths}
    return length_curve(model, drawn, 1024, head, torch.device("cpu"))


def test_there_is_one_record_a_length_with_every_figure_of_the_contract():
    records = curve([5, 17])
    assert [record.length for record in records] == [5, 17]
    for record in records:
        assert list(vars(record)) == [
            "length",
            "sequences",
            "token_accuracy",
            "exact_match",
            "decoded_exact_match",
            "alignment_hit_rate",
            "alignment_mass",
            "alignment_entropy",
            "alignment_chance",
            "alignment_oracle_head_hit_rate",
            "alignment_oracle_head_mass",
        ]
        assert record.alignment_chance == pytest.approx(1 / (record.length + 1))
        assert all(0 <= value <= 1 for value in list(vars(record).values())[2:])


def test_a_length_may_be_far_beyond_what_as_many_training_sequences_would_fit_into():
    many = DATA.changed(train_size=10**7)
    assert [record.length for record in curve([53], many, max_len=60)] == [53]


def test_figures_do_not_depend_on_the_batch_size():
    one, other = curve([9], DATA.changed(batch_size=1)), curve([9], DATA.changed(batch_size=13))
    assert vars(one[0]) == pytest.approx(vars(other[0]), rel=1e-5)


@pytest.mark.parametrize(
    ("lengths", "data", "complaint"),
    [
        ([50], DATA, "lengths=50 needs more than the 50 positions"),
        ([10**9], DATA, "lengths=1000000000 needs more than the 50 positions"),
        ([6], DATA.changed(unique_symbols=True, max_length=5), "lengths=6 needs as many different symbols"),
        ([1], DATA.changed(vocab_size=1), "lengths=1 has no sequence in the test split"),
    ],
)
def test_lengths_that_cannot_be_are_refused(lengths, data, complaint):
    with pytest.raises(SettingError, match=complaint):
        curve(lengths, data)


def test_a_length_at_which_the_task_cannot_be_done_is_refused():
    mixture = Mixture([Reverse(), Copy()])
    with pytest.raises(SettingError, match=r"lengths=1 does not go with the task: .*; it takes 2 symbols or more"):
        draw_length(network(), mixture, DATA, 1, seed=3)


def drawn(data: DataSettings, max_len: int = 50, task: Task | None = None, lengths: list[int] | None = None):
    settings: Any = SimpleNamespace(data=data, seed=3)
    task = task or Reverse()
    trained = Trained({}, settings, 0, None, task, build_data(task, data, 3, splits=()), network(max_len))
    return draw_lengths(
        trained,
        EvaluateSettings(
            checkpoint="a.ckpt",
            accelerator="cpu",
            batch_size=None,
            num_figures=0,
            lengths=lengths,
            num_per_length=5,
            decode_up_to=1024,
            pdf=False,
        ),
    )


def test_default_lengths_go_to_four_times_the_training_length_as_far_as_there_are_positions():
    assert default_lengths(DATA) == [3, 6, 9, 12, 24, 48]
    assert list(drawn(DATA)[0]) == [3, 6, 9, 12, 24, 48]
    assert list(drawn(DATA, 48)[0]) == [3, 6, 9, 12, 24]
    assert list(drawn(DATA, 50, Duplicate())[0]) == [3, 6, 9, 12, 24]
    assert list(drawn(DATA.changed(unique_symbols=True, max_length=4))[0]) == [2, 3, 4]


@pytest.mark.parametrize("longest", range(1, 9))
def test_a_default_length_without_test_sequences_is_left_out_quietly_and_one_asked_for_is_not(longest):
    # Of the ten sequences of one symbol, none belongs to the test split.
    data = DATA.changed(min_length=1, max_length=longest, vocab_size=10)
    found, refused = drawn(data)
    assert refused == {}
    assert list(found) == [length for length in default_lengths(data) if length > 1]
    found, refused = drawn(data, lengths=[1, 2])
    assert list(found) == [2]
    assert str(refused[1]) == "lengths=1 has no sequence in the test split; leave it out"
    assert drawn(data, lengths=[]) == ({}, {})


def test_a_default_length_at_which_a_task_cannot_be_done_is_left_out():
    class OnlyShort(Reverse):
        def alignment(self, sources):
            if sources.shape[1] > 12:
                raise ValueError("too long for this task")
            return super().alignment(sources)

    assert list(drawn(DATA, task=OnlyShort())[0]) == [3, 6, 9, 12]
