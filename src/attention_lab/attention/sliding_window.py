"""Sliding-window attention: a query sees its neighbours, and a few tokens see and are seen by everything."""

from collections.abc import Mapping
from typing import ClassVar, NamedTuple

import torch
from jaxtyping import Bool, Float, Integer, Shaped
from torch import Tensor
from torch.nn import functional

from attention_lab.attention.key_values import KeyValues
from attention_lab.attention.mask import Mask, boolean
from attention_lab.attention.multi_head import MultiHeadAttention, fused
from attention_lab.attention.window_cache import WindowCache, WindowKeyValues
from attention_lab.errors import SettingError
from attention_lab.positions.position import QueryKeyPositions

SMALLEST = 32
"""The least queries in a block, where there are as many: in smaller ones overhead costs more than it saves."""


class Everywhere(NamedTuple):
    """The tokens that see and are seen by everything.

    Attributes:
        member: which of all tokens belong to them.
        places: where they are; a row that has fewer of them gets other places in their stead, all different.
        present: which of the places hold one.
    """

    member: Bool[Tensor, "#B T"]
    places: Integer[Tensor, "#B E"]
    present: Bool[Tensor, "#B E"]


class SlidingWindowAttention(MultiHeadAttention):
    """softmax(Q Kᵀ / √d_k) V over the keys at a distance of at most `window` on either side, in time and memory O(n).

    Longformer (Beltagy et al. 2020). Its `attention_window` counts both sides: attention_window = 2 · window. Where the
    mask is causal only the past side is left. The first `num_global` real tokens of a row see everything and are seen
    by everything; under a causal mask they are seen by all after them and see, as everybody, only the past. Longformer
    projects its global attention by matrices of its own; here it shares the others', so that the state dict is that of
    full attention, which this is once the window reaches everywhere.

    Distance is counted in tokens as they stand in the row, not in coordinates, which may be stretched or drawn at
    random. Nothing of size n x n is made unless weights are asked for, or the mask has `allowed`.

    Args:
        d_model: model width D.
        num_heads: number of heads H; each is K = D / H wide.
        dropout: probability of dropping an attention weight while training.
        window: how far a query sees on each side, in tokens.
        num_global: how many of the first tokens see and are seen by everything.

    Raises:
        SettingError: as `MultiHeadAttention`; or `window` is not positive, or `num_global` is negative.
    """

    unsupported: ClassVar[Mapping[str, str]] = {
        "cross": "two sequences have no neighbourhood in common (LED, Longformer's own encoder-decoder, leaves "
        "cross-attention full)"
    }

    def __init__(
        self, d_model: int = 512, num_heads: int = 8, dropout: float = 0.1, *, window: int = 8, num_global: int = 0
    ) -> None:
        super().__init__(d_model, num_heads, dropout)
        if window < 1:
            raise SettingError("window", window, "must be at least 1")
        if num_global < 0:
            raise SettingError("num_global", num_global, "must be at least 0")
        self.window = window
        self.num_global = num_global

    def new_cache(self, expected: int = 0) -> WindowCache:
        """Returns an empty cache that keeps no more than `num_global + window` tokens from one step to the next."""
        return WindowCache(self.window, self.num_global)

    def mix(
        self,
        queries: Float[Tensor, "B H L K"],
        memory: KeyValues,
        mask: Mask,
        positions: QueryKeyPositions | None,
        need_weights: bool,
    ) -> tuple[Float[Tensor, "B H L K"], Float[Tensor, "B H L S"] | None]:
        """Mixes the values of neighbours, head by head.

        What a cache returned holds few tokens; mask, coordinates and weights are those of all tokens so far even then.

        Raises:
            ValueError: queries and keys are not of one sequence; or they are decoded after padding on the left, which
                took the place of global tokens in the cache.
        """
        cached = isinstance(memory, WindowKeyValues)
        num_tokens = memory.keys.size(2) + (memory.num_before if cached else 0)
        square = queries.size(2) == num_tokens
        if not (square or cached or (mask.causal and queries.size(2) < num_tokens)):
            raise ValueError(
                f"{queries.size(2)} queries and {num_tokens} keys cannot be of one sequence; a sliding window is for "
                f"self-attention only: {self.unsupported['cross']}"
            )
        everywhere = self._everywhere(mask.keys, num_tokens, cached, queries.device)
        if not need_weights and mask.allowed is None and (square or mask.causal):
            mixed = self._blockwise(queries, memory, mask, positions, everywhere)
            # Under a causal mask all that a global token sees are global tokens.
            if not mask.causal and self.num_global:
                mixed = self._with_global_queries(mixed, queries, memory, mask, positions, everywhere)
            return mixed, None
        mask = mask.narrowed(self._visible(everywhere.member, queries.size(2)))
        memory = memory.spread() if isinstance(memory, WindowKeyValues) else memory
        return super().mix(queries, memory, mask, positions, need_weights)

    def _everywhere(
        self, real: Bool[Tensor, "B T"] | None, num_tokens: int, cached: bool, device: torch.device
    ) -> Everywhere:
        """Finds the first real tokens of each row."""
        if real is None:
            member = torch.arange(num_tokens, device=device)[None] < self.num_global
        else:
            member = boolean(real) & (real.cumsum(dim=1) <= self.num_global)
            if cached and member[:, self.num_global :].any():
                raise ValueError(
                    f"num_global={self.num_global} cannot be decoded in pieces after padding on the left, which took "
                    "the place of global tokens in the cache; pad on the right, or decode without global tokens"
                )
        from_end = torch.arange(num_tokens, 0, -1, device=device)
        found, places = (member * from_end).topk(min(self.num_global, num_tokens), dim=1)
        return Everywhere(member, places, found > 0)

    def _visible(self, member: Bool[Tensor, "#B T"], num_queries: int) -> Bool[Tensor, "#B 1 L T"]:
        """Spells out what the last tokens see where the mask hides nothing."""
        places = torch.arange(member.size(1), device=member.device)
        queries = places.size(0) - num_queries
        near = (places[queries:, None] - places).abs() <= self.window
        return (near | member[:, None, :] | member[:, queries:, None])[:, None]

    def _blockwise(
        self,
        queries: Float[Tensor, "B H L K"],
        memory: KeyValues,
        mask: Mask,
        positions: QueryKeyPositions | None,
        everywhere: Everywhere,
    ) -> Float[Tensor, "B H L K"]:
        """Lets each block of queries attend to the global tokens and to the span that its window reaches."""
        batch, _, num_queries, _ = queries.shape
        blocks = WindowBlocks(num_queries, memory.keys.size(2), self.window, mask.causal)
        kept = memory.first if isinstance(memory, WindowKeyValues) else memory
        places = everywhere.places.clamp(max=kept.keys.size(2) - 1)[:, None, :, None]

        def cut(first: Tensor, part: Tensor) -> Tensor:
            joined = _joined(first.take_along_dim(places, dim=2)[:, :, None], blocks.keys(part), dim=-2)
            return joined.transpose(1, 2).flatten(0, 1)

        def rows(each: Tensor) -> Tensor:
            return each.expand(batch, *each.shape[1:]).flatten(0, 1)

        # Every block is a row of a larger batch.
        mixed = fused(
            blocks.queries(queries).transpose(1, 2).flatten(0, 1),
            KeyValues(cut(kept.keys, memory.keys), cut(kept.values, memory.values)),
            Mask(allowed=rows(_open(blocks, mask, everywhere)[:, :, None])),
            self.dropout.p if self.training else 0.0,
            None if (bias := _bias(blocks, positions, everywhere)) is None else rows(bias),
        )
        return mixed.unflatten(0, (batch, -1)).transpose(1, 2).flatten(2, 3)[:, :, :num_queries]

    def _with_global_queries(
        self,
        mixed: Float[Tensor, "B H L K"],
        queries: Float[Tensor, "B H L K"],
        memory: KeyValues,
        mask: Mask,
        positions: QueryKeyPositions | None,
        everywhere: Everywhere,
    ) -> Float[Tensor, "B H L K"]:
        """Replaces what the global tokens found in their window by what they find everywhere."""
        places = everywhere.places[:, None, :, None]
        bias = None
        if positions is not None:
            here = positions.queries.take_along_dim(everywhere.places, dim=1)
            bias = positions.code.bias(here, positions.keys)
        found = fused(
            queries.take_along_dim(places, dim=2), memory, mask, self.dropout.p if self.training else 0.0, bias
        )
        # In a row that has fewer every real token is global and seen by all, so that other places find nothing else.
        return mixed.scatter(2, places.expand_as(found), found)


