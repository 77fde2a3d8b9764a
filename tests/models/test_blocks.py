"""The layers: the article's module, PyTorch's layers, caches, masks and settings."""

import pytest
import torch
from torch import Tensor, nn

from attention_lab.attention.key_values import KeyValues
from attention_lab.attention.mask import Mask
from attention_lab.attention.multi_head import MultiHeadAttention
from attention_lab.attention.packing import AttentionMetadata, Packing
from attention_lab.models.blocks import DecoderBlock, TransformerBlock
from tests.articles import ArticleTransformerBlock

B, H, L, S, K, D_FF = 2, 3, 7, 11, 5, 19
D = H * K


def project(attention, k, v, positions=None):
    """Keys and values of one padded batch."""
    return attention.project(k, v, Packing.of([k]), positions)[0]


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


@pytest.fixture
def encoder_block() -> TransformerBlock:
    return randomised(TransformerBlock(D, H, D_FF, dropout=0.0))


@pytest.fixture
def decoder_block() -> DecoderBlock:
    return randomised(DecoderBlock(D, H, D_FF, dropout=0.0))


def randomised(network: nn.Module) -> nn.Module:
    """Norms start as ones and zeros, all alike; only when they differ can a mixed-up one be seen."""
    for parameter in network.parameters():
        nn.init.normal_(parameter, std=0.5)
    return network


def as_in_pytorch(block: nn.Module, attentions: dict[str, str]) -> dict[str, Tensor]:
    """A layer's weights under the names of PyTorch's layers.

    Args:
        block: our layer.
        attentions: our attentions' names and PyTorch's.
    """
    state = {}
    for ours, theirs in attentions.items():
        attention = block.get_submodule(ours)
        projections = (attention.w_q, attention.w_k, attention.w_v)
        state[f"{theirs}.in_proj_weight"] = torch.cat([p.weight for p in projections])
        state[f"{theirs}.in_proj_bias"] = torch.cat([p.bias for p in projections])
        state |= {f"{theirs}.out_proj.{name}": weight for name, weight in attention.w_o.state_dict().items()}
    for name, weight in block.state_dict().items():
        if name.startswith(("norm", "ffn")):
            state[name.replace("ffn.0", "linear1").replace("ffn.3", "linear2")] = weight
    return state


def decoded(block, x, history, memory, mask=None, need_weights=True):
    """What a decoder layer makes of one padded batch."""
    queries, keys, sources = Packing.of([x]), *(Packing(((len(x), part.keys.size(2)),)) for part in (history, memory))
    to_history = AttentionMetadata((Mask(causal=True),), queries, keys)
    to_memory = AttentionMetadata((mask or Mask(),), queries, sources)
    needed = {"need_weights": need_weights, "need_self_weights": need_weights}
    return block(x, [history], [memory], to_history, to_memory, **needed)


def decode(block: DecoderBlock, x: Tensor, memory: Tensor, mask: Mask | None = None, need_weights: bool = True):
    history, read = project(block.self_attn, x, x), project(block.cross_attn, memory, memory)
    return decoded(block, x, history, read, mask, need_weights)


def padding(length: int) -> Tensor:
    """Row 0 is padded on the right, row 1 on the left."""
    real = torch.ones(B, length, dtype=torch.bool)
    real[0, 5:] = False
    real[1, :2] = False
    return real


def test_the_articles_example_runs_unchanged():
    block = TransformerBlock()
    x = torch.randn(2, 10, 512)
    out, attn = block(x)
    assert out.shape == (2, 10, 512)
    assert attn.shape == (2, 8, 10, 10)


@pytest.mark.parametrize("masked", [False, True], ids=["unmasked", "masked"])
def test_equals_the_article_on_shared_weights(masked):
    article, ours = ArticleTransformerBlock(D, H, D_FF).eval(), TransformerBlock(D, H, D_FF).eval()
    mask = torch.ones(L, L, dtype=torch.bool).tril() if masked else None
    x = torch.randn(B, L, D)
    ours.load_state_dict(randomised(article).state_dict(), strict=True)
    torch.testing.assert_close(tuple(ours(x, mask)), article(x, mask))
    fresh = randomised(TransformerBlock(D, H, D_FF)).eval()
    article.load_state_dict(fresh.state_dict(), strict=True)
    torch.testing.assert_close(tuple(fresh(x, mask)), article(x, mask))


