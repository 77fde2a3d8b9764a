"""Every row once an epoch, in an order that the seed and the number of the batch decide and nothing else."""

from itertools import islice

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from attention_lab.data.sampler import EndlessBatches, OneEpoch


def dealt(count: int, rows: int = 211, batch_size: int = 13, seed: int = 5, first: int = 0) -> list[list[int]]:
    return list(islice(EndlessBatches(range(rows), batch_size, seed, first), count))


@given(st.integers(1, 211), st.integers(1, 23), st.integers(0, 2**32 - 1), st.integers(0, 5))
@settings(max_examples=60, deadline=None)
def test_every_row_comes_exactly_once_an_epoch(rows: int, batch_size: int, seed: int, epoch: int) -> None:
    per_epoch = EndlessBatches(range(rows), batch_size, seed).batches_per_epoch
    batches = dealt(per_epoch, rows, batch_size, seed, first=epoch * per_epoch)
    assert sorted(row for batch in batches for row in batch) == list(range(rows))
    assert {len(batch) for batch in batches[:-1]} <= {batch_size}
    assert 1 <= len(batches[-1]) <= batch_size


@given(st.integers(1, 101), st.integers(1, 23), st.integers(0, 60))
@settings(max_examples=60, deadline=None)
def test_it_can_begin_anywhere(rows: int, batch_size: int, first: int) -> None:
    assert dealt(7, rows, batch_size, first=first) == dealt(first + 7, rows, batch_size)[first:]


def test_rows_are_plain_integers() -> None:
    assert {type(row) for batch in dealt(3) for row in batch} == {int}


def test_the_order_is_the_same_on_every_machine() -> None:
    assert dealt(3, rows=7, batch_size=4) == [[3, 6, 2, 4], [5, 0, 1], [2, 0, 6, 1]]


def test_what_was_drawn_before_does_not_matter() -> None:
    used = EndlessBatches(range(211), 13, 5)
    list(islice(used, 40))
    half_read = iter(used)
    next(half_read)
    np.random.seed(11)
    assert list(islice(used, 40)) == dealt(40)


def test_another_epoch_and_another_seed_have_another_order() -> None:
    orders = [dealt(17, first=17 * epoch) for epoch in range(3)] + [dealt(17, seed=6)]
    assert len({tuple(map(tuple, order)) for order in orders}) == 4


@given(st.integers(1, 101), st.integers(1, 23), st.integers(0, 60))
@settings(max_examples=60, deadline=None)
def test_one_epoch_at_a_time_is_all_of_them_in_turn(rows: int, batch_size: int, first: int) -> None:
    epochs = OneEpoch(range(rows), batch_size, 5, first)
    begun, whole = list(epochs), list(epochs)
    assert len(whole) == len(epochs)
    assert 1 <= len(begun) <= len(epochs)
    assert begun + whole == dealt(len(begun) + len(whole), rows, batch_size, first=first)
