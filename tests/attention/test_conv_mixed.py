"""Mixed attention: a known answer, ConvBERT's module, padding, masks, positions, maps and settings."""

import math
from functools import partial

import pytest
import torch
from torch import Tensor, nn
from transformers.models.convbert.configuration_convbert import ConvBertConfig
from transformers.models.convbert.modeling_convbert import ConvBertSelfAttention

from attention_lab.attention.conv_mixed import ConvMixedAttention, banded
from attention_lab.attention.key_values import KeyValues
from attention_lab.attention.mask import Mask, as_mask
from attention_lab.attention.multi_head import MultiHeadAttention
from attention_lab.attention.packing import AttentionMetadata, Packing
from attention_lab.attention.scaled_dot_product import scaled_dot_product_attention
from attention_lab.models.blocks import TransformerBlock
from attention_lab.positions.alibi import ALiBi
from attention_lab.positions.position import Position, QueryKeyPositions
from attention_lab.positions.rotary import RotaryPosition

B, N, L, K, T = 2, 3, 13, 10, 5
H = 2 * N
D = H * K
REACH = T // 2


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
def attention() -> ConvMixedAttention:
    return ConvMixedAttention(D, H, dropout=0.0, kernel_size=T)


@pytest.fixture
def x() -> Tensor:
    return torch.randn(B, L, D)


def padding() -> Tensor:
    """Row 0 is padded on the right, row 1 on the left."""
    real = torch.ones(B, L, dtype=torch.bool)
    real[0, 7:] = False
    real[1, :4] = False
    return real


def one_edge_closed() -> Tensor:
    allowed = torch.ones(B, H, L, L, dtype=torch.bool)
    # One edge inside a window of an attention head, one of a convolution.
    allowed[0, 1, 5, 6] = allowed[1, N + 1, 8, 7] = False
    return allowed


MASKS = {
    "none": lambda: None,
    "everything": Mask,
    "padding": lambda: Mask(padding()),
    "padding as a matrix": lambda: padding()[:, None, None],
    "a plain matrix": lambda: torch.rand(B, 1, L, L) < 0.6,
    "a matrix for all": lambda: torch.rand(L, L) < 0.6,
    "a matrix a head": lambda: torch.rand(B, H, L, L) < 0.6,
    "edges closed": lambda: Mask(allowed=one_edge_closed()),
    "padding, edges closed": lambda: Mask(padding(), allowed=one_edge_closed()),
    "heads closed": lambda: Mask(padding(), allowed=torch.tensor([1, 0, 1, 1, 1, 0]).bool()[:, None, None]),
    "nothing real": lambda: Mask(padding() & torch.tensor([[True], [False]])),
    "a query without a key": lambda: torch.ones(B, 1, L, L, dtype=torch.bool).index_fill(2, torch.tensor(5), False),
}
every_mask = pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
both_paths = pytest.mark.parametrize("need_weights", [True, False], ids=["explicit", "fused"])


def convbert() -> ConvBertSelfAttention:
    config = ConvBertConfig(
        hidden_size=D, num_attention_heads=H, head_ratio=2, conv_kernel_size=T, attention_probs_dropout_prob=0.0
    )
    theirs = ConvBertSelfAttention(config)
    for parameter in theirs.parameters():
        # Their draws are so narrow that every kernel would be nearly uniform.
        nn.init.normal_(parameter, std=0.3)
    return theirs


def with_weights_of(theirs: ConvBertSelfAttention) -> ConvMixedAttention:
    """Ours says what the heads say: theirs has no projection after them."""
    ours = ConvMixedAttention(D, H, dropout=0.0, kernel_size=T)
    state = {
        f"{own}.{part}": getattr(theirs.get_submodule(its), part)
        for own, its in (
            ("w_q", "query"),
            ("w_k", "key"),
            ("w_v", "value"),
            ("kernel", "conv_kernel_layer"),
            ("conv_value", "conv_out_layer"),
        )
        for part in ("weight", "bias")
    }
    separable = theirs.key_conv_attn_layer
    state["depthwise.weight"] = separable.depthwise.weight
    state["pointwise.weight"] = separable.pointwise.weight.squeeze(-1)
    state["pointwise.bias"] = separable.bias.squeeze(-1)
    state["w_o.weight"], state["w_o.bias"] = torch.eye(D), torch.zeros(D)
    ours.load_state_dict(state, strict=True)
    return ours


