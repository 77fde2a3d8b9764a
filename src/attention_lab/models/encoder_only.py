"""One stack that looks everywhere and predicts all of the target at once: the architecture of BERT."""

from collections.abc import Sequence
from typing import ClassVar, NamedTuple

import torch
from jaxtyping import Bool, Float, Integer
from torch import Tensor
from torch.nn import functional

from attention_lab.attention.key_values import KeyValues
from attention_lab.attention.mask import hiding_padding
from attention_lab.attention.packing import AttentionMetadata, Packing
from attention_lab.models.model import (
    AttentionMaps,
    Axis,
    Intervention,
    ModelOutput,
    Tokens,
    attention_maps,
    parts_of,
)
from attention_lab.models.transformer import OneStack, Shift, packed_places
from attention_lab.positions.coordinates import Coordinates, Ruler, from_start, num_symbols
from attention_lab.positions.position import QueryKeyPositions
from attention_lab.tasks.vocabulary import EOS, PAD


class Reading(NamedTuple):
    """What the stack makes of a source, or of the parts of a batch of them.

    Attributes:
        output: of the last layer, at every source token.
        inputs: what goes into each layer's attention.
        memory: for each layer and part, keys and values.
        metadata: which tokens are real, and where they are.
        shifts: how far each part's sources were moved, so that they begin in the first column.
        real: which tokens are not padding, part by part.
        maps: each layer's weights, where they were asked for.
    """

    output: Float[Tensor, "B L D"]
    inputs: Sequence[Tensor]
    memory: Sequence[Sequence[KeyValues]]
    metadata: AttentionMetadata
    shifts: Sequence[Shift]
    real: Sequence[Bool[Tensor, "_ _"]]
    maps: AttentionMaps


class PredictedState(NamedTuple):
    """Everything that is going to be predicted, and how much of it has been.

    Attributes:
        reading: what the stack made of the source.
        logits: of every target token.
        num_predicted: how many tokens that were.
    """

    reading: Reading
    logits: Float[Tensor, "B S V"]
    num_predicted: int


