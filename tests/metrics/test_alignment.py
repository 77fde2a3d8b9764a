"""Every figure of every head: by hand, against plain loops, and whatever the padding and the batches."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from attention_lab.evaluation.scoring import own_figures
from attention_lab.metrics.alignment import AlignmentScores, Head, HeadScores
from attention_lab.tasks.vocabulary import EOS, PAD

BATCH, HEADS, TARGET, SOURCE, LAYERS = 5, 3, 7, 11, 2
SEEDS = st.integers(0, 1000)


def attention(seed: int, layers: int = LAYERS) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(BATCH, HEADS, TARGET, SOURCE, generator=generator).softmax(-1) for _ in range(layers))


def alignment_of(seed: int) -> Tensor:
    """Positions, with a negative tail of another length in each row."""
    generator = torch.Generator().manual_seed(seed)
    places = torch.randint(0, SOURCE - 1, (BATCH, TARGET), generator=generator)
    lengths = torch.randint(1, TARGET, (BATCH, 1), generator=generator)
    return places.where(torch.arange(TARGET) < lengths, -1)


def source_of(width: int, rows: int = BATCH) -> Tensor:
    """Sources of `width` tokens each: symbols, then EOS."""
    return torch.tensor([[7] * (width - 1) + [EOS]]).expand(rows, -1)


def scores(*batches: tuple[tuple[Tensor, ...], Tensor] | tuple[tuple[Tensor, ...], Tensor, Tensor]) -> HeadScores:
    weights = batches[0][0]
    metric = AlignmentScores(len(weights), weights[0].size(1))
    for weights, alignment, *source in batches:
        metric.update(weights, alignment, source[0] if source else source_of(weights[0].size(-1), len(alignment)))
    return metric.heads()


def close(one: HeadScores, other: HeadScores) -> bool:
    return all(torch.allclose(*pair, rtol=1e-5, atol=1e-7, equal_nan=True) for pair in zip(one, other, strict=True))


def plain_scores(weights: tuple[Tensor, ...], alignment: Tensor, source: Tensor) -> HeadScores:
    figures = torch.zeros(10, len(weights), weights[0].size(1), dtype=torch.float64)
    for layer, heads in enumerate(weights):
        for head in range(heads.size(1)):
            own = plain_figures(heads[:, head], alignment, source)
            figures[:, layer, head] = torch.tensor([*own, *plain_together(weights, alignment)])
    return HeadScores(*figures)


def plain_together(weights: tuple[Tensor, ...], alignment: Tensor) -> list[float]:
    hits, masses = [], []
    for row, places in enumerate(alignment.tolist()):
        for step, place in enumerate(places):
            if place >= 0:
                looks = [head[step].tolist() for layer in weights for head in layer[row]]
                hits.append(any(each.index(max(each)) == place for each in looks))
                masses.append(max(each[place] for each in looks))
    return [sum(hits) / len(hits), sum(masses) / len(masses)]


def plain_figures(weights: Tensor, alignment: Tensor, source: Tensor) -> list[float]:
    hits = links = tokens = 0
    masses, entropies, largest, chances = [], [], [], []
    for row, places in enumerate(alignment.tolist()):
        kinds = source[row].tolist()
        keys = sum(kind != PAD for kind in kinds)
        for step, place in enumerate(places):
            if place < 0:
                continue
            looks = weights[row, step].tolist()
            top = looks.index(max(looks))
            tokens += 1
            hits += top == place
            links += kinds[top] not in (PAD, EOS)
            masses.append(looks[place])
            entropies.append(-sum(p * math.log(p) for p in looks if p > 0) / math.log(keys))
            largest.append(max(looks))
            chances.append(1 / keys)
    masses.sort()
    return [
        hits / tokens,
        sum(masses) / tokens,
        round(masses[math.ceil(0.05 * tokens) - 1], 3),
        masses[0],
        1 - 2 * hits / (links + tokens),
        sum(entropies) / tokens,
        sum(largest) / tokens,
        sum(chances) / tokens,
    ]


def test_a_single_head_keeps_its_dimensions() -> None:
    found = scores(((torch.tensor([[[[0.25, 0.75]]]]),), torch.tensor([[1]])))
    assert found.mass.tolist() == [[0.75]]
    assert found.best("some") == Head("some", 0, 0)


def test_three_heads_worked_by_hand() -> None:
    # Source: three symbols and EOS. Target: two symbols, from source tokens 0 and 2, and EOS, which does not count.
    right = [[0.7, 0.2, 0.1, 0.0], [0.1, 0.1, 0.8, 0.0], [0.4, 0.3, 0.3, 0.0]]
    wrong = [[0.1, 0.2, 0.7, 0.0], [0.1, 0.5, 0.4, 0.0], [0.2, 0.6, 0.2, 0.0]]
    half = [[0.7, 0.1, 0.1, 0.1], [0.1, 0.1, 0.2, 0.6], [0.0, 0.0, 0.0, 1.0]]
    found = scores(((torch.tensor([[right, wrong, half]]),), torch.tensor([[0, 2, -1]])))

    def are(figure: Tensor, *expected: float) -> None:
        assert figure.tolist() == [[pytest.approx(value, abs=1e-6) for value in expected]]

    are(found.hit_rate, 1, 0, 1 / 2)
    are(found.mass, (0.7 + 0.8) / 2, (0.1 + 0.4) / 2, (0.7 + 0.2) / 2)
    are(found.mass_min, 0.7, 0.1, 0.2)
    are(found.mass_p5, 0.7, 0.1, 0.2)
    are(found.confidence, (0.7 + 0.8) / 2, (0.7 + 0.5) / 2, (0.7 + 0.6) / 2)
    # 2 links, 2 of them gold; 2 links, none of them gold; 1 link, gold, and a look at EOS, which links to nothing.
    are(found.alignment_error_rate, 0, 1, 1 - 2 * 1 / (1 + 2))
    are(found.chance, 1 / 4, 1 / 4, 1 / 4)
    are(found.oracle_head_hit_rate, 1, 1, 1)
    are(found.oracle_head_mass, *[(0.7 + 0.8) / 2] * 3)
    first = -(0.7 * math.log(0.7) + 0.2 * math.log(0.2) + 0.1 * math.log(0.1))
    second = -(2 * 0.1 * math.log(0.1) + 0.8 * math.log(0.8))
    assert found.entropy[0, 0].item() == pytest.approx((first + second) / 2 / math.log(4))


def test_heads_of_all_layers_may_share_the_work() -> None:
    # Two layers of one head each: one looks at the source of the first token only, one at that of the second.
    one, other = ([[0.8, 0.2], [0.9, 0.1]], [[0.3, 0.7], [0.4, 0.6]])
    found = scores(((torch.tensor([[one]]), torch.tensor([[other]])), torch.tensor([[0, 1]])))
    assert found.hit_rate.tolist() == [[0.5], [0.5]]
    assert found.oracle_head_hit_rate.tolist() == [[1.0], [1.0]]
    assert found.oracle_head_mass.flatten().tolist() == pytest.approx([0.7, 0.7])
    shared = {"chance", "oracle_head_hit_rate", "oracle_head_mass"}
    assert own_figures(found, Head("some", 0, 0)).keys() == found.of(Head("some", 0, 0)).keys() - shared


def test_the_fifth_percentile_is_what_all_but_the_worst_twentieth_reach() -> None:
    # 40 target tokens: two with the masses 0.1 and 0.2, the rest with 0.9 each. The second smallest is at 5 %.
    mass = torch.tensor([0.9] * 17 + [0.2] + [0.9] * 20 + [0.1, 0.9])
    weights = torch.stack([mass, 1 - mass], dim=-1)[None, None]
    found = scores(((weights,), torch.zeros(1, 40, dtype=torch.long)))
    assert found.mass_p5.item() == 0.2
    assert found.mass_min.item() == pytest.approx(0.1)


@given(SEEDS)
@settings(max_examples=25, deadline=None)
def test_scores_equal_a_plain_loop(seed: int) -> None:
    weights, alignment = attention(seed), alignment_of(seed)
    found = scores((weights, alignment))
    assert found.hit_rate.shape == found.mass.shape == (LAYERS, HEADS)
    assert close(found, plain_scores(weights, alignment, source_of(SOURCE)))


@given(SEEDS)
@settings(max_examples=25, deadline=None)
def test_every_figure_keeps_within_its_range(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    sharp = tuple((9 * torch.randn(BATCH, HEADS, TARGET, SOURCE, generator=generator)).softmax(-1) for _ in range(2))
    for weights in (attention(seed), sharp):
        found = scores((weights, alignment_of(seed)))
        for name, figure in found._asdict().items():
            assert (figure >= 0).all(), name
            assert (figure <= 1 + 1e-6).all(), name
        assert (found.mass_min <= found.mass_p5 + 5e-4).all()
        assert (found.mass_min <= found.mass).all()
        assert (found.mass <= found.confidence + 1e-6).all()
        assert (found.confidence >= found.chance - 1e-6).all()
        assert (found.alignment_error_rate <= 1 - found.hit_rate + 1e-6).all()


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
    source = torch.full((BATCH, SOURCE + more_source), PAD)
    source[:, :SOURCE] = source_of(SOURCE)
    assert close(scores((tuple(padded), longer, source)), scores((weights, alignment)))


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
    # n is 2 for one target token and 3 for three.
    found = scores(((narrow,), torch.tensor([[0]])), ((wide,), torch.tensor([[0, 1, 0]])))
    assert found.hit_rate.tolist() == [[3 / 4, 2 / 4]]
    assert found.mass.tolist() == [[(1 + 0 + 1 + 0.5) / 4, (0 + 1 + 0 + 1) / 4]]
    assert found.chance.tolist() == [[pytest.approx((1 / 2 + 3 * 1 / 3) / 4)] * 2]


def test_tokens_from_nowhere_never_count() -> None:
    weights, alignment = attention(3), alignment_of(3)
    known = (alignment >= 0)[:, None, :, None]
    changed = tuple(layer.where(known, torch.eye(SOURCE)[0]) for layer in weights)
    assert close(scores((changed, alignment)), scores((weights, alignment)))


def test_uniform_attention_gets_what_chance_gives() -> None:
    uniform = (torch.full((BATCH, HEADS, TARGET, SOURCE), 1 / SOURCE),) * LAYERS
    found = scores((uniform, alignment_of(3)))
    for figure in (found.mass, found.confidence, found.chance, found.mass_min):
        assert figure.numpy() == pytest.approx(1 / SOURCE)
    assert found.mass_p5.numpy() == pytest.approx(1 / SOURCE, abs=5e-4)
    assert found.entropy.numpy() == pytest.approx(1.0)


def test_perfect_attention_gets_full_marks() -> None:
    alignment = alignment_of(3)
    gold = torch.eye(SOURCE)[alignment.clamp(min=0)][:, None].expand(-1, HEADS, -1, -1)
    found = scores(((gold,), alignment))
    for figure in (found.hit_rate, found.mass, found.mass_p5, found.mass_min, found.confidence):
        assert figure.tolist() == [[1.0] * HEADS]
    for figure in (found.alignment_error_rate, found.entropy):
        assert figure.tolist() == [[0.0] * HEADS]


def test_half_precision_weights_are_summed_in_double() -> None:
    # Summed in bfloat16, 5003 halves would stop growing at 128.
    weights = torch.full((1, HEADS, 5003, 2), 0.5, dtype=torch.bfloat16)
    found = scores(((weights,), torch.ones(1, 5003, dtype=torch.long)))
    assert found.mass.tolist() == [[0.5] * HEADS]


def test_nothing_counted_is_not_a_number() -> None:
    found = scores((attention(3), torch.full((BATCH, TARGET), -1)))
    for figure in found:
        assert figure.isnan().all()
        assert figure.shape == (LAYERS, HEADS)


def test_a_head_without_numbers_has_no_figures_and_takes_none_from_the_others() -> None:
    weights, alignment = attention(3), alignment_of(3)
    broken = tuple(layer.clone() for layer in weights)
    broken[1][2, 0] = torch.nan
    found, whole = scores((broken, alignment)), scores((weights, alignment))
    for name in ("hit_rate", "mass", "mass_p5", "mass_min", "alignment_error_rate", "entropy", "confidence"):
        figure, expected = getattr(found, name), getattr(whole, name).clone()
        expected[1, 0] = torch.nan
        torch.testing.assert_close(figure, expected, equal_nan=True)


def test_a_head_without_numbers_finds_nothing_for_the_others() -> None:
    misses, broken = [[0.25, 0.75]], [[math.nan, math.nan]]
    found = scores(((torch.tensor([[misses, broken]]),), torch.tensor([[0]])))
    assert found.oracle_head_hit_rate[0, 0] == 0.0
    assert found.oracle_head_mass[0, 0] == 0.25


def test_less_than_nothing_counts_as_nothing() -> None:
    odd = torch.tensor([[[[1.25, -0.5, 0.25]]]])
    found = scores(((odd,), torch.tensor([[1]])))
    assert found.mass.item() == found.mass_min.item() == found.mass_p5.item() == 0.0
    assert found.confidence.item() == 1.0
    assert found.entropy.item() == pytest.approx(-0.25 * math.log(0.25) / math.log(3))


def test_a_batch_with_nothing_to_count_changes_nothing() -> None:
    nothing = (attention(3), torch.full((BATCH, TARGET), -1))
    assert close(scores(nothing, (attention(5), alignment_of(5))), scores((attention(5), alignment_of(5))))


def test_a_process_without_a_batch_has_states_of_the_right_shape() -> None:
    batch = (attention(3), alignment_of(3), source_of(SOURCE))
    one, idle = AlignmentScores(LAYERS, HEADS), AlignmentScores(LAYERS, HEADS)
    one.update(*batch)
    for name, state in one.metric_state.items():
        assert state.shape == idle.metric_state[name].shape
    one.merge_state(idle)
    assert close(one.heads(), scores(batch))


def test_two_processes_scores_merge_into_one() -> None:
    batches = [(attention(seed), alignment_of(seed)) for seed in (3, 5)]
    one, other = AlignmentScores(LAYERS, HEADS), AlignmentScores(LAYERS, HEADS)
    one.update(*batches[0], source_of(SOURCE))
    other.update(*batches[1], source_of(SOURCE))
    one.merge_state(other)
    assert close(one.heads(), scores(*batches))


def test_reset_forgets_everything() -> None:
    metric = AlignmentScores(LAYERS, HEADS)
    for seed in (3, 5):
        metric.reset()
        metric.update(attention(seed), alignment_of(seed), source_of(SOURCE))
    assert close(metric.heads(), scores((attention(5), alignment_of(5))))


def best(hit_rate: list[list[float]], mass: list[list[float]]) -> tuple[int, int]:
    figures = [torch.tensor(each, dtype=torch.float64) for each in (hit_rate, mass)]
    return HeadScores(*figures, *[torch.zeros_like(figures[0])] * 8).best("some")[1:3]


def test_the_best_head_hits_most_often() -> None:
    assert best([[0.1, 0.5, 0.2], [0.3, 0.9, 0.4]], [[0.9, 0.8, 0.7], [0.6, 0.1, 0.5]]) == (1, 1)


def test_among_equal_hit_rates_the_most_mass_wins() -> None:
    assert best([[0.9, 0.5, 0.9], [0.9, 0.1, 0.4]], [[0.3, 0.8, 0.7], [0.6, 0.9, 0.9]]) == (0, 2)


def test_among_equal_heads_the_first_wins() -> None:
    assert best([[0.0] * HEADS] * LAYERS, [[0.0] * HEADS] * LAYERS) == (0, 0)


def test_a_hit_rate_a_hair_higher_beats_any_mass() -> None:
    assert best([[0.5, 0.5 + 1e-9]], [[0.9, 0.1]]) == (0, 1)


def test_one_heads_figures_have_their_names() -> None:
    found = scores((attention(3), alignment_of(3)))
    assert found.of(Head("some", 1, 2)) == {name: float(figure[1, 2]) for name, figure in found._asdict().items()}


def test_a_head_says_where_it_is() -> None:
    assert str(Head("decoder_cross", 1, 7)) == "decoder_cross, layer 1, head 7"
    assert str(Head("decoder_cross", 0, 1, "end_again")) == "decoder_cross, layer 0, head 1 (from end again)"


def test_the_largest_weight_is_judged_before_weights_are_clipped() -> None:
    # A Linformer's equivalent map goes above 1 and below 0. Gold is the second token.
    map_BHTS = torch.tensor([[[[1.2, 3.0, -1.0, 0.0]]]])
    found = scores(((map_BHTS,), torch.tensor([[1]])))
    assert found.hit_rate.item() == 1.0
    assert found.mass.item() == found.confidence.item() == found.mass_min.item() == 1.0
    assert found.alignment_error_rate.item() == 0.0
    other = scores(((torch.tensor([[[[3.0, 1.2, -1.0, 0.0]]]]),), torch.tensor([[1]])))
    assert (other.hit_rate.item(), other.mass.item()) == (0.0, 1.0)


def test_padding_is_never_the_largest_weight_even_where_all_others_are_negative() -> None:
    metric = AlignmentScores(1, 1)
    map_BHTS = torch.tensor([[[[-0.5, -0.25, -2.0, 0.0, 0.0]]]])
    metric.update((map_BHTS,), torch.tensor([[1]]), torch.tensor([[3, 4, 2, 0, 0]]))
    found = metric.heads()
    assert (found.hit_rate.item(), found.mass.item(), found.confidence.item()) == (1.0, 0.0, 0.0)