def test_known_answer():
    # One head attends to everything alike, the other convolves with the kernel 1/4, 1/2, 1/4.
    attention = ConvMixedAttention(2, 2, dropout=0.0, kernel_size=3)
    for parameter in attention.parameters():
        nn.init.zeros_(parameter)
    with torch.no_grad():
        attention.kernel.bias.copy_(torch.tensor([1.0, 2.0, 1.0]).log())
        attention.w_v.weight.copy_(torch.tensor([[1.0, 0.0]]))
        attention.conv_value.weight.copy_(torch.tensor([[0.0, 1.0]]))
        attention.w_o.weight.copy_(torch.eye(2))
    x = torch.tensor([[[3.0, 4.0], [5.0, 8.0], [10.0, 12.0]]])
    output, weights = attention(x, x, x)
    # Attention: (3 + 5 + 10) / 3 = 6. Convolution: 4/2 + 8/4 = 4, 4/4 + 8/2 + 12/4 = 8, 8/4 + 12/2 = 8.
    torch.testing.assert_close(output, torch.tensor([[[6.0, 4.0], [6.0, 8.0], [6.0, 8.0]]]))
    bands = torch.tensor([[0.5, 0.25, 0.0], [0.25, 0.5, 0.25], [0.0, 0.25, 0.5]])
    torch.testing.assert_close(weights, torch.stack([torch.full((3, 3), 1 / 3), bands])[None])


@both_paths
@pytest.mark.parametrize("length", [1, 2, L], ids="{} tokens".format)
def test_equals_convbert_on_shared_weights(x, need_weights, length):
    theirs, x = convbert(), x[:, :length]
    expected, maps = theirs(x)
    output, weights = with_weights_of(theirs)(x, x, x, need_weights=need_weights)
    torch.testing.assert_close(output, expected, rtol=1e-5, atol=1e-5)
    if need_weights:
        torch.testing.assert_close(weights[:, :N], maps, rtol=1e-5, atol=1e-5)


@both_paths
@pytest.mark.parametrize("matrix", [False, True], ids=["keys", "matrix"])
def test_with_padding_equals_convbert_without_it(x, need_weights, matrix):
    theirs, real = convbert(), padding()
    mask = real[:, None, None] if matrix else Mask(real)
    x = x.masked_fill(~real[..., None], 1e3)
    output, _ = with_weights_of(theirs)(x, x, x, mask, need_weights=need_weights)
    for row in range(B):
        expected, _ = theirs(x[row, real[row]][None])
        torch.testing.assert_close(output[row, real[row]], expected[0], rtol=1e-5, atol=1e-5)


