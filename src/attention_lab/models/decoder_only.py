"""One causal stack that reads the source and then says the target: the architecture of GPT."""

from collections.abc import Mapping
from typing import ClassVar, NamedTuple

import torch
from jaxtyping import Bool, Float, Integer
from torch import Tensor
from torch.nn import functional

from attention_lab.attention.key_values import Cache
from attention_lab.attention.mask import hiding_padding
from attention_lab.models.model import AttentionMaps, Axis, Intervention, ModelOutput, attention_maps
from attention_lab.models.one_stack import OneStack
from attention_lab.positions.coordinates import Ruler
from attention_lab.positions.position import Placed
from attention_lab.positions.sampling import ruler_for
from attention_lab.tasks.vocabulary import PAD


class ReadingState(NamedTuple):
    """What the stack keeps of everything read so far.

    Attributes:
        history: what each layer's attention keeps.
        real: which tokens so far are not padding.
        moved: how far each row's source was moved to the right; None if none was.
        num_sources: how many tokens sources have, padding included.
        ruler: the coordinates of source and target, which are one sequence here.
    """

    history: tuple[Cache, ...]
    real: Bool[Tensor, "B N"]
    moved: Integer[Tensor, " B"] | None
    num_sources: int
    ruler: Ruler


class DecoderOnly(OneStack[ReadingState]):
    """A causal Transformer (Radford et al. 2018) on the source, its EOS as separator, BOS and the target; post-norm.

    Its attention is called `self`; rows and columns are the source's tokens and then the target's. Loss is on the
    target only. Sources that are padded on the right are moved up to their targets, so that every row is as if there
    were no padding, also to a mechanism that counts neighbours; maps have the source's tokens where they were given.

    Arguments are those of `OneStack`.
    """

    causal = True
    sequences = 2
    needs: ClassVar[tuple[str, ...]] = ("causal",)
    unable: ClassVar[Mapping[str, str]] = {
        "frames": "it reads the source before it knows how long that is, and source and target are one sequence"
    }
    axes: ClassVar[dict[str, tuple[Axis, Axis]]] = {"self": ("source, to say", "source, target")}

    def forward(
        self,
        source: Integer[Tensor, "B S"],
        target: Integer[Tensor, "B T"],
        *,
        need_weights: bool = False,
        intervention: Intervention | None = None,
    ) -> ModelOutput:
        state, source = self._nothing(source, target.size(1))
        tokens = torch.cat([source, target], dim=1)
        output, _ = self._read(tokens, state, need_weights, intervention or {})
        return output._replace(logits=output.logits[:, source.size(1) :])

    def begin(self, source: Integer[Tensor, "B S"], num_targets: int = 0) -> ReadingState:
        state, source = self._nothing(source, num_targets)
        return self._read(source, state, need_weights=False, closed={})[1]

    def step(
        self, tokens: Integer[Tensor, "B L"], state: ReadingState, *, need_weights: bool = False
    ) -> tuple[ModelOutput, ReadingState]:
        return self._read(tokens, state, need_weights, closed={})

    def alignment_maps(self, attention: AttentionMaps, num_targets: int, num_sources: int) -> tuple[Tensor, ...]:
        return tuple(weights[:, :, -num_targets:, :num_sources] for weights in attention["self"])

    def target_rows(self, layer: Float[Tensor, "B L D"], num_targets: int) -> Float[Tensor, "B T D"]:
        return layer[:, -num_targets:]

    def map_side(self, num_sources: int, num_targets: int) -> int:
        return num_sources + num_targets

    def alignment_mask(self, allowed: Bool[Tensor, "B H T S"]) -> Bool[Tensor, "B H L N"]:
        return functional.pad(allowed, (0, allowed.size(2), allowed.size(3), 0), value=True)

    def _nothing(self, source: Tensor, num_targets: int) -> tuple[ReadingState, Tensor]:
        """Returns the state before anything is read, and the source with its padding moved to the left."""
        history = tuple(block.attn.new_cache(source.size(1) + num_targets) for block in self.layers)
        nothing = torch.ones(len(source), 0, dtype=torch.bool, device=source.device)
        ruler = ruler_for(self.sampling, source != PAD, source.size(1) + num_targets, self.training)
        behind = (source.flip(1) != PAD).int().argmax(dim=1)
        if not bool(behind.any()):
            return ReadingState(history, nothing, None, source.size(1), ruler), source
        state = ReadingState(history, nothing, behind, source.size(1), ruler)
        return state, source.gather(1, _places(source, -behind))

    def _read(
        self, tokens: Tensor, state: ReadingState, need_weights: bool, closed: Intervention
    ) -> tuple[ModelOutput, ReadingState]:
        real = tokens != PAD
        so_far = torch.cat([state.real, real], dim=1)
        places = state.ruler.at((so_far.cumsum(dim=1) - 1).clamp(min=0))
        here = places[:, state.real.size(1) :]
        code = self.embedding.position
        new, placed = Placed(code, here, here), Placed(code, here, places)
        mask = hiding_padding(so_far)._replace(causal=True)
        x = self.embedding(tokens, here)
        maps: list[Tensor | None] = []
        for layer, block in enumerate(self.layers):
            history = state.history[layer].append(block.attn.project(x, x, new), real)
            allowed = closed.get(("self", layer))
            seen = mask.closing(None if allowed is None else _as_moved(allowed, state))
            x, weights = block.read(x, history, seen, need_weights=need_weights, placed=placed)
            maps.append(None if weights is None else _as_given(weights, state))
        return ModelOutput(self.output(x), attention_maps({"self": maps})), state._replace(real=so_far)


def _places(like: Tensor, by: Integer[Tensor, " B"]) -> Integer[Tensor, "B S"]:
    """Returns which column comes to stand where when all of a row are moved to the left, and around its end."""
    size = like.size(1)
    return (torch.arange(size, device=like.device) + by[:, None]) % size


def _as_given(weights: Float[Tensor, "B H L N"], state: ReadingState) -> Float[Tensor, "B H L N"]:
    """Returns maps whose source tokens stand where they were given."""
    return weights if state.moved is None else _turned(weights, state.moved, state)


def _as_moved(allowed: Bool[Tensor, "..."], state: ReadingState) -> Bool[Tensor, "..."]:
    """Returns an intervention whose source tokens stand where they were moved to."""
    if state.moved is None or allowed.size(-1) == 1:
        return allowed
    return _turned(allowed.expand(len(state.moved), *allowed.shape[1:]), -state.moved, state)


def _turned(matrix: Tensor, by: Tensor, state: ReadingState) -> Tensor:
    sources, rest = matrix[..., : state.num_sources], matrix[..., state.num_sources :]
    columns = _places(sources[:, 0, 0], by)[:, None, None].expand(sources.shape)
    matrix = torch.cat([sources.gather(-1, columns), rest], dim=-1)
    if state.real.size(1) or matrix.size(2) == 1:
        return matrix
    # The first tokens that are read are the source's: rows are theirs as well.
    sources, rest = matrix[:, :, : state.num_sources], matrix[:, :, state.num_sources :]
    rows = _places(sources[:, 0, :, 0], by)[:, None, :, None].expand(sources.shape)
    return torch.cat([sources.gather(2, rows), rest], dim=2)
