"""Luong's attention: the paper's equations in a plain loop, masks, the fused path, and rows that may see nothing."""

import math

import pytest
import torch
from torch import Tensor, nn

from attention_lab.attention.luong import LuongAttention
from attention_lab.attention.mask import Mask

B, T, S, D = 3, 7, 11, 13


@pytest.fixture
def attention() -> LuongAttention:
    torch.manual_seed(0)
    return LuongAttention(D)


def states() -> tuple[Tensor, Tensor, Tensor]:
    """The decoder's states, the encoder's, and which of those are real: row 0 all, row 1 the first, row 2 the last."""
    torch.manual_seed(1)
    real = torch.ones(B, S, dtype=torch.bool)
    real[1, 5:] = False
    real[2, :3] = False
    return torch.randn(B, T, D), torch.randn(B, S, D), real


def as_in_the_paper(attention: LuongAttention, h: Tensor, memory: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
    """Equations 5, 7 and 8, one decoder state and one encoder state at a time, with W_c in one piece."""
    w_c = torch.cat([attention.w_o.weight, attention.w_h.weight], dim=1)
    outputs, weights = torch.zeros(B, T, D), torch.zeros(B, 1, T, S)
    for row in range(B):
        for t in range(T):
            scores = {s: h[row, t] @ attention.w_a.weight.T @ memory[row, s] for s in range(S) if real[row, s]}
            total = sum(math.exp(score) for score in scores.values())
            context = torch.zeros(D)
            for s, score in scores.items():
                weights[row, 0, t, s] = math.exp(score) / total
                context += weights[row, 0, t, s] * memory[row, s]
            outputs[row, t] = (w_c @ torch.cat([context, h[row, t]]) + attention.w_o.bias).tanh()
    return outputs, weights


@torch.no_grad()
def test_equals_a_plain_loop_of_the_papers_equations(attention: LuongAttention) -> None:
    h, memory, real = states()
    outputs, weights = as_in_the_paper(attention, h, memory, real)
    found = attention(h, memory, Mask(keys=real))
    torch.testing.assert_close(found.output, outputs, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(found.weights, weights, rtol=1e-5, atol=1e-5)


def test_asking_for_the_weights_changes_no_output_and_no_gradient(attention: LuongAttention) -> None:
    h, memory, real = states()
    allowed = torch.rand(B, 1, T, S) > 0.3
    mask = Mask(keys=real, allowed=allowed)

    def outcome(need_weights: bool) -> list[Tensor]:
        given = [h.clone().requires_grad_(), memory.clone().requires_grad_()]
        output = attention(*given, mask, need_weights=need_weights).output
        return [output, *torch.autograd.grad(output.square().sum(), [*given, *attention.parameters()])]

    for asked, not_asked in zip(outcome(True), outcome(False), strict=True):
        torch.testing.assert_close(asked, not_asked, rtol=1e-4, atol=1e-5)
    assert attention(h, memory, mask, need_weights=False).weights is None


@pytest.mark.parametrize("need_weights", [True, False])
def test_a_query_that_may_see_nothing_finds_zeros(attention: LuongAttention, need_weights: bool) -> None:
    h, memory, real = states()
    allowed = torch.ones(B, 1, T, S, dtype=torch.bool)
    allowed[1, :, 4] = False
    memory.requires_grad_()
    output, weights = attention(h, memory, Mask(keys=real, allowed=allowed), need_weights=need_weights)
    nothing = (attention.w_o.bias + attention.w_h(h[1, 4])).tanh()
    torch.testing.assert_close(output[1, 4], nothing)
    assert not torch.allclose(output[1, 3], (attention.w_o.bias + attention.w_h(h[1, 3])).tanh(), atol=1e-3)
    if weights is not None:
        assert not weights[1, 0, 4].any()
    output.sum().backward()
    assert memory.grad is not None
    assert memory.grad.isfinite().all()


def test_a_plain_matrix_is_a_mask_too(attention: LuongAttention) -> None:
    h, memory, real = states()
    expected = attention(h, memory, Mask(keys=real))
    actual = attention(h, memory, real[:, None, None])
    assert torch.equal(actual.output, expected.output)
    assert torch.equal(actual.weights, expected.weights)


def test_what_it_finds_enters_through_a_matrix_of_its_own(attention: LuongAttention) -> None:
    assert (attention.num_heads, attention.d_k) == (1, D)
    assert isinstance(attention.w_o, nn.Linear)
    assert attention.w_o.weight.shape == (D, D)


@pytest.mark.parametrize("d_model", [0, -3])
def test_refuses_a_width_that_is_none(d_model: int) -> None:
    with pytest.raises(ValueError, match=rf"d_model={d_model} must be at least 1"):
        LuongAttention(d_model)
