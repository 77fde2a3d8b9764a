"""Positions drawn at random in training, so that no distance is new when sequences are longer than any before."""

import math
from collections.abc import Callable
from typing import Literal

import torch
from jaxtyping import Integer
from torch import Tensor

from attention_lab.errors import SettingError
from attention_lab.positions.coordinates import Ruler

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
        longest: how many tokens the longer of source and target has for a source of so many symbols; a target is
            expected to be as long as its source where not given. Training looks at the targets themselves; while
            decoding, nobody knows them.

    Raises:
        SettingError: `range` is below 2.
    """

    def __init__(
        self,
        range: int,
        distribution: Distribution = "log_uniform",
        longest: Callable[[int], int] | None = None,
    ) -> None:
        if range < 2:
            raise SettingError("range", range, "must be at least 2")
        self.range = range
        self.distribution: Distribution = distribution
        self.longest = longest

    def drawn(self, tokens: Integer[Tensor, "B 1"], width: int) -> Ruler:
        """Draws the coordinates of a training batch.

        Args:
            tokens: how many tokens each row has; what is drawn for it depends on that alone.
            width: how many ranks need a coordinate; those beyond a row's own tokens are padding.

        Raises:
            ValueError: there are fewer coordinates than tokens.
        """
        if width > self.range and int(tokens.max()) > self.range:
            raise ValueError(f"range={self.range} holds no {int(tokens.max())} different positions")
        counts = tokens.double()
        ranges = torch.full_like(counts, self.range)
        if self.distribution == "log_uniform":
            least = counts.log()
            ranges = (least + torch.rand_like(counts) * (math.log(self.range) - least)).exp()
        ranks = torch.arange(width, device=tokens.device)
        # Padding comes after all tokens: a number below 1 is drawn for these only.
        places = torch.rand(len(tokens), width, dtype=torch.double, device=tokens.device)
        places = places.masked_fill(ranks >= tokens, 1.0).sort(dim=1).values
        marks = (places * ((ranges - counts).floor() + 1)).long() + ranks
        return Ruler(marks.clamp(max=self.range - 1))

    def expected(self, tokens: Integer[Tensor, "B 1"]) -> Ruler:
        """Returns the coordinates that evaluation uses, each row's by as many tokens as it is expected to have."""
        if self.distribution == "log_uniform":
            return Ruler()
        return Ruler(gap=(self.range // tokens).clamp(min=1), tokens=tokens)

    def expected_targets(self, num_symbols: Integer[Tensor, "B 1"]) -> Integer[Tensor, "B 1"]:
        """Returns how many tokens each target will have, EOS included, for sources of so many symbols."""
        if self.longest is None or self.distribution == "log_uniform":
            return num_symbols + 1
        longest = {symbols: self.longest(symbols) + 1 for symbols in set(num_symbols.flatten().tolist()) if symbols}
        known = [[longest.get(symbols, 1)] for symbols in num_symbols.flatten().tolist()]
        return torch.tensor(known, device=num_symbols.device)
