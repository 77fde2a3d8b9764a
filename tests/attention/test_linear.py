"""Linear attention: the paper's equations, running sums, the cache, masks, and numbers that stay few and exact."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from attention_lab.attention.key_values import Cache, KeyValues
from attention_lab.attention.linear import CHUNK, LinearAttention
from attention_lab.attention.mask import Mask
from attention_lab.attention.multi_head import MultiHeadAttention
from attention_lab.attention.packing import AttentionMetadata, Packing

B, H, L, S, K = 2, 3, 5, 7, 11
D = H * K
LONG = 2 * CHUNK + 13


def project(attention, k, v, positions=None):
    """Keys and values of one padded batch."""
    return attention.project(k, v, Packing.of([k]), positions)[0]


def attend(attention, q, memory, mask, num_keys=None, positions=None, need_weights=True):
    """What one padded batch attends to."""
    num_keys = num_keys or memory.keys.size(2)
    metadata = AttentionMetadata((mask,), Packing.of([q]), Packing(((len(q), num_keys),)), positions)
    return attention.attend(q, [memory], metadata, need_weights=need_weights)


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


@pytest.fixture
def attention() -> LinearAttention:
    return LinearAttention(D, H, dropout=0.0)


def inputs(num_queries: int = L, num_keys: int = S) -> list[Tensor]:
    return [torch.randn(B, length, D) for length in (num_queries, num_keys, num_keys)]


def padding(num_keys: int = S) -> Tensor:
    """Row 0 is padded on the right, row 1 on the left."""
    real = torch.ones(B, num_keys, dtype=torch.bool)
    real[0, 3:] = False
    real[1, :2] = False
    return real


def phi(x: Tensor) -> Tensor:
    return torch.stack([x_i + 1 if x_i > 0 else x_i.exp() for x_i in x])


def paper_attention(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
    """One head, letter by letter: equations 8 to 12 of the paper where causal, 4 where not."""
    output = []
    s, z = torch.zeros(K, K), torch.zeros(K)
    for i in range(len(q)):
        if causal:
            s, z = s + torch.outer(phi(k[i]), v[i]), z + phi(k[i])
            output.append(phi(q[i]) @ s / (phi(q[i]) @ z))
        else:
            similarity = [phi(q[i]) @ phi(k_j) for k_j in k]
            output.append(sum(s_j * v_j for s_j, v_j in zip(similarity, v, strict=True)) / sum(similarity))
    return torch.stack(output)


MASKS = {
    "none": (lambda: None, L, S),
    "everything": (Mask, L, S),
    "padding": (lambda: Mask(padding()), L, S),
    "causal": (lambda: Mask(causal=True), S, S),
    "causal, long": (lambda: Mask(causal=True), LONG, LONG),
    "causal, whole chunks": (lambda: Mask(causal=True), 2 * CHUNK, 2 * CHUNK),
    "causal, fewer queries": (lambda: Mask(causal=True), L, S),
    "causal, fewer queries, long": (lambda: Mask(causal=True), CHUNK + 3, LONG),
    "causal, one query": (lambda: Mask(causal=True), 1, S),
    "causal, more queries": (lambda: Mask(causal=True), S, L),
    "causal, more queries, long": (lambda: Mask(causal=True), LONG, CHUNK + 3),
    "causal and padding": (lambda: Mask(padding(), causal=True), S, S),
    "causal and padding, long": (lambda: Mask(padding(LONG), causal=True), CHUNK + 3, LONG),
    "nothing real": (lambda: Mask(padding() & torch.tensor([[True], [False]])), L, S),
}
every_mask = pytest.mark.parametrize(("mask", "num_queries", "num_keys"), MASKS.values(), ids=MASKS)
both_paths = pytest.mark.parametrize("need_weights", [True, False], ids=["explicit", "summed"])


@pytest.mark.parametrize("causal", [False, True], ids=["all", "causal"])
@both_paths
def test_is_the_papers_equation(attention, causal, need_weights):
    queries, keys, values = (2 * torch.randn(B, H, S, K) for _ in range(3))
    mixed, _ = attention.mix(queries, KeyValues(keys, values), Mask(causal=causal), None, need_weights)
    for row, head in itertools.product(range(B), range(H)):
        expected = paper_attention(queries[row, head], keys[row, head], values[row, head], causal)
        torch.testing.assert_close(mixed[row, head], expected, rtol=1e-5, atol=1e-5)


def test_projects_like_every_other_attention(attention):
    plain = MultiHeadAttention(D, H)
    plain.load_state_dict(attention.state_dict(), strict=True)
    q, k, v = inputs()
    memory = project(plain, k, v)
    mixed, _ = attention.mix(plain.w_q(q).unflatten(-1, (H, K)).transpose(1, 2), memory, Mask(), None, False)
    torch.testing.assert_close(attention(q, k, v).output, plain.w_o(mixed.transpose(1, 2).reshape(B, L, D)))


@every_mask
def test_sums_equal_the_explicit_equation(attention, mask, num_queries, num_keys):
    mask = mask()
    qkv = [x.requires_grad_() for x in inputs(num_queries, num_keys)]
    wanted = torch.randn(B, num_queries, D)
    outputs, gradients = [], []
    for need_weights in (True, False):
        output, weights = attention(*qkv, mask, need_weights=need_weights)
        assert (weights is not None) == need_weights
        outputs.append(output)
        gradients.append(torch.autograd.grad((output * wanted).sum(), [*qkv, *attention.parameters()]))
    torch.testing.assert_close(*outputs, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-4)
    assert all(gradient.isfinite().all() for gradient in gradients[1])


@every_mask
def test_weights_obey_the_mask_and_mix_the_values(attention, mask, num_queries, num_keys):
    mask = mask()
    q, k, v = inputs(num_queries, num_keys)
    output, weights = attention(q, k, v, mask)
    assert weights.shape == (B, H, num_queries, num_keys)
    matrix = None if mask is None else mask.matrix(num_queries, num_keys)
    matrix = (torch.tensor(True) if matrix is None else matrix).expand_as(weights)
    assert ((weights > 0) == matrix).all()
    torch.testing.assert_close(weights.sum(-1), matrix.any(-1).float())
    mixed = weights @ project(attention, k, v).values
    torch.testing.assert_close(attention.w_o(mixed.transpose(1, 2).flatten(2)), output)


@both_paths
@pytest.mark.parametrize("shape", [(L, S), (B, 1, L, S), (B, H, L, S), (1, H, 1, 1)], ids=str)
def test_a_matrix_closes_edges_on_both_paths(attention, shape, need_weights):
    qkv, matrix = inputs(), torch.rand(shape) < 0.5
    _, weights = attention(*qkv)
    closed = weights * matrix
    closed = closed / closed.sum(-1, keepdim=True).clamp(min=1e-9)
    mixed = closed @ project(attention, *qkv[1:]).values
    expected = attention.w_o(mixed.transpose(1, 2).flatten(2))
    for mask in (matrix, Mask(allowed=matrix[(None,) * (4 - matrix.dim())])):
        output, given = attention(*qkv, mask, need_weights=need_weights)
        torch.testing.assert_close(output, expected)
        if need_weights:
            torch.testing.assert_close(given, closed)
        else:
            assert given is None


@both_paths
def test_no_query_sees_its_future(attention, need_weights):
    x = torch.randn(B, LONG, D, requires_grad=True)
    output = attention(x, x, x, Mask(causal=True), need_weights=need_weights).output
    for token in (1, CHUNK - 1, CHUNK, 2 * CHUNK + 5):
        changed = x.detach().clone()
        changed[:, token:] = 1e3 * torch.randn(B, LONG - token, D)
        other = attention(changed, changed, changed, Mask(causal=True), need_weights=need_weights).output
        assert torch.equal(other[:, :token], output[:, :token])
        assert not torch.allclose(other[:, token], output[:, token])
        (gradient,) = torch.autograd.grad(output[:, token].sum(), x, retain_graph=True)
        assert not gradient[:, token + 1 :].any()
        assert gradient[:, : token + 1].any(dim=-1).all()


@both_paths
@pytest.mark.parametrize("causal", [False, True], ids=["all", "causal"])
def test_padding_changes_nothing(attention, causal, need_weights):
    q, k, v = inputs(S, S)
    hidden = ~padding()[..., None]
    mask = Mask(padding(), causal=causal)
    output = attention(q, k, v, mask, need_weights=need_weights).output
    other = attention(q, k.where(~hidden, 1e3), v.where(~hidden, -1e3), mask, need_weights=need_weights).output
    torch.testing.assert_close(other, output)
    alone = attention(q[:1, :3], k[:1, :3], v[:1, :3], Mask(causal=causal), need_weights=need_weights).output
    torch.testing.assert_close(output[:1, :3], alone)


@both_paths
@pytest.mark.parametrize("causal", [False, True], ids=["all", "causal"])
def test_queries_without_a_key_get_the_output_bias_and_finite_gradients(attention, causal, need_weights):
    qkv = [x.requires_grad_() for x in inputs(S, S)]
    nothing_real = torch.tensor([[True], [False]]).expand(B, S)
    output = attention(*qkv, Mask(nothing_real, causal=causal), need_weights=need_weights).output
    torch.testing.assert_close(output[1], attention.w_o.bias.expand(S, D))
    output.square().sum().backward()
    gradients = [x.grad for x in qkv]
    assert all(gradient.isfinite().all() for gradient in gradients)
    assert all(weight.grad.isfinite().all() for weight in attention.parameters())
    assert all(gradient[0].any() and not gradient[1].any() for gradient in gradients)


@both_paths
def test_small_features_are_normalised_like_any_other(attention, need_weights):
    # Their products, about 1e-6, would drown in what is often added to the normaliser for safety.
    queries, keys = torch.full((B, H, L, K), -8.0), torch.full((B, H, S, K), -8.0)
    values = torch.randn(B, H, S, K)
    mixed, _ = attention.mix(queries, KeyValues(keys, values), Mask(), None, need_weights)
    torch.testing.assert_close(mixed, values.mean(dim=2, keepdim=True).expand_as(mixed), rtol=1e-5, atol=1e-5)


@both_paths
def test_features_that_vanish_give_finite_gradients(attention, need_weights):
    # elu(-1e4) + 1 is 0 in floating point: every product is 0, and so is the normaliser.
    queries = torch.full((B, H, S, K), -1e4, requires_grad=True)
    keys, values = (torch.randn(B, H, S, K, requires_grad=True) for _ in range(2))
    mixed, _ = attention.mix(queries, KeyValues(keys, values), Mask(causal=True), None, need_weights)
    assert not mixed.any()
    mixed.sum().backward()
    assert all(part.grad.isfinite().all() for part in (queries, keys, values))


@settings(deadline=None, max_examples=30)
@given(lengths=st.lists(st.sampled_from([1, 1, 2, 5, CHUNK + 3]), min_size=1, max_size=7), seed=st.integers(0, 2**32))
def test_decoding_in_pieces_equals_causal_attention_over_all(lengths, seed):
    torch.manual_seed(seed)
    attention = LinearAttention(D, H)
    x = torch.randn(B, sum(lengths), D, requires_grad=True)
    expected = attention(x, x, x, Mask(causal=True), need_weights=False).output
    cache, outputs = attention.new_cache(), []
    for count, piece in enumerate(x.split(lengths, dim=1)):
        history, end = cache.append(project(attention, piece, piece)), sum(lengths[: count + 1])
        output, weights = attend(attention, piece, history, Mask(causal=True), end)
        assert (weights is None) == (count > 0)
        outputs.append(output)
    output = torch.cat(outputs, dim=1)
    torch.testing.assert_close(output, expected, rtol=1e-5, atol=1e-5)
    # Unlike keys that are written in place, sums let gradients through.
    wanted = torch.randn_like(output)
    gradients = [torch.autograd.grad((each * wanted).sum(), x)[0] for each in (output, expected)]
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("causal", [False, True], ids=["all", "causal"])
def test_decoding_after_padding_equals_causal_attention_over_all(attention, causal):
    x, real = torch.randn(B, 19, D), padding(19)
    expected = attention(x, x, x, Mask(real, causal=True), need_weights=False).output
    cache, end = attention.new_cache(), 0
    for length in (11, 1, 1, 6):
        begin, end = end, end + length
        piece = x[:, begin:end]
        history = cache.append(project(attention, piece, piece), real[:, begin:end])
        # A single query is the last one, so that causal or not is the same to it.
        if length == 1 or causal:
            mask = Mask(real[:, :end], causal=causal)
            output = attend(attention, piece, history, mask, end, need_weights=False).output
            torch.testing.assert_close(output, expected[:, begin:end], rtol=1e-5, atol=1e-5)


def test_what_is_kept_of_earlier_tokens_does_not_grow(attention):
    cache = attention.new_cache()
    assert isinstance(cache, Cache)
    sizes = set()
    for _ in range(5):
        history = cache.append(project(attention, *inputs(1, 1)[:2]))
        assert history.keys.size(2) == history.values.size(2) == 1
        sizes.add(sum(part.numel() for part in tree_leaves(getattr(history, "past", None)) if part is not None))
    assert sizes == {0, B * H * K * (K + 1) + B}


class Largest(TorchDispatchMode):
    """Records how many numbers the largest tensor has that any operation makes."""

    numel = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        made = [leaf.numel() for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
        self.numel = max([self.numel, *made])
        return result


@pytest.mark.parametrize("mask", [None, Mask(causal=True)], ids=["all", "causal"])
def test_nothing_grows_with_the_square_of_the_length(mask):
    length, heads, width = 997, 2, 17
    attention = LinearAttention(heads * width, heads)
    x = torch.randn(1, length, heads * width, requires_grad=True)
    with Largest() as largest:
        attention(x, x, x, mask, need_weights=False).output.sum().backward()
    # Neither a matrix of all pairs nor sums for every token: at most what a chunk's pairs take.
    assert 0 < largest.numel <= heads * CHUNK * (length + CHUNK) < min(length**2, heads * length * width**2)
    with Largest() as largest:
        attention(x, x, x, mask, need_weights=True)
    assert largest.numel >= length**2


@pytest.mark.parametrize("causal", [False, True], ids=["all", "causal"])
def test_thousands_of_tokens_are_summed_exactly_enough(causal):
    length, width = 5003, 5
    attention = LinearAttention(width, 1)
    # Values far from 0, so that what is lost in a sum would show.
    queries, keys, values = torch.randn(1, 1, length, width), torch.randn(1, 1, length, width), torch.rand(length) + 100
    values = values[None, None, :, None].expand(1, 1, length, width)
    mask = Mask(causal=causal)
    expected, _ = attention.mix(queries.double(), KeyValues(keys.double(), values.double()), mask, None, False)
    mixed, _ = attention.mix(queries, KeyValues(keys, values), mask, None, False)
    torch.testing.assert_close(mixed.double(), expected, rtol=3e-6, atol=0)
    coarse = [part.bfloat16() for part in (queries, keys, values)]
    exact, _ = attention.mix(coarse[0].double(), KeyValues(*(part.double() for part in coarse[1:])), mask, None, False)
    mixed, _ = attention.mix(coarse[0], KeyValues(*coarse[1:]), mask, None, False)
    assert mixed.dtype == torch.bfloat16
    # Summed in bfloat16 itself, a sum would stop growing after 256 tokens; here only the result is rounded.
    torch.testing.assert_close(mixed.double(), exact, rtol=2**-8, atol=0)


@both_paths
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float16, 1e-2), (torch.bfloat16, 5e-2)], ids=str)
def test_half_precision_stays_close_and_finite(attention, dtype, tolerance, need_weights):
    mask = Mask(padding(LONG) & torch.tensor([[True], [False]]), causal=True)
    qkv = [x.to(dtype) for x in inputs(LONG, LONG)]
    expected = attention(*(x.float() for x in qkv), mask).output
    output, weights = attention.to(dtype)(*qkv, mask, need_weights=need_weights)
    assert output.dtype == dtype
    assert weights is None or weights.dtype == dtype
    torch.testing.assert_close(output.float(), expected, rtol=tolerance, atol=tolerance)
    output.float().square().sum().backward()
    assert all(weight.grad.isfinite().all() for weight in attention.parameters())


@both_paths
def test_mixed_precision_does_not_reach_the_sums(attention, need_weights):
    queries, keys, values = (torch.randn(B, H, LONG, K) for _ in range(3))
    memory, mask = KeyValues(keys, values), Mask(causal=True)
    expected, _ = attention.mix(queries, memory, mask, None, need_weights)
    with torch.autocast("cpu", torch.bfloat16):
        mixed, _ = attention.mix(queries, memory, mask, None, need_weights)
    assert torch.equal(mixed, expected)


@both_paths
def test_dropout_is_ignored(need_weights):
    attention, qkv = LinearAttention(D, H, dropout=0.9), inputs()
    expected = attention.eval()(*qkv, need_weights=need_weights).output
    assert torch.equal(attention.train()(*qkv, need_weights=need_weights).output, expected)


def test_refuses_a_matrix_over_tokens_that_are_gone(attention):
    mask = Mask(allowed=torch.ones(1, 2) > 0)
    cache, x = attention.new_cache(), torch.randn(B, 1, D)
    cache.append(project(attention, x, x))
    history = cache.append(project(attention, x, x))
    with pytest.raises(ValueError, match=r"^mask=\(1, 2\) is a matrix, and the tokens before these are kept only as"):
        attend(attention, x, history, mask, 2)


def test_refuses_to_hide_what_is_already_in_the_sums(attention):
    cache, x, real = attention.new_cache(), torch.randn(B, 3, D), torch.ones(B, 6, dtype=torch.bool)
    cache.append(project(attention, x, x))
    history = cache.append(project(attention, x, x))
    attend(attention, x, history, Mask(real, causal=True), 6)
    real[1, 0] = False
    with pytest.raises(ValueError, match=r"^mask\.keys=\(2, 6\) hides tokens that are already in the sums; tell"):
        attend(attention, x, history, Mask(real, causal=True), 6)


def test_refuses_what_every_attention_refuses():
    with pytest.raises(ValueError, match=r"^num_heads=5 does not divide d_model=33; use one of \[1, 3, 11, 33\]"):
        LinearAttention(33, 5)
    with pytest.raises(ValueError, match=r"^dropout=1.5 is not a probability"):
        LinearAttention(D, H, 1.5)


def test_says_what_it_cannot_do():
    assert set(LinearAttention.unsupported) == {"bias", "turn", "cached_weights"}