def test_has_the_articles_defaults():
    article, ours = ArticleTransformerBlock(), TransformerBlock()
    ours.load_state_dict(article.state_dict(), strict=True)
    assert ours.attn.num_heads == article.attn.num_heads
    assert ours.dropout.p == ours.ffn[2].p == ours.attn.dropout.p == article.dropout.p


@pytest.mark.parametrize("padded", [False, True], ids=["all real", "padded"])
@pytest.mark.parametrize("causal", [False, True], ids=["both ways", "causal"])
def test_the_encoder_layer_equals_pytorchs(encoder_block, padded, causal):
    torchs = nn.TransformerEncoderLayer(D, H, D_FF, dropout=0.0, batch_first=True)
    torchs.load_state_dict(as_in_pytorch(encoder_block, {"attn": "self_attn"}), strict=True)
    x = torch.randn(B, L, D)
    real = padding(L) if padded else torch.ones(B, L, dtype=torch.bool)
    matrix = torch.ones(L, L, dtype=torch.bool)
    matrix = matrix.tril() if causal else matrix
    # PyTorch's layers mean the opposite by True, and give NaN where a query may attend to nothing.
    expected = torchs(x, src_mask=~matrix, src_key_padding_mask=~real)
    out = encoder_block(x, Mask(real, causal=causal)).output
    sees_something = (matrix & real[:, None]).any(-1)
    torch.testing.assert_close(out[sees_something], expected[sees_something], rtol=1e-5, atol=1e-5)
    assert out.isfinite().all()


