"""T5's relative positions: a learned bias for every bucket of distances."""

import math

import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn

from attention_lab.errors import SettingError
from attention_lab.positions.position import Position


class RelativeT5(Position):
    """Adds to the score of a query at p and a key at r a learned number for the bucket of r - p (Raffel et al. 2020).

    Half of the buckets hold one small distance each, the other half ever wider ranges, logarithmically up to
    `max_distance`; all beyond that share the last. A causal stack gives all buckets to the past, any other one half to
    each side. As in T5 one table serves all layers of a stack, and between target and source it says nothing. T5 does
    not divide scores by √K; here attention does, so that the same table means √K times as much there.

    Args:
        d_model: not needed.
        num_buckets: how many numbers each head learns.
        max_distance: where the last bucket begins, in tokens.
        num_heads: heads H.
        causal: whether no key lies after its query.

    Raises:
        SettingError: there are fewer than four buckets, or an odd number, or `max_distance` leaves none for the ranges.
    """

    requires = ("bias",)

    def __init__(
        self,
        d_model: int,
        num_buckets: int = 32,
        max_distance: int = 128,
        *,
        num_heads: int = 1,
        causal: bool = False,
    ) -> None:
        super().__init__(d_model)
        if num_buckets < 4 or num_buckets % 2:
            raise SettingError("num_buckets", num_buckets, "must be even and at least 4")
        if max_distance <= num_buckets // 2:
            raise SettingError("max_distance", max_distance, f"must be above num_buckets / 2 = {num_buckets // 2}")
        self.num_buckets = num_buckets
        self.max_distance = max_distance
        self.causal = causal
        self.table = nn.Embedding(num_buckets, num_heads)
        nn.init.normal_(self.table.weight, std=0.02)

    def bias(self, queries: Integer[Tensor, "*#B L"], keys: Integer[Tensor, "*#B S"]) -> Float[Tensor, "*#B H L S"]:
        """Returns the number of each pair's bucket."""
        buckets = self.bucket(keys[..., None, :] - queries[..., :, None])
        return self.table(buckets).movedim(-1, -3)

    def bucket(self, offset: Integer[Tensor, "..."]) -> Integer[Tensor, "..."]:
        """Returns the bucket of each offset r - p, as T5's own code numbers them."""
        if self.causal:
            side, count, distance = torch.zeros_like(offset), self.num_buckets, (-offset).clamp(min=0)
        else:
            count = self.num_buckets // 2
            side, distance = (offset > 0) * count, offset.abs()
        exact = count // 2
        # The logarithm of 0 is never used; it only must not be taken.
        ratio = (distance.clamp(min=1).float() / exact).log() / math.log(self.max_distance / exact)
        ranges = (exact + (ratio * (count - exact)).long()).clamp(max=count - 1)
        return side + torch.where(distance < exact, distance, ranges)
