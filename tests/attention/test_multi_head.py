"""Multi-head attention: the articles' modules, PyTorch's module, the fused kernel, masks and settings."""

import math

import jaxtyping
import pytest
import torch
from torch import Tensor, nn

from attention_lab.attention.mask import Mask
from attention_lab.attention.multi_head import MultiHeadAttention
from attention_lab.attention.packing import AttentionMetadata, Packing
from tests.articles import ArticleMultiHeadAttention, FirstArticleMultiHeadAttention

B, H, L, S, K = 2, 3, 5, 7, 11
D = H * K


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
def attention() -> MultiHeadAttention:
    return MultiHeadAttention(D, H, dropout=0.0)


@pytest.fixture
def annotations_unchecked(monkeypatch):
    """Users run without jaxtyping's checks, which would refuse such a call before the module sees it."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


def inputs(num_queries: int = L, num_keys: int = S) -> tuple[Tensor, Tensor, Tensor]:
    return torch.randn(B, num_queries, D), torch.randn(B, num_keys, D), torch.randn(B, num_keys, D)


def padding(num_keys: int = S) -> Tensor:
    """Row 0 is padded on the right, row 1 on the left."""
    real = torch.ones(B, num_keys, dtype=torch.bool)
    real[0, 3:] = False
    real[1, :2] = False
    return real


def any_matrix(num_queries: int = L, num_keys: int = S) -> Tensor:
    return (torch.rand(B, 1, num_queries, num_keys) < 0.6) | torch.eye(num_queries, num_keys, dtype=torch.bool)


MASKS = {
    "none": (lambda: None, L, S),
    "everything": (Mask, L, S),
    "padding": (lambda: Mask(padding()), L, S),
    "causal": (lambda: Mask(causal=True), S, S),
    "causal, fewer queries": (lambda: Mask(causal=True), L, S),
    "causal, one query": (lambda: Mask(causal=True), 1, S),
    "causal, more queries": (lambda: Mask(causal=True), S, L),
    "causal and padding": (lambda: Mask(padding(), causal=True), S, S),
    "causal and padding, fewer queries": (lambda: Mask(padding(), causal=True), L, S),
    "plain matrix": (any_matrix, L, S),
    "a matrix a head": (lambda: torch.rand(B, H, L, S) < 0.6, L, S),
    "nothing real": (lambda: Mask(padding() & torch.tensor([[True], [False]])), L, S),
}
every_mask = pytest.mark.parametrize(("mask", "num_queries", "num_keys"), MASKS.values(), ids=MASKS)
both_paths = pytest.mark.parametrize("need_weights", [True, False], ids=["explicit", "fused"])


def test_known_answer():
    # Two heads, each one coordinate wide (√d_k = 1), every projection the identity.
    attention = MultiHeadAttention(2, 2, dropout=0.0)
    for projection in (attention.w_q, attention.w_k, attention.w_v, attention.w_o):
        nn.init.eye_(projection.weight)
        nn.init.zeros_(projection.bias)
    q = torch.tensor([[[1.0, 0.0]]])
    k = torch.tensor([[[math.log(3), 5.0], [0.0, -5.0]]])
    v = torch.tensor([[[4.0, 2.0], [8.0, 6.0]]])
    output, weights = attention(q, k, v)
    # Head 0 scores ln 3 and 0: weights 3/4, 1/4. Head 1 scores 0·5 and 0·(-5): weights 1/2, 1/2.
    torch.testing.assert_close(weights, torch.tensor([[[[0.75, 0.25]], [[0.5, 0.5]]]]))
    # Head 0: 3/4·4 + 1/4·8 = 5. Head 1: 1/2·2 + 1/2·6 = 4.
    torch.testing.assert_close(output, torch.tensor([[[5.0, 4.0]]]))


@pytest.mark.parametrize("masked", [False, True], ids=["unmasked", "masked"])
def test_equals_the_second_article_on_shared_weights(masked):
    article, ours = ArticleMultiHeadAttention(D, H).eval(), MultiHeadAttention(D, H).eval()
    mask = any_matrix() if masked else None
    q, k, v = inputs()
    ours.load_state_dict(article.state_dict(), strict=True)
    torch.testing.assert_close(tuple(ours(q, k, v, mask)), article(q, k, v, mask))
    fresh = MultiHeadAttention(D, H).eval()
    article.load_state_dict(fresh.state_dict(), strict=True)
    torch.testing.assert_close(tuple(fresh(q, k, v, mask)), article(q, k, v, mask))


@pytest.mark.parametrize("masked", [False, True], ids=["unmasked", "masked"])
def test_equals_the_first_article_on_shared_weights(masked):
    article, ours = FirstArticleMultiHeadAttention(D, H), MultiHeadAttention(D, H, dropout=0.0)
    mask = any_matrix() if masked else None
    q, k, v = inputs()
    # Only the case of the names differs.
    ours.load_state_dict({name.lower(): weight for name, weight in article.state_dict().items()}, strict=True)
    torch.testing.assert_close(tuple(ours(q, k, v, mask)), article(q, k, v, mask))


def test_has_the_articles_defaults():
    ours, article = MultiHeadAttention(), ArticleMultiHeadAttention()
    ours.load_state_dict(article.state_dict(), strict=True)
    assert (ours.d_model, ours.num_heads, ours.d_k) == (article.d_model, article.num_heads, article.d_k)
    assert ours.dropout.p == article.dropout.p


@pytest.mark.parametrize("padded", [False, True], ids=["all real", "padded"])
@pytest.mark.parametrize("restricted", [False, True], ids=["no matrix", "matrix"])
def test_equals_pytorch_on_shared_weights(attention, padded, restricted):
    torchs = nn.MultiheadAttention(D, H, dropout=0.0, batch_first=True)
    projections = (attention.w_q, attention.w_k, attention.w_v)
    state = {
        "in_proj_weight": torch.cat([p.weight for p in projections]),
        "in_proj_bias": torch.cat([p.bias for p in projections]),
        "out_proj.weight": attention.w_o.weight,
        "out_proj.bias": attention.w_o.bias,
    }
    torchs.load_state_dict(state, strict=True)
    q, k, v = inputs()
    # Key 4 is real in both rows, so that no query is left without a key: PyTorch's module would give NaN.
    real = padding().index_fill(1, torch.tensor(4), True)
    matrix = (torch.rand(L, S) < 0.5).index_fill(1, torch.tensor(4), True)
    mask = Mask(real).matrix(L, S) if padded else torch.ones(1, dtype=torch.bool)
    mask = mask & matrix if restricted else mask
    # PyTorch's module means the opposite by True: "may not attend".
    expected = torchs(
        q,
        k,
        v,
        key_padding_mask=~real if padded else None,
        attn_mask=~matrix if restricted else None,
        average_attn_weights=False,
    )
    torch.testing.assert_close(tuple(attention(q, k, v, mask)), expected, rtol=1e-5, atol=1e-5)


@every_mask
def test_the_fused_kernel_equals_the_explicit_equation(attention, mask, num_queries, num_keys):
    mask = mask()
    qkv = [x.requires_grad_() for x in inputs(num_queries, num_keys)]
    outputs, gradients = [], []
    wanted = torch.randn(B, num_queries, D)
    for need_weights in (True, False):
        output = attention(*qkv, mask, need_weights=need_weights).output
        outputs.append(output)
        loss = (output - wanted).square().sum()
        gradients.append(torch.autograd.grad(loss, [*qkv, *attention.parameters()]))
    torch.testing.assert_close(*outputs, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-4)


@every_mask
def test_every_head_has_a_map_of_its_own_that_obeys_the_mask(attention, mask, num_queries, num_keys):
    mask = mask()
    _, weights = attention(*inputs(num_queries, num_keys), mask)
    assert weights.shape == (B, H, num_queries, num_keys)
    matrix = mask.matrix(num_queries, num_keys) if isinstance(mask, Mask) else mask
    matrix = (torch.tensor(True) if matrix is None else matrix).expand_as(weights)
    assert (weights[~matrix] == 0).all()
    torch.testing.assert_close(weights.sum(-1), matrix.any(-1).float())
    if num_queries > 1:
        assert not torch.allclose(weights[:, 0], weights[:, 1])


def test_weights_are_none_when_not_asked_for(attention):
    assert attention(*inputs(), need_weights=False).weights is None


@both_paths
def test_a_masked_key_has_no_influence(attention, need_weights):
    q, k, v = inputs()
    mask = Mask(padding())
    hidden = ~padding()[..., None]
    output = attention(q, k, v, mask, need_weights=need_weights).output
    other = attention(q, k.where(~hidden, 1e3), v.where(~hidden, -1e3), mask, need_weights=need_weights).output
    torch.testing.assert_close(other, output)


@both_paths
def test_queries_without_a_key_get_the_output_bias_and_finite_gradients(attention, need_weights):
    qkv = [x.requires_grad_() for x in inputs()]
    nothing_real = torch.tensor([[True], [False]]).expand(B, S)
    output = attention(*qkv, Mask(nothing_real), need_weights=need_weights).output
    torch.testing.assert_close(output[1], attention.w_o.bias.expand(L, D))
    output.square().sum().backward()
    q, k, v = (x.grad for x in qkv)
    assert all(gradient.isfinite().all() for gradient in (q, k, v))
    assert all(weight.grad.isfinite().all() for weight in attention.parameters())
    assert all(gradient[0].any() and not gradient[1].any() for gradient in (q, k, v))


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float16, 1e-2), (torch.bfloat16, 5e-2)], ids=str)
@both_paths
def test_half_precision_stays_close_and_finite(attention, dtype, tolerance, need_weights):
    mask = Mask(padding() & torch.tensor([[True], [False]]), causal=True)
    qkv = [x.to(dtype) for x in inputs(S, S)]
    expected = attention(*(x.float() for x in qkv), mask).output
    output = attention.to(dtype)(*qkv, mask, need_weights=need_weights).output
    assert output.dtype == dtype
    torch.testing.assert_close(output.float(), expected, rtol=tolerance, atol=tolerance)
    output.float().square().sum().backward()
    assert all(weight.grad.isfinite().all() for weight in attention.parameters())


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("shape", [(0, 3), (2, 0)], ids=["no sequences", "no tokens"])
def test_nothing_in_gives_nothing_out(need_weights, shape):
    nothing = torch.zeros(*shape, D)
    out = MultiHeadAttention(D, H, 0.0)(nothing, nothing, nothing, need_weights=need_weights).output
    assert out.shape == (*shape, D)


def test_weights_sum_to_one_in_training_although_some_are_dropped():
    attention = MultiHeadAttention(D, H, dropout=0.5)
    weights = attention(*inputs()).weights
    torch.testing.assert_close(weights.sum(-1), torch.ones(B, H, L))


@both_paths
@pytest.mark.parametrize("mask", [None, Mask(causal=True), Mask(padding())], ids=["none", "causal", "padding"])
def test_dropout_acts_in_training_only(need_weights, mask):
    attention = MultiHeadAttention(D, H, dropout=0.5)
    qkv = inputs(S, S)

    def run() -> Tensor:
        return attention(*qkv, mask, need_weights=need_weights).output

    assert not torch.allclose(run(), run())
    attention.eval()
    assert torch.equal(run(), run())


def test_projecting_first_gives_the_same(attention):
    q, k, v = inputs()
    mask = Mask(padding())
    torch.testing.assert_close(attend(attention, q, project(attention, k, v), mask), attention(q, k, v, mask))


@both_paths
@pytest.mark.parametrize("dtype", [torch.float, torch.long], ids=str)
@pytest.mark.usefixtures("annotations_unchecked")
def test_refuses_masks_that_are_not_boolean(attention, need_weights, dtype):
    with pytest.raises(ValueError, match=f"mask has dtype {dtype}"):
        attention(*inputs(), torch.ones(L, S, dtype=dtype), need_weights=need_weights)


@pytest.mark.parametrize("num_heads", [2, 5, 34, 0, -3])
def test_refuses_heads_that_do_not_divide_the_width(num_heads):
    with pytest.raises(ValueError, match=rf"num_heads={num_heads} .*d_model=33; use one of \[1, 3, 11, 33\]"):
        MultiHeadAttention(33, num_heads)


@pytest.mark.parametrize("dropout", [-0.1, 1.0, 1.5, math.nan])
def test_refuses_a_dropout_that_is_no_probability(dropout):
    with pytest.raises(ValueError, match=f"dropout={dropout} is not a probability"):
        MultiHeadAttention(D, H, dropout)


MASKS = {
    "none": None,
    "padding": Mask(keys=torch.tensor([[True] * 7, [False] * 2 + [True] * 4 + [False]])),
    "causal": Mask(causal=True),
    "matrix": torch.rand(B, 1, L, S, generator=torch.Generator().manual_seed(0)) < 0.6,
}


@pytest.mark.parametrize("kind", MASKS)
def test_scalable_softmax_multiplies_scores_by_a_learned_factor_times_log_n(kind):
    torch.manual_seed(0)
    mask = MASKS[kind]
    plain = MultiHeadAttention(D, H, 0.0)
    scalable = MultiHeadAttention(D, H, 0.0, scalable_softmax=True)
    scalable.load_state_dict({**plain.state_dict(), "sharpness": torch.tensor([0.3, 0.7, 1.1])})
    q, k = torch.randn(B, L, D), torch.randn(B, S, D)
    matrix = mask.matrix(L, S) if isinstance(mask, Mask) else mask
    open_edges = torch.ones(B, 1, L, S, dtype=torch.bool) if matrix is None else matrix.expand(B, 1, L, S)
    out, weights = scalable(q, k, k, mask)
    queries, keys = (part.unflatten(-1, (H, K)).transpose(1, 2) for part in (plain.w_q(q), plain.w_k(k)))
    for row in range(B):
        for head, sharpness in enumerate((0.3, 0.7, 1.1)):
            for query in range(L):
                seen = open_edges[row, 0, query]
                scores = queries[row, head, query] @ keys[row, head].T / math.sqrt(K)
                scale = sharpness * math.log(max(2, int(seen.sum())))
                expected = (scores * scale).masked_fill(~seen, -math.inf).softmax(dim=-1).nan_to_num(0.0)
                torch.testing.assert_close(weights[row, head, query], expected, rtol=1e-4, atol=1e-5)
    fused, nothing = scalable(q, k, k, mask, need_weights=False)
    assert nothing is None
    torch.testing.assert_close(fused, out, rtol=1e-4, atol=1e-5)


def test_normalised_queries_and_keys_all_have_the_same_size():
    torch.manual_seed(0)
    attention = MultiHeadAttention(D, H, 0.0, qk_norm=True)
    # The size of what comes in then makes no difference to where a head looks.
    x, sizes = torch.randn(B, S, D), torch.rand(B, S, 1) * 9 + 1
    for part in (attention.w_q, attention.w_k):
        nn.init.zeros_(part.bias)
    weights = attention(x, x, x).weights
    torch.testing.assert_close(attention(x * sizes, x * sizes, x).weights, weights, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(MultiHeadAttention(D, H, 0.0)(x * 9, x * 9, x).weights, weights, atol=1e-3)


@pytest.mark.parametrize("setting", ["scalable_softmax", "qk_norm"])
def test_scores_that_are_scaled_decode_with_a_cache_as_they_are_read(setting):
    torch.manual_seed(0)
    attention = MultiHeadAttention(D, H, 0.0, **{setting: True})
    x = torch.randn(B, S, D)
    expected = attention(x, x, x, Mask(causal=True)).output
    cache = attention.new_cache()
    for end in range(1, S + 1):
        new = x[:, end - 1 : end]
        history = cache.append(project(attention, new, new))
        output = attend(attention, new, history, Mask(causal=True)).output
        torch.testing.assert_close(output[:, 0], expected[:, end - 1], rtol=1e-4, atol=1e-5)
