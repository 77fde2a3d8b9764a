"""What our Transformers have in common: where tokens are, how many there may be, and a stack of blocks."""

from collections.abc import Sequence
from typing import ClassVar

import torch
from jaxtyping import Integer
from torch import Tensor, nn

from attention_lab.attention.multi_head import MultiHeadAttention
from attention_lab.attention.packing import Packing
from attention_lab.attention.projection import Projection
from attention_lab.models.blocks import AttentionFactory, TransformerBlock, draw_xavier
from attention_lab.models.embedding import Embedding, PositionFactory
from attention_lab.models.model import SequenceModel, State, check_shape
from attention_lab.positions.coordinates import UNLIMITED, Coordinates, Ruler, num_symbols
from attention_lab.positions.position import Position, check_length
from attention_lab.positions.sampling import PositionSampling
from attention_lab.positions.sinusoidal import PositionalEncoding
from attention_lab.tasks.vocabulary import PAD

PACKED_PARTS = 8
"""Parts of a training batch: packed, they cost little, and so many leave 3.5 % of padding among lengths 1 to 16."""


class Transformer(SequenceModel[State]):
    """A network of attention layers, which know where tokens are by a position code only.

    Attributes:
        sampling: draws positions in training; they are counted where it is None.
        num_positions: how many tokens the position code and every attention have places for.
    """

    batch_parts = PACKED_PARTS
    sampling: PositionSampling | None
    num_positions: int

    joined: ClassVar[bool] = False
    """Whether source and target are one sequence and share its positions."""

    def limit_positions(self, code: Position) -> None:
        """Finds out how many tokens there are places for, once all layers are made."""
        attentions = [module for module in self.modules() if isinstance(module, MultiHeadAttention)]
        self.num_positions = min(code.max_len, *(attention.max_keys for attention in attentions))
        self.max_length = self.num_positions // 2 if self.joined else self.num_positions

    def ruler(
        self, source: Integer[Tensor, "B S"], num_targets: int, target: Integer[Tensor, "B T"] | None = None
    ) -> Ruler:
        """Returns the coordinates of a batch, or of a part of one: each row's own, whatever lies beside it.

        In training they are drawn for as many tokens as each row has; otherwise they are found from the source alone,
        since while decoding nobody knows the target.
        """
        if self.sampling is None:
            return Ruler()
        symbols = num_symbols(source != PAD)
        if target is not None and self.training:
            targets = (target != PAD).sum(dim=1, keepdim=True)
        else:
            targets = self.sampling.expected_targets(symbols)
        tokens = symbols + 1 + targets if self.joined else torch.maximum(symbols + 1, targets)
        if not self.training:
            return self.sampling.expected(tokens)
        width = source.size(1) + num_targets if self.joined else max(source.size(1), num_targets)
        return self.sampling.drawn(tokens, width)

    def check_places(self, ruler: Ruler, num_tokens: int, coordinates: Tensor) -> None:
        """Refuses tokens for which there are no places.

        Raises:
            ValueError: there are more of them, or they lie farther apart, than there are positions.
        """
        check_length(num_tokens, min(self.num_positions, ruler.num_ranks))
        if ruler.gap is not None and self.num_positions < UNLIMITED:
            check_length(int(coordinates.max()) + 1, self.num_positions)


class OneStack(Transformer[State]):
    """An embedding, a stack of blocks, post-norm, and logits; its attention is called `self`.

    Args:
        num_tokens: how many token ids there are, specials included (V).
        d_model: model width D.
        num_heads: heads of every attention; must divide `d_model`.
        num_layers: layers of the stack.
        d_ff: width of the feed-forward layers.
        dropout: probability of dropping an activation or an attention weight while training.
        attention: builds an attention from (d_model, num_heads, dropout).
        position: builds the position code.
        sampling: draws positions in training; they are counted where it is None.

    Raises:
        SettingError: an argument is out of its range.
    """

    alignment_attention = "self"
    causal: ClassVar[bool]
    """Whether a token sees none after itself."""

    def __init__(
        self,
        num_tokens: int,
        d_model: int = 128,
        num_heads: int = 4,
        num_layers: int = 2,
        d_ff: int = 256,
        dropout: float = 0.0,
        *,
        attention: AttentionFactory = MultiHeadAttention,
        position: PositionFactory = PositionalEncoding,
        sampling: PositionSampling | None = None,
    ) -> None:
        super().__init__()
        check_shape(num_layers, num_heads)
        code = position(d_model, num_heads=num_heads, causal=self.causal)
        self.embedding = Embedding(num_tokens, d_model, dropout, code)
        self.blocks = nn.ModuleList(
            TransformerBlock(d_model, num_heads, d_ff, dropout, attention=attention) for _ in range(num_layers)
        )
        self.output = Projection(d_model, num_tokens)
        self.sampling = sampling
        self.limit_positions(code)
        draw_xavier(self)

    @property
    def frames(self) -> tuple[str, ...]:
        return self.embedding.position.frames

    @property
    def alignment_layers(self) -> Sequence[MultiHeadAttention]:
        return [block.attn for block in self.layers]

    @property
    def layers(self) -> list[TransformerBlock]:
        """The blocks, from the first to the last."""
        return [block for block in self.blocks if isinstance(block, TransformerBlock)]


class Shift:
    """Sources moved against their targets: padding goes to one side, whichever side it was on.

    Args:
        by: how far each row's columns are moved to the left, and around; None where none is.
        num_sources: how many columns there are.
    """

    def __init__(self, by: Integer[Tensor, " B"] | None, num_sources: int) -> None:
        self.by = by
        self.num_sources = num_sources

    @classmethod
    def of(cls, by: Integer[Tensor, " B"], num_sources: int) -> "Shift":
        """Returns the shift; nobody looks whether there is any while a network is traced for all batches."""
        return cls(by if torch.compiler.is_compiling() or bool(by.any()) else None, num_sources)

    def moved(self, x: Tensor, dim: int = 1) -> Tensor:
        """Moves what belongs to source tokens, of which the first columns of a dimension are."""
        return x if self.by is None else self._turned(x, self.by, dim)

    def back(self, x: Tensor, dim: int = 1) -> Tensor:
        """Moves it back to where it was given."""
        return x if self.by is None else self._turned(x, -self.by, dim)

    def _turned(self, x: Tensor, by: Tensor, dim: int) -> Tensor:
        dim %= x.dim()
        if x.size(dim) == 1:
            return x
        sources = x.narrow(dim, 0, self.num_sources)
        sources = sources.expand(by.size(0), *sources.shape[1:])
        places = (torch.arange(self.num_sources, device=x.device) + by[:, None]) % self.num_sources
        shape = [by.size(0) if each == 0 else self.num_sources if each == dim else 1 for each in range(x.dim())]
        turned = sources.gather(dim, places.view(shape).expand_as(sources))
        rest = x.narrow(dim, self.num_sources, x.size(dim) - self.num_sources)
        return torch.cat([turned, rest.expand(by.size(0), *rest.shape[1:])], dim=dim)


def packed_places(packing: Packing, places: Sequence[Coordinates]) -> Coordinates:
    """Returns the coordinates of a row's tokens from those of its parts."""
    return Coordinates(packing.pack([each.start for each in places]), packing.pack([each.end for each in places]))
