"""Sampled positions: sorted subsets, dense and sparse ones, shared by source and target."""

from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attention_lab.models.decoder_only import DecoderOnly
from attention_lab.models.encoder_decoder import EncoderDecoder
from attention_lab.models.encoder_only import EncoderOnly
from attention_lab.positions.position import Position
from attention_lab.positions.sampling import PositionSampling, ruler_for
from attention_lab.positions.sinusoidal import PositionalEncoding
from attention_lab.tasks.vocabulary import BOS, EOS, PAD

MODELS = (EncoderDecoder, DecoderOnly, EncoderOnly)


def whole(rows: int, length: int) -> torch.Tensor:
    return torch.ones(rows, length, dtype=torch.bool)


@given(rows=st.integers(1, 5), length=st.integers(1, 23), more=st.integers(0, 1000), seed=st.integers(0, 10**6))
@pytest.mark.parametrize("distribution", ["uniform", "log_uniform"])
def test_drawn_coordinates_are_distinct_rising_and_in_range(distribution, rows, length, more, seed):
    torch.manual_seed(seed)
    highest = max(2, length + more)
    marks = PositionSampling(highest, distribution).drawn(whole(rows, length), length).marks
    assert marks is not None
    assert marks.shape == (rows, length)
    assert ((marks >= 0) & (marks < highest)).all()
    assert (marks.diff(dim=1) > 0).all()


def test_as_many_coordinates_as_tokens_are_all_of_them():
    marks = PositionSampling(7).drawn(whole(3, 7), 7).marks
    assert marks is not None
    assert marks.tolist() == [list(range(7))] * 3


def test_uniform_subsets_reach_everywhere_alike():
    torch.manual_seed(0)
    marks = PositionSampling(1000, "uniform").drawn(whole(20000, 4), 4).marks
    assert marks is not None
    # The i-th of n sorted uniform numbers is on average at (i + 1) / (n + 1) of the range.
    torch.testing.assert_close(
        marks.double().mean(dim=0), torch.tensor([199.8, 399.6, 599.4, 799.2]).double() + 0.4, rtol=0, atol=4.0
    )


def test_log_uniform_ranges_occur_at_every_scale_alike():
    torch.manual_seed(0)
    marks = PositionSampling(2**14, "log_uniform").drawn(whole(20000, 4), 4).marks
    assert marks is not None
    last = marks[:, -1]
    # The range is log-uniform from 4 to 2^14: a twelfth of them lies in every doubling, the last mark a bit below it.
    shares = [((last >= 2**scale) & (last < 2 ** (scale + 1))).double().mean().item() for scale in range(5, 13)]
    assert shares == pytest.approx([1 / 12] * 8, abs=0.012)


@pytest.mark.parametrize("distribution", ["uniform", "log_uniform"])
@pytest.mark.parametrize(("more", "num_targets"), [(0, 5), (9, 14), (0, 9)])
def test_a_row_draws_by_its_own_length_however_far_its_batch_is_padded(distribution, more, num_targets):
    """Its source has four symbols, its target as many or twice as many, as the others' targets have."""
    torch.manual_seed(0)
    sampling, rows = PositionSampling(1000, distribution), 20000
    twice = num_targets == 9
    tokens = 9 if twice else 5
    alone = sampling.drawn(whole(rows, 5), tokens).marks
    real = torch.nn.functional.pad(whole(rows, 5), (0, more))
    real[0] = True
    beside = sampling.drawn(real, num_targets).marks
    assert alone is not None
    assert beside is not None
    last, other = (marks[1:, tokens - 1].double() for marks in (alone, beside))
    torch.testing.assert_close(other.mean(), last.mean(), rtol=0.03, atol=0)
    torch.testing.assert_close(other.median(), last.median(), rtol=0.06, atol=0)
    assert (beside[:, :tokens].diff(dim=1) > 0).all()
    assert (beside < 1000).all()


