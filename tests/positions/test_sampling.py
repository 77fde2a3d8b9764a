"""Sampled positions: sorted subsets, dense and sparse ones, shared by source and target."""

from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attention_lab.models.decoder_only import DecoderOnly
from attention_lab.models.encoder_decoder import EncoderDecoder
from attention_lab.models.encoder_only import EncoderOnly
from attention_lab.positions.alibi import ALiBi
from attention_lab.positions.learned import LearnedPosition
from attention_lab.positions.none import NoPositionalEncoding
from attention_lab.positions.position import Position
from attention_lab.positions.relative_t5 import RelativeT5
from attention_lab.positions.rotary import RotaryPosition
from attention_lab.positions.sampling import PositionSampling
from attention_lab.positions.sinusoidal import PositionalEncoding
from attention_lab.positions.two_ended_rotary import TwoEndedRotary
from attention_lab.tasks.vocabulary import BOS, EOS, PAD

MODELS = (EncoderDecoder, DecoderOnly, EncoderOnly)


def equal(rows: int, length: int) -> torch.Tensor:
    """As many tokens in every row."""
    return torch.full((rows, 1), length)


@given(rows=st.integers(1, 5), length=st.integers(1, 23), more=st.integers(0, 1000), seed=st.integers(0, 10**6))
@pytest.mark.parametrize("distribution", ["uniform", "log_uniform"])
def test_drawn_coordinates_are_distinct_rising_and_in_range(distribution, rows, length, more, seed):
    torch.manual_seed(seed)
    highest = max(2, length + more)
    marks = PositionSampling(highest, distribution).drawn(equal(rows, length), length).marks
    assert marks is not None
    assert marks.shape == (rows, length)
    assert ((marks >= 0) & (marks < highest)).all()
    assert (marks.diff(dim=1) > 0).all()


def test_as_many_coordinates_as_tokens_are_all_of_them():
    marks = PositionSampling(7).drawn(equal(3, 7), 7).marks
    assert marks is not None
    assert marks.tolist() == [list(range(7))] * 3


def test_uniform_subsets_reach_everywhere_alike():
    torch.manual_seed(0)
    marks = PositionSampling(1000, "uniform").drawn(equal(20000, 4), 4).marks
    assert marks is not None
    # The i-th of n sorted uniform numbers is on average at (i + 1) / (n + 1) of the range.
    torch.testing.assert_close(
        marks.double().mean(dim=0), torch.tensor([199.8, 399.6, 599.4, 799.2]).double() + 0.4, rtol=0, atol=4.0
    )


def test_log_uniform_ranges_occur_at_every_scale_alike():
    torch.manual_seed(0)
    marks = PositionSampling(2**14, "log_uniform").drawn(equal(20000, 4), 4).marks
    assert marks is not None
    last = marks[:, -1]
    # The range is log-uniform from 4 to 2^14: a twelfth of them lies in every doubling, the last mark a bit below it.
    shares = [((last >= 2**scale) & (last < 2 ** (scale + 1))).double().mean().item() for scale in range(5, 13)]
    assert shares == pytest.approx([1 / 12] * 8, abs=0.012)


@pytest.mark.parametrize("distribution", ["uniform", "log_uniform"])
@pytest.mark.parametrize("more", [0, 9])
def test_a_row_draws_by_its_own_length_however_far_its_batch_is_padded(distribution, more):
    torch.manual_seed(0)
    sampling, rows, tokens = PositionSampling(1000, distribution), 20000, 5
    alone = sampling.drawn(equal(rows, tokens), tokens).marks
    lengths = equal(rows, tokens)
    lengths[0] += more
    beside = sampling.drawn(lengths, tokens + more).marks
    assert alone is not None
    assert beside is not None
    last, other = (marks[1:, tokens - 1].double() for marks in (alone, beside))
    torch.testing.assert_close(other.mean(), last.mean(), rtol=0.03, atol=0)
    torch.testing.assert_close(other.median(), last.median(), rtol=0.06, atol=0)
    assert (beside[:, :tokens].diff(dim=1) > 0).all()
    assert (beside < 1000).all()


def test_padding_may_have_more_places_than_there_are():
    marks = PositionSampling(7).drawn(torch.tensor([[7], [3]]), 9).marks
    assert marks is not None
    assert marks[0, :7].tolist() == list(range(7))
    assert marks.max() == 6


