"""The learning rate: a line up to the peak, then half a cosine down to its end."""

import math
from itertools import pairwise

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from attention_lab.training.schedule import warmup_then_cosine


def rates(warmup_steps: int, max_steps: int, final: float) -> list[float]:
    return [warmup_then_cosine(step, warmup_steps, max_steps, final) for step in range(max_steps)]


def test_the_warm_up_rises_in_equal_steps() -> None:
    assert rates(5, 13, 0.1)[:5] == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0])


def test_the_last_warm_up_step_runs_exactly_at_the_peak() -> None:
    assert rates(7, 19, 0.1)[6] == 1.0


def test_half_way_down_is_half_way_between_peak_and_end() -> None:
    assert rates(5, 13, 0.1)[8] == pytest.approx(0.55)


def test_the_fall_is_half_a_cosine() -> None:
    expected = [0.1 + 0.9 * (1 + math.cos(math.pi * k / 8)) / 2 for k in range(1, 9)]
    assert rates(5, 13, 0.1)[5:] == pytest.approx(expected)


@pytest.mark.parametrize("warmup_steps", [0, 5])
@pytest.mark.parametrize("final", [0.0, 0.1, 1.0])
def test_the_last_step_reaches_the_end(warmup_steps: int, final: float) -> None:
    assert rates(warmup_steps, 13, final)[-1] == pytest.approx(final, abs=1e-12)


def test_after_the_last_step_it_stays_at_the_end() -> None:
    assert [warmup_then_cosine(step, 5, 13, 0.1) for step in (13, 14, 1000)] == pytest.approx([0.1] * 3)


def test_without_a_warm_up_it_falls_from_the_first_step() -> None:
    assert rates(0, 2, 0.0) == pytest.approx([0.5, 0.0])


def test_nothing_but_warm_up_ends_at_the_peak() -> None:
    assert rates(5, 5, 0.1) == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0])


def test_a_warm_up_longer_than_the_run_never_reaches_the_peak() -> None:
    assert rates(7, 5, 0.1) == pytest.approx([1 / 7, 2 / 7, 3 / 7, 4 / 7, 5 / 7])


@given(st.integers(0, 40), st.integers(1, 100), st.floats(0, 1))
@settings(max_examples=60, deadline=None)
def test_it_rises_then_falls_and_stays_between_zero_and_the_peak(
    warmup_steps: int, max_steps: int, final: float
) -> None:
    assume(warmup_steps < max_steps)
    every = rates(warmup_steps, max_steps, final)
    up, down = every[:warmup_steps], every[warmup_steps:]
    assert all(before < after for before, after in pairwise(up))
    assert all(before >= after for before, after in pairwise(down))
    assert all(0 < rate <= 1 for rate in up)
    assert all(final - 1e-12 <= rate <= 1 for rate in down)
