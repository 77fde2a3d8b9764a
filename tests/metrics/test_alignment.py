"""Hit rate and mass of every head: by hand, against plain loops, and whatever the padding and the batches."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from attention_lab.metrics.alignment import AlignmentScores, Head, HeadScores

BATCH, HEADS, TARGET, SOURCE, LAYERS = 5, 3, 7, 11, 2
SEEDS = st.integers(0, 1000)


def attention(seed: int, layers: int = LAYERS) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(BATCH, HEADS, TARGET, SOURCE, generator=generator).softmax(-1) for _ in range(layers))


def alignment_of(seed: int) -> Tensor:
    """Positions, with a negative tail of another length in each row."""
    generator = torch.Generator().manual_seed(seed)
    places = torch.randint(0, SOURCE, (BATCH, TARGET), generator=generator)
    lengths = torch.randint(1, TARGET, (BATCH, 1), generator=generator)
    return places.where(torch.arange(TARGET) < lengths, -1)


def scores(*batches: tuple[tuple[Tensor, ...], Tensor]) -> HeadScores:
    metric = AlignmentScores()
    for weights, alignment in batches:
        metric.update(weights, alignment)
    return metric.heads()


def close(one: HeadScores, other: HeadScores) -> bool:
    return all(torch.allclose(*pair, rtol=1e-6, atol=1e-9) for pair in zip(one, other, strict=True))


def plain_scores(weights: tuple[Tensor, ...], alignment: Tensor) -> HeadScores:
    hits, mass = torch.zeros(2, len(weights), weights[0].size(1), dtype=torch.float64)
    tokens = 0
    for row, places in enumerate(alignment.tolist()):
        for step, place in enumerate(places):
            if place < 0:
                continue
            tokens += 1
            for layer, heads in enumerate(weights):
                for head, looks in enumerate(heads[row, :, step].tolist()):
                    hits[layer, head] += looks.index(max(looks)) == place
                    mass[layer, head] += looks[place]
    return HeadScores(hits / tokens, mass / tokens)


def test_a_single_head_keeps_its_dimensions() -> None:
    found = scores(((torch.tensor([[[[0.25, 0.75]]]]),), torch.tensor([[1]])))
    assert found.mass.tolist() == [[0.75]]
    assert found.best() == (0, 0)


def test_two_heads_worked_by_hand() -> None:
    right = [[0.7, 0.2, 0.1], [0.1, 0.1, 0.8], [0.4, 0.3, 0.3]]
    wrong = [[0.1, 0.2, 0.7], [0.1, 0.5, 0.4], [0.2, 0.6, 0.2]]
    weights = torch.tensor([[right, wrong]])
    found = scores(((weights,), torch.tensor([[0, 2, -1]])))
    assert found.hit_rate.tolist() == [[1.0, 0.0]]
    assert found.mass.tolist() == [[pytest.approx((0.7 + 0.8) / 2), pytest.approx((0.1 + 0.4) / 2)]]


@given(SEEDS)
@settings(max_examples=25, deadline=None)
def test_scores_equal_a_plain_loop(seed: int) -> None:
    weights, alignment = attention(seed), alignment_of(seed)
    found = scores((weights, alignment))
    assert found.hit_rate.shape == found.mass.shape == (LAYERS, HEADS)
    assert close(found, plain_scores(weights, alignment))


@given(SEEDS, st.integers(1, 5), st.integers(1, 5))
@settings(max_examples=25, deadline=None)
def test_the_amount_of_padding_does_not_matter(seed: int, more_target: int, more_source: int) -> None:
    weights, alignment = attention(seed), alignment_of(seed)
    # Padded source tokens get no weight; padded target tokens look anywhere.
    generator = torch.Generator().manual_seed(seed)
    wide = torch.rand(BATCH, HEADS, TARGET + more_target, SOURCE + more_source, generator=generator)
    wide[:, :, :TARGET] = 0.0
    padded = []
    for layer in weights:
        padded.append(wide.clone())
        padded[-1][:, :, :TARGET, :SOURCE] = layer
    longer = torch.full((BATCH, TARGET + more_target), -1)
    longer[:, :TARGET] = alignment
    assert close(scores((tuple(padded), longer)), scores((weights, alignment)))


@given(SEEDS, st.integers(1, BATCH - 1))
@settings(max_examples=25, deadline=None)
def test_how_rows_are_batched_does_not_matter(seed: int, first: int) -> None:
    weights, alignment = attention(seed), alignment_of(seed)
    parts = [slice(0, first), slice(first, None)]
    split = [(tuple(layer[part] for layer in weights), alignment[part]) for part in parts]
    assert close(scores(*split), scores((weights, alignment)))


def test_batches_of_different_widths_count_by_tokens() -> None:
    narrow = torch.tensor([[[[1.0, 0.0]], [[0.0, 1.0]]]])
    wide = torch.tensor([[[[0.0, 1.0, 0.0], [0.0, 1.0, 0.0], [0.5, 0.25, 0.25]], [[1.0, 0.0, 0.0]] * 3]])
    found = scores(((narrow,), torch.tensor([[0]])), ((wide,), torch.tensor([[0, 1, 0]])))
    assert found.hit_rate.tolist() == [[3 / 4, 2 / 4]]
    assert found.mass.tolist() == [[(1 + 0 + 1 + 0.5) / 4, (0 + 1 + 0 + 1) / 4]]


def test_tokens_from_nowhere_never_count() -> None:
    weights, alignment = attention(3), alignment_of(3)
    known = (alignment >= 0)[:, None, :, None]
    changed = tuple(layer.where(known, torch.eye(SOURCE)[0]) for layer in weights)
    assert close(scores((changed, alignment)), scores((weights, alignment)))


def test_uniform_attention_has_the_mass_of_one_source_token() -> None:
    uniform = (torch.full((BATCH, HEADS, TARGET, SOURCE), 1 / SOURCE),) * LAYERS
    mass = scores((uniform, alignment_of(3))).mass
    assert mass.numpy() == pytest.approx(1 / SOURCE)


def test_perfect_attention_has_hit_rate_and_mass_one() -> None:
    alignment = alignment_of(3)
    gold = torch.eye(SOURCE)[alignment.clamp(min=0)][:, None].expand(-1, HEADS, -1, -1)
    found = scores(((gold,), alignment))
    assert found.hit_rate.tolist() == found.mass.tolist() == [[1.0] * HEADS]


def test_half_precision_weights_are_summed_in_double() -> None:
    # Summed in bfloat16, 5003 halves would stop growing at 128.
    weights = torch.full((1, HEADS, 5003, 2), 0.5, dtype=torch.bfloat16)
    found = scores(((weights,), torch.ones(1, 5003, dtype=torch.long)))
    assert found.mass.tolist() == [[0.5] * HEADS]


def test_nothing_counted_is_not_a_number() -> None:
    found = scores((attention(3), torch.full((BATCH, TARGET), -1)))
    assert found.hit_rate.isnan().all()
    assert found.mass.isnan().all()
    assert found.mass.shape == (LAYERS, HEADS)


def test_two_processes_scores_merge_into_one() -> None:
    batches = [(attention(seed), alignment_of(seed)) for seed in (3, 5)]
    one, other = AlignmentScores(), AlignmentScores()
    one.update(*batches[0])
    other.update(*batches[1])
    one.merge_state(other)
    assert close(one.heads(), scores(*batches))


def test_reset_makes_room_for_another_number_of_heads() -> None:
    metric = AlignmentScores()
    metric.update(attention(3), alignment_of(3))
    metric.reset()
    weights, alignment = attention(5, layers=1), alignment_of(5)
    metric.update(weights, alignment)
    assert close(metric.heads(), scores((weights, alignment)))


def test_the_best_head_hits_most_often() -> None:
    hit_rate = torch.tensor([[0.1, 0.5, 0.2], [0.3, 0.9, 0.4]])
    mass = torch.tensor([[0.9, 0.8, 0.7], [0.6, 0.1, 0.5]])
    assert HeadScores(hit_rate, mass).best() == (1, 1)


def test_among_equal_hit_rates_the_most_mass_wins() -> None:
    hit_rate = torch.tensor([[0.9, 0.5, 0.9], [0.9, 0.1, 0.4]])
    mass = torch.tensor([[0.3, 0.8, 0.7], [0.6, 0.9, 0.9]])
    assert HeadScores(hit_rate, mass).best() == (0, 2)


def test_among_equal_heads_the_first_wins() -> None:
    assert HeadScores(torch.zeros(LAYERS, HEADS), torch.zeros(LAYERS, HEADS)).best() == (0, 0)


def test_a_hit_rate_a_hair_higher_beats_any_mass() -> None:
    hit_rate = torch.tensor([[0.5, 0.5 + 1e-9]], dtype=torch.float64)
    mass = torch.tensor([[0.9, 0.1]], dtype=torch.float64)
    assert HeadScores(hit_rate, mass).best() == (0, 1)


def test_a_head_says_where_it_is() -> None:
    assert str(Head("decoder_cross", 1, 7)) == "decoder_cross, layer 1, head 7"
