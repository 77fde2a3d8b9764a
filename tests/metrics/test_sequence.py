"""Loss, accuracy and exact match: by hand, against plain loops, and whatever the padding and the batches."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from attention_lab.metrics.sequence import (
    DecodedExactMatch,
    TeacherForcedScores,
    TokenErrorRate,
    decoded_right,
    token_loss,
)
from attention_lab.tasks.vocabulary import EOS, PAD

VOCABULARY = 7
TARGETS = st.lists(st.lists(st.integers(3, VOCABULARY - 1), max_size=5), min_size=1, max_size=5)


def edits(given: list[int], due: list[int]) -> int:
    """Levenshtein's distance, by its definition."""
    if not given or not due:
        return len(given) + len(due)
    if given[-1] == due[-1]:
        return edits(given[:-1], due[:-1])
    return 1 + min(edits(given[:-1], due), edits(given, due[:-1]), edits(given[:-1], due[:-1]))


@given(said=TARGETS, expected=TARGETS)
def test_token_errors_are_the_edits_over_the_tokens_that_are_due(said, expected):
    rows = min(len(said), len(expected))
    said, expected = said[:rows], expected[:rows]
    rate = TokenErrorRate()
    rate.update(labels_of(said), labels_of(expected, extra=2))
    due = sum(map(len, expected))
    counted = sum(edits(one[: len(other) + 1], other) for one, other in zip(said, expected, strict=True))
    if due:
        assert float(rate.compute()) == pytest.approx(counted / due)


def test_what_does_not_come_to_an_end_is_one_token_too_many():
    rate = TokenErrorRate()
    rate.update(torch.tensor([[3, 4, 5, 5]]), torch.tensor([[3, 4, EOS, PAD]]))
    assert float(rate.compute()) == 0.5


def padded(rows: list[list[int]], extra: int = 0) -> Tensor:
    width = max(map(len, rows)) + extra
    return torch.tensor([row + [PAD] * (width - len(row)) for row in rows])


def labels_of(targets: list[list[int]], extra: int = 0) -> Tensor:
    return padded([[*target, EOS] for target in targets], extra)


