"""ALiBi: the slopes of a public implementation, and a bias that is slope times distance."""

import pytest
import torch
from transformers.models.bloom.modeling_bloom import build_alibi_tensor

from attention_lab.positions.alibi import ALiBi, alibi_slopes


@pytest.mark.parametrize("num_heads", [1, 2, 3, 5, 8, 11, 16, 23])
def test_slopes_are_blooms(num_heads):
    theirs = build_alibi_tensor(torch.ones(1, 2), num_heads, torch.float32)[:, 0, 1]
    assert alibi_slopes(num_heads) == pytest.approx(theirs.tolist())


def test_the_bias_is_minus_slope_times_distance_on_both_sides():
    code = ALiBi(12, num_heads=2)
    bias = code.bias(torch.tensor([[5]]), torch.tensor([[2, 5, 6, 9]]))
    assert bias.shape == (1, 2, 1, 4)
    steep, flat = 2.0**-4, 2.0**-8
    assert bias[0, :, 0].tolist() == [[-3 * steep, 0, -steep, -4 * steep], [-3 * flat, 0, -flat, -4 * flat]]


def test_it_adds_nothing_to_embeddings_and_turns_nothing():
    code, x = ALiBi(6, num_heads=3), torch.randn(2, 3, 5, 2)
    assert code.turn(x, torch.arange(5)[None]) is x
    assert code(x[:, 0]) is not None
    assert torch.equal(code(x[:, 0]), x[:, 0])
