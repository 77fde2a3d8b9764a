"""Learned positions: a row of a table for every coordinate."""

import pytest
import torch

from attention_lab.positions.learned import LearnedPosition

B, L, D, MAX_LEN = 2, 5, 7, 11


def test_each_coordinate_has_a_vector_of_its_own():
    torch.manual_seed(0)
    code, x = LearnedPosition(D, MAX_LEN), torch.randn(B, L, D)
    places = torch.tensor([[0, 3, 3, 10, 1], [7, 2, 0, 0, 9]])
    torch.testing.assert_close(code(x, places), x + code.vectors.weight[places])
    torch.testing.assert_close(code(x), x + code.vectors.weight[:L])
    code(x, places).sum().backward()
    assert (code.vectors.weight.grad[4] == 0).all()
    assert (code.vectors.weight.grad[3] == 2).all()


def test_a_sequence_beyond_the_table_is_refused():
    with pytest.raises(ValueError, match=r"12 tokens .* max_len=11"):
        LearnedPosition(D, MAX_LEN)(torch.zeros(1, 12, D))


@pytest.mark.parametrize(
    ("width", "max_len", "complaint"), [(0, 5, "d_model=0"), (5, 0, "max_len=0"), (5, 10**7, "max_len")]
)
def test_what_cannot_be_is_refused(width, max_len, complaint):
    with pytest.raises(ValueError, match=f"^{complaint}"):
        LearnedPosition(width, max_len)
