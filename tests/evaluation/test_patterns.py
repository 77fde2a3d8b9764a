"""What self-attention heads do: by hand on one sequence, and of every network as far as it has maps of itself."""

import pytest
import torch

import attention_lab
from attention_lab.evaluation.patterns import follow
from tests.conftest import Training

# A B A C A: the first A has no A before it.
TOKENS = torch.tensor([7, 8, 7, 9, 7])


def looking(*places: int | None) -> torch.Tensor:
    """Returns the map of a head whose tokens each look at one place, or nowhere."""
    weights = torch.zeros(5, 5, dtype=torch.float64)
    for query, key in enumerate(places):
        if key is not None:
            weights[query, key] = 1.0
    return weights


@pytest.mark.parametrize(
    ("head", "pattern", "score"),
    [
        (looking(0, 0, 1, 2, 3), 0, 1.0),
        (looking(0, 1, 2, 3, 4), 1, 1.0),
        (looking(0, 0, 0, 0, 2), 2, 1.0),
        (looking(0, 0, 1, 0, 3), 3, 1.0),
        (looking(0, 0, 0, 0, 0), 4, 1.0),
        (looking(2, 2, 2, 2, 2), 6, 1.0),
        # Two of the three that have a token before them look there.
        (looking(0, 0, 1, 2, 0), 0, 0.75),
        (looking(None, None, 1, None, 4), 3, 0.5),
        (torch.full((5, 5), 0.2, dtype=torch.float64), 0, 0.2),
        # Of the two later As the second has two of them before it.
        (torch.full((5, 5), 0.2, dtype=torch.float64), 2, 0.3),
    ],
)
def test_a_head_that_follows_a_pattern_scores_it(head, pattern, score):
    weight, count = follow(head[None], TOKENS)
    assert float(weight[0, pattern] / count[pattern]) == pytest.approx(score)


def test_a_pattern_that_never_occurs_has_no_score_and_no_place_beyond_the_end():
    _, count = follow(torch.eye(3, dtype=torch.float64)[None], torch.tensor([3, 4, 5]))
    assert count.tolist() == [2, 3, 0, 0, *[3] * 3, *[0] * 29]


@pytest.mark.parametrize(
    ("model", "attentions"),
    [
        ("encoder_decoder", {"encoder_self", "decoder_self"}),
        pytest.param("decoder_only", {"self"}, marks=pytest.mark.slow),
        pytest.param("encoder_only", {"self"}, marks=pytest.mark.slow),
        pytest.param("lstm_attention", set(), marks=pytest.mark.slow),
        pytest.param("lstm", set(), marks=pytest.mark.slow),
    ],
)
def test_every_head_of_self_attention_has_a_record(trained: Training, model, attentions):
    own = () if model == "encoder_decoder" else (f"model={model}",)
    found = attention_lab.load(trained("experiment=smoke", "trainer=cpu", *own) / "checkpoints/best.ckpt").patterns()
    assert {each.attention for each in found} == attentions
    assert len({(each.attention, each.layer, each.head) for each in found}) == len(found)
    for each in found:
        scores = (each.previous_token, each.same_token, each.duplicate_token, each.induction, each.first_token)
        assert all(score is not None and 0 <= score <= 1 for score in scores)
        assert each.position_mass >= each.first_token
        if each.attention == "decoder_self":
            # A causal map's first token looks at itself.
            assert each.first_token > 0
