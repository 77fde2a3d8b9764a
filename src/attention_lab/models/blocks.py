"""The Transformer's layers: residual, then layer norm, as in the articles (post-norm)."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from jaxtyping import Bool, Float
from torch import Tensor, nn

from attention_lab.attention.key_values import KeyValues
from attention_lab.attention.mask import Mask, as_mask
from attention_lab.attention.multi_head import MultiHeadAttention
from attention_lab.attention.packing import AttentionMetadata
from attention_lab.attention.projection import Projection
from attention_lab.errors import SettingError
from attention_lab.models.embedding import make_dropout
from attention_lab.positions.position import QueryKeyPositions

AttentionFactory = Callable[[int, int, float], MultiHeadAttention]
"""Builds an attention from (d_model, num_heads, dropout)."""


CAUSAL = Mask(causal=True)


class BlockOutput(NamedTuple):
    """What an encoder layer gives back; unpacks like the article's `out, attn`.

    Attributes:
        output: the new embeddings, (B, L, D).
        weights: the self-attention, (B, H, L, L); None when not asked for.
    """

    output: Float[Tensor, "B L D"]
    weights: Float[Tensor, "B H L L"] | None


class TransformerBlock(nn.Module):
    """One encoder layer: x = norm1(x + attn(x)), then norm2(x + ffn(x)).

    Vaswani et al. 2017, section 3.1. Arguments, sub-modules and state-dict keys are the article's.

    Args:
        d_model: model width D.
        num_heads: attention heads; must divide `d_model`.
        d_ff: width of the feed-forward layer.
        dropout: probability of dropping an activation or an attention weight while training.
        attention: builds the attention.
    """

    def __init__(
        self,
        d_model: int = 512,
        num_heads: int = 8,
        d_ff: int = 2048,
        dropout: float = 0.1,
        *,
        attention: AttentionFactory = MultiHeadAttention,
    ) -> None:
        super().__init__()
        self.attn = attention(d_model, num_heads, dropout)
        self.norm1 = nn.LayerNorm(d_model)
        self.norm2 = nn.LayerNorm(d_model)
        self.ffn = feed_forward(d_model, d_ff, dropout)
        self.dropout = make_dropout(dropout)

    def forward(
        self,
        x: Float[Tensor, "B L D"],
        mask: Mask | Bool[Tensor, "..."] | None = None,
        *,
        need_weights: bool = True,
        positions: QueryKeyPositions | None = None,
    ) -> BlockOutput:
        """Runs the layer; `mask` is True where a query may attend, broadcastable to (B, H, L, L)."""
        metadata = AttentionMetadata.of_batch(as_mask(mask, x.size(1)), x, x, positions)
        return self.read(x, self.attn.project(x, x, metadata.keys, positions), metadata, need_weights=need_weights)

    def read(
        self,
        x: Float[Tensor, "B L D"],
        history: Sequence[KeyValues],
        metadata: AttentionMetadata,
        *,
        need_weights: bool = False,
    ) -> BlockOutput:
        """Runs the layer on a row of tokens, the last ones of those whose `attn.project` is `history`."""
        mixed, weights = self.attn.attend(x, history, metadata, need_weights=need_weights)
        x = self.norm1(x + self.dropout(mixed))
        x = self.norm2(x + self.dropout(self.ffn(x)))
        return BlockOutput(x, weights)


class DecoderBlockOutput(NamedTuple):
    """What a decoder layer gives back.

    Attributes:
        output: the new embeddings, (B, L, D).
        self_weights: attention to the target so far, (B, H, L, T); None when not asked for.
        cross_weights: attention to the source, (B, H, L, S); None when not asked for.
    """

    output: Float[Tensor, "B L D"]
    self_weights: Float[Tensor, "B H L T"] | None
    cross_weights: Float[Tensor, "B H L S"] | None


class DecoderBlock(nn.Module):
    """One decoder layer: masked self-attention, cross-attention to the source, feed-forward; post-norm each.

    Vaswani et al. 2017, section 3.1; the same arguments as `TransformerBlock`, and `cross_attention`, which builds the
    attention to the source where that is of another kind.
    """

    def __init__(
        self,
        d_model: int = 512,
        num_heads: int = 8,
        d_ff: int = 2048,
        dropout: float = 0.1,
        *,
        attention: AttentionFactory = MultiHeadAttention,
        cross_attention: AttentionFactory | None = None,
    ) -> None:
        super().__init__()
        self.self_attn = attention(d_model, num_heads, dropout)
        self.cross_attn = (cross_attention or attention)(d_model, num_heads, dropout)
        self.norm1 = nn.LayerNorm(d_model)
        self.norm2 = nn.LayerNorm(d_model)
        self.norm3 = nn.LayerNorm(d_model)
        self.ffn = feed_forward(d_model, d_ff, dropout)
        self.dropout = make_dropout(dropout)

    def forward(
        self,
        x: Float[Tensor, "B L D"],
        history: Sequence[KeyValues],
        memory: Sequence[KeyValues],
        to_history: AttentionMetadata,
        to_memory: AttentionMetadata,
        *,
        need_weights: bool = True,
        need_self_weights: bool = True,
    ) -> DecoderBlockOutput:
        """Runs the layer.

        Args:
            x: a row of the last target tokens so far: all of them in training, one of each row in cached decoding.
            history: `self_attn.project` of all of them.
            memory: `cross_attn.project` of the encoded source.
            to_history: which target tokens may be attended to.
            to_memory: which source tokens may be.
            need_weights: return the weights of cross-attention.
            need_self_weights: return those of self-attention.
        """
        mixed, self_weights = self.self_attn.attend(x, history, to_history, need_weights=need_self_weights)
        x = self.norm1(x + self.dropout(mixed))
        mixed, cross_weights = self.cross_attn.attend(x, memory, to_memory, need_weights=need_weights)
        x = self.norm2(x + self.dropout(mixed))
        x = self.norm3(x + self.dropout(self.ffn(x)))
        return DecoderBlockOutput(x, self_weights, cross_weights)


def feed_forward(d_model: int, d_ff: int, dropout: float) -> nn.Sequential:
    """FFN(x) = max(0, x W1 + b1) W2 + b2, applied to each position alone (Vaswani et al. 2017, equation 2)."""
    if d_ff < 1:
        raise SettingError("d_ff", d_ff, "must be at least 1")
    # In place, as a training step is 1 % faster for it: a hook on the first layer sees what is left after it.
    activation = nn.ReLU(inplace=True)
    return nn.Sequential(Projection(d_model, d_ff), activation, make_dropout(dropout), Projection(d_ff, d_model))


def draw_xavier(network: nn.Module) -> None:
    """Draws every matrix Xavier-uniform and sets biases to zero, as `torch.nn.Transformer` does.

    With `nn.Linear`'s own narrower draw the heads take several times as long to align.
    """
    for module in network.modules():
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            nn.init.zeros_(module.bias)