def test_with_padding_equals_convbert_with_it_where_no_kernel_reaches_the_padding(x):
    theirs, real = convbert(), padding()
    scores = torch.zeros(B, 1, 1, L).masked_fill(~real[:, None, None], -math.inf)
    expected, _ = theirs(x, scores)
    output, _ = with_weights_of(theirs)(x, x, x, Mask(real))
    # Theirs convolves over what stands in the padding; ours takes it for the end of the sequence.
    untouched = nn.functional.max_pool1d((~real).float(), T, 1, REACH) == 0
    assert untouched.sum(1).tolist() == [7 - REACH, L - 4 - REACH]
    torch.testing.assert_close(output[untouched], expected[untouched], rtol=1e-5, atol=1e-5)
    touched = real & ~untouched
    difference = (output - expected)[touched].abs()
    assert (difference[:, : D // 2] < 1e-5).all()
    assert (difference[:, D // 2 :].amax(dim=-1) > 1e-2).all()


@every_mask
def test_the_fused_path_equals_the_explicit_one(attention, x, mask):
    mask, wanted = mask(), torch.randn(B, L, D)
    x.requires_grad_()
    outputs, gradients = [], []
    for need_weights in (True, False):
        outputs.append(attention(x, x, x, mask, need_weights=need_weights).output)
        loss = (outputs[-1] - wanted).square().sum()
        gradients.append(torch.autograd.grad(loss, [x, *attention.parameters()]))
    torch.testing.assert_close(*outputs, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-4)
    assert all(gradient.isfinite().all() for gradient in gradients[0])


@every_mask
def test_every_map_times_its_values_is_what_its_head_says(attention, x, mask):
    mask = mask()
    output, weights = attention(x, x, x, mask)
    assert weights.shape == (B, H, L, L)
    memory = project(attention, x, x)
    heads = weights @ torch.cat([memory.values, memory.conv_values], dim=1)
    torch.testing.assert_close(attention.w_o(heads.transpose(1, 2).flatten(2)), output, rtol=1e-5, atol=1e-5)


@every_mask
def test_every_map_obeys_the_mask(attention, x, mask):
    mask = mask()
    weights = attention(x, x, x, mask).weights
    matrix = as_mask(mask, L).matrix(L, L)
    matrix = torch.ones_like(weights).bool() if matrix is None else matrix.expand_as(weights)
    assert (weights[~matrix] == 0).all()
    torch.testing.assert_close(weights[:, :N].sum(-1), matrix[:, :N].any(-1).float())
    window = (torch.arange(L)[:, None] - torch.arange(L)).abs() <= REACH
    assert ((weights[:, N:] > 0) == (matrix[:, N:] & window)).all()
    inside = (matrix & window).sum(-1)[:, N:] == T
    sums = weights[:, N:].sum(-1)
    torch.testing.assert_close(sums[inside], torch.ones(int(inside.sum())))
    assert (sums[~inside] < 1 - 1e-3).all()


def test_a_closed_edge_changes_only_its_query_in_its_head(attention, x):
    whole, left = (attention(x, x, x, mask).weights for mask in (None, Mask(allowed=one_edge_closed())))
    changed = (whole != left).any(dim=-1).nonzero().tolist()
    assert changed == [[0, 1, 5], [1, N + 1, 8]]
    # Attention spreads the weight over the other keys; a convolution loses it, as at an end of the sequence.
    torch.testing.assert_close(left[0, 1, 5].sum(), torch.tensor(1.0))
    assert left[0, 1, 5, 5] > whole[0, 1, 5, 5]
    closed = torch.arange(L) == 7
    torch.testing.assert_close(left[1, N + 1, 8], whole[1, N + 1, 8].masked_fill(closed, 0.0), rtol=0, atol=0)


@both_paths
def test_queries_without_a_key_get_the_output_bias_and_finite_gradients(attention, x, need_weights):
    x.requires_grad_()
    nothing_real = torch.tensor([[True], [False]]).expand(B, L)
    output = attention(x, x, x, Mask(nothing_real), need_weights=need_weights).output
    torch.testing.assert_close(output[1], attention.w_o.bias.expand(L, D))
    output.square().sum().backward()
    assert x.grad.isfinite().all()
    assert x.grad[0].any(dim=-1).all()
    assert not x.grad[1].any()
    assert all(weight.grad.isfinite().all() and weight.grad.any() for weight in attention.parameters())


@both_paths
def test_a_token_beyond_the_kernel_has_no_influence_on_a_convolution(attention, x, need_weights):
    nn.init.eye_(attention.w_o.weight)
    x.requires_grad_()
    convolved = attention(x, x, x, need_weights=need_weights).output[:, 6, D // 2 :]
    (gradient,) = torch.autograd.grad(convolved.sum(), x)
    reached = gradient.any(dim=-1)
    assert reached.tolist() == [[abs(token - 6) <= REACH for token in range(L)]] * B


@both_paths
@pytest.mark.parametrize("code", [RotaryPosition, ALiBi])
def test_positions_act_on_the_attention_heads_only(attention, x, code, need_weights):
    nn.init.eye_(attention.w_o.weight)
    here = torch.arange(L)[None] * 2 + 3
    position: Position = code(D, num_heads=H)
    placed = QueryKeyPositions(position, here, here)
    output, weights = attention(x, x, x, Mask(padding()), need_weights=need_weights, positions=placed)
    plain = attention(x, x, x, Mask(padding()))
    queries, keys, values = (
        projection(x).unflatten(-1, (N, K)).transpose(1, 2)
        for projection in (attention.w_q, attention.w_k, attention.w_v)
    )
    bias = placed.bias
    expected, maps = scaled_dot_product_attention(
        position.turn(queries, here),
        position.turn(keys, here),
        values,
        padding()[:, None, None],
        bias=None if bias is None else bias[:, :N],
    )
    half = D // 2
    attended = expected.transpose(1, 2).flatten(2) + attention.w_o.bias[:half]
    torch.testing.assert_close(output[..., :half], attended, rtol=1e-5, atol=1e-5)
    assert not torch.allclose(output[..., :half], plain.output[..., :half], atol=1e-3)
    torch.testing.assert_close(output[..., half:], plain.output[..., half:], rtol=1e-5, atol=1e-5)
    if need_weights:
        torch.testing.assert_close(weights, torch.cat([maps, plain.weights[:, N:]], dim=1), rtol=1e-5, atol=1e-5)


@both_paths
def test_an_encoder_layer_runs_with_it_and_padding_changes_nothing(x, need_weights):
    block = TransformerBlock(D, H, 17, 0.0, attention=partial(ConvMixedAttention, kernel_size=T))
    real = padding()
    here = real.cumsum(1) - 1
    position = RotaryPosition(D, num_heads=H)
    output, weights = block(x, Mask(real), need_weights=need_weights, positions=QueryKeyPositions(position, here, here))
    assert (weights is not None) == need_weights
    for row in range(B):
        alone, its = x[row, real[row]][None], here[row, real[row]][None]
        expected = block(alone, need_weights=need_weights, positions=QueryKeyPositions(position, its, its)).output
        torch.testing.assert_close(output[row, real[row]][None], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("head", range(H))
def test_every_head_has_columns_of_its_own_in_w_o(attention, x, head):
    output, weights = attention(x, x, x)
    memory = project(attention, x, x)
    said = (weights @ torch.cat([memory.values, memory.conv_values], dim=1))[:, head]
    columns = slice(head * attention.d_k, (head + 1) * attention.d_k)
    contributed = said @ attention.w_o.weight[:, columns].T
    with torch.no_grad():
        attention.w_o.weight[:, columns] = 0
    torch.testing.assert_close(attention(x, x, x).output, output - contributed, rtol=1e-5, atol=1e-5)
    assert contributed.abs().sum() > 1


@both_paths
def test_dropout_drops_weights_of_the_attention_heads_in_training_only(x, need_weights):
    attention = ConvMixedAttention(D, H, dropout=0.5, kernel_size=T)
    nn.init.eye_(attention.w_o.weight)

    def run() -> tuple[Tensor, Tensor]:
        return attention(x, x, x, need_weights=need_weights).output.chunk(2, dim=-1)

    (attended, convolved), (again, convolved_again) = run(), run()
    assert not torch.allclose(attended, again)
    assert torch.equal(convolved, convolved_again)
    attention.eval()
    assert torch.equal(torch.cat(run()), torch.cat(run()))


@both_paths
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float16, 1e-2), (torch.bfloat16, 5e-2)], ids=str)
def test_half_precision_stays_close_and_finite(attention, x, dtype, tolerance, need_weights):
    expected = attention(x, x, x, Mask(padding())).output
    x = x.to(dtype)
    output = attention.to(dtype)(x, x, x, Mask(padding()), need_weights=need_weights).output
    assert output.dtype == dtype
    torch.testing.assert_close(output.float(), expected, rtol=tolerance, atol=tolerance)


def test_a_band_holds_the_kernels_around_the_diagonal():
    kernels = torch.arange(1.0, 16.0).view(1, 1, 5, 3)
    expected = torch.tensor(
        [[2, 3, 0, 0, 0], [4, 5, 6, 0, 0], [0, 7, 8, 9, 0], [0, 0, 10, 11, 12], [0, 0, 0, 13, 14]]
    ).float()
    assert torch.equal(banded(kernels)[0, 0], expected)


@both_paths
def test_refuses_a_causal_mask(attention, x, need_weights):
    with pytest.raises(ValueError, match="cannot be causal: a convolution reads the tokens after its own"):
        attention(x, x, x, Mask(causal=True), need_weights=need_weights)


def test_refuses_keys_of_another_sequence(attention, x):
    with pytest.raises(ValueError, match=r"^11 queries met 13 keys: .* queries and keys must be the same tokens$"):
        attention(x[:, 2:], x, x)


def test_refuses_keys_without_what_the_convolutions_need(attention, x):
    memory = project(attention, x, x)
    with pytest.raises(ValueError, match="queries and keys must be the same tokens"):
        attend(attention, x, KeyValues(memory.keys, memory.values), Mask())


def test_says_what_it_cannot_be():
    assert set(ConvMixedAttention.unsupported) == {"causal", "cross", "frames"}


@pytest.mark.parametrize("num_heads", [1, 3, 5, 15])
def test_refuses_an_odd_number_of_heads(num_heads):
    with pytest.raises(ValueError, match=rf"^num_heads={num_heads} must be even"):
        ConvMixedAttention(30, num_heads)


@pytest.mark.parametrize("kernel_size", [0, -1, 2, 8])
def test_refuses_a_kernel_without_a_middle(kernel_size):
    with pytest.raises(ValueError, match=rf"^kernel_size={kernel_size} must be odd and at least 1$"):
        ConvMixedAttention(D, H, kernel_size=kernel_size)


def test_has_the_arguments_of_multi_head_attention_and_half_of_its_projections():
    ours, full = ConvMixedAttention(), MultiHeadAttention()
    assert (ours.d_model, ours.num_heads, ours.d_k, ours.dropout.p) == (
        full.d_model,
        full.num_heads,
        full.d_k,
        full.dropout.p,
    )
    assert ours.w_q.weight.shape == ours.w_k.weight.shape == ours.w_v.weight.shape == (256, 512)
    assert ours.w_o.weight.shape == (512, 512)
    assert ours.depthwise.weight.shape == (512, 1, 9)
