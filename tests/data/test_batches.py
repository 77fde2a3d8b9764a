"""Batches hold what a plain loop over their rows would put there."""

import itertools

import numpy as np
import pyarrow as pa
import pytest
import torch
from datasets import Dataset
from hypothesis import given, settings
from hypothesis import strategies as st

from attention_lab.data.batches import NOWHERE, LikeLengths, SequenceRows, least_padding, readable_rows
from attention_lab.data.sampling import SourceSpace
from attention_lab.data.splits import make_split
from attention_lab.tasks.reverse import Reverse
from attention_lab.tasks.vocabulary import BOS, EOS, PAD

SYMBOLS = st.lists(st.integers(3, 127), min_size=1, max_size=11)


@st.composite
def rows(draw: st.DrawFn) -> list[tuple[list[int], list[int]]]:
    """Sources with alignments of any length, so that targets may be shorter or longer than sources."""
    sources = draw(st.lists(SYMBOLS, min_size=1, max_size=7))
    return [(source, draw(st.lists(st.integers(0, len(source) - 1), min_size=1, max_size=13))) for source in sources]


def sequence_rows(rows: list[tuple[list[int], list[int]]]) -> SequenceRows:
    columns = {
        "source": [source for source, _ in rows],
        "target": [[source[place] for place in alignment] for source, alignment in rows],
        "alignment": [alignment for _, alignment in rows],
    }
    return SequenceRows(
        Dataset(pa.table({name: pa.array(each, pa.list_(pa.int16())) for name, each in columns.items()}))
    )


def sources(*each: list[int]) -> SequenceRows:
    return sequence_rows([(source, list(range(len(source)))) for source in each])


def filled(row: list[int], width: int, padding: int = PAD) -> list[int]:
    return row + [padding] * (width - len(row))


def test_two_rows_worked_by_hand() -> None:
    batch = sequence_rows([([7, 5, 9], [2, 1, 0]), ([4], [0, 0, 0, 0, 0])]).__getitems__([0, 1])
    assert batch.source.tolist() == [[7, 5, 9, EOS], [4, EOS, PAD, PAD]]
    assert batch.target.tolist() == [[BOS, 9, 5, 7, PAD, PAD], [BOS, 4, 4, 4, 4, 4]]
    assert batch.labels.tolist() == [[9, 5, 7, EOS, PAD, PAD], [4, 4, 4, 4, 4, EOS]]
    assert batch.alignment.tolist() == [[2, 1, 0, NOWHERE, NOWHERE, NOWHERE], [0, 0, 0, 0, 0, NOWHERE]]


@given(rows(), st.data())
@settings(max_examples=60, deadline=None)
def test_a_batch_equals_a_plain_loop(rows: list[tuple[list[int], list[int]]], data: st.DataObject) -> None:
    chosen = data.draw(st.lists(st.integers(0, len(rows) - 1), min_size=1, max_size=5))
    batch = sequence_rows(rows).__getitems__(chosen)
    width = max(len(rows[row][0]) for row in chosen) + 1
    target_width = max(len(rows[row][1]) for row in chosen) + 1
    for place, row in enumerate(chosen):
        source, alignment = rows[row]
        target = [source[position] for position in alignment]
        assert batch.source[place].tolist() == filled([*source, EOS], width)
        assert batch.target[place].tolist() == filled([BOS, *target], target_width)
        assert batch.labels[place].tolist() == filled([*target, EOS], target_width)
        assert batch.alignment[place].tolist() == filled(alignment, target_width, NOWHERE)


@given(rows())
@settings(max_examples=40, deadline=None)
def test_labels_are_the_source_at_the_alignment(rows: list[tuple[list[int], list[int]]]) -> None:
    batch = sequence_rows(rows).__getitems__(range(len(rows)))
    known = batch.alignment >= 0
    read = batch.source.gather(1, batch.alignment.clamp(min=0))
    assert torch.equal(batch.labels[known], read[known])
    assert set(batch.labels[~known].tolist()) <= {EOS, PAD}
    assert (batch.alignment[~known] == NOWHERE).all()


@given(rows())
@settings(max_examples=40, deadline=None)
def test_the_decoder_reads_each_label_one_step_later(rows: list[tuple[list[int], list[int]]]) -> None:
    batch = sequence_rows(rows).__getitems__(range(len(rows)))
    said = batch.labels[:, :-1]
    assert (batch.target[:, 0] == BOS).all()
    assert torch.equal(batch.target[:, 1:], said.where(said != EOS, PAD))