def test_evaluation_counts_or_spreads_evenly_by_each_rows_own_length():
    tokens = torch.tensor([[11], [6]])
    assert PositionSampling(2048, "log_uniform").expected(tokens).gap is None
    spread = PositionSampling(2048, "uniform").expected(tokens).gap
    assert spread is not None
    assert spread.tolist() == [[2048 // 11], [2048 // 6]]
    crowded = PositionSampling(4, "uniform").expected(tokens).gap
    assert crowded is not None
    assert crowded.tolist() == [[1], [1]]


def test_a_target_is_expected_to_be_as_long_as_its_source_unless_it_is_known():
    symbols = torch.tensor([[4], [0], [7]])
    assert PositionSampling(64, "uniform").expected_targets(symbols).tolist() == [[5], [1], [8]]
    thrice_the_last = PositionSampling(64, "uniform", longest=lambda length: length + 3)
    assert thrice_the_last.expected_targets(symbols).tolist() == [[8], [1], [11]]


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


@given(
    range=st.integers(2, 300), tokens=st.lists(st.integers(1, 40), min_size=1, max_size=4), length=st.integers(1, 60)
)
def test_no_two_tokens_of_a_row_share_a_position_however_many_there_are(range, tokens, length):
    ruler = PositionSampling(range, "uniform").expected(torch.tensor(tokens)[:, None])
    places = ruler.at(torch.arange(-length, length)[None])
    assert (places.diff(dim=1) > 0).all()
    for row, own in zip(places, tokens, strict=True):
        assert row[length : length + own].max() < max(range, own)
        alone = PositionSampling(range, "uniform").expected(torch.tensor([[own]]))
        assert torch.equal(alone.at(torch.arange(-length, length)[None])[0], row)


@st.composite
def batches(draw):
    """Symbols of sources and targets of any lengths, and how far the batch is padded on either side."""
    symbols = st.lists(st.integers(3, 10), min_size=1, max_size=9)
    rows = draw(st.lists(st.tuples(symbols, symbols), min_size=1, max_size=3))
    return rows, draw(st.integers(0, 4)), draw(st.integers(0, 4)), draw(st.integers(0, 4))


CODES = (PositionalEncoding, LearnedPosition, RotaryPosition, TwoEndedRotary, ALiBi, RelativeT5, NoPositionalEncoding)
NETWORKS = [(model, code) for model in MODELS for code in CODES if (model, code) != (DecoderOnly, TwoEndedRotary)]


@pytest.mark.parametrize(("model", "code"), NETWORKS)
@settings(deadline=None, max_examples=4)
@given(batch=batches(), sampling=st.sampled_from(["uniform", "log_uniform", None]))
def test_padding_and_other_rows_move_no_logits(model, code, sampling, batch):
    """Whatever the task: a target may be longer than its source, or shorter, but for networks that cannot say more."""
    rows, left, right, more = batch
    torch.manual_seed(0)
    drawn = None if sampling is None else PositionSampling(96, sampling)
    network = model(11, 16, 4, 1, 7, position=code, sampling=drawn).eval()
    sources = [[*source, EOS] for source, _ in rows]
    targets = [[BOS, *(target[: len(source)] if model is EncoderOnly else target)] for source, target in rows]
    source = padded([[PAD] * left + source for source in sources], right)
    target = padded(targets, 0 if model is EncoderOnly else more)
    with torch.no_grad():
        together = network(source, target).logits
        for row, (own_source, own_target) in enumerate(zip(sources, targets, strict=True)):
            alone = network(torch.tensor([own_source]), torch.tensor([own_target])).logits[0]
            torch.testing.assert_close(together[row, : len(own_target)], alone, rtol=1e-4, atol=1e-5)
            first, state = network.step(torch.tensor([own_target[:1]]), network.begin(torch.tensor([own_source])))
            pieces = [first.logits[0]]
            if len(own_target) > 1:
                pieces.append(network.step(torch.tensor([own_target[1:]]), state)[0].logits[0])
            torch.testing.assert_close(torch.cat(pieces), alone, rtol=1e-4, atol=1e-5)


def padded(rows, more):
    longest = max(map(len, rows)) + more
    return torch.tensor([row + [PAD] * (longest - len(row)) for row in rows])


@pytest.mark.parametrize("model", MODELS)
@given(batch=batches(), distribution=st.sampled_from(["uniform", "log_uniform"]))
@settings(deadline=None, max_examples=8)
def test_in_training_no_two_tokens_share_a_position_either(model, batch, distribution):
    rows, left, right, more = batch
    network = model(11, 8, 2, 1, 7, position=Watching, sampling=PositionSampling(48, distribution))
    targets = [[BOS, *(target[: len(source)] if model is EncoderOnly else target)] for source, target in rows]
    source = padded([[PAD] * left + [*source, EOS] for source, _ in rows], right)
    target = padded(targets, 0 if model is EncoderOnly else more)
    network(source, target)
    seen = [code.seen[0] for code in network.modules() if isinstance(code, Watching)]
    for row, (own_source, _) in enumerate(rows):
        own = len(own_source) + 1 + (len(targets[row]) if model is DecoderOnly else 0)
        assert len(set(seen[0][row])) >= own
        if model is EncoderDecoder:
            assert len(set(seen[1][row])) >= len(targets[row])


@pytest.mark.parametrize("model", MODELS[:2])
@pytest.mark.parametrize("code", [PositionalEncoding, LearnedPosition])
@pytest.mark.parametrize("sampling", [None, "uniform", "log_uniform"])
def test_a_step_past_the_last_position_names_the_limit(model, code, sampling):
    drawn = None if sampling is None else PositionSampling(9, sampling)
    network = model(11, 8, 2, 1, 7, position=partial(code, max_len=9), sampling=drawn).eval()
    _, state = network.step(torch.tensor([[5] * 3]), network.begin(torch.tensor([[5, 6, EOS]])))
    with pytest.raises(ValueError, match=r"^a sequence of \d+ tokens does not fit into max_len=9 positions$"):
        network.step(torch.tensor([[5] * 7]), state)


def test_what_cannot_be_is_refused():
    with pytest.raises(ValueError, match=r"^range=1 must be at least 2"):
        PositionSampling(1)
    with pytest.raises(ValueError, match=r"^range=5 holds no 7 different positions"):
        PositionSampling(5).drawn(equal(2, 7), 7)
