"""One stack that looks everywhere and says all of the target at once: the architecture of BERT."""

from typing import ClassVar, NamedTuple

import torch
from jaxtyping import Bool, Float, Integer
from torch import Tensor
from torch.nn import functional

from attention_lab.attention.key_values import KeyValues
from attention_lab.attention.mask import Mask, hiding_padding
from attention_lab.models.model import AttentionMaps, Axis, Intervention, ModelOutput, attention_maps
from attention_lab.models.one_stack import OneStack
from attention_lab.positions.coordinates import from_start, num_symbols
from attention_lab.positions.position import Placed
from attention_lab.positions.sampling import ruler_for
from attention_lab.tasks.vocabulary import EOS, PAD


class SaidState(NamedTuple):
    """Everything that is going to be said, and how much of it has been.

    Attributes:
        logits: of every source position.
        inputs: what goes into each layer's attention.
        memory: each layer's keys and values.
        mask: which tokens are real.
        placed: where they are.
        position: how many tokens were said.
    """

    logits: Float[Tensor, "B S V"]
    inputs: tuple[Tensor, ...]
    memory: tuple[KeyValues, ...]
    mask: Mask
    placed: Placed
    position: int


class EncoderOnly(OneStack[SaidState]):
    """A bidirectional Transformer (Devlin et al. 2019) that says its i-th token at the source's i-th; post-norm.

    Its attention is called `self`; a row is what is said there, a column a source token. All tokens are said in
    parallel and none is read, so decoding is nothing but looking them up, and targets longer than their sources cannot
    be said. Padding on the left would move what is said; sources are padded on the right.

    Arguments are those of `OneStack`.
    """

    causal = False
    axes: ClassVar[dict[str, tuple[Axis, Axis]]] = {"self": ("to say in place", "source")}
    says_at_most_its_source = True

    def forward(
        self,
        source: Integer[Tensor, "B S"],
        target: Integer[Tensor, "B T"],
        *,
        need_weights: bool = False,
        intervention: Intervention | None = None,
    ) -> ModelOutput:
        """Predicts every token of the target from the source alone; of the target only the length counts.

        Raises:
            ValueError: the target is longer than the source.
        """
        if target.size(1) > source.size(1):
            raise ValueError(
                f"a target of {target.size(1)} tokens cannot be said at a source of {source.size(1)}, EOS included"
            )
        state, maps = self._read(source, target.size(1), need_weights, intervention or {})
        return ModelOutput(state.logits[:, : target.size(1)], attention_maps({"self": maps}))

    def begin(self, source: Integer[Tensor, "B S"], num_targets: int = 0) -> SaidState:
        return self._read(source, num_targets, need_weights=False, closed={})[0]

    def step(
        self, tokens: Integer[Tensor, "B L"], state: SaidState, *, need_weights: bool = False
    ) -> tuple[ModelOutput, SaidState]:
        """Says the next L tokens, whatever was read; beyond the source's end there is nothing to say but EOS."""
        end = state.position + tokens.size(1)
        rows = slice(state.position, end)
        said = state.logits[:, rows]
        missing = tokens.size(1) - said.size(1)
        if missing:
            nothing = torch.full((len(said), missing), EOS, device=said.device)
            said = torch.cat([said, functional.one_hot(nothing, said.size(2)).to(said.dtype)], dim=1)
        output = ModelOutput(said, {})
        if need_weights:
            output = output._replace(attention=attention_maps({"self": self._rows_of_maps(state, rows)}))
        return output, state._replace(position=end)

    def alignment_maps(self, attention: AttentionMaps, num_targets: int, num_sources: int) -> tuple[Tensor, ...]:
        return tuple(weights[:, :, :num_targets] for weights in attention["self"])

    def target_rows(self, layer: Float[Tensor, "B L D"], num_targets: int) -> Float[Tensor, "B T D"]:
        return layer[:, :num_targets]

    def alignment_mask(self, allowed: Bool[Tensor, "B H T S"]) -> Bool[Tensor, "B H L N"]:
        return functional.pad(allowed, (0, 0, 0, allowed.size(3) - allowed.size(2)), value=True)

    def _read(
        self, source: Tensor, num_targets: int, need_weights: bool, closed: Intervention
    ) -> tuple[SaidState, list[Tensor | None]]:
        real = source != PAD
        mask, ruler = hiding_padding(real), ruler_for(self.sampling, real, num_targets, self.training)
        # What is said at a source token is a target token, of the same rank.
        said, read = ruler.target(from_start(real), num_symbols(real)), ruler.source(real)
        position, here = self.embedding.position, read.start
        placed = position.across(said, read) or Placed(position, here, here)
        x = self.embedding(source, here)
        inputs: list[Tensor] = []
        memory: list[KeyValues] = []
        maps: list[Tensor | None] = []
        for layer, block in enumerate(self.layers):
            inputs.append(x)
            memory.append(block.attn.project(x, x, placed))
            seen = mask.closing(closed.get(("self", layer)))
            x, weights = block.read(x, memory[-1], seen, need_weights=need_weights, placed=placed)
            maps.append(weights)
        return SaidState(self.output(x), tuple(inputs), tuple(memory), mask, placed, 0), maps

    def _rows_of_maps(self, state: SaidState, rows: slice) -> list[Tensor | None]:
        """Attends once more from a few tokens only, since all maps at once may be more than memory has room for.

        A mechanism for which queries and keys have to be the same tokens has no such rows.
        """
        if any("cross" in block.attn.unable for block in self.layers):
            return [None] * len(self.layers)
        placed = state.placed._replace(queries=state.placed.queries[..., rows])
        return [
            block.attn.attend(x[:, rows], memory, state.mask, placed=placed).weights
            for block, x, memory in zip(self.layers, state.inputs, state.memory, strict=True)
        ]
