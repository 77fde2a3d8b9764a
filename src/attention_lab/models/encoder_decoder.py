"""The Transformer of "Attention Is All You Need": an encoder, a decoder, and cross-attention between them."""

from collections.abc import Callable, Sequence
from typing import ClassVar, NamedTuple

import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn

from attention_lab.attention.key_values import Cache, KeyValues
from attention_lab.attention.mask import Mask, hiding_padding
from attention_lab.attention.multi_head import MultiHeadAttention
from attention_lab.attention.packing import AttentionMetadata, Packing
from attention_lab.attention.projection import Projection
from attention_lab.models.blocks import AttentionFactory, DecoderBlock, TransformerBlock, draw_xavier
from attention_lab.models.embedding import Embedding, PositionFactory
from attention_lab.models.model import (
    AttentionMaps,
    Axis,
    Intervention,
    ModelOutput,
    Tokens,
    attention_maps,
    check_shape,
    parts_of,
)
from attention_lab.models.transformer import Transformer, packed_places
from attention_lab.positions.coordinates import Coordinates, Ruler, num_symbols
from attention_lab.positions.position import QueryKeyPositions
from attention_lab.positions.sampling import PositionSampling
from attention_lab.positions.sinusoidal import PositionalEncoding
from attention_lab.tasks.vocabulary import PAD

CAUSAL = Mask(causal=True)


class Memory(NamedTuple):
    """What the decoder sees of the source.

    Attributes:
        layers: for each layer and part, keys and values, computed once.
        masks: which source tokens are real, part by part.
        packing: how the source tokens lie in their row.
        places: their coordinates.
        rulers: the coordinates of both sequences, part by part.
        num_symbols: how many tokens each source has before its EOS, part by part.
    """

    layers: Sequence[Sequence[KeyValues]]
    masks: Sequence[Mask]
    packing: Packing
    places: Coordinates
    rulers: Sequence[Ruler]
    num_symbols: Sequence[Integer[Tensor, "_ 1"]]


class DecodingState(NamedTuple):
    """What the decoder keeps between two tokens.

    Attributes:
        memory: what it sees of the source.
        history: what each layer's self-attention keeps of the target so far; none where all of it is read at once.
        num_read: how many target tokens there were.
    """

    memory: Memory
    history: Sequence[Cache] = ()
    num_read: int = 0


