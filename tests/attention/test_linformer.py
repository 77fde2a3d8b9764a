"""Linformer: the paper's equation, padding on either side, closed edges, a cost that grows with the length alone."""

import math

import jaxtyping
import pytest
import torch
from torch import Tensor
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from attention_lab.attention.key_values import KeyValues
from attention_lab.attention.linformer import LinformerAttention
from attention_lab.attention.mask import Mask
from attention_lab.attention.multi_head import MultiHeadAttention
from attention_lab.attention.packing import Packing

B, H, L, S, K, P = 2, 3, 5, 7, 11, 13
D = H * K
MAX_LEN = 19


def project(attention, k, v, positions=None):
    """Keys and values of one padded batch."""
    return attention.project(k, v, Packing.of([k]), positions)[0]


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


@pytest.fixture
def attention() -> LinformerAttention:
    return LinformerAttention(D, H, dropout=0.0, num_projected=P, max_len=MAX_LEN)


@pytest.fixture
def annotations_unchecked(monkeypatch):
    """Users run without jaxtyping's checks, which would refuse such a call before the module sees it."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


def inputs(num_queries: int = L, num_keys: int = S) -> list[Tensor]:
    return [torch.randn(B, length, D) for length in (num_queries, num_keys, num_keys)]


def padding() -> Tensor:
    """Row 0 is padded on the right, row 1 on the left."""
    real = torch.ones(B, S, dtype=torch.bool)
    real[0, 3:] = False
    real[1, :2] = False
    return real


def paper_attention(q: Tensor, k: Tensor, v: Tensor, e: Tensor, f: Tensor) -> tuple[Tensor, Tensor]:
    """One head, equation 7 number by number, and the map from queries to keys that it amounts to."""
    mixed_k = [sum(e[p, j] * k[j] for j in range(len(k))) for p in range(len(e))]
    mixed_v = [sum(f[p, j] * v[j] for j in range(len(v))) for p in range(len(f))]
    output, equivalent = [], []
    for q_i in q:
        exponentials = [torch.exp(q_i @ mixed / math.sqrt(len(q_i))) for mixed in mixed_k]
        shares = [exponential / sum(exponentials) for exponential in exponentials]
        output.append(sum(share * mixed for share, mixed in zip(shares, mixed_v, strict=True)))
        row = [sum(share * f[p, j] for p, share in enumerate(shares)) for j in range(len(k))]
        equivalent.append(torch.stack(row))
    return torch.stack(output), torch.stack(equivalent)


def heads_of(attention: LinformerAttention, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    memory = project(attention, k, v)
    return attention.w_q(q).unflatten(-1, (H, K)).transpose(1, 2), memory.keys, memory.values


def joined(attention: LinformerAttention, mixed: Tensor) -> Tensor:
    return attention.w_o(mixed.transpose(1, 2).flatten(2))


MASKS = {
    "none": lambda: None,
    "everything": Mask,
    "padding": lambda: Mask(padding()),
    "heads": lambda: Mask(allowed=torch.rand(B, H, 1, 1) < 0.5),
    "queries": lambda: Mask(padding(), allowed=torch.rand(B, H, L, 1) < 0.5),
    "edges": lambda: Mask(allowed=torch.rand(B, H, L, S) < 0.6),
    "edges and padding": lambda: Mask(padding(), allowed=torch.rand(B, 1, L, S) < 0.6),
    "plain matrix": lambda: torch.rand(L, S) < 0.6,
    "plain padding": lambda: padding()[:, None, None],
    "nothing real": lambda: Mask(padding() & torch.tensor([[True], [False]])),
}
every_mask = pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
both_paths = pytest.mark.parametrize("need_weights", [True, False], ids=["explicit", "fused"])


@pytest.mark.parametrize("num_keys", [1, S, MAX_LEN])
@both_paths
def test_is_the_papers_equation(attention, num_keys, need_weights):
    q, k, v = inputs(L, num_keys)
    output, weights = attention(q, k, v, need_weights=need_weights)
    queries, keys, values = heads_of(attention, q, k, v)
    e, f = attention.e[:, :num_keys], attention.f[:, :num_keys]
    expected = [[paper_attention(queries[b, h], keys[b, h], values[b, h], e, f) for h in range(H)] for b in range(B)]
    mixed, equivalent = (torch.stack([torch.stack([head[n] for head in row]) for row in expected]) for n in (0, 1))
    torch.testing.assert_close(output, joined(attention, mixed), rtol=1e-5, atol=1e-5)
    if need_weights:
        torch.testing.assert_close(weights, equivalent, rtol=1e-5, atol=1e-5)
    else:
        assert weights is None


def test_as_many_mixtures_as_tokens_can_be_full_attention():
    attention, full = LinformerAttention(D, H, num_projected=S, max_len=S), MultiHeadAttention(D, H)
    unmixed = {"e": torch.eye(S), "f": torch.eye(S)}
    attention.load_state_dict({**full.state_dict(), **unmixed}, strict=True)
    qkv = inputs()
    torch.testing.assert_close(attention.eval()(*qkv), full.eval()(*qkv), rtol=1e-5, atol=1e-5)


@every_mask
def test_asking_for_weights_changes_nothing(attention, mask):
    mask = mask()
    qkv = [x.requires_grad_() for x in inputs()]
    wanted = torch.randn(B, L, D)
    outputs, gradients = [], []
    for need_weights in (True, False):
        output, weights = attention(*qkv, mask, need_weights=need_weights)
        assert (weights is not None) == need_weights
        outputs.append(output)
        gradients.append(torch.autograd.grad((output * wanted).sum(), [*qkv, *attention.parameters()]))
    torch.testing.assert_close(*outputs, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-4)


@every_mask
def test_weights_obey_the_mask_and_mix_the_values(attention, mask):
    mask, qkv = mask(), inputs()
    output, weights = attention(*qkv, mask)
    assert weights.shape == (B, H, L, S)
    matrix = mask.matrix(L, S) if isinstance(mask, Mask) else mask
    matrix = (torch.tensor(True) if matrix is None else matrix).expand_as(weights)
    assert ((weights != 0) == matrix).all()
    assert (weights < 0).any()
    torch.testing.assert_close(joined(attention, weights @ project(attention, *qkv[1:]).values), output)


@both_paths
def test_closing_edges_leaves_the_other_edges_as_they_were(attention, need_weights):
    qkv, allowed = inputs(), torch.rand(B, H, L, S) < 0.6
    mixed = attention(*qkv).weights.where(allowed, 0.0) @ project(attention, *qkv[1:]).values
    for mask in (allowed, Mask(allowed=allowed)):
        output = attention(*qkv, mask, need_weights=need_weights).output
        torch.testing.assert_close(output, joined(attention, mixed))


@both_paths
def test_closing_a_head_silences_it_and_no_other(attention, need_weights):
    q, k, v = inputs()
    queries, keys, values = heads_of(attention, q, k, v)
    allowed = torch.tensor([True, False, True])[None, :, None, None]
    memory = KeyValues(keys, values)
    whole, _ = attention.mix(queries, memory, Mask(), None, need_weights)
    mixed, _ = attention.mix(queries, memory, Mask(allowed=allowed), None, need_weights)
    assert not mixed[:, 1].any()
    torch.testing.assert_close(mixed[:, ::2], whole[:, ::2])


@both_paths
@pytest.mark.parametrize("spelled_out", [False, True], ids=["description", "matrix"])
def test_padding_on_either_side_changes_nothing(attention, spelled_out, need_weights):
    q, k, v = inputs()
    real = padding()
    mask = Mask(real).matrix(L, S) if spelled_out else Mask(real)
    for row in range(B):
        here = slice(row, row + 1)
        alone = attention(q[here], k[here, real[row]], v[here, real[row]], need_weights=need_weights)
        for filling in (0.0, 1e3):
            others = [x.where(real[..., None], filling) for x in (k, v)]
            output, weights = attention(q, *others, mask, need_weights=need_weights)
            torch.testing.assert_close(output[here], alone.output, rtol=1e-5, atol=1e-5)
            if need_weights:
                torch.testing.assert_close(weights[here][..., real[row]], alone.weights, rtol=1e-5, atol=1e-5)


@both_paths
def test_queries_without_a_key_get_the_output_bias_and_finite_gradients(attention, need_weights):
    qkv = [x.requires_grad_() for x in inputs()]
    nothing_real = torch.tensor([[True], [False]]).expand(B, S)
    output, weights = attention(*qkv, Mask(nothing_real), need_weights=need_weights)
    torch.testing.assert_close(output[1], attention.w_o.bias.expand(L, D))
    assert weights is None or not weights[1].any()
    output.square().sum().backward()
    gradients = [x.grad for x in qkv]
    assert all(gradient.isfinite().all() for gradient in gradients)
    assert all(weight.grad.isfinite().all() for weight in attention.parameters())
    assert all(gradient[0].any() and not gradient[1].any() for gradient in gradients)


class Largest(TorchDispatchMode):
    """Records how many numbers the largest tensor has that any operation makes."""

    numel = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        made = [leaf.numel() for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
        self.numel = max([self.numel, *made])
        return result


@pytest.mark.parametrize("padded", [False, True], ids=["all real", "padded"])
def test_nothing_grows_with_the_square_of_the_length(padded):
    length, heads, width = 997, 2, 17
    attention = LinformerAttention(heads * width, heads, num_projected=P, max_len=length)
    x = torch.randn(1, length, heads * width, requires_grad=True)
    mask = Mask(torch.arange(length)[None] > 3) if padded else None
    with Largest() as largest:
        attention(x, x, x, mask, need_weights=False).output.sum().backward()
    assert 0 < largest.numel <= heads * length * max(P, width)
    with Largest() as largest:
        attention(x, x, x, mask, need_weights=True)
    assert largest.numel >= length**2


@both_paths
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float16, 1e-2), (torch.bfloat16, 5e-2)], ids=str)
def test_half_precision_stays_close_and_finite(attention, dtype, tolerance, need_weights):
    mask = Mask(padding() & torch.tensor([[True], [False]]))
    qkv = [x.to(dtype) for x in inputs()]
    expected = attention(*(x.float() for x in qkv), mask).output
    output = attention.to(dtype)(*qkv, mask, need_weights=need_weights).output
    assert output.dtype == dtype
    torch.testing.assert_close(output.float(), expected, rtol=tolerance, atol=tolerance)
    output.float().square().sum().backward()
    assert all(weight.grad.isfinite().all() for weight in attention.parameters())


@both_paths
@pytest.mark.parametrize("mask", [None, Mask(padding()), torch.ones(L, S) > 0], ids=["none", "padding", "matrix"])
def test_dropout_acts_in_training_only(need_weights, mask):
    attention, qkv = LinformerAttention(D, H, dropout=0.5, num_projected=P, max_len=S), inputs()
    attention.eval()
    expected = attention(*qkv, mask, need_weights=need_weights)
    assert torch.equal(attention(*qkv, mask, need_weights=need_weights).output, expected.output)
    attention.train()
    output, weights = attention(*qkv, mask, need_weights=need_weights)
    assert not torch.allclose(output, expected.output)
    if need_weights:
        # The map is whole, like the weights of every other attention.
        assert torch.equal(weights, expected.weights)


def test_mixtures_are_learned(attention):
    q, k, v = inputs()
    target = functional.normalize(torch.randn(B, L, D), dim=-1)
    (attention(q, k, v, need_weights=False).output - target).square().sum().backward()
    for shares in (attention.e, attention.f):
        assert shares.grad[:, :S].all()
        assert not shares.grad[:, S:].any()


def test_refuses_a_source_longer_than_its_mixtures(attention):
    with pytest.raises(ValueError, match=r"^num_keys=23 is beyond max_len=19; build it with a larger max_len"):
        attention(*inputs(L, 23))


def test_refuses_to_be_causal(attention):
    with pytest.raises(ValueError, match=r"^mask\.causal=True is impossible here: each of its mixtures holds tokens"):
        attention(*inputs(), Mask(causal=True))
    assert set(attention.unsupported) == {"causal", "bias", "turn"}


@pytest.mark.parametrize("wrap", [lambda m: m, lambda m: Mask(allowed=m), lambda m: Mask(m[:, 0, 0])])
@pytest.mark.usefixtures("annotations_unchecked")
def test_refuses_masks_that_are_not_boolean(attention, wrap):
    with pytest.raises(ValueError, match=r"^mask has dtype torch\.float32"):
        attention(*inputs(), wrap(torch.ones(B, 1, 1, S)))


@pytest.mark.parametrize("setting", ["num_projected", "max_len"])
@pytest.mark.parametrize("value", [0, -3])
def test_refuses_numbers_below_one(setting, value):
    with pytest.raises(ValueError, match=rf"^{setting}={value} must be at least 1"):
        LinformerAttention(D, H, **{setting: value})


def test_refuses_what_every_attention_refuses():
    with pytest.raises(ValueError, match=r"^num_heads=5 does not divide d_model=33; use one of \[1, 3, 11, 33\]"):
        LinformerAttention(33, 5)
    with pytest.raises(ValueError, match=r"^dropout=1.5 is not a probability"):
        LinformerAttention(D, H, 1.5)
