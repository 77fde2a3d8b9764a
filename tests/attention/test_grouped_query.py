"""Grouped-query attention: Llama's module, multi-head attention, the fused kernel, caches and settings."""

from functools import partial

import pytest
import torch
from torch import Tensor, nn
from transformers.models.llama.configuration_llama import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaAttention, LlamaRotaryEmbedding
from transformers.models.qwen3.configuration_qwen3 import Qwen3Config
from transformers.models.qwen3.modeling_qwen3 import Qwen3Attention, Qwen3RotaryEmbedding

from attention_lab.attention.grouped_query import GroupedQueryAttention
from attention_lab.attention.mask import Mask
from attention_lab.attention.multi_head import MultiHeadAttention
from attention_lab.attention.packing import AttentionMetadata, Packing
from attention_lab.models.encoder_decoder import EncoderDecoder
from attention_lab.positions.position import QueryKeyPositions
from attention_lab.positions.rotary import RotaryPosition

# Three heads of keys and values serve two heads of queries each: six of them tell neighbours from every third.
B, H, G, L, S, K = 2, 6, 3, 5, 7, 10
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
def attention() -> GroupedQueryAttention:
    return GroupedQueryAttention(D, H, dropout=0.0, num_kv_heads=G)


def inputs(num_queries: int = L, num_keys: int = S) -> tuple[Tensor, Tensor, Tensor]:
    return torch.randn(B, num_queries, D), torch.randn(B, num_keys, D), torch.randn(B, num_keys, D)


def padding() -> Tensor:
    real = torch.ones(B, S, dtype=torch.bool)
    real[0, 3:] = False
    real[1, :2] = False
    return real


def rotary(queries: Tensor, keys: Tensor) -> QueryKeyPositions:
    return QueryKeyPositions(RotaryPosition(D, num_heads=H), queries, keys)