class WindowBlocks:
    """Blocks of consecutive queries, each with the keys from `window` before its first to `window` after its last.

    A block is as long as the window (unless that is very short), so that a span is three blocks, or two where no query
    looks ahead, and the work proportional to the length. What lies beyond an end of the sequence is zero, or False.

    Args:
        num_queries: how many queries there are: they belong to the last tokens that have keys.
        num_keys: how many keys there are.
        window: how far a query sees on each side, in tokens.
        causal: whether it sees the past side only.
    """

    def __init__(self, num_queries: int, num_keys: int, window: int, causal: bool) -> None:
        # A window that reached beyond the sequence would only be filled with padding.
        self.window = min(window, num_keys)
        self.num_queries = num_queries
        self.num_keys = num_keys
        self.causal = causal
        self.block = max(1, min(num_queries, max(self.window, SMALLEST)))
        self.count = -(-num_queries // self.block)
        self.span = self.window + self.block + (0 if causal else self.window)
        self._behind = self.window - (num_keys - num_queries)
        self._beyond = self.count * self.block - num_queries

    def queries(self, x: Shaped[Tensor, "*batch L C"]) -> Shaped[Tensor, "*batch blocks block C"]:
        """Cuts what belongs to queries into blocks."""
        return functional.pad(x, (0, 0, 0, self._beyond)).unflatten(-2, (self.count, self.block))

    def keys(self, x: Shaped[Tensor, "*batch S C"]) -> Shaped[Tensor, "*batch blocks span C"]:
        """Cuts what belongs to keys into the spans of the blocks, which overlap."""
        ahead = self._beyond + (0 if self.causal else self.window)
        padded = functional.pad(x, (0, 0, self._behind, ahead))
        return padded.unfold(-2, self.span, self.block).transpose(-1, -2)

    def near(self, device: torch.device) -> Bool[Tensor, "block span"]:
        """Says which keys of its span each query of a block can see."""
        query = torch.arange(self.window, self.window + self.block, device=device)
        distance = torch.arange(self.span, device=device) - query[:, None]
        return (distance.abs() <= self.window) & (distance <= (0 if self.causal else self.window))


def _open(blocks: WindowBlocks, mask: Mask, everywhere: Everywhere) -> Bool[Tensor, "#B blocks block keys"]:
    """Says what each query of a block sees of the global tokens and of its span."""
    num_tokens, device = everywhere.member.size(1), everywhere.member.device
    # A global token in the span is left to the global tokens, so that it does not count twice.
    others = ~everywhere.member if mask.keys is None else mask.keys & ~everywhere.member
    near = blocks.keys(others[:, -blocks.num_keys :, None]).transpose(-1, -2) & blocks.near(device)
    first = everywhere.present[:, None, None, :]
    if mask.causal:
        places = torch.arange(num_tokens - blocks.num_queries, num_tokens, device=device)
        first = first & (everywhere.places[:, None, None, :] <= blocks.queries(places[None, :, None]))
    return _joined(first, near, dim=-1)


def _bias(
    blocks: WindowBlocks, positions: QueryKeyPositions | None, everywhere: Everywhere
) -> Float[Tensor, "#B blocks H block keys"] | None:
    """Returns what the position code adds to the score of each of these pairs."""
    if positions is None:
        return None
    around = blocks.keys(positions.keys[:, -blocks.num_keys :, None])
    first = positions.keys.take_along_dim(everywhere.places, dim=1)[:, None, :, None]
    keys = _joined(first, around, dim=-2)
    return positions.code.bias(blocks.queries(positions.queries[..., None])[..., 0], keys[..., 0])


def _joined(first: Tensor, second: Tensor, dim: int) -> Tensor:
    """Joins along one dimension and broadcasts along the others."""
    shape = list(torch.broadcast_shapes(first.narrow(dim, 0, 0).shape, second.narrow(dim, 0, 0).shape))
    shape[dim] = -1
    return torch.cat([first.expand(shape), second.expand(shape)], dim=dim)
