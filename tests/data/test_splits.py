"""Splits are disjoint, free of repetitions, as large as asked where that is possible, and always the same."""

import itertools
import logging
import os
import subprocess
import sys
from pathlib import Path

import datasets
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from attention_lab.data.sampling import SourceSpace, Split
from attention_lab.data.splits import make_split, ragged_column
from attention_lab.errors import SettingError
from attention_lab.tasks.copy import Copy
from attention_lab.tasks.reverse import Reverse
from attention_lab.tasks.task import Task

SPLITS: tuple[Split, ...] = ("train", "validation", "test")
SEEDS = st.integers(0, 2**32 - 1)
SIZES = st.integers(1, 151)


@st.composite
def spaces(draw: st.DrawFn, min_length: int = 1, max_length: int = 7, vocab_size: int = 1) -> SourceSpace:
    unique_symbols = draw(st.booleans())
    symbols = draw(st.integers(max(vocab_size, min_length) if unique_symbols else vocab_size, 13))
    shortest = draw(st.integers(min_length, min(max_length, symbols) if unique_symbols else max_length))
    longest = draw(st.integers(shortest, min(max_length, symbols) if unique_symbols else max_length))
    return SourceSpace(shortest, longest, symbols, unique_symbols)


def sources(space: SourceSpace, split: Split, size: int, seed: int = 0) -> list[tuple[int, ...]]:
    """The rows of a split; none where it has to refuse."""
    try:
        return [tuple(row) for row in make_split(Reverse(), space, split, size, seed)["source"]]
    except ValueError:
        return []


def enumerated(space: SourceSpace) -> set[tuple[int, ...]]:
    symbols = range(3, 3 + space.vocab_size)
    rows = itertools.chain(*(itertools.product(symbols, repeat=length) for length in space.lengths))
    return {row for row in rows if not space.unique_symbols or len(set(row)) == len(row)}


@given(
    splits=st.permutations(SPLITS),
    first=st.tuples(spaces(), SIZES, SEEDS),
    second=st.tuples(spaces(), SIZES, SEEDS),
)
@settings(max_examples=60, deadline=None)
def test_splits_never_meet_whatever_the_seeds_sizes_and_options(
    splits: list[Split], first: tuple[SourceSpace, int, int], second: tuple[SourceSpace, int, int]
) -> None:
    (space, size, seed), (other_space, other_size, other_seed) = first, second
    one = sources(space, splits[0], size, seed)
    other = sources(other_space, splits[1], other_size, other_seed)
    assert not set(one) & set(other)


def test_splits_of_tiny_overlapping_spaces_never_meet() -> None:
    # Here two splits that were drawn at random would certainly meet: each holds all it may.
    options = [
        SourceSpace(1, 3, 5),
        SourceSpace(1, 3, 5, unique_symbols=True),
        SourceSpace(2, 4, 4),
        SourceSpace(1, 2, 9),
    ]
    held = {split: set().union(*(sources(space, split, 9999, 7) for space in options)) for split in SPLITS}
    assert all(len(rows) > 20 for rows in held.values())
    assert all(not held[one] & held[other] for one, other in itertools.combinations(SPLITS, 2))


@given(spaces(), SIZES, SEEDS, st.sampled_from(SPLITS))
@settings(max_examples=50, deadline=None)
def test_rows_are_distinct_and_what_was_asked_for(space: SourceSpace, size: int, seed: int, split: Split) -> None:
    rows = sources(space, split, size, seed)
    assert len(rows) <= size
    assert len(set(rows)) == len(rows)
    assert all(space.min_length <= len(row) <= space.max_length for row in rows)
    assert all(3 <= symbol < 3 + space.vocab_size for row in rows for symbol in row)
    if space.unique_symbols:
        assert all(len(set(row)) == len(row) for row in rows)


