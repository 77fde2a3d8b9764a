"""The Transformer of "Attention Is All You Need": an encoder, a decoder, and cross-attention between them."""

from collections.abc import Sequence
from typing import ClassVar, NamedTuple

import torch
from jaxtyping import Integer
from torch import Tensor, nn

from attention_lab.attention.key_values import Cache, KeyValues
from attention_lab.attention.mask import Mask, hiding_padding
from attention_lab.attention.multi_head import MultiHeadAttention
from attention_lab.attention.projection import Projection
from attention_lab.models.blocks import CAUSAL, AttentionFactory, DecoderBlock, TransformerBlock
from attention_lab.models.embedding import Embedding, PositionFactory
from attention_lab.models.initialisation import draw_xavier
from attention_lab.models.model import (
    Axis,
    Intervention,
    ModelOutput,
    SequenceModel,
    attention_maps,
    check_shape,
    most_tokens,
)
from attention_lab.positions.coordinates import Coordinates, Ruler, num_symbols
from attention_lab.positions.position import Placed
from attention_lab.positions.sampling import PositionSampling, ruler_for
from attention_lab.positions.sinusoidal import PositionalEncoding
from attention_lab.tasks.vocabulary import PAD


class DecodingState(NamedTuple):
    """What the decoder keeps between two tokens.

    Attributes:
        memory: each layer's keys and values of the source, computed once.
        memory_mask: which source tokens are real.
        memory_places: the source tokens' coordinates.
        ruler: the coordinates of both sequences.
        num_symbols: how many tokens each source has before its EOS.
        history: what each layer's self-attention keeps of the target so far.
        position: how many target tokens there were.
    """

    memory: tuple[KeyValues, ...]
    memory_mask: Mask
    memory_places: Coordinates
    ruler: Ruler
    num_symbols: Integer[Tensor, "B 1"]
    history: tuple[Cache, ...]
    position: int


