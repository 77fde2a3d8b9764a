"""What a position code is asked: what to add to an embedding, how to turn a query or a key, what a pair is worth."""

import sys
from typing import ClassVar, NamedTuple

from jaxtyping import Float, Integer
from torch import Tensor, nn

from attention_lab.positions.coordinates import Coordinates

UNLIMITED = sys.maxsize
"""How many positions a code has that can tell any two apart."""


class Position(nn.Module):
    """A position code: a token is where its coordinate says, and the code says what that means.

    Every code is built by (d_model, num_heads, causal), whichever of them it needs, for one stack of layers; a code
    answers those of the three questions that concern it.

    Attributes:
        max_len: how many positions there are.
        asks: what attention must be able to do: `turn` queries and keys, have `frames` in which each head counts for
            itself, or take a `bias` on scores.
        frames: where each head of the attention to the source measures from, if heads differ in that.
    """

    max_len: int = UNLIMITED
    frames: tuple[str, ...] = ()
    asks: ClassVar[tuple[str, ...]] = ()

    def __init__(self, d_model: int, *, num_heads: int = 1, causal: bool = False) -> None:
        super().__init__()

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

    def across(self, queries: Coordinates, keys: Coordinates) -> "Placed | None":
        """Places a target's queries and a source's keys for the attention between them.

        None where the code says nothing about two sequences, whose coordinates are each counted from their own ends.
        """
        return None


class Placed(NamedTuple):
    """Where queries and keys are, and the code that says what that means to attention.

    Attributes:
        position: the code.
        queries: the coordinates of the queries, (B, L), or (B, H, L) where each head has its own.
        keys: the coordinates of the keys, (B, S) or (B, H, S).
    """

    position: Position
    queries: Integer[Tensor, "#B *H L"]
    keys: Integer[Tensor, "#B *H S"]

    @property
    def bias(self) -> Float[Tensor, "#B H L S"] | None:
        """What is added to the score of each pair."""
        return self.position.bias(self.queries, self.keys)
