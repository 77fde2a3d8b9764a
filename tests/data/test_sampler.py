"""Every row once an epoch, in an order that seed and epoch decide and nothing else."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from attention_lab.data.sampler import SeededShuffle


def epoch(sampler: SeededShuffle, number: int) -> list[int]:
    sampler.set_epoch(number)
    return list(sampler)


@given(st.integers(0, 211), st.integers(0, 2**32 - 1), st.integers(0, 5))
@settings(max_examples=60, deadline=None)
def test_every_row_comes_exactly_once_an_epoch(rows: int, seed: int, number: int) -> None:
    sampler = SeededShuffle(range(rows), seed)
    assert len(sampler) == rows
    assert sorted(epoch(sampler, number)) == list(range(rows))


def test_rows_are_plain_integers() -> None:
    assert {type(row) for row in SeededShuffle(range(17), 5)} == {int}


def test_the_order_is_the_same_on_every_machine() -> None:
    assert list(SeededShuffle(range(7), 5)) == [3, 6, 2, 4, 5, 0, 1]


def test_what_was_drawn_before_does_not_matter() -> None:
    fresh, used = SeededShuffle(range(211), 5), SeededShuffle(range(211), 5)
    for number in (0, 7, 1):
        epoch(used, number)
    half_read = iter(used)
    next(half_read)
    np.random.seed(11)
    assert epoch(used, 2) == epoch(fresh, 2)


def test_another_epoch_and_another_seed_have_another_order() -> None:
    sampler = SeededShuffle(range(211), 5)
    orders = [epoch(sampler, number) for number in range(3)] + [list(SeededShuffle(range(211), 6))]
    assert len(set(map(tuple, orders))) == 4
