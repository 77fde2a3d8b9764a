"""Where tokens are: every token carries its coordinates, and codes never count for themselves."""

import sys
from typing import NamedTuple

import torch
from jaxtyping import Bool, Integer
from torch import Tensor

UNLIMITED = sys.maxsize
"""How many positions there are where any two can be told apart."""


class Coordinates(NamedTuple):
    """Where the tokens of a source or of a target are, seen from both of its ends.

    Source and target are measured by one ruler, so that "as far from the beginning as that token is from the end" is a
    difference of zero: reversing is nothing else.

    Attributes:
        start: how many tokens come before it.
        end: of a source token, how many symbols come after it, and of its EOS, how many there are: from whichever end a
            source is read, EOS comes last. Of a target token, how many come before it, less the symbols of the source
            (negative in a target's first part).
    """

    start: Integer[Tensor, "#B L"]
    end: Integer[Tensor, "#B L"]


class Ruler(NamedTuple):
    """The coordinate of every rank: 0, 1, 2, ... unless it says otherwise; different ranks, different coordinates.

    Attributes:
        marks: the coordinates of the first ranks, rising; negative ranks lie mirrored before the first.
        gap: how far the first `tokens` ranks are apart, where that is not 1; what comes after them follows at 1.
        tokens: how many these are, of each row.
    """

    marks: Integer[Tensor, "B _"] | None = None
    gap: Integer[Tensor, "B 1"] | None = None
    tokens: Integer[Tensor, "B 1"] | None = None

    def at(self, ranks: Integer[Tensor, "#B L"]) -> Integer[Tensor, "#B L"]:
        """Returns the coordinates of ranks."""
        if self.marks is not None:
            marks = self.marks.gather(1, ranks.abs().expand(len(self.marks), -1))
            return torch.where(ranks < 0, 2 * self.marks[:, :1] - marks, marks)
        if self.gap is None or self.tokens is None:
            return ranks
        apart = torch.minimum(ranks.abs(), self.tokens - 1) * ranks.sign()
        return apart * self.gap + (ranks - apart)

    @property
    def num_ranks(self) -> int:
        """How many ranks have a coordinate."""
        return UNLIMITED if self.marks is None else self.marks.size(1)

    def source(self, real: Bool[Tensor, "B S"]) -> Coordinates:
        """Returns where the tokens of sources are, each of which ends with EOS."""
        ranks, symbols = from_start(real), num_symbols(real)
        return Coordinates(self.at(ranks), self.at((symbols - 1 - ranks).where(ranks < symbols, symbols)))

    def target(self, ranks: Integer[Tensor, "#B T"], num_symbols: Integer[Tensor, "B 1"]) -> Coordinates:
        """Returns where target tokens are, the sources of which have so many symbols."""
        return Coordinates(self.at(ranks), self.at(ranks - num_symbols))


def from_start(real: Bool[Tensor, "B L"]) -> Integer[Tensor, "B L"]:
    """Returns each token's distance from the first real one, in tokens.

    Padding on the left does not shift anybody; padding itself gets the nearest coordinate, which nobody reads.
    """
    return (real.cumsum(dim=1) - 1).clamp(min=0)


def num_symbols(real: Bool[Tensor, "B S"]) -> Integer[Tensor, "B 1"]:
    """Returns how many tokens of each source come before its EOS; none where all is padding."""
    return (real.sum(dim=1, keepdim=True) - 1).clamp(min=0)