@pytest.mark.parametrize("padded", [False, True], ids=["all real", "padded"])
def test_the_decoder_layer_equals_pytorchs(decoder_block, padded):
    torchs = nn.TransformerDecoderLayer(D, H, D_FF, dropout=0.0, batch_first=True)
    names = {"self_attn": "self_attn", "cross_attn": "multihead_attn"}
    torchs.load_state_dict(as_in_pytorch(decoder_block, names), strict=True)
    x, memory = torch.randn(B, L, D), torch.randn(B, S, D)
    real = padding(S)
    future = torch.ones(L, L, dtype=torch.bool).triu(1)
    expected = torchs(x, memory, tgt_mask=future, memory_key_padding_mask=~real if padded else None)
    out = decode(decoder_block, x, memory, Mask(real) if padded else None).output
    torch.testing.assert_close(out, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("mask", [None, Mask(padding(L)), Mask(causal=True), torch.ones(L, L, dtype=torch.bool).triu()])
def test_asking_for_the_encoders_weights_does_not_change_its_output(encoder_block, mask):
    x = torch.randn(B, L, D)
    explicit, fused = (encoder_block(x, mask, need_weights=need_weights) for need_weights in (True, False))
    torch.testing.assert_close(explicit.output, fused.output, rtol=1e-5, atol=1e-5)
    assert explicit.weights.shape == (B, H, L, L)
    assert fused.weights is None


def test_asking_for_the_decoders_weights_does_not_change_its_output(decoder_block):
    x, memory = torch.randn(B, L, D), torch.randn(B, S, D)
    explicit, fused = (decode(decoder_block, x, memory, Mask(padding(S)), asked) for asked in (True, False))
    torch.testing.assert_close(explicit.output, fused.output, rtol=1e-5, atol=1e-5)
    assert explicit.self_weights.shape == (B, H, L, L)
    assert explicit.cross_weights.shape == (B, H, L, S)
    assert fused.self_weights is None
    assert fused.cross_weights is None


@pytest.mark.parametrize("need_weights", [True, False], ids=["explicit", "fused"])
@pytest.mark.parametrize("last", [1, 3])
def test_the_last_tokens_with_their_history_get_what_all_tokens_get(decoder_block, last, need_weights):
    x, memory = torch.randn(B, L, D), torch.randn(B, S, D)
    mask = Mask(padding(S))
    everything = decode(decoder_block, x, memory, mask)
    history, read = project(decoder_block.self_attn, x, x), project(decoder_block.cross_attn, memory, memory)
    tail = decoded(decoder_block, x[:, -last:], history, read, mask, need_weights)
    torch.testing.assert_close(tail.output, everything.output[:, -last:], rtol=1e-5, atol=1e-5)
    if need_weights:
        torch.testing.assert_close(tail.self_weights, everything.self_weights[:, :, -last:])
        torch.testing.assert_close(tail.cross_weights, everything.cross_weights[:, :, -last:])


def test_the_decoder_layer_sees_no_later_token(decoder_block):
    x, memory = torch.randn(B, L, D, requires_grad=True), torch.randn(B, S, D)
    out = decode(decoder_block, x, memory).output
    for token in range(L):
        (gradient,) = torch.autograd.grad(out[:, token].square().sum(), x, retain_graph=True)
        assert not gradient[:, token + 1 :].any()
        assert gradient[:, : token + 1].any(-1).all()


def test_without_positions_the_encoder_layer_does_not_know_the_order(encoder_block):
    x = torch.randn(B, L, D)
    order = torch.randperm(L)
    out, weights = encoder_block(x)
    shuffled = encoder_block(x[:, order])
    torch.testing.assert_close(shuffled.output, out[:, order], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(shuffled.weights, weights[:, :, order][..., order])


def test_dropout_acts_in_training_only():
    x = torch.randn(B, L, D)
    block = TransformerBlock(D, H, D_FF, dropout=0.5)
    assert not torch.allclose(block(x).output, block(x).output)
    block.eval()
    assert torch.equal(block(x).output, block(x).output)


@pytest.mark.parametrize("part", ["attention", "residual", "feed-forward"])
def test_dropout_acts_in_every_place(part):
    block = TransformerBlock(D, H, D_FF, dropout=0.5).eval()
    x = torch.randn(B, L, D)
    {"attention": block.attn, "residual": block.dropout, "feed-forward": block.ffn}[part].train()
    assert not torch.allclose(block(x).output, block(x).output)


@pytest.mark.parametrize("kind", [TransformerBlock, DecoderBlock])
def test_attention_is_built_by_the_factory(kind):
    built = []

    class Own(MultiHeadAttention):
        def __init__(self, *arguments) -> None:
            super().__init__(*arguments)
            built.append(arguments)

    block = kind(D, H, D_FF, 0.25, attention=Own)
    attentions = [module for module in block.modules() if isinstance(module, MultiHeadAttention)]
    assert built == [(D, H, 0.25)] * len(attentions)
    assert all(isinstance(attention, Own) for attention in attentions)


def test_the_decoders_two_attentions_share_no_weights(decoder_block):
    assert not torch.equal(decoder_block.self_attn.w_q.weight, decoder_block.cross_attn.w_q.weight)


def test_keys_and_values_are_not_mixed_up(decoder_block):
    x, memory = torch.randn(B, L, D), torch.randn(B, S, D)
    history, read = project(decoder_block.self_attn, x, x), project(decoder_block.cross_attn, memory, memory)
    _, own, cross = decoded(decoder_block, x, history, read)
    _, same_own, same_cross = decoded(decoder_block, x, history, KeyValues(read.keys, 2 * read.values))
    torch.testing.assert_close((same_own, same_cross), (own, cross))


@pytest.mark.parametrize("kind", [TransformerBlock, DecoderBlock])
@pytest.mark.parametrize("d_ff", [0, -3])
def test_refuses_a_feed_forward_layer_without_width(kind, d_ff):
    with pytest.raises(ValueError, match=f"d_ff={d_ff} must be at least 1"):
        kind(D, H, d_ff)


@pytest.mark.parametrize("kind", [TransformerBlock, DecoderBlock])
def test_refuses_heads_that_do_not_divide_the_width(kind):
    with pytest.raises(ValueError, match="num_heads=7 does not divide d_model=15"):
        kind(D, 7, D_FF)


@pytest.mark.parametrize("kind", [TransformerBlock, DecoderBlock])
@pytest.mark.parametrize("dropout", [-0.5, 1.0])
def test_refuses_a_dropout_that_is_no_probability(kind, dropout):
    with pytest.raises(ValueError, match=f"dropout={dropout}"):
        kind(D, H, D_FF, dropout)
