"""One causal stack that reads the source and then predicts the target: the architecture of GPT."""

from collections.abc import Mapping, Sequence
from typing import ClassVar, NamedTuple

import torch
from jaxtyping import Bool, Float, Integer
from torch import Tensor
from torch.nn import functional

from attention_lab.attention.key_values import Cache
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
from attention_lab.models.transformer import OneStack, Shift
from attention_lab.positions.coordinates import Ruler
from attention_lab.positions.position import QueryKeyPositions
from attention_lab.tasks.vocabulary import PAD


class ReadingState(NamedTuple):
    """What the stack knows of everything read so far.

    Attributes:
        ruler: the coordinates of source and target, which are one sequence here.
        shift: how far each row's source was moved, so that it ends where its target begins.
        real: which tokens so far are not padding.
        history: what each layer's attention keeps; none where all is read at once.
    """

    ruler: Ruler
    shift: Shift
    real: Bool[Tensor, "B _"]
    history: Sequence[Cache] = ()


class DecoderOnly(OneStack[ReadingState]):
    """A causal Transformer (Radford et al. 2018) on the source, its EOS as separator, BOS and the target; post-norm.

    Its attention is called `self`; rows and columns are the source's tokens and then the target's. Loss is on the
    target only. Sources that are padded on the right are moved up to their targets, so that every row is as if there
    were no padding, also to a mechanism that counts neighbours; maps have the source's tokens where they were given.

    Arguments are those of `OneStack`.
    """

    causal = True
    joined = True
    needs: ClassVar[tuple[str, ...]] = ("causal",)
    unsupported: ClassVar[Mapping[str, str]] = {
        "frames": "it reads the source before it knows how long that is, and source and target are one sequence"
    }
    axes: ClassVar[dict[str, tuple[Axis, Axis]]] = {"self": ("source, predicted", "source, target")}

    @property
    def maps_in_pieces(self) -> bool:
        return not any("cached_weights" in attention.unsupported for attention in self.alignment_layers)

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
        states, moved = zip(*(self._unread(*part) for part in zip(sources, targets, strict=True)), strict=True)
        tokens = [torch.cat(part, dim=1) for part in zip(moved, targets, strict=True)]
        x, maps, _ = self._read(tokens, states, need_weights, intervention)
        rows = zip(Packing.of(tokens).unpack(x), sources, strict=True)
        predicted = Packing.of(targets).pack([row[:, tokens.size(1) :] for row, tokens in rows])
        return ModelOutput(self.output(predicted), maps)

    def begin(self, source: Integer[Tensor, "B S"], num_targets: int = 0) -> ReadingState:
        state, moved = self._unread(source, None, num_targets)
        expected = source.size(1) + num_targets
        state = state._replace(history=[block.attn.new_cache(expected) for block in self.layers])
        return self._read([moved], [state])[2]

    def step(
        self, tokens: Integer[Tensor, "B L"], state: ReadingState, *, need_weights: bool = False
    ) -> tuple[ModelOutput, ReadingState]:
        x, maps, state = self._read([tokens], [state], need_weights and self.maps_in_pieces)
        return ModelOutput(self.output(x), maps), state

    def alignment_maps(self, attention: AttentionMaps, num_targets: int, num_sources: int) -> tuple[Tensor, ...]:
        return tuple(weights[:, :, -num_targets:, :num_sources] for weights in attention["self"])

    def target_rows(self, layer: Float[Tensor, "B L D"], num_targets: int) -> Float[Tensor, "B T D"]:
        return layer[:, -num_targets:]

    def map_side(self, num_sources: int, num_targets: int) -> int:
        return num_sources + num_targets

    def alignment_mask(self, allowed: Bool[Tensor, "B H T S"]) -> Bool[Tensor, "B H L L"]:
        return functional.pad(allowed, (0, allowed.size(2), allowed.size(3), 0), value=True)

    def _unread(self, source: Tensor, target: Tensor | None, num_targets: int = 0) -> tuple[ReadingState, Tensor]:
        """Returns the state before anything is read, and the source with its padding moved to the left."""
        ruler = self.ruler(source, num_targets if target is None else target.size(1), target)
        behind = (source.flip(1) != PAD).int().argmax(dim=1)
        shift = Shift.of(-behind, source.size(1))
        nothing = torch.ones(source.size(0), 0, dtype=torch.bool, device=source.device)
        return ReadingState(ruler, shift, nothing), shift.moved(source)

    def _read(
        self,
        tokens: Sequence[Tensor],
        states: Sequence[ReadingState],
        need_weights: bool = False,
        intervention: Intervention | None = None,
    ) -> tuple[Tensor, AttentionMaps, ReadingState]:
        """Reads the parts of a batch: all of their tokens, or the next ones where there is a history.

        Returns:
            The last layer's row, the maps, and the state of the first part after that.
        """
        code, packing, first = self.embedding.position, Packing.of(tokens), states[0]
        pairs = list(zip(tokens, states, strict=True))
        real = [torch.cat([state.real, part != PAD], dim=1) for part, state in pairs]
        so_far = [
            state.ruler.at((each.cumsum(dim=1) - 1).clamp(min=0)) for each, state in zip(real, states, strict=True)
        ]
        for state, places in zip(states, so_far, strict=True):
            self.check_places(state.ruler, places.size(1), places)
        here = packing.pack([places[:, state.real.size(1) :] for places, state in zip(so_far, states, strict=True)])
        keys = Packing.of(real)
        own = QueryKeyPositions(code, here, here)
        masks = [hiding_padding(each)._replace(causal=True) for each in real]
        metadata = AttentionMetadata(masks, packing, keys, own._replace(keys=keys.pack(so_far)))
        x = self.embedding(packing.pack(tokens), here)
        maps: list[Tensor | None] = []
        for layer, block in enumerate(self.layers):
            history = block.attn.project(x, x, packing, own)
            if first.history:
                history = [first.history[layer].append(history[0], tokens[0] != PAD)]
            seen = metadata.with_intervention(intervention, "self", layer)
            if seen.intervention is not None:
                # Edges are named by where tokens were given, not by where they were moved to.
                allowed = first.shift.moved(first.shift.moved(seen.intervention, -1), -2)
                seen = seen._replace(intervention=allowed)
            x, weights = block.read(x, history, seen, need_weights=need_weights)
            if weights is not None:
                weights = first.shift.back(weights, -1)
                # The first tokens that are read are the source's: rows are theirs as well.
                weights = weights if first.real.size(1) else first.shift.back(weights, -2)
            maps.append(weights)
        return x, attention_maps({"self": maps}), first._replace(real=real[0])