def test_tensors_are_int64_whatever_the_columns_are() -> None:
    batch = SequenceRows(make_split(Reverse(), SourceSpace(2, 5, 7), "train", 17, 0)).__getitems__([3, 11])
    assert {part.dtype for part in batch} == {torch.int64}


def test_one_row_is_a_batch_of_one_without_padding() -> None:
    three = sources([7, 5, 9], [4], [8, 8])
    assert [part.tolist() for part in three[1]] == [[[4, EOS]], [[BOS, 4]], [[4, EOS]], [[0, NOWHERE]]]


def test_rows_come_in_the_order_asked_for_and_as_often() -> None:
    three = sources([7, 5, 9], [4], [8, 8])
    assert three.__getitems__([2, 0, 2]).source[:, 0].tolist() == [8, 7, 8]


def test_a_batch_is_as_wide_as_its_own_longest_row() -> None:
    assert sources([7, 5, 9], [4], [8, 8]).__getitems__([1, 2]).source.shape == (2, 3)


def test_a_row_that_is_not_there_is_refused() -> None:
    with pytest.raises(IndexError):
        sources([7, 5, 9], [4])[2]


def test_lengths_count_symbols_of_source_and_target() -> None:
    two = sequence_rows([([7, 5, 9], [2, 1]), ([4], [0, 0, 0, 0, 0])])
    assert len(two) == 2
    assert two.source_lengths.tolist() == [3, 1]
    assert two.lengths.tolist() == [5, 6]


def test_rows_equal_the_split_they_are_made_of() -> None:
    split = make_split(Reverse(), SourceSpace(2, 7, 5), "validation", 31, 0)
    two = SequenceRows(split)
    assert [two[row].source[0, :-1].tolist() for row in range(len(two))] == list(split["source"])
    assert [two[row].labels[0, :-1].tolist() for row in range(len(two))] == list(split["target"])
    assert [two[row].alignment[0, :-1].tolist() for row in range(len(two))] == list(split["alignment"])


def test_readable_rows_are_varied_first_and_of_one_length() -> None:
    five = sources([3, 3, 3], [4, 5, 6], [7], [3, 3, 4], [8])
    assert readable_rows(five, 2) == [1, 3]
    assert sorted(readable_rows(five, 7)) == [0, 1, 3]


def test_readable_rows_are_the_longest_that_are_not_too_long() -> None:
    lengths = np.array([3, 11, 23, 61])
    chosen = readable_rows(sources(*([5] * length for length in lengths)), 1)
    assert lengths[chosen].tolist() == [11]


def test_where_all_are_long_the_shortest_is_readable() -> None:
    assert readable_rows(sources([5] * 61, [5] * 41), 3) == [1]


@given(st.lists(st.integers(1, 7), min_size=1, max_size=9).map(sorted), st.integers(1, 4))
@settings(max_examples=100, deadline=None)
def test_no_other_way_to_cut_needs_less_padding(lengths: list[int], parts: int) -> None:
    def tokens(cuts: tuple[int, ...]) -> int:
        return sum(len(part) * (max(part) + 2) for part in np.split(lengths, cuts) if len(part))

    cuts = least_padding(np.array(lengths), parts)
    assert len(cuts) == min(parts, len(set(lengths))) - 1
    every_way = itertools.combinations_with_replacement(range(len(lengths) + 1), parts - 1)
    assert tokens(tuple(cuts)) == min(map(tokens, every_way))


def test_rows_of_one_length_are_never_padded() -> None:
    [part] = LikeLengths(sources([7, 5], [4, 3], [8, 8]), 3).__getitems__([2, 0, 1])
    assert part.source.tolist() == [[8, 8, EOS], [7, 5, EOS], [4, 3, EOS]]


def test_parts_are_cut_where_lengths_jump() -> None:
    five = sources([7, 5, 9, 4, 4, 4], [4], [8, 8], [3, 3, 3, 3, 3], [5])
    parts = LikeLengths(five, 2).__getitems__(range(5))
    assert [part.source.shape for part in parts] == [(3, 3), (2, 7)]
    assert parts[0].source[:, 0].tolist() == [4, 5, 8]