class EncoderOnly(OneStack[PredictedState]):
    """A bidirectional Transformer (Devlin et al. 2019) that predicts its i-th token at the source's i-th; post-norm.

    Its attention is called `self`; a row is what is predicted there, a column a source token. All tokens are predicted
    in parallel and none is read, so decoding is nothing but looking them up. Beyond a source's end there is nothing to
    predict but EOS, so that targets cannot be longer than their sources.

    Arguments are those of `OneStack`.
    """

    causal = False
    axes: ClassVar[dict[str, tuple[Axis, Axis]]] = {"self": ("predicted in place", "source")}
    target_within_source = True

    @property
    def maps_in_pieces(self) -> bool:
        return not any("cross" in attention.unsupported for attention in self.alignment_layers)

    def forward(
        self,
        source: Tokens,
        target: Tokens,
        *,
        need_weights: bool = False,
        intervention: Intervention | None = None,
    ) -> ModelOutput:
        """Predicts every token of the target from the source alone; of the target only the length counts.

        Raises:
            ValueError: the target is longer than the source.
        """
        whole = need_weights or bool(intervention)
        sources, targets = parts_of(source, whole=whole), parts_of(target, whole=whole)
        for read, predicted in zip(sources, targets, strict=True):
            if predicted.size(1) > read.size(1):
                raise ValueError(
                    f"a target of {predicted.size(1)} tokens cannot be predicted at a source of {read.size(1)}, EOS "
                    "included"
                )
        rulers = [self.ruler(read, 0, predicted) for read, predicted in zip(sources, targets, strict=True)]
        reading = self._read(sources, rulers, need_weights, intervention)
        return ModelOutput(self._logits(reading, [predicted.size(1) for predicted in targets]), reading.maps)

    def begin(self, source: Integer[Tensor, "B S"], num_targets: int = 0) -> PredictedState:
        reading = self._read([source], [self.ruler(source, num_targets)])
        return PredictedState(reading, self._logits(reading, [source.size(1)]), 0)

    def step(
        self, tokens: Integer[Tensor, "B L"], state: PredictedState, *, need_weights: bool = False
    ) -> tuple[ModelOutput, PredictedState]:
        """Predicts the next L tokens, whatever was read."""
        end = state.num_predicted + tokens.size(1)
        rows = slice(state.num_predicted, end)
        logits = state.logits[:, rows]
        missing = self._end(logits)[None, None].expand(len(logits), tokens.size(1) - logits.size(1), -1)
        maps = self._rows_of_maps(state.reading, rows) if need_weights and self.maps_in_pieces else {}
        return ModelOutput(torch.cat([logits, missing], dim=1), maps), state._replace(num_predicted=end)

    def alignment_maps(self, attention: AttentionMaps, num_targets: int, num_sources: int) -> tuple[Tensor, ...]:
        return tuple(weights[:, :, :num_targets] for weights in attention["self"])

    def target_rows(self, layer: Float[Tensor, "B L D"], num_targets: int) -> Float[Tensor, "B T D"]:
        return layer[:, :num_targets]

    def alignment_mask(self, allowed: Bool[Tensor, "B H T S"]) -> Bool[Tensor, "B H S S"]:
        return functional.pad(allowed, (0, 0, 0, allowed.size(3) - allowed.size(2)), value=True)

    def _read(
        self,
        sources: Sequence[Tensor],
        rulers: Sequence[Ruler],
        need_weights: bool = False,
        intervention: Intervention | None = None,
    ) -> Reading:
        """Runs the stack on the parts of a batch of sources."""
        shifts = [Shift.of((tokens != PAD).int().argmax(dim=1), tokens.size(1)) for tokens in sources]
        sources = [shift.moved(tokens) for shift, tokens in zip(shifts, sources, strict=True)]
        packing, real = Packing.of(sources), [tokens != PAD for tokens in sources]
        here, positions = self._positions(packing, real, rulers)
        metadata = AttentionMetadata([hiding_padding(each) for each in real], packing, packing, positions)
        x = self.embedding(packing.pack(sources), here)
        inputs: list[Tensor] = []
        memory: list[Sequence[KeyValues]] = []
        maps: list[Tensor | None] = []
        for layer, block in enumerate(self.layers):
            inputs.append(x)
            memory.append(block.attn.project(x, x, packing, positions))
            seen = metadata.with_intervention(intervention, "self", layer)
            if seen.intervention is not None:
                # Edges are named by where tokens were given, not by where they were moved to.
                seen = seen._replace(intervention=shifts[0].moved(seen.intervention, -1))
            x, weights = block.read(x, memory[-1], seen, need_weights=need_weights)
            maps.append(None if weights is None else shifts[0].back(weights, -1))
        return Reading(x, inputs, memory, metadata, shifts, real, attention_maps({"self": maps}))

    def _positions(
        self, packing: Packing, real: Sequence[Bool[Tensor, "_ _"]], rulers: Sequence[Ruler]
    ) -> tuple[Tensor, QueryKeyPositions]:
        """Returns where source tokens are, and what attention is told of it.

        What is predicted at a source token is a target token, of the same rank.
        """
        targets: list[Coordinates] = []
        sources: list[Coordinates] = []
        for ruler, each in zip(rulers, real, strict=True):
            targets.append(ruler.target(from_start(each), num_symbols(each)))
            sources.append(ruler.source(each))
            self.check_places(ruler, each.size(1), sources[-1].start)
        target, source = packed_places(packing, targets), packed_places(packing, sources)
        code = self.embedding.position
        crossing = code.for_cross_attention(target, source)
        return source.start, crossing or QueryKeyPositions(code, source.start, source.start)

    def _logits(self, reading: Reading, num_targets: Sequence[int]) -> Float[Tensor, "B L V"]:
        """Returns the logits of the first tokens of each part, which of padding are those of EOS."""
        packing, logits = reading.metadata.queries, self.output(reading.output)
        logits = logits.where(packing.pack(reading.real)[..., None], self._end(logits))
        # Copied: a trace would be bound to whether a slice, as it lies in memory, is all that there is.
        rows = [
            each.index_select(1, torch.arange(length, device=each.device))
            for each, length in zip(packing.unpack(logits), num_targets, strict=True)
        ]
        return Packing.of(rows).pack(rows)

    def _end(self, logits: Tensor) -> Float[Tensor, " V"]:
        """Returns logits by which EOS is the likeliest token."""
        return functional.one_hot(torch.tensor(EOS, device=logits.device), logits.size(-1)).to(logits.dtype)

    def _rows_of_maps(self, reading: Reading, rows: slice) -> AttentionMaps:
        """Attends once more from a few tokens only, since all maps at once may be more than memory has room for."""
        maps: list[Tensor | None] = []
        positions = reading.metadata.positions
        if positions is not None:
            positions = positions._replace(queries=positions.queries[..., rows])
        for block, inputs, memory in zip(self.layers, reading.inputs, reading.memory, strict=True):
            x = inputs[:, rows]
            metadata = reading.metadata._replace(queries=Packing.of([x]), positions=positions)
            weights = block.attn.attend(x, memory, metadata).weights
            maps.append(None if weights is None else reading.shifts[0].back(weights, -1))
        return attention_maps({"self": maps})
