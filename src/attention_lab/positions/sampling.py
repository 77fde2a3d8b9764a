"""Positions drawn at random in training, so that no distance is new when sequences are longer than any before."""

import math
from typing import Literal

import torch
from jaxtyping import Bool, Integer
from torch import Tensor

from attention_lab.positions.coordinates import Coordinates, Ruler, num_symbols

Distribution = Literal["log_uniform", "uniform"]


class PositionSampling:
    """In training, a sequence's coordinates are a sorted random subset of 0, ..., R - 1 instead of 0, 1, 2, ...

    `uniform`: R is `range`, as in Ruoss et al. 2023 ("Randomized Positional Encodings Boost Length Generalization of
    Transformers"). Neighbours are then always about R/n apart, so that evaluation spreads its n tokens evenly over the
    same range: the subset that training drew on average. (Ruoss et al. draw it at random there as well.)

    `log_uniform`: R is drawn anew for every sequence, log-uniformly between its length and `range`. Dense and sparse
    subsets then occur alike, and evaluation counts 0, 1, 2, ... as without sampling.

    A subset is drawn as floor(u_i (R - n + 1)) + i, i = 0, ..., n - 1, where n is the sequence's own length and the u_i
    are n sorted uniform numbers: distinct and rising, in time O(n log n) whatever R is.

    Args:
        range: how many coordinates there are.
        distribution: of R.

    Raises:
        ValueError: `range` is below 2.
    """

    def __init__(self, range: int, distribution: Distribution = "log_uniform") -> None:
        if range < 2:
            raise ValueError(f"range={range} must be at least 2")
        self.range = range
        self.distribution: Distribution = distribution

    def drawn(self, real: Bool[Tensor, "B S"], num_targets: int) -> Ruler:
        """Draws the coordinates of a training batch, of each row as many as it has tokens: padding changes nothing.

        Args:
            real: which source tokens are no padding.
            num_targets: tokens of the longest target, EOS included.

        Raises:
            ValueError: there are fewer coordinates than tokens.
        """
        length = max(real.size(1), num_targets)
        if length > self.range:
            raise ValueError(f"range={self.range} holds no {length} different positions")
        tokens = _num_tokens(real, num_targets).double()
        ranges = torch.full_like(tokens, self.range)
        if self.distribution == "log_uniform":
            least = tokens.log()
            ranges = (least + torch.rand_like(tokens) * (math.log(self.range) - least)).exp()
        ranks = torch.arange(length, device=real.device)
        # Padding comes after all tokens: a number below 1 is drawn for these only.
        places = torch.rand(len(real), length, dtype=torch.double, device=real.device).masked_fill(ranks >= tokens, 1.0)
        marks = (places.sort(dim=1).values * ((ranges - tokens).floor() + 1)).long() + ranks
        return Ruler(marks.clamp(max=self.range - 1))

    def expected(self, real: Bool[Tensor, "B S"], num_targets: int) -> Ruler:
        """Returns the coordinates that evaluation uses.

        Args:
            real: which source tokens are no padding.
            num_targets: tokens of the longest target, EOS included.
        """
        if self.distribution == "log_uniform":
            return Ruler()
        tokens = _num_tokens(real, num_targets)
        gap = (self.range // tokens).clamp(min=1)
        return Ruler(gap=gap, most=(tokens.max() - 1).clamp(min=self.range - 1))


def _num_tokens(real: Bool[Tensor, "B S"], num_targets: int) -> Integer[Tensor, "B 1"]:
    """Returns how many tokens each row's source or target has, EOS included, whichever has more.

    Targets are taken to be shorter than the longest one by as much as their sources are.
    """
    symbols = num_symbols(real)
    longest = symbols.max().clamp(min=1)
    targets = ((max(num_targets, 1) - 1) * symbols + longest - 1) // longest
    return torch.maximum(symbols, targets) + 1


def ruler_for(sampling: PositionSampling | None, real: Bool[Tensor, "B S"], num_targets: int, training: bool) -> Ruler:
    """Returns the coordinates for a batch.

    Args:
        sampling: how positions are drawn; they are counted where it is None.
        real: which source tokens are no padding.
        num_targets: tokens that a target has at most.
        training: whether the network is learning.
    """
    if sampling is None:
        return Ruler()
    if training:
        return sampling.drawn(real, num_targets)
    return sampling.expected(real, num_targets)


def places_of(
    sampling: PositionSampling | None, real: Bool[Tensor, "B S"], num_targets: int, training: bool
) -> tuple[Coordinates, Coordinates]:
    """Returns where all tokens of a batch's sources and targets are, for whom `ruler_for` takes the same arguments."""
    ruler = ruler_for(sampling, real, num_targets, training)
    ranks = torch.arange(num_targets, device=real.device)[None]
    return ruler.source(real), ruler.target(ranks, num_symbols(real))
