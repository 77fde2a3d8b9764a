"""The Transformer of "Attention Is All You Need": an encoder, a decoder, and cross-attention between them."""

from collections.abc import Sequence
from typing import ClassVar

import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn

from attention_lab.attention.key_values import Cache
from attention_lab.attention.mask import Mask, hiding_padding
from attention_lab.attention.multi_head import MultiHeadAttention
from attention_lab.attention.packing import PackedMask, Packing
from attention_lab.attention.projection import Projection
from attention_lab.models.blocks import CAUSAL, AttentionFactory, DecoderBlock, TransformerBlock
from attention_lab.models.decoder_state import DecodingState, Memory
from attention_lab.models.embedding import Embedding, PositionFactory
from attention_lab.models.initialisation import draw_xavier
from attention_lab.models.model import (
    NOTHING_CLOSED,
    Axis,
    Intervention,
    ModelOutput,
    SequenceModel,
    attention_maps,
    check_shape,
    most_tokens,
)
from attention_lab.positions.coordinates import Coordinates, num_symbols
from attention_lab.positions.position import Placed
from attention_lab.positions.sampling import PositionSampling, places_of, ruler_for
from attention_lab.positions.sinusoidal import PositionalEncoding
from attention_lab.tasks.vocabulary import PAD

PACKED_PARTS = 8
"""Parts of a training batch: packed, they cost little, and so many leave 3.5 % of padding among lengths 1 to 16."""


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
        # Of a bias, which is worth something to a pair, there would be N x N in a packed row of N tokens.
        asked = (*source_position.asks, *target_position.asks)
        attentions = [module for module in self.modules() if isinstance(module, MultiHeadAttention)]
        self._packs = "bias" not in asked and all(each.packs for each in attentions)
        if self._packs:
            self.batch_parts = PACKED_PARTS
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

    def packed_logits(
        self, sources: Sequence[Integer[Tensor, "_ _"]], targets: Sequence[Integer[Tensor, "_ _"]]
    ) -> Float[Tensor, "1 N V"]:
        if len(sources) == 1 or not self._packs:
            return super().packed_logits(sources, targets)
        source, target = Packing.of(sources), Packing.of(targets)
        longest = max(length for _, length in (*source.shapes, *target.shapes))
        if longest > self.max_length:
            raise ValueError(f"a sequence of {longest} tokens does not fit into {self.max_length} positions")
        reals = [tokens != PAD for tokens in sources]
        masks = tuple(hiding_padding(real) for real in reals)
        lengths = (tokens.size(1) for tokens in targets)
        places = [places_of(self.sampling, *batch, self.training) for batch in zip(reals, lengths, strict=True)]
        read = Coordinates(*map(source.pack, zip(*(of_sources for of_sources, _ in places), strict=True)))
        said = Coordinates(*map(target.pack, zip(*(of_targets for _, of_targets in places), strict=True)))

        x = _embedded(self.source_embedding, source.pack(sources), read)
        memory, _ = self._read(x, read, PackedMask(source, source, masks))
        memory = memory._replace(mask=PackedMask(target, source, masks))

        own = crossing = None
        position = self.target_embedding.position
        if position.asks:
            own, crossing = Placed(position, said.start, said.start), position.across(said, read)
        history_mask = PackedMask(target, target, (CAUSAL,) * len(targets))
        history = [block.self_attn.new_cache() for block in self._decoder_blocks()]
        y = _embedded(self.target_embedding, target.pack(targets), said)
        return self._say(y, memory, history, own, own, crossing, history_mask=history_mask).logits

    def _begin(
        self, source: Tensor, num_targets: int, need_weights: bool, closed: Intervention
    ) -> tuple[DecodingState, list[Tensor | None]]:
        real = source != PAD
        ruler = ruler_for(self.sampling, real, num_targets, self.training)
        places = ruler.source(real)
        x = self.source_embedding(source, places.start)
        memory, weights = self._read(x, places, hiding_padding(real), need_weights, closed)
        history = tuple(block.self_attn.new_cache(num_targets) for block in self._decoder_blocks())
        return DecodingState(memory, ruler, num_symbols(real), history, 0), weights

    def _read(
        self,
        x: Tensor,
        places: Coordinates,
        mask: Mask | PackedMask,
        need_weights: bool = False,
        closed: Intervention = NOTHING_CLOSED,
    ) -> tuple[Memory, list[Tensor | None]]:
        """Runs the encoder on embedded sources."""
        placed = Placed(self.source_embedding.position, places.start, places.start)
        weights: list[Tensor | None] = []
        for layer, block in enumerate(self.encoder):
            allowed = closed.get(("encoder_self", layer))
            x, own = block(x, mask.closing(allowed), need_weights=need_weights, placed=placed)
            weights.append(own)
        crossing = self.target_embedding.position.across(places, places)
        layers = tuple(block.cross_attn.project(x, x, crossing) for block in self._decoder_blocks())
        return Memory(layers, mask, places), weights

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
            crossing = position.across(state.ruler.target(ranks, state.num_symbols), state.memory.places)
        x = self.target_embedding(tokens, here)
        output = self._say(
            x,
            state.memory,
            state.history,
            new,
            placed,
            crossing,
            need_weights=need_weights,
            need_self_weights=need_self_weights,
            closed=closed,
        )
        return output, state._replace(position=end)

    def _say(
        self,
        x: Tensor,
        memory: Memory,
        history: Sequence[Cache],
        new: Placed | None,
        placed: Placed | None,
        crossing: Placed | None,
        *,
        history_mask: Mask | PackedMask = CAUSAL,
        need_weights: bool = False,
        need_self_weights: bool = False,
        closed: Intervention = NOTHING_CLOSED,
    ) -> ModelOutput:
        """Runs the decoder on embedded target tokens.

        `new` says where they are, `placed` where they and all target tokens so far are, `crossing` where they and the
        source's are.
        """
        decoder_self: list[Tensor | None] = []
        decoder_cross: list[Tensor | None] = []
        for layer, block in enumerate(self._decoder_blocks()):
            x, own, cross = block(
                x,
                history[layer].append(block.self_attn.project(x, x, new)),
                memory.layers[layer],
                memory.mask.closing(closed.get(("decoder_cross", layer))),
                history_mask.closing(closed.get(("decoder_self", layer))),
                need_weights=need_weights,
                need_self_weights=need_self_weights,
                placed=placed,
                memory_placed=crossing,
            )
            decoder_self.append(own)
            decoder_cross.append(cross)
        maps = attention_maps({"decoder_self": decoder_self, "decoder_cross": decoder_cross})
        return ModelOutput(self.output(x), maps)

    def _decoder_blocks(self) -> list[DecoderBlock]:
        return [block for block in self.decoder if isinstance(block, DecoderBlock)]


def _embedded(embedding: Embedding, tokens: Integer[Tensor, "1 N"], places: Coordinates) -> Float[Tensor, "1 N D"]:
    """Embeds packed tokens: each by itself, since a packed row may be longer than any sequence."""
    return embedding(tokens.mT, places.start.mT).transpose(0, 1)