def test_evaluation_counts_or_spreads_evenly_by_each_rows_own_length():
    real = torch.tensor([[1] * 11, [1] * 6 + [0] * 5], dtype=torch.bool)
    assert ruler_for(PositionSampling(2048, "log_uniform"), real, 11, training=False).gap is None
    spread = PositionSampling(2048, "uniform")
    as_long = ruler_for(spread, real, 11, training=False).gap
    assert as_long is not None
    assert as_long.tolist() == [[2048 // 11], [2048 // 6]]
    twice = ruler_for(spread, real, 21, training=False).gap
    assert twice is not None
    assert twice.tolist() == [[2048 // 21], [2048 // 11]]
    crowded = ruler_for(PositionSampling(4, "uniform"), real, 11, training=False).gap
    assert crowded is not None
    assert crowded.tolist() == [[1], [1]]


class Watching(Position):
    """Writes down where tokens are."""

    def __init__(self, d_model: int, *, num_heads: int = 1, causal: bool = False) -> None:
        super().__init__(d_model, num_heads=num_heads, causal=causal)
        self.seen: list[list[list[int]]] = []

    def forward(self, x, coordinates=None):
        assert coordinates is not None
        self.seen.append(coordinates.tolist())
        return x


@pytest.mark.parametrize("model", MODELS)
def test_source_and_target_share_what_was_drawn_in_training_only(model):
    torch.manual_seed(0)
    network = model(11, 8, 2, 1, 7, position=Watching, sampling=PositionSampling(1000, "log_uniform"))
    codes = [module for module in network.modules() if isinstance(module, Watching)]
    source = torch.tensor([[5, 6, 7, EOS], [5, 6, EOS, PAD]])
    target = torch.tensor([[BOS, 5, 6, 7], [BOS, 5, 6, PAD]])
    network(source, target)
    drawn = [code.seen.pop() for code in codes]
    if model is EncoderDecoder:
        assert drawn[0][0] == drawn[1][0]
        assert drawn[0][1][:3] == drawn[1][1][:3]
    assert drawn[0][0] != drawn[0][1]
    assert any(row[:3] != [0, 1, 2] for row in drawn[0])
    network.eval()(source, target)
    assert codes[0].seen.pop()[0][:4] == [0, 1, 2, 3]


@pytest.mark.parametrize("model", [EncoderDecoder, DecoderOnly])
def test_decoding_spreads_positions_as_teacher_forcing_does(model):
    torch.manual_seed(0)
    network = model(11, 8, 2, 1, 7, sampling=PositionSampling(300, "uniform")).eval()
    source = torch.tensor([[5, 6, 7, EOS], [5, 6, EOS, PAD]])
    target = torch.tensor([[BOS, 5, 6, 7], [BOS, 5, 6, PAD]])
    expected = network(source, target).logits
    state = network.begin(source, target.size(1))
    for column in range(target.size(1)):
        output, state = network.step(target[:, column : column + 1], state)
        torch.testing.assert_close(output.logits[:, 0], expected[:, column])


def test_padding_of_a_short_row_stays_within_the_table():
    """A short row has wide gaps, and as many target tokens as the longest one, most of them padding."""
    torch.manual_seed(0)
    code = partial(PositionalEncoding, max_len=64)
    network = EncoderDecoder(13, 12, 2, 1, 8, position=code, sampling=PositionSampling(64, "uniform")).eval()
    short, long = [5, EOS], [3, 4, 5, 6, 7, 8, 9, EOS]
    source = torch.tensor([short + [PAD] * 6, long])
    target = torch.tensor([[BOS, 5] + [PAD] * 6, [BOS, *long[:-1]]])
    alone = network(source[:1, :2], target[:1, :2]).logits
    torch.testing.assert_close(network(source, target).logits[:1, :2], alone)


@pytest.mark.parametrize("range", [2048, 12])
def test_spread_coordinates_rise_to_the_last_token_of_every_row(range):
    # Sources of 2 and of 9 symbols and their copies, as one sequence each: 6 and 20 tokens.
    real = torch.arange(10)[None] < torch.tensor([[3], [10]])
    places = ruler_for(PositionSampling(range, "uniform"), real, 20, training=False).at(torch.arange(20)[None])
    for row, tokens in zip(places, (6, 20), strict=True):
        assert (row[:tokens].diff() > 0).all()
    assert places.max() < max(range, 20)


def test_what_cannot_be_is_refused():
    with pytest.raises(ValueError, match=r"^range=1 must be at least 2"):
        PositionSampling(1)
    with pytest.raises(ValueError, match=r"^range=5 holds no 7 different positions"):
        PositionSampling(5).drawn(whole(2, 7), 7)
