"""Coordinates count real tokens from the first one, wherever the padding is."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from attention_lab.positions.coordinates import from_start


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
