"""Cutting a sequence into blocks of queries and, for each, the span of keys that its window can reach."""

import torch
from jaxtyping import Bool, Shaped
from torch import Tensor
from torch.nn import functional

SMALLEST = 32
"""The least queries in a block, where there are as many: in smaller ones overhead costs more than it saves."""


class WindowBlocks:
    """Blocks of N consecutive queries, each with the keys from `window` before its first to `window` after its last.

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

    def queries(self, x: Shaped[Tensor, "*batch L C"]) -> Shaped[Tensor, "*batch blocks N C"]:
        """Cuts what belongs to queries into blocks."""
        return functional.pad(x, (0, 0, 0, self._beyond)).unflatten(-2, (self.count, self.block))

    def keys(self, x: Shaped[Tensor, "*batch S C"]) -> Shaped[Tensor, "*batch blocks M C"]:
        """Cuts what belongs to keys into the spans of the blocks, which overlap."""
        ahead = self._beyond + (0 if self.causal else self.window)
        padded = functional.pad(x, (0, 0, self._behind, ahead))
        return padded.unfold(-2, self.span, self.block).transpose(-1, -2)

    def near(self, device: torch.device) -> Bool[Tensor, "N M"]:
        """Says which keys of its span each query of a block can see."""
        query = torch.arange(self.window, self.window + self.block, device=device)
        distance = torch.arange(self.span, device=device) - query[:, None]
        return (distance.abs() <= self.window) & (distance <= (0 if self.causal else self.window))