class EncoderDecoder(SequenceModel[DecodingState]):
    """An encoder-decoder Transformer (Vaswani et al. 2017, figure 1), post-norm.

    Its attentions are called `encoder_self`, `decoder_self` and `decoder_cross`.

    Args:
        num_tokens: how many token ids there are, specials included (V).
        d_model: model width D.
        num_heads: heads of every attention; must divide `d_model`.
        num_layers: layers of the encoder, and of the decoder.
        d_ff: width of the feed-forward layers.
        dropout: probability of dropping an activation or an attention weight while training.
        attention: builds an attention from (d_model, num_heads, dropout).
        cross_attention: builds the attention to the source, where that is of another kind.
        position: builds a position code for each of the two stacks.
        sampling: draws positions in training; they are counted where it is None.

    Raises:
        ValueError: an argument is out of its range.
    """

    alignment_attention = "decoder_cross"
    needs: ClassVar[tuple[str, ...]] = ("causal", "cross")
    axes: ClassVar[dict[str, tuple[Axis, Axis]]] = {
        "encoder_self": ("source", "source"),
        "decoder_self": ("target", "target"),
        "decoder_cross": ("to say", "source"),
    }

    def __init__(
        self,
        num_tokens: int,
        d_model: int = 128,
        num_heads: int = 4,
        num_layers: int = 1,
        d_ff: int = 256,
        dropout: float = 0.0,
        *,
        attention: AttentionFactory = MultiHeadAttention,
        cross_attention: AttentionFactory | None = None,
        position: PositionFactory = PositionalEncoding,
        sampling: PositionSampling | None = None,
    ) -> None:
        super().__init__()
        check_shape(num_layers, num_heads)
        source_position = position(d_model, num_heads=num_heads, causal=False)
        target_position = position(d_model, num_heads=num_heads, causal=True)
        self.source_embedding = Embedding(num_tokens, d_model, dropout, source_position)
        self.target_embedding = Embedding(num_tokens, d_model, dropout, target_position)
        layer = (d_model, num_heads, d_ff, dropout)
        self.encoder = nn.ModuleList(TransformerBlock(*layer, attention=attention) for _ in range(num_layers))
        self.decoder = nn.ModuleList(
            DecoderBlock(*layer, attention=attention, cross_attention=cross_attention) for _ in range(num_layers)
        )
        self.output = Projection(d_model, num_tokens)
        self.sampling = sampling
        self.max_length = most_tokens(self, source_position)
        draw_xavier(self)

    @property
    def frames(self) -> tuple[str, ...]:
        return self.target_embedding.position.frames

    @property
    def alignment_layers(self) -> Sequence[MultiHeadAttention]:
        return [block.cross_attn for block in self._decoder_blocks()]

    def forward(
        self,
        source: Integer[Tensor, "B S"],
        target: Integer[Tensor, "B T"],
        *,
        need_weights: bool = False,
        intervention: Intervention | None = None,
    ) -> ModelOutput:
        closed = intervention or {}
        state, encoder_self = self._begin(source, target.size(1), need_weights, closed)
        output, _ = self._step(target, state, need_weights, need_weights, closed)
        return output._replace(attention={**attention_maps({"encoder_self": encoder_self}), **output.attention})

    def begin(self, source: Integer[Tensor, "B S"], num_targets: int = 0) -> DecodingState:
        return self._begin(source, num_targets, need_weights=False, closed={})[0]

    def step(
        self, tokens: Integer[Tensor, "B L"], state: DecodingState, *, need_weights: bool = False
    ) -> tuple[ModelOutput, DecodingState]:
        return self._step(tokens, state, need_weights, need_self_weights=False, closed={})

    def _begin(
        self, source: Tensor, num_targets: int, need_weights: bool, closed: Intervention
    ) -> tuple[DecodingState, list[Tensor | None]]:
        real = source != PAD
        ruler = ruler_for(self.sampling, real, num_targets, self.training)
        mask, places = hiding_padding(real), ruler.source(real)
        here = places.start
        placed = Placed(self.source_embedding.position, here, here)
        x = self.source_embedding(source, here)
        weights: list[Tensor | None] = []
        for layer, block in enumerate(self.encoder):
            allowed = closed.get(("encoder_self", layer))
            x, own = block(x, mask.closing(allowed), need_weights=need_weights, placed=placed)
            weights.append(own)
        blocks = self._decoder_blocks()
        crossing = self.target_embedding.position.across(places, places)
        memory = tuple(block.cross_attn.project(x, x, crossing) for block in blocks)
        history = tuple(block.self_attn.new_cache(num_targets) for block in blocks)
        return DecodingState(memory, mask, places, ruler, num_symbols(real), history, 0), weights

    def _step(
        self,
        tokens: Tensor,
        state: DecodingState,
        need_weights: bool,
        need_self_weights: bool,
        closed: Intervention,
    ) -> tuple[ModelOutput, DecodingState]:
        end = state.position + tokens.size(1)
        ranks = torch.arange(state.position, end, device=tokens.device)[None]
        here = state.ruler.at(ranks)
        new = placed = crossing = None
        position = self.target_embedding.position
        # A code that only adds to embeddings says nothing to attention.
        if position.asks:
            so_far = state.ruler.at(torch.arange(end, device=tokens.device)[None])
            new, placed = Placed(position, here, here), Placed(position, here, so_far)
            crossing = position.across(state.ruler.target(ranks, state.num_symbols), state.memory_places)
        x = self.target_embedding(tokens, here)
        decoder_self: list[Tensor | None] = []
        decoder_cross: list[Tensor | None] = []
        for layer, block in enumerate(self._decoder_blocks()):
            history = state.history[layer].append(block.self_attn.project(x, x, new))
            history_mask = CAUSAL.closing(closed.get(("decoder_self", layer)))
            memory_mask = state.memory_mask.closing(closed.get(("decoder_cross", layer)))
            x, own, cross = block(
                x,
                history,
                state.memory[layer],
                memory_mask,
                history_mask,
                need_weights=need_weights,
                need_self_weights=need_self_weights,
                placed=placed,
                memory_placed=crossing,
            )
            decoder_self.append(own)
            decoder_cross.append(cross)
        maps = attention_maps({"decoder_self": decoder_self, "decoder_cross": decoder_cross})
        return ModelOutput(self.output(x), maps), state._replace(position=end)

    def _decoder_blocks(self) -> list[DecoderBlock]:
        return [block for block in self.decoder if isinstance(block, DecoderBlock)]