@pytest.mark.parametrize("num_kv_heads", [1, 2, 3, 6])
@pytest.mark.parametrize("need_weights", [True, False], ids=["explicit", "fused"])
def test_equals_llama_on_shared_weights(num_kv_heads, need_weights):
    config = LlamaConfig(
        hidden_size=D,
        num_attention_heads=H,
        num_key_value_heads=num_kv_heads,
        attention_bias=False,
        attn_implementation="eager",
    )
    llama = LlamaAttention(config, layer_idx=0).eval()
    ours = GroupedQueryAttention(D, H, num_kv_heads=num_kv_heads).eval()
    for own, its in (("w_q", "q_proj"), ("w_k", "k_proj"), ("w_v", "v_proj"), ("w_o", "o_proj")):
        projection = ours.get_submodule(own)
        projection.load_state_dict(
            {"weight": llama.get_submodule(its).weight, "bias": torch.zeros_like(projection.bias)}
        )
    x, here = torch.randn(B, S, D), torch.tensor([[0, 1, 2, 5, 11, 13, 17]])
    future = torch.full((S, S), float("-inf")).triu(1)[None, None]
    expected, weights = llama(x, LlamaRotaryEmbedding(config)(x, here), future)
    output = ours(x, x, x, Mask(causal=True), need_weights=need_weights, positions=rotary(here, here))
    torch.testing.assert_close(output.output, expected, rtol=1e-5, atol=1e-5)
    if need_weights:
        torch.testing.assert_close(output.weights, weights, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("need_weights", [True, False], ids=["explicit", "fused"])
def test_with_normalised_queries_and_keys_it_equals_qwen3_on_shared_weights(need_weights):
    config = Qwen3Config(
        hidden_size=D,
        num_attention_heads=H,
        num_key_value_heads=G,
        head_dim=K,
        attention_bias=True,
        rms_norm_eps=torch.finfo(torch.float).eps,
        attn_implementation="eager",
    )
    qwen = Qwen3Attention(config, layer_idx=0).eval()
    ours = GroupedQueryAttention(D, H, num_kv_heads=G, qk_norm=True).eval()
    for own in (ours.q_norm, ours.k_norm):
        nn.init.uniform_(own.weight, 0.5, 1.5)
    names = {"q_proj": "w_q", "k_proj": "w_k", "v_proj": "w_v", "o_proj": "w_o", "q_norm": "q_norm", "k_norm": "k_norm"}
    for its, own in names.items():
        qwen.get_submodule(its).load_state_dict(ours.get_submodule(own).state_dict())
    x, here = torch.randn(B, S, D), torch.tensor([[0, 1, 2, 5, 11, 13, 17]])
    future = torch.full((S, S), float("-inf")).triu(1)[None, None]
    expected, weights = qwen(x, Qwen3RotaryEmbedding(config)(x, here), future)
    output = ours(x, x, x, Mask(causal=True), need_weights=need_weights, positions=rotary(here, here))
    torch.testing.assert_close(output.output, expected, rtol=1e-5, atol=1e-5)
    if need_weights:
        torch.testing.assert_close(output.weights, weights, rtol=1e-5, atol=1e-5)


def test_with_as_many_heads_of_keys_as_of_queries_it_is_multi_head_attention():
    ours, full = GroupedQueryAttention(D, H, num_kv_heads=H).eval(), MultiHeadAttention(D, H).eval()
    ours.load_state_dict(full.state_dict(), strict=True)
    qkv = inputs()
    torch.testing.assert_close(ours(*qkv, Mask(padding())), full(*qkv, Mask(padding())))


@pytest.mark.parametrize("num_kv_heads", [1, 2, 3])
def test_equals_multi_head_attention_whose_keys_and_values_repeat(num_kv_heads):
    ours, full = GroupedQueryAttention(D, H, num_kv_heads=num_kv_heads).eval(), MultiHeadAttention(D, H).eval()
    state = ours.state_dict()
    for name in ("w_k.weight", "w_k.bias", "w_v.weight", "w_v.bias"):
        heads = state[name].unflatten(0, (num_kv_heads, K))
        # The head of queries i reads the head of keys i // (H / G).
        state[name] = torch.stack([heads[i // (H // num_kv_heads)] for i in range(H)]).flatten(0, 1)
    full.load_state_dict(state, strict=True)
    qkv = inputs()
    torch.testing.assert_close(ours(*qkv, Mask(padding())), full(*qkv, Mask(padding())))


@pytest.mark.parametrize(
    "mask",
    [None, Mask(causal=True), Mask(padding()), Mask(padding() & torch.tensor([[True], [False]]), causal=True)],
    ids=["none", "causal", "padding", "causal, nothing real"],
)
def test_the_fused_kernel_equals_the_explicit_equation(attention, mask):
    qkv = [x.requires_grad_() for x in inputs(S, S)]
    wanted = torch.randn(B, S, D)
    outputs, gradients = [], []
    for need_weights in (True, False):
        outputs.append(attention(*qkv, mask, need_weights=need_weights).output)
        loss = (outputs[-1] - wanted).square().sum()
        gradients.append(torch.autograd.grad(loss, [*qkv, *attention.parameters()]))
    torch.testing.assert_close(*outputs, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-4)
    assert all(gradient.isfinite().all() for gradient in gradients[0])


def test_every_head_of_queries_has_a_map_of_its_own(attention):
    weights = attention(*inputs()).weights
    assert weights.shape == (B, H, L, S)
    assert not any(torch.allclose(weights[:, i], weights[:, i + 1]) for i in range(H - 1))


@pytest.mark.parametrize("need_weights", [True, False], ids=["explicit", "fused"])
@pytest.mark.parametrize("num_kv_heads", [1, 3])
def test_decoding_with_a_cache_of_few_heads_equals_reading_everything_at_once(num_kv_heads, need_weights):
    attention = GroupedQueryAttention(D, H, num_kv_heads=num_kv_heads).eval()
    x, causal, everywhere = torch.randn(B, S, D), Mask(causal=True), torch.arange(S)[None]
    expected = attention(x, x, x, causal, positions=rotary(everywhere, everywhere)).output
    cache, outputs = attention.new_cache(), []
    with torch.no_grad():
        for here in everywhere.split([2, 1, 3, 1], dim=1):
            tokens, so_far = x[:, here[0]], everywhere[:, : here[0, -1] + 1]
            history = cache.append(project(attention, tokens, tokens, rotary(here, here)))
            assert history.keys.shape == history.values.shape == (B, num_kv_heads, so_far.size(1), K)
            placed = rotary(here, so_far)
            found = attend(attention, tokens, history, causal, positions=placed, need_weights=need_weights)
            outputs.append(found.output)
    torch.testing.assert_close(torch.cat(outputs, dim=1), expected, rtol=1e-5, atol=1e-5)


def test_a_whole_network_trains_all_of_its_keys_and_values():
    make = partial(GroupedQueryAttention, num_kv_heads=2)
    network = EncoderDecoder(13, D, H, num_layers=2, d_ff=17, attention=make)
    logits = network(torch.randint(3, 13, (B, S)), torch.randint(3, 13, (B, L))).logits
    logits.square().sum().backward()
    projections = [p for m in network.modules() if isinstance(m, MultiHeadAttention) for p in (m.w_k, m.w_v)]
    assert [p.out_features for p in projections] == [2 * K] * 12
    assert all(p.weight.grad.abs().sum(1).all() for p in projections)


@pytest.mark.parametrize("num_kv_heads", [4, 5, 12, 0, -2])
def test_refuses_heads_that_cannot_be_shared(num_kv_heads):
    with pytest.raises(
        ValueError, match=rf"^num_kv_heads={num_kv_heads} does not divide num_heads=6; use one of \[1, 2, 3, 6\]$"
    ):
        GroupedQueryAttention(D, H, num_kv_heads=num_kv_heads)


def test_needs_no_arguments():
    attention = GroupedQueryAttention()
    assert isinstance(attention.w_k, nn.Linear)
    assert attention.w_k.weight.shape == attention.w_v.weight.shape == (2 * 64, 512)
    assert attention.w_q.weight.shape == attention.w_o.weight.shape == (512, 512)
