"""Packing: several batches as one row of tokens, so that what treats every token alike runs once for all of them."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Integer
from torch import Tensor

from attention_lab.attention.mask import Mask


class Packing(NamedTuple):
    """How batches lie in a row: the i-th has B_i sequences of L_i tokens, one after another, N = Σ B_i L_i in all.

    To projections, norms and feed-forward layers a packed row is like any other. Attention takes it apart again: no
    token sees one of another sequence.

    Attributes:
        shapes: (B_i, L_i) of each batch.
    """

    shapes: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, batches: Sequence[Tensor]) -> "Packing":
        """Returns the packing of batches (B_i, L_i, ...)."""
        return cls(tuple((batch.size(0), batch.size(1)) for batch in batches))

    def pack(self, batches: Sequence[Tensor]) -> Tensor:
        """Lays batches (B_i, L_i, ...) one after another, as (1, N, ...).

        1 in place of a B_i or an L_i stands for all rows, or all tokens.
        """
        rows = zip(batches, self.shapes, strict=True)
        return torch.cat([batch.expand(*shape, *batch.shape[2:]).flatten(0, 1) for batch, shape in rows])[None]

    def unpack(self, row: Tensor) -> list[Tensor]:
        """Takes a row (1, N, ...) apart into batches (B_i, L_i, ...), which are views of it."""
        pieces = row.split([rows * tokens for rows, tokens in self.shapes], dim=1)
        return [piece.view(*shape, *row.shape[2:]) for piece, shape in zip(pieces, self.shapes, strict=True)]


class PackedMask(NamedTuple):
    """Says which keys the queries of a packed row may attend to: those of their own batch that its mask leaves them.

    Attributes:
        queries: how the queries lie in their row.
        keys: how the keys lie in theirs.
        masks: what hides keys in each batch.
    """

    queries: Packing
    keys: Packing
    masks: tuple[Mask, ...]

    def closing(self, allowed: Bool[Tensor, "..."] | None) -> "PackedMask":
        """Returns the mask as it is.

        Raises:
            ValueError: there is an intervention, which belongs to a batch of its own.
        """
        if allowed is not None:
            raise ValueError("attention is intervened on batch by batch; do not pack them")
        return self

    def num_visible(self, num_queries: int, num_keys: int, device: torch.device) -> Integer[Tensor, "1 N"]:
        """Returns how many keys each query may attend to."""
        shapes = zip(self.masks, self.queries.shapes, self.keys.shapes, strict=True)
        return self.queries.pack([mask.num_visible(own[1], other[1], device) for mask, own, other in shapes])