class EncoderDecoder(Transformer[DecodingState]):
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
        SettingError: an argument is out of its range.
    """

    alignment_attention = "decoder_cross"
    needs: ClassVar[tuple[str, ...]] = ("causal", "cross")
    axes: ClassVar[dict[str, tuple[Axis, Axis]]] = {
        "encoder_self": ("source", "source"),
        "decoder_self": ("target", "target"),
        "decoder_cross": ("predicted", "source"),
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
        self.limit_positions(source_position)
        draw_xavier(self)

    @property
    def frames(self) -> tuple[str, ...]:
        return self.target_embedding.position.frames

    @property
    def alignment_layers(self) -> Sequence[MultiHeadAttention]:
        return [block.cross_attn for block in self.decoder_layers]

    def forward(
        self,
        source: Tokens,
        target: Tokens,
        *,
        need_weights: bool = False,
        intervention: Intervention | None = None,
    ) -> ModelOutput:
        whole = need_weights or bool(intervention)
        sources, targets = parts_of(source, whole=whole), parts_of(target, whole=whole)
        rulers = [self.ruler(read, to_read.size(1), to_read) for read, to_read in zip(sources, targets, strict=True)]
        memory, encoder_self = self._encode(sources, rulers, need_weights, intervention)
        output = self._decode(targets, DecodingState(memory), need_weights, need_weights, intervention)
        # Built anew: PyTorch 2.11 cannot compile `_replace`.
        return ModelOutput(output.logits, {**encoder_self, **output.attention})

    def answering(
        self, source: Integer[Tensor, "B S"], target: Integer[Tensor, "B T"]
    ) -> Callable[[], Float[Tensor, "B T V"]]:
        memory, _ = self._encode([source], [self.ruler(source, target.size(1), target)])
        return lambda: self._decode([target], DecodingState(memory)).logits

    def begin(self, source: Integer[Tensor, "B S"], num_targets: int = 0) -> DecodingState:
        memory, _ = self._encode([source], [self.ruler(source, num_targets)])
        return DecodingState(memory, [block.self_attn.new_cache(num_targets) for block in self.decoder_layers])

    def step(
        self, tokens: Integer[Tensor, "B L"], state: DecodingState, *, need_weights: bool = False
    ) -> tuple[ModelOutput, DecodingState]:
        output = self._decode([tokens], state, need_weights)
        return output, state._replace(num_read=state.num_read + tokens.size(1))

    @property
    def encoder_layers(self) -> list[TransformerBlock]:
        """The encoder's blocks, from the first to the last."""
        return [block for block in self.encoder if isinstance(block, TransformerBlock)]

    @property
    def decoder_layers(self) -> list[DecoderBlock]:
        """The decoder's blocks, from the first to the last."""
        return [block for block in self.decoder if isinstance(block, DecoderBlock)]

    def _encode(
        self,
        sources: Sequence[Tensor],
        rulers: Sequence[Ruler],
        need_weights: bool = False,
        intervention: Intervention | None = None,
    ) -> tuple[Memory, AttentionMaps]:
        """Reads the parts of a batch of sources."""
        packing = Packing.of(sources)
        real = [tokens != PAD for tokens in sources]
        places = packed_places(packing, [ruler.source(each) for ruler, each in zip(rulers, real, strict=True)])
        for ruler, tokens in zip(rulers, sources, strict=True):
            self.check_places(ruler, tokens.size(1), places.start)
        masks = [hiding_padding(each) for each in real]
        positions = QueryKeyPositions(self.source_embedding.position, places.start, places.start)
        metadata = AttentionMetadata(masks, packing, packing, positions)
        x = self.source_embedding(packing.pack(sources), places.start)
        maps: list[Tensor | None] = []
        for layer, block in enumerate(self.encoder_layers):
            keys = block.attn.project(x, x, packing, positions)
            seen = metadata.with_intervention(intervention, "encoder_self", layer)
            x, weights = block.read(x, keys, seen, need_weights=need_weights)
            maps.append(weights)
        crossing = self.target_embedding.position.for_cross_attention(places, places)
        layers = [block.cross_attn.project(x, x, packing, crossing) for block in self.decoder_layers]
        memory = Memory(layers, masks, packing, places, rulers, [num_symbols(each) for each in real])
        return memory, attention_maps({"encoder_self": maps})

    def _decode(
        self,
        targets: Sequence[Tensor],
        state: DecodingState,
        need_weights: bool = False,
        need_self_weights: bool = False,
        intervention: Intervention | None = None,
    ) -> ModelOutput:
        """Reads the parts of a batch of targets: all of their tokens, or the next ones where there is a history."""
        packing, code, memory = Packing.of(targets), self.target_embedding.position, state.memory
        places = self._target_places(packing, targets, state)
        own = crossing = None
        # A code that only adds to embeddings says nothing to attention.
        if code.requires:
            own = QueryKeyPositions(code, places.start, places.start)
            crossing = code.for_cross_attention(places, memory.places)
        to_history = AttentionMetadata([CAUSAL] * len(targets), packing, packing, own)
        if state.num_read:
            to_history = self._with_history(to_history, state)
        to_memory = AttentionMetadata(memory.masks, packing, memory.packing, crossing)
        x = self.target_embedding(packing.pack(targets), places.start)
        decoder_self: list[Tensor | None] = []
        decoder_cross: list[Tensor | None] = []
        for layer, block in enumerate(self.decoder_layers):
            history = block.self_attn.project(x, x, packing, own)
            if state.history:
                history = [state.history[layer].append(history[0])]
            x, self_weights, cross_weights = block(
                x,
                history,
                memory.layers[layer],
                to_history.with_intervention(intervention, "decoder_self", layer),
                to_memory.with_intervention(intervention, "decoder_cross", layer),
                need_weights=need_weights,
                need_self_weights=need_self_weights,
            )
            decoder_self.append(self_weights)
            decoder_cross.append(cross_weights)
        maps = attention_maps({"decoder_self": decoder_self, "decoder_cross": decoder_cross})
        return ModelOutput(self.output(x), maps)

    def _target_places(self, packing: Packing, targets: Sequence[Tensor], state: DecodingState) -> Coordinates:
        """Returns where the next target tokens are."""
        places: list[Coordinates] = []
        for tokens, ruler, symbols in zip(targets, state.memory.rulers, state.memory.num_symbols, strict=True):
            end = state.num_read + tokens.size(1)
            ranks = torch.arange(state.num_read, end, device=tokens.device)[None]
            if ruler.gap is not None:
                # Padding of a row that is spread wide may lie beyond all places, and nobody reads it.
                ranks = ranks.where(tokens != PAD, 0)
            places.append(ruler.target(ranks, symbols))
            self.check_places(ruler, end, places[-1].start)
        return packed_places(packing, places)

    def _with_history(self, metadata: AttentionMetadata, state: DecodingState) -> AttentionMetadata:
        """Returns the metadata of the next target tokens, which attend to those before them as well."""
        rows, new = metadata.queries.shapes[0]
        end = state.num_read + new
        positions = metadata.positions
        if positions is not None:
            so_far = torch.arange(end, device=positions.queries.device)[None]
            positions = positions._replace(keys=state.memory.rulers[0].at(so_far))
        return metadata._replace(keys=Packing(((rows, end),)), positions=positions)
