"""ALiBi: the farther away a key is, the less it counts, by a fixed slope a head."""

import math

import torch
from jaxtyping import Float, Integer
from torch import Tensor

from attention_lab.positions.position import Position


class ALiBi(Position):
    """Adds -m_h · |p - r| to the score of a query at p and a key at r (Press et al. 2022).

    The slopes m_h are 2^(-8/H), 2^(-16/H), ... for H a power of two; otherwise those of the next smaller power, and
    then every other one of the next larger, as in the authors' code. Where attention is not causal, distance counts
    alike in both directions. Between target and source it says nothing.

    Args:
        d_model: not needed.
        num_heads: heads H.
    """

    requires = ("bias",)
    slopes: Tensor

    def __init__(self, d_model: int, *, num_heads: int = 1, causal: bool = False) -> None:
        super().__init__(d_model)
        self.register_buffer("slopes", torch.tensor(alibi_slopes(num_heads)), persistent=False)

    def bias(self, queries: Integer[Tensor, "*#B L"], keys: Integer[Tensor, "*#B S"]) -> Float[Tensor, "*#B H L S"]:
        """Returns minus slope times distance."""
        distance = (queries[..., :, None] - keys[..., None, :]).abs()
        return -self.slopes[:, None, None] * distance[..., None, :, :]


def alibi_slopes(num_heads: int) -> list[float]:
    """Returns the slope of every head."""
    power = 2 ** math.floor(math.log2(num_heads))
    slopes = [2.0 ** (-8 * (head + 1) / power) for head in range(power)]
    between = [2.0 ** (-8 * (head + 1) / (2 * power)) for head in range(0, 2 * power, 2)]
    return slopes + between[: num_heads - power]
