"""Length curves: the lengths that were asked for, with sequences that nobody can have trained on."""

from functools import partial

import pytest
import torch

from attention_lab.errors import SettingError
from attention_lab.evaluation.length_curve import default_lengths, length_curve
from attention_lab.metrics.alignment import Head
from attention_lab.models.encoder_decoder import EncoderDecoder
from attention_lab.positions.sinusoidal import PositionalEncoding
from attention_lab.settings.schema import DataSettings
from attention_lab.tasks.copy import Copy
from attention_lab.tasks.duplicate import Duplicate
from attention_lab.tasks.mixture import Mixture
from attention_lab.tasks.reverse import Reverse

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


def curve(lengths: list[int], data: DataSettings = DATA, max_len: int = 50) -> list[dict[str, float]]:
    head = Head("decoder_cross", 0, 1)
    return length_curve(network(max_len), Reverse(), data, lengths, 1024, head, seed=3, device=torch.device("cpu"))


def test_there_is_one_record_a_length_with_every_figure_of_the_contract():
    records = curve([5, 17])
    assert [record["length"] for record in records] == [5, 17]
    for record in records:
        assert list(record) == [
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
        assert record["alignment_chance"] == pytest.approx(1 / (record["length"] + 1))
        assert all(0 <= record[name] <= 1 for name in list(record)[2:])


def test_a_length_may_be_far_beyond_what_as_many_training_sequences_would_fit_into():
    many = DATA.changed(train_size=10**7)
    assert [record["length"] for record in curve([53], many, max_len=60)] == [53]


def test_figures_do_not_depend_on_the_batch_size():
    one, other = curve([9], DATA.changed(batch_size=1)), curve([9], DATA.changed(batch_size=13))
    assert one[0] == pytest.approx(other[0], rel=1e-5)


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
    with pytest.raises(SettingError, match="lengths=1 is too short for task=mixture of reverse, copy; it takes 2"):
        length_curve(
            network(), mixture, DATA, [1], 1024, Head("decoder_cross", 0, 1), seed=3, device=torch.device("cpu")
        )


def test_default_lengths_go_to_four_times_the_training_length_as_far_as_there_are_positions():
    assert default_lengths(Reverse(), DATA, 50) == [3, 6, 9, 12, 24, 48]
    assert default_lengths(Reverse(), DATA, 48) == [3, 6, 9, 12, 24]
    assert default_lengths(Duplicate(), DATA, 50) == [3, 6, 9, 12, 24]
    assert default_lengths(Reverse(), DATA.changed(unique_symbols=True, max_length=4), 50) == [2, 3, 4]
