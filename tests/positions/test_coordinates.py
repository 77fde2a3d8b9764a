"""Coordinates count real tokens from the first one, wherever the padding is."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attention_lab.positions.coordinates import Ruler, from_start, num_symbols


def test_known_answers():
    padded_right, padded_left, both = [1, 1, 1, 0, 0], [0, 0, 1, 1, 1], [0, 1, 1, 1, 0]
    real = torch.tensor([padded_right, padded_left, both], dtype=torch.bool)
    expected = torch.tensor([[0, 1, 2, 2, 2], [0, 0, 0, 1, 2], [0, 0, 1, 2, 2]])
    assert torch.equal(from_start(real), expected)


@given(left=st.integers(0, 7), length=st.integers(0, 11), right=st.integers(0, 7))
def test_padding_shifts_nobody_and_needs_no_further_positions(left, length, right):
    real = torch.tensor([[False] * left + [True] * length + [False] * right], dtype=torch.bool)
    coordinates = from_start(real)
    assert coordinates.shape == real.shape
    assert coordinates[real].tolist() == list(range(length))
    assert ((coordinates >= 0) & (coordinates < max(1, length))).all()


def test_rows_count_for_themselves():
    real = torch.tensor([[True, True, True], [False, True, True], [False, False, False]])
    assert torch.equal(from_start(real), torch.cat([from_start(row[None]) for row in real]))


def test_both_ends_by_hand():
    # Three symbols and EOS, and one symbol and EOS, padded on either side.
    real = torch.tensor([[1, 1, 1, 1], [0, 1, 1, 0]], dtype=torch.bool)
    source = Ruler().source(real)
    assert source.start.tolist() == [[0, 1, 2, 3], [0, 0, 1, 1]]
    assert source.end[0].tolist() == [2, 1, 0, 3]
    assert source.end[1, 1:3].tolist() == [0, 1]
    target = Ruler().target(torch.arange(4)[None], num_symbols(real))
    assert target.start.tolist() == [[0, 1, 2, 3]]
    assert target.end.tolist() == [[-3, -2, -1, 0], [-1, 0, 1, 2]]


@pytest.mark.parametrize("length", [1, 2, 7])
def test_eos_comes_last_from_either_end(length):
    source = Ruler().source(torch.ones(1, length, dtype=torch.bool))
    for counted in source:
        assert counted[0, -1] == length - 1
        assert sorted(counted[0].tolist()) == list(range(length))


@pytest.mark.parametrize(
    "ruler",
    [Ruler(), Ruler(marks=torch.tensor([[0, 1, 2]])), Ruler(gap=torch.tensor([[1]]), tokens=torch.tensor([[1]]))],
)
def test_a_row_of_nothing_but_padding_stays_at_zero(ruler):
    real = torch.tensor([[False, False]])
    assert num_symbols(real).tolist() == [[0]]
    assert [counted.tolist() for counted in ruler.source(real)] == [[[0, 0]], [[0, 0]]]
    assert ruler.target(torch.arange(2)[None], num_symbols(real)).end.tolist() == [[0, 1]]


def test_a_ruler_with_marks_keeps_equal_ranks_equal_and_mirrors_negative_ones():
    ruler = Ruler(marks=torch.tensor([[2, 5, 11], [0, 1, 7]]))
    assert ruler.at(torch.tensor([[0, 2, 1]])).tolist() == [[2, 11, 5], [0, 7, 1]]
    assert ruler.at(torch.tensor([[-1, -2, 0], [-2, 0, 2]])).tolist() == [[-1, -7, 2], [-7, 0, 7]]


def test_a_ruler_with_gaps_stretches():
    ruler = Ruler(gap=torch.tensor([[3], [1]]), tokens=torch.tensor([[3], [7]]))
    assert ruler.at(torch.tensor([[-1, 0, 2]])).tolist() == [[-3, 0, 6], [-1, 0, 2]]
    # More tokens than were expected follow at 1, on either side.
    assert ruler.at(torch.tensor([[-4, 3, 5]])).tolist() == [[-8, 7, 9], [-4, 3, 5]]