@given(spaces(min_length=5, max_length=11, vocab_size=7), SIZES, SEEDS, st.sampled_from(SPLITS))
@settings(max_examples=40, deadline=None)
def test_a_large_space_gives_exactly_the_size_and_every_length(
    space: SourceSpace, size: int, seed: int, split: Split
) -> None:
    assume(size >= len(space.lengths))
    rows = sources(space, split, size, seed)
    assert len(rows) == size
    assert {len(row) for row in rows} == set(space.lengths)


@given(spaces(max_length=4).filter(lambda space: space.vocab_size <= 5), SEEDS)
@settings(max_examples=30, deadline=None)
def test_a_small_space_is_dealt_out_whole(space: SourceSpace, seed: int) -> None:
    dealt = [row for split in SPLITS for row in sources(space, split, 9999, seed)]
    assert len(dealt) == len(set(dealt))
    assert set(dealt) == enumerated(space)


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("space", [SourceSpace(1, 3, 5), SourceSpace(2, 5, 5, unique_symbols=True)], ids=str)
def test_the_log_says_when_there_are_not_enough(
    space: SourceSpace, split: Split, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    there_are = len(make_split(Copy(), space, split, 9999, 0))
    caplog.clear()
    assert len(make_split(Copy(), space, split, there_are, 1)) == there_are
    assert not caplog.records
    assert len(make_split(Copy(), space, split, there_are + 1, 1)) == there_are
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.name.startswith("attention_lab")
    assert f"holds {there_are} sequences" in record.getMessage()
    assert f"{split} split" in record.getMessage()
    assert f"{there_are + 1} were asked for" in record.getMessage()


def test_a_split_that_would_be_empty_is_refused() -> None:
    (holder,) = [split for split in SPLITS if sources(SourceSpace(1, 1, 1), split, 5)]
    for split in set(SPLITS) - {holder}:
        with pytest.raises(
            SettingError, match=rf"max_length=1 with vocab_size=1 leaves no sequence for the {split} split"
        ):
            make_split(Copy(), SourceSpace(1, 1, 1), split, 5, 0)


def test_golden_rows_where_all_are_enumerated() -> None:
    assert sources(SourceSpace(2, 3, 5), "train", 5, seed=11) == [(3, 4), (3, 5), (6, 5), (7, 7, 5), (6, 6, 7)]
    assert sources(SourceSpace(2, 3, 5, unique_symbols=True), "test", 3, seed=11) == [(7, 5), (7, 3, 4), (5, 4, 6)]


def test_golden_rows_where_they_are_drawn() -> None:
    assert sources(SourceSpace(7, 8, 11), "validation", 3, seed=11) == [
        (10, 11, 7, 7, 6, 6, 3),
        (5, 9, 7, 6, 5, 11, 5),
        (4, 13, 9, 8, 8, 9, 8, 11),
    ]
    assert sources(SourceSpace(7, 8, 11, unique_symbols=True), "train", 3, seed=11) == [
        (4, 13, 10, 9, 6, 3, 5),
        (8, 12, 7, 3, 6, 11, 10),
        (8, 6, 10, 3, 13, 11, 5, 9),
    ]


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("unique_symbols", [False, True])
@pytest.mark.parametrize("length", [3, 7])
def test_the_seed_alone_decides_the_rows(split: Split, unique_symbols: bool, length: int) -> None:
    space = SourceSpace(length, length, 11, unique_symbols)
    assert sources(space, split, 23, seed=5) == sources(space, split, 23, seed=5)
    assert set(sources(space, split, 23, seed=5)) != set(sources(space, split, 23, seed=6))


def test_another_task_gets_the_same_sources() -> None:
    space = SourceSpace(2, 7, 5)
    copied, reversed_ = (make_split(task, space, "test", 43, 3) for task in (Copy(), Reverse()))
    assert copied["source"] == reversed_["source"]
    assert copied["target"] == copied["source"]
    assert reversed_["target"] == [row[::-1] for row in reversed_["source"]]


def test_columns_hold_source_target_and_alignment() -> None:
    split = make_split(Reverse(), SourceSpace(2, 7, 5), "train", 43, 3)
    assert split.column_names == ["source", "target", "alignment"]
    for row in split:
        assert row["target"] == [row["source"][place] for place in row["alignment"]]
        assert row["alignment"] == list(range(len(row["source"])))[::-1]


def test_rows_are_sorted_by_length() -> None:
    lengths = [len(row) for row in sources(SourceSpace(2, 7, 5), "train", 43, 3)]
    assert lengths == sorted(lengths)


@pytest.mark.parametrize(
    ("vocab_size", "expected"), [(125, "int8"), (126, "int16"), (32765, "int16"), (32766, "int32")]
)
def test_integers_are_as_small_as_the_vocabulary_allows(vocab_size: int, expected: str) -> None:
    splits = [make_split(Copy(), SourceSpace(1, 1, vocab_size), split, vocab_size, 0) for split in SPLITS]
    for name in ("source", "target"):
        columns = [ragged_column(split, name)[0] for split in splits]
        assert {str(column.dtype) for column in columns} == {expected}
        assert sorted(itertools.chain(*(column.tolist() for column in columns))) == list(range(3, vocab_size + 3))


@pytest.mark.parametrize(("length", "expected"), [(127, "int8"), (128, "int8"), (129, "int16")])
def test_alignments_are_as_small_as_the_length_allows(length: int, expected: str) -> None:
    split = make_split(Reverse(), SourceSpace(length, length, 3), "test", 5, 0)
    values, _ = ragged_column(split, "alignment")
    assert values.dtype == expected
    assert values[:length].tolist() == list(range(length))[::-1]


def test_a_ragged_column_is_all_values_and_where_they_begin() -> None:
    split = make_split(Copy(), SourceSpace(2, 5, 7), "train", 17, 0)
    values, offsets = ragged_column(split, "source")
    rows = [values[start:stop].tolist() for start, stop in itertools.pairwise(offsets.tolist())]
    assert rows == list(split["source"])


def test_splits_lie_in_memory_and_have_no_cache_files() -> None:
    assert make_split(Copy(), SourceSpace(2, 5, 7), "train", 17, 0).cache_files == []
    assert isinstance(make_split(Copy(), SourceSpace(2, 5, 7), "train", 17, 0), datasets.Dataset)


def test_nothing_is_written_to_disk(tmp_path: Path) -> None:
    # In a process of its own: the libraries read these variables only once.
    script = """
from attention_lab.data.batches import SequenceRows
from attention_lab.data.sampling import SourceSpace
from attention_lab.data.splits import make_split
from attention_lab.tasks.copy import Copy
print(len(SequenceRows(make_split(Copy(), SourceSpace(2, 5, 7), "train", 17, 0)).__getitems__(range(17)).source))
"""
    places = dict.fromkeys(("HOME", "HF_HOME", "HF_DATASETS_CACHE", "XDG_CACHE_HOME", "TMPDIR"), str(tmp_path))
    environment = {**os.environ, **places, "PYTHONDONTWRITEBYTECODE": "1", "HF_HUB_OFFLINE": "1"}
    said = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert said.stdout == "17\n"
    assert list(tmp_path.rglob("*")) == []


class OffByOne(Task):
    def alignment(self, sources: np.ndarray) -> np.ndarray:
        return np.broadcast_to(np.arange(sources.shape[1]) + 1, sources.shape)


class Flat(Task):
    def alignment(self, sources: np.ndarray) -> np.ndarray:
        return np.arange(sources.shape[1])


@pytest.mark.parametrize(
    ("task", "complaint"),
    [
        (
            OffByOne(),
            r"^task=offbyone gave positions from 1 to 3 for sources of length 3; they lie between 0 and 2",
        ),
        (Flat(), r"^task=flat gave an alignment of shape \(3,\) for 5 sources"),
    ],
)
def test_a_task_that_is_no_alignment_is_told_so(task: Task, complaint: str) -> None:
    with pytest.raises(SettingError, match=complaint):
        make_split(task, SourceSpace(3, 3, 7), "train", 5, 0)
