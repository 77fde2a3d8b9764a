"""Which sources there are, which split may hold them, and how they are drawn."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attention_lab.data.sampling import SHARES, SourceSpace, Split, belongs_to, draw_split
from attention_lab.tasks.vocabulary import FIRST_SYMBOL

SPLITS: tuple[Split, ...] = ("train", "validation", "test")


def enumerated(vocab_size: int, length: int, unique_symbols: bool) -> list[tuple[int, ...]]:
    symbols = range(FIRST_SYMBOL, FIRST_SYMBOL + vocab_size)
    rows = itertools.product(symbols, repeat=length)
    return sorted(row for row in rows if not unique_symbols or len(set(row)) == length)


def test_shares_are_disjoint_and_leave_nothing_out() -> None:
    assert sorted(itertools.chain(*SHARES.values())) == list(range(10))


def test_every_sequence_belongs_to_exactly_one_split() -> None:
    sources = SourceSpace(5, 5, 7).all_sequences(5)
    assert sum(belongs_to(split, sources).astype(int) for split in SPLITS).tolist() == [1] * 7**5


def test_train_gets_eight_tenths_and_the_others_one_each() -> None:
    sources = SourceSpace(5, 5, 7).all_sequences(5)
    shares = [belongs_to(split, sources).mean() for split in SPLITS]
    assert shares == pytest.approx([0.8, 0.1, 0.1], abs=0.01)


def test_which_split_a_sequence_belongs_to_never_changes() -> None:
    sources = SourceSpace(2, 2, 11).all_sequences(2)
    assert np.flatnonzero(belongs_to("test", sources)).tolist() == [
        5,
        26,
        38,
        52,
        73,
        74,
        77,
        84,
        89,
        98,
        110,
        111,
        112,
    ]
    assert np.flatnonzero(belongs_to("validation", sources)).tolist() == [6, 31, 35, 40, 61, 68, 69, 70, 91, 118, 120]


@pytest.mark.parametrize("unique_symbols", [False, True])
@pytest.mark.parametrize(("vocab_size", "length"), [(1, 1), (5, 1), (3, 2), (5, 3), (2, 7)])
def test_all_sequences_are_all_there_are(vocab_size: int, length: int, unique_symbols: bool) -> None:
    space = SourceSpace(1, 7, vocab_size, unique_symbols)
    expected = enumerated(vocab_size, length, unique_symbols)
    assert sorted(map(tuple, space.all_sequences(length).tolist())) == expected
    assert space.num_sequences(length) == len(expected)


def test_lengths_include_both_ends() -> None:
    assert list(SourceSpace(3, 7, 11).lengths) == [3, 4, 5, 6, 7]


@pytest.mark.parametrize(
    ("vocab_size", "expected"),
    [(1, "int8"), (125, "int8"), (126, "int16"), (32765, "int16"), (32766, "int32"), (10**6, "int32")],
)
def test_the_integer_type_is_the_smallest_that_holds_every_token(vocab_size: int, expected: str) -> None:
    dtype = SourceSpace(1, 1, vocab_size).dtype
    assert dtype == expected
    assert np.iinfo(dtype).max >= vocab_size + 2


@pytest.mark.parametrize("vocab_size", [125, 126, 32765, 32766])
@pytest.mark.parametrize("unique_symbols", [False, True])
def test_the_last_symbol_fits_its_integer_type(vocab_size: int, unique_symbols: bool) -> None:
    sources = SourceSpace(1, 1, vocab_size, unique_symbols).all_sequences(1)
    assert sources.ravel().tolist() == list(range(3, vocab_size + 3))


@pytest.mark.parametrize("unique_symbols", [False, True])
@given(vocab_size=st.integers(1, 13), length=st.integers(1, 13), key=st.integers(0, 2**32 - 1))
@settings(max_examples=40, deadline=None)
def test_draws_are_in_range_and_unique_where_asked(
    unique_symbols: bool, vocab_size: int, length: int, key: int
) -> None:
    length = min(length, vocab_size) if unique_symbols else length
    rows = SourceSpace(1, 13, vocab_size, unique_symbols).draw(17, length, key)
    assert rows.shape == (17, length)
    assert rows.min() >= 3
    assert rows.max() < 3 + vocab_size
    if unique_symbols:
        assert all(len(set(row)) == length for row in rows.tolist())


@pytest.mark.parametrize("unique_symbols", [False, True])
def test_draws_give_every_symbol_its_turn_in_every_place(unique_symbols: bool) -> None:
    rows = SourceSpace(3, 3, 7, unique_symbols).draw(7001, 3, 11)
    for column in rows.T:
        assert np.bincount(column, minlength=10)[3:] / 7001 == pytest.approx([1 / 7] * 7, abs=0.02)


def test_the_same_key_draws_the_same() -> None:
    space = SourceSpace(5, 5, 11)
    assert space.draw(7, 5, 2, 3).tolist() == space.draw(7, 5, 2, 3).tolist()
    assert space.draw(7, 5, 2, 3).tolist() != space.draw(7, 5, 3, 2).tolist()


@given(size=st.integers(5, 200), seed=st.integers(0, 2**32 - 1), split=st.sampled_from(SPLITS))
@settings(max_examples=20, deadline=None)
def test_lengths_share_alike_where_each_has_plenty(size: int, seed: int, split: Split) -> None:
    counts = [len(rows) for rows in draw_split(SourceSpace(5, 9, 7), split, size, seed)]
    assert sum(counts) == size
    assert max(counts) - min(counts) <= 1


def test_long_lengths_give_what_short_ones_cannot() -> None:
    counts = [len(rows) for rows in draw_split(SourceSpace(1, 5, 7), "train", 997, 0)]
    assert sum(counts) == 997
    assert counts[0] <= 7
    assert counts[1] <= 49
    assert max(counts[2:]) > 997 / 5


@pytest.mark.parametrize("split", SPLITS)
def test_a_length_has_the_width_it_says(split: Split) -> None:
    assert [rows.shape[1] for rows in draw_split(SourceSpace(2, 7, 5), split, 83, 3)] == [2, 3, 4, 5, 6, 7]
