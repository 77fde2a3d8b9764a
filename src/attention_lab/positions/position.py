"""What a position code answers: what to add to an embedding, how to turn a query or a key, what a pair is worth."""

from collections.abc import Callable
from typing import ClassVar, NamedTuple

import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn

from attention_lab.positions.coordinates import UNLIMITED, Coordinates


class Position(nn.Module):
    """A position code: a token is where its coordinate says, and the code says what that means.

    Every code is built by (d_model, num_heads, causal), whichever of them it needs, for one stack of layers; a code
    answers those of the three questions that concern it.

    Its buffers, angles and tables, keep the precision they were made in when the network's weights are rounded: in half
    precision position 4,095 would be position 4,096.

    Attributes:
        max_len: how many positions there are.
        requires: what attention must be able to do: `turn` queries and keys, have `frames` in which each head counts
            for itself, or take a `bias` on scores.
        frames: where each head of the attention to the source measures from, if heads differ in that.
    """

    max_len: int = UNLIMITED
    frames: tuple[str, ...] = ()
    requires: ClassVar[tuple[str, ...]] = ()

    def __init__(self, d_model: int, *, num_heads: int = 1, causal: bool = False) -> None:
        super().__init__()

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "Position":
        """Moves and converts the module (`to`, `half`, `cuda`, ...), but no buffer to fewer digits than it has."""
        exact = dict(self.named_buffers(recurse=False))
        super()._apply(fn, recurse)
        for name, buffer in exact.items():
            moved = self.get_buffer(name)
            if moved.is_floating_point() and torch.finfo(moved.dtype).bits < torch.finfo(buffer.dtype).bits:
                self.register_buffer(name, buffer.to(moved.device), name not in self._non_persistent_buffers_set)
        return self

    def forward(
        self, x: Float[Tensor, "B L D"], coordinates: Integer[Tensor, "#B L"] | None = None
    ) -> Float[Tensor, "B L D"]:
        """Returns embeddings with what the code adds to them, to each by nothing but its own coordinate.

        Coordinates are 0, 1, 2, ... where not given. Where they are, rows need be no sequences.
        """
        return x

    def turn(self, x: Float[Tensor, "B H L K"], coordinates: Integer[Tensor, "#B *H L"]) -> Float[Tensor, "B H L K"]:
        """Returns queries or keys, turned to where they are."""
        return x

    def bias(
        self, queries: Integer[Tensor, "*#B L"], keys: Integer[Tensor, "*#B S"]
    ) -> Float[Tensor, "*#B H L S"] | None:
        """Returns what is added to the score of each pair; None where the code adds nothing."""
        return None

    def for_cross_attention(self, queries: Coordinates, keys: Coordinates) -> "QueryKeyPositions | None":
        """Returns where a target's queries and a source's keys are for the attention between them.

        None where the code says nothing about two sequences, whose coordinates are each counted from their own ends.
        """
        return None


class QueryKeyPositions(NamedTuple):
    """Where queries and keys are, and the code that says what that means to attention.

    Attributes:
        code: the position code.
        queries: the coordinates of the queries, (B, L), or (B, H, L) where each head has its own.
        keys: the coordinates of the keys, (B, S) or (B, H, S).
    """

    code: Position
    queries: Integer[Tensor, "#B *H L"]
    keys: Integer[Tensor, "#B *H S"]

    @property
    def bias(self) -> Float[Tensor, "#B H L S"] | None:
        """What is added to the score of each pair."""
        return self.code.bias(self.queries, self.keys)


def check_length(num_tokens: int, max_len: int) -> None:
    """Refuses a sequence that has no place for its last token.

    Raises:
        ValueError: it has more tokens than there are positions.
    """
    if num_tokens > max_len:
        raise ValueError(f"a sequence of {num_tokens} tokens does not fit into max_len={max_len} positions")
