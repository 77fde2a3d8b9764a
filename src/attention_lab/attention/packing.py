"""Packing: a padded batch, or several of them as one row of tokens, so that nobody needs to know which."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Integer
from torch import Tensor

from attention_lab.attention.mask import Mask
from attention_lab.positions.position import QueryKeyPositions


class Packing(NamedTuple):
    """How the parts of a batch lie in a row: the i-th has B_i sequences of L_i tokens, one after another.

    A batch of one part is not packed at all: the "row" is the padded batch (B, L, ...) itself, at no cost. Several lie
    in one row (1, N, ...) of N = Σ B_i L_i tokens, with less padding than one batch of them all. To embeddings,
    projections, norms and feed-forward layers both are the same; only attention takes a row apart, since no token sees
    one of another sequence.

    Attributes:
        shapes: (B_i, L_i) of each part.
    """

    shapes: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, parts: Sequence[Tensor]) -> "Packing":
        """Returns the packing of parts (B_i, L_i, ...)."""
        return cls(tuple((part.size(0), part.size(1)) for part in parts))

    def pack(self, parts: Sequence[Tensor]) -> Tensor:
        """Lays parts (B_i, L_i, ...) one after another; 1 in place of B_i or L_i stands for all rows, or all tokens."""
        if len(self.shapes) == 1:
            return parts[0]
        pairs = zip(parts, self.shapes, strict=True)
        return torch.cat([part.expand(*shape, *part.shape[2:]).flatten(0, 1) for part, shape in pairs])[None]

    def unpack(self, row: Tensor, *, heads: bool = False) -> list[Tensor]:
        """Takes a row (1, N, ...), or one of heads (1, H, N, ...), apart into its parts, which are views of it."""
        if len(self.shapes) == 1:
            return [row]
        if heads:
            # Tokens come first, as they lie in memory: cut across heads, gradients would be copied to be joined again.
            return [part.transpose(1, 2) for part in self.unpack(row.transpose(1, 2))]
        pieces = row.split([rows * tokens for rows, tokens in self.shapes], dim=1)
        return [piece.view(*shape, *row.shape[2:]) for piece, shape in zip(pieces, self.shapes, strict=True)]


class AttentionMetadata(NamedTuple):
    """Which queries meet which keys, and where both are; of a packed row, part by part.

    Attributes:
        masks: what hides keys, one mask a part.
        queries: how the queries lie in their row.
        keys: how the keys lie in theirs.
        positions: where the tokens of both rows are, for codes that act inside attention.
        intervention: True where a head may still attend, broadcastable to (B, H, L, S): edges that are cut by hand. A
            query is sharpened by as many keys as it would see without.
    """

    masks: Sequence[Mask]
    queries: Packing
    keys: Packing
    positions: QueryKeyPositions | None = None
    intervention: Bool[Tensor, "..."] | None = None

    @classmethod
    def of_batch(
        cls, mask: Mask, queries: Tensor, keys: Tensor, positions: QueryKeyPositions | None = None
    ) -> "AttentionMetadata":
        """Returns what there is to know of a batch of one part, from its queries (B, L, ...) and keys (B, S, ...)."""
        return cls((mask,), Packing.of((queries,)), Packing.of((keys,)), positions)

    def with_intervention(
        self, intervention: Mapping[tuple[str, int], Bool[Tensor, "..."]] | None, attention: str, layer: int
    ) -> "AttentionMetadata":
        """Returns this with the edges closed that an intervention closes in an attention's layer, if any."""
        allowed = None if intervention is None else intervention.get((attention, layer))
        return self if allowed is None else self._replace(intervention=allowed)

    def turned(self, queries: Float[Tensor, "B H L K"]) -> Float[Tensor, "B H L K"]:
        """Returns a row's queries, turned to where they are."""
        return queries if self.positions is None else self.positions.code.turn(queries, self.positions.queries)

    def part_masks(self) -> Sequence[Mask]:
        """Returns the mask of each part, with the edges closed that are cut by hand."""
        if self.intervention is None:
            return self.masks
        return [mask.narrowed(self.intervention) for mask in self.masks]

    def part_positions(self) -> Sequence[QueryKeyPositions | None]:
        """Returns where the queries and keys of each part are; None where the code adds nothing to a pair's score."""
        positions = self.positions
        if positions is None or "bias" not in positions.code.requires:
            return (None,) * len(self.masks)
        heads = positions.queries.dim() == 3
        queries = self.queries.unpack(positions.queries, heads=heads)
        keys = self.keys.unpack(positions.keys, heads=heads)
        return [QueryKeyPositions(positions.code, *pair) for pair in zip(queries, keys, strict=True)]

    def num_visible(self, device: torch.device) -> Integer[Tensor, "#B #H #L"]:
        """Returns how many keys each query of the row may attend to."""
        sizes = zip(self.masks, self.queries.shapes, self.keys.shapes, strict=True)
        visible = [mask.num_visible(num_queries, num_keys, device) for mask, (_, num_queries), (_, num_keys) in sizes]
        return visible[0] if len(visible) == 1 else self.queries.pack([each[:, 0] for each in visible])[:, None]