def logits_for(labels: Tensor, seed: int, right: float = 0.7) -> Tensor:
    """Random logits that put the right token on top with a probability of about `right`."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(*labels.shape, VOCABULARY, generator=generator)
    boost = (torch.rand(labels.shape, generator=generator) < right) * 9.0
    return logits + boost[..., None] * functional.one_hot(labels, VOCABULARY)


def scores(*batches: tuple[Tensor, Tensor]) -> dict[str, float]:
    metric = TeacherForcedScores()
    for logits, labels in batches:
        metric.update(logits, labels)
    return {name: float(value) for name, value in metric.compute().items()}


def plain_scores(logits: Tensor, labels: Tensor) -> dict[str, float]:
    loss, tokens, right_tokens, right_rows = 0.0, 0, 0, 0
    for row, row_labels in zip(logits.tolist(), labels.tolist(), strict=True):
        wrong = 0
        for guesses, label in zip(row, row_labels, strict=True):
            if label == PAD:
                continue
            tokens += 1
            loss += math.log(sum(math.exp(guess) for guess in guesses)) - guesses[label]
            right = guesses.index(max(guesses)) == label
            right_tokens += right
            wrong += not right
        right_rows += wrong == 0
    return {
        "loss": loss / tokens,
        "token_accuracy": right_tokens / tokens,
        "exact_match": right_rows / len(labels),
    }


def test_two_rows_worked_by_hand() -> None:
    labels = torch.tensor([[3, 4, EOS], [4, EOS, PAD]])
    probabilities = torch.tensor(
        [
            [[0.1, 0.1, 0.1, 0.5, 0.2], [0.1, 0.1, 0.1, 0.1, 0.6], [0.1, 0.1, 0.4, 0.2, 0.2]],
            [[0.1, 0.1, 0.1, 0.5, 0.2], [0.1, 0.1, 0.6, 0.1, 0.1], [0.1, 0.1, 0.1, 0.1, 0.6]],
        ]
    )
    found = scores((probabilities.log(), labels))
    assert found["loss"] == pytest.approx(-math.log(0.5 * 0.6 * 0.4 * 0.2 * 0.6) / 5)
    assert found["token_accuracy"] == pytest.approx(4 / 5)
    assert found["exact_match"] == 0.5


@given(TARGETS, st.integers(0, 1000))
@settings(max_examples=50, deadline=None)
def test_scores_equal_a_plain_loop(targets: list[list[int]], seed: int) -> None:
    labels = labels_of(targets)
    logits = logits_for(labels, seed)
    assert scores((logits, labels)) == pytest.approx(plain_scores(logits, labels), rel=1e-5, abs=1e-6)


@given(TARGETS, st.integers(0, 1000), st.integers(1, 7))
@settings(max_examples=40, deadline=None)
def test_the_amount_of_padding_does_not_matter(targets: list[list[int]], seed: int, extra: int) -> None:
    labels = labels_of(targets)
    logits = logits_for(labels, seed)
    garbage = 10 * torch.randn(len(labels), extra, VOCABULARY, generator=torch.Generator().manual_seed(seed))
    found = scores((torch.cat([logits, garbage], dim=1), labels_of(targets, extra)))
    assert found == pytest.approx(scores((logits, labels)), rel=1e-5, abs=1e-6)


@given(TARGETS, st.integers(0, 1000), st.data())
@settings(max_examples=40, deadline=None)
def test_how_rows_are_batched_does_not_matter(targets: list[list[int]], seed: int, data: st.DataObject) -> None:
    labels = labels_of(targets)
    logits = logits_for(labels, seed)
    sizes = []
    while sum(sizes) < len(targets):
        sizes.append(data.draw(st.integers(1, len(targets) - sum(sizes))))
    batches = list(zip(logits.split(sizes), labels.split(sizes), strict=True))
    assert scores(*batches) == pytest.approx(scores((logits, labels)), rel=1e-5, abs=1e-6)


def test_what_is_said_in_place_of_padding_never_counts() -> None:
    labels = torch.tensor([[3, EOS, PAD, PAD], [4, 5, 6, EOS]])
    logits = logits_for(labels, seed=1)
    expected = scores((logits, labels))
    for said in (PAD, EOS, 5):
        logits[0, 2:] = 30 * functional.one_hot(torch.tensor(said), VOCABULARY).float()
        assert scores((logits, labels)) == pytest.approx(expected)


def test_padding_said_in_place_of_a_token_is_wrong() -> None:
    labels = torch.tensor([[3, EOS, PAD]])
    said = torch.tensor([[3, PAD, PAD]])
    found = scores((30 * functional.one_hot(said, VOCABULARY).float(), labels))
    assert (found["token_accuracy"], found["exact_match"]) == (0.5, 0.0)


def test_a_wrong_end_spoils_the_sequence() -> None:
    labels = torch.tensor([[3, 4, EOS], [5, EOS, PAD]])
    said = torch.tensor([[3, 4, 4], [5, EOS, PAD]])
    found = scores((30 * functional.one_hot(said, VOCABULARY).float(), labels))
    assert (found["token_accuracy"], found["exact_match"]) == (pytest.approx(4 / 5), 0.5)


def test_nothing_counted_is_not_a_number() -> None:
    found = scores((torch.zeros(0, 3, VOCABULARY), torch.zeros(0, 3, dtype=torch.long)))
    assert all(math.isnan(value) for value in found.values())
    assert set(found) == {"loss", "token_accuracy", "exact_match"}


def test_only_padding_has_no_loss_and_no_accuracy() -> None:
    found = scores((torch.zeros(2, 3, VOCABULARY), torch.full((2, 3), PAD)))
    assert math.isnan(found["loss"])
    assert math.isnan(found["token_accuracy"])


def test_reset_forgets_everything() -> None:
    labels = labels_of([[3, 4], [5]])
    metric = TeacherForcedScores()
    metric.update(logits_for(labels, 1, right=0.0), labels)
    metric.reset()
    logits = logits_for(labels, 2)
    metric.update(logits, labels)
    assert {name: float(value) for name, value in metric.compute().items()} == scores((logits, labels))


def test_two_processes_scores_merge_into_one() -> None:
    # Lightning sums the states of all processes; batches of different sizes show a mean of means.
    first, second = labels_of([[3, 4, 5, 6]]), labels_of([[3], [4], [5, 6]])
    batches = [(logits_for(first, 1), first), (logits_for(second, 2, right=0.1), second)]
    one, other = TeacherForcedScores(), TeacherForcedScores()
    one.update(*batches[0])
    other.update(*batches[1])
    one.merge_state(other)
    assert {name: float(value) for name, value in one.compute().items()} == pytest.approx(scores(*batches))


def test_long_runs_lose_no_precision() -> None:
    # In single precision, a sum of 2^25 stops growing by ones.
    metric = TeacherForcedScores()
    metric.loss_sum += 2.0**25
    metric.tokens += 2**25
    labels = torch.tensor([[3, EOS]])
    metric.update(torch.zeros(1, 2, VOCABULARY), labels)
    assert float(metric.loss_sum) - 2.0**25 == pytest.approx(2 * math.log(VOCABULARY), rel=1e-4)


def test_token_loss_is_the_mean_over_real_tokens() -> None:
    labels = labels_of([[3, 4, 5], [6]])
    logits = logits_for(labels, 3)
    assert float(token_loss(logits, labels)) == pytest.approx(plain_scores(logits, labels)["loss"], rel=1e-5)


def test_token_loss_of_half_precision_logits_is_single() -> None:
    labels = labels_of([[3, 4, 5], [6]])
    logits = logits_for(labels, 3).bfloat16()
    assert token_loss(logits, labels).dtype == torch.float32
    assert float(token_loss(logits, labels)) == pytest.approx(plain_scores(logits, labels)["loss"], rel=1e-5)


def test_token_loss_teaches_nothing_at_padding() -> None:
    labels = labels_of([[3, 4, 5], [6]])
    logits = logits_for(labels, 3).requires_grad_()
    token_loss(logits, labels).backward()
    assert torch.equal((logits.grad != 0).any(dim=-1), labels != PAD)


@pytest.mark.parametrize(
    ("said", "right"),
    [
        ([3, 4, EOS], True),
        ([3, 4, EOS, PAD, PAD], True),
        ([3, 4], False),
        ([3, 4, PAD], False),
        ([3, 4, 5], False),
        ([3, 4, EOS, 5], False),
        ([3, 4, EOS, EOS], False),
        ([3, 4, 4, EOS], False),
        ([3, EOS], False),
        ([3, EOS, 4], False),
        ([4, 3, EOS], False),
        ([EOS], False),
    ],
)
@pytest.mark.parametrize("extra", [0, 4])
def test_a_row_is_right_to_the_last_token_or_wrong(said: list[int], right: bool, extra: int) -> None:
    assert decoded_right(torch.tensor([said]), padded([[3, 4, EOS]], extra)).tolist() == [right]


@given(TARGETS, st.data())
@settings(max_examples=60, deadline=None)
def test_rows_said_right_equal_a_plain_loop(targets: list[list[int]], data: st.DataObject) -> None:
    should = [[*target, EOS] for target in targets]
    other = st.lists(st.integers(1, VOCABULARY - 1), min_size=1, max_size=7)
    said = [data.draw(st.one_of(st.just(row), other)) for row in should]
    expected = [one == row for one, row in zip(said, should, strict=True)]
    assert decoded_right(padded(said), padded(should)).tolist() == expected


def test_decoded_exact_match_is_a_share_of_rows_not_of_batches() -> None:
    metric = DecodedExactMatch()
    metric.update(padded([[3, EOS], [4, EOS], [5, 6]]), padded([[3, EOS], [4, EOS], [5, 6, EOS]]))
    metric.update(padded([[3, 3, EOS]]), padded([[3, EOS]]))
    metric.update(padded([[6, EOS]]), padded([[6, EOS]]))
    assert float(metric.compute()) == pytest.approx(3 / 5)


def test_no_row_decoded_is_not_a_number() -> None:
    metric = DecodedExactMatch()
    metric.update(torch.zeros(0, 2, dtype=torch.long), torch.zeros(0, 3, dtype=torch.long))
    assert math.isnan(float(metric.compute()))


def test_two_processes_decoded_matches_merge_into_one() -> None:
    one, other = DecodedExactMatch(), DecodedExactMatch()
    one.update(padded([[3, EOS]]), padded([[3, EOS]]))
    other.update(padded([[3, EOS], [4, EOS]]), padded([[4, EOS], [5, EOS]]))
    one.merge_state(other)
    assert float(one.compute()) == pytest.approx(1 / 3)
