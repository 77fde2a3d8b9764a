"""The equation of attention: worked answers, the articles' code, PyTorch's kernel, masks and half precision."""

import math

import jaxtyping
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from attention_lab.attention.scaled_dot_product import scaled_dot_product_attention
from tests.articles import article_attention, first_article_attention

B, H, L, S, K, V = 2, 3, 5, 7, 11, 13


def random_inputs(seed: int = 0, dtype: torch.dtype = torch.float) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    shapes = (B, H, L, K), (B, H, S, K), (B, H, S, V)
    q, k, v = (torch.randn(shape, generator=generator).to(dtype) for shape in shapes)
    return q, k, v


def random_mask(seed: int = 0) -> Tensor:
    """Any key of any row may be masked, except that every row keeps one."""
    generator = torch.Generator().manual_seed(seed)
    mask = torch.rand(B, H, L, S, generator=generator) < 0.5
    kept = torch.randint(S, (B, H, L, 1), generator=generator)
    return mask.scatter(-1, kept, True)


@pytest.fixture
def annotations_unchecked(monkeypatch):
    """Users run without jaxtyping's checks, which would refuse such a call before the function sees it."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


def test_known_answer():
    # d_k = 4, so √d_k = 2. Scores: 2·ln 3 / 2 = ln 3 and 0; exponentials 3 and 1; weights 3/4 and 1/4.
    q = torch.tensor([[2.0, 0.0, 0.0, 0.0]])
    k = torch.tensor([[math.log(3), 5.0, 0.0, 0.0], [0.0, -5.0, 0.0, 0.0]])
    v = torch.tensor([[4.0, 0.0, 8.0], [0.0, 12.0, 8.0]])
    output, weights = scaled_dot_product_attention(q, k, v)
    torch.testing.assert_close(weights, torch.tensor([[0.75, 0.25]]))
    # 3/4 · (4, 0, 8) + 1/4 · (0, 12, 8) = (3, 3, 8)
    torch.testing.assert_close(output, torch.tensor([[3.0, 3.0, 8.0]]))


def test_known_answer_with_a_masked_key():
    # d_k = 1. Scores ln 2, 9, ln 6; the 9 may not be seen; exponentials 2 and 6; weights 1/4, 0, 3/4.
    q = torch.tensor([[1.0]])
    k = torch.tensor([[math.log(2)], [9.0], [math.log(6)]])
    v = torch.tensor([[4.0], [1000.0], [8.0]])
    output, weights = scaled_dot_product_attention(q, k, v, torch.tensor([[True, False, True]]))
    torch.testing.assert_close(weights, torch.tensor([[0.25, 0.0, 0.75]]))
    torch.testing.assert_close(output, torch.tensor([[7.0]]))


@pytest.mark.parametrize("article", [article_attention, first_article_attention])
@pytest.mark.parametrize("mask", [None, random_mask()], ids=["unmasked", "masked"])
def test_equals_the_articles(article, mask):
    q, k, v = random_inputs()
    # The articles' masks hold 0 and 1.
    expected = article(q, k, v, None if mask is None else mask.int())
    torch.testing.assert_close(scaled_dot_product_attention(q, k, v, mask), expected)


@pytest.mark.parametrize("mask", [None, random_mask(), torch.ones(L, S, dtype=torch.bool).tril(S - L)])
def test_equals_pytorch(mask):
    q, k, v = random_inputs()
    expected = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    torch.testing.assert_close(scaled_dot_product_attention(q, k, v, mask)[0], expected)


@pytest.mark.parametrize("shape", [(S,), (L, S), (B, 1, 1, S), (1, H, 1, S), (B, 1, L, S)])
def test_masks_broadcast(shape):
    q, k, v = random_inputs()
    mask = torch.rand(shape, generator=torch.Generator().manual_seed(1)) < 0.7
    expected = scaled_dot_product_attention(q, k, v, mask.expand(B, H, L, S).clone())
    torch.testing.assert_close(scaled_dot_product_attention(q, k, v, mask), expected)


@settings(deadline=None, max_examples=50)
@given(seed=st.integers(0, 2**32), share=st.floats(0, 1), size=st.sampled_from([0.1, 1.0, 100.0]))
def test_rows_sum_to_one_or_to_zero_and_masked_keys_get_nothing(seed, share, size):
    q, k, v = random_inputs(seed)
    mask = torch.rand(B, H, L, S, generator=torch.Generator().manual_seed(seed)) < share
    output, weights = scaled_dot_product_attention(size * q, k, v, mask)
    torch.testing.assert_close(weights.sum(-1), mask.any(-1).float())
    assert (weights >= 0).all()
    assert (weights[~mask] == 0).all()
    torch.testing.assert_close(output, weights @ v)


@settings(deadline=None, max_examples=50)
@given(seed=st.integers(0, 2**32), order=st.permutations(range(S)))
def test_the_order_of_the_keys_does_not_matter(seed, order):
    q, k, v = random_inputs(seed)
    mask = random_mask(seed)
    output, weights = scaled_dot_product_attention(q, k, v, mask)
    shuffled = scaled_dot_product_attention(q, k[..., order, :], v[..., order, :], mask[..., order])
    torch.testing.assert_close(shuffled, (output, weights[..., order]))


@pytest.mark.parametrize("dtype", [torch.float, torch.float16, torch.bfloat16], ids=str)
def test_a_query_without_keys_gets_zeros_and_finite_gradients(dtype):
    inputs = [x.requires_grad_() for x in random_inputs(dtype=dtype)]
    mask = random_mask()
    mask[0, 1, 2] = False
    mask[1, :, 3] = False
    output, weights = scaled_dot_product_attention(*inputs, mask)
    nothing_seen = ~mask.any(-1)
    assert (output[nothing_seen] == 0).all()
    assert (weights[nothing_seen] == 0).all()
    assert output.isfinite().all()
    assert (output[~nothing_seen] != 0).any(-1).all()
    (output.sum() + weights.square().sum()).backward()
    q, k, v = inputs
    assert all(x.grad.isfinite().all() for x in inputs)
    assert (q.grad[nothing_seen] == 0).all()
    assert k.grad.any()
    assert v.grad.any()


@pytest.mark.filterwarnings("ignore:Anomaly Detection:UserWarning")
def test_a_query_without_keys_makes_no_nan_on_the_way_back():
    inputs = [x.requires_grad_() for x in random_inputs()]
    # Looks at every step of the way: a NaN that a later step hides would stop it.
    with torch.autograd.detect_anomaly():
        output, weights = scaled_dot_product_attention(*inputs, torch.zeros(L, S, dtype=torch.bool))
        (output.sum() + weights.sum()).backward()
    assert not any(x.grad.any() for x in inputs)


def test_gradients_are_those_of_the_equation():
    inputs = [x[:1, :1, :, :3].requires_grad_() for x in random_inputs(dtype=torch.double)]
    mask = random_mask()[:1, :1]
    mask[..., 2, :] = False
    assert torch.autograd.gradcheck(lambda q, k, v: scaled_dot_product_attention(q, k, v, mask), inputs)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float16, 5e-3), (torch.bfloat16, 5e-2)], ids=str)
def test_half_precision_is_as_good_as_its_rounding(dtype, tolerance):
    mask = random_mask()
    halved = random_inputs(dtype=dtype)
    output, weights = scaled_dot_product_attention(*halved, mask)
    assert output.dtype == weights.dtype == dtype
    expected = scaled_dot_product_attention(*(x.float() for x in halved), mask)
    torch.testing.assert_close((output.float(), weights.float()), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("sign", [1.0, -1.0], ids=["large", "very negative"])
def test_large_half_precision_scores_beside_masked_keys_stay_finite(sign):
    # Scores ±40000, ±20000 and a masked key: filled with the smallest float16, the difference leaves float16's range.
    q = torch.tensor([[200.0]], dtype=torch.float16, requires_grad=True)
    k = sign * torch.tensor([[200.0], [100.0], [200.0]], dtype=torch.float16)
    v = torch.tensor([[3.0], [5.0], [7.0]], dtype=torch.float16)
    output, weights = scaled_dot_product_attention(q, k, v, torch.tensor([[True, True, False]]))
    likeliest = 0 if sign > 0 else 1
    torch.testing.assert_close(weights[0], functional.one_hot(torch.tensor(likeliest), 3).half())
    torch.testing.assert_close(output, v[likeliest][None])
    output.sum().backward()
    assert q.grad.isfinite().all()


def test_dropout_drops_weights_but_returns_them_whole():
    q, k, _ = random_inputs()
    identity = torch.eye(S).expand(B, H, S, S)
    torch.manual_seed(0)
    # With the identity as values the output is the weights after dropout.
    dropped, weights = scaled_dot_product_attention(q, k, identity, dropout=0.5)
    torch.testing.assert_close(weights, scaled_dot_product_attention(q, k, identity)[1])
    kept = dropped != 0
    assert 0 < kept.sum() < kept.numel()
    torch.testing.assert_close(dropped[kept], 2 * weights[kept])


@pytest.mark.parametrize("mask", [torch.ones(L, S), torch.ones(L, S, dtype=torch.long), torch.zeros(L, S)], ids=str)
@pytest.mark.usefixtures("annotations_unchecked")
def test_refuses_masks_that_are_not_boolean(mask):
    with pytest.raises(ValueError, match=rf"mask has dtype {mask.dtype}.*torch\.bool with True = may attend"):
        scaled_dot_product_attention(*random_inputs(), mask)


def test_products_too_large_for_half_precision_are_scaled_before_they_overflow() -> None:
    q = torch.full((1, 1, 2, 64), 32.0, dtype=torch.float16)
    output, weights = scaled_dot_product_attention(q, q, q)
    assert weights.tolist() == [[[[0.5, 0.5], [0.5, 0.5]]]]
    assert torch.equal(output, q)
