"""Rotary positions: queries and keys are turned, so that their product knows how far apart they are."""

import math

import torch
from jaxtyping import Float, Integer
from torch import Tensor

from attention_lab.errors import SettingError
from attention_lab.positions.coordinates import Coordinates
from attention_lab.positions.position import Position, QueryKeyPositions


class RotaryPosition(Position):
    """Turns coordinates i and i + K/2 of a query or key at place p by the angle p · fastest · base^(-2i/K).

    RoFormer (Su et al. 2021), paired as in Llama: the halves of a head, not its neighbours; weights of a network that
    pairs neighbours fit after a permutation. A product of a query at p and a key at r then depends on p - r alone. In
    cross-attention that is the distance between places that are each counted from the beginning of their own sequence.

    Args:
        d_model: model width D.
        base: how many times as slow as the fastest of the K/2 pairs the slowest is, but for one step between pairs.
        fastest: by how much the fastest pair turns a position, in radians; 1 in RoFormer.
        num_heads: heads H, each K = D / H wide.

    Raises:
        SettingError: K is odd, `base` is not above 1, or `fastest` does not lie above 0 and at most at π.
    """

    requires = ("turn",)
    frequencies: Tensor

    def __init__(
        self,
        d_model: int,
        base: float = 10000.0,
        fastest: float = 1.0,
        *,
        num_heads: int = 1,
        causal: bool = False,
    ) -> None:
        super().__init__(d_model)
        if not base > 1:
            raise SettingError("base", base, "must be above 1")
        if not 0 < fastest <= math.pi:
            raise SettingError(
                "fastest", fastest, "must lie above 0 and at most at pi, where a pair turns back and forth"
            )
        width = d_model // num_heads
        if width % 2:
            reason = f"makes heads {width} wide; rotary positions turn pairs, so the width of a head must be even"
            raise SettingError("num_heads", num_heads, reason)
        halves = torch.arange(0, width, 2, dtype=torch.float) / width
        self.register_buffer("frequencies", fastest * base**-halves, persistent=False)

    def turn(self, x: Float[Tensor, "B H L K"], coordinates: Integer[Tensor, "#B *H L"]) -> Float[Tensor, "B H L K"]:
        """Turns each query or key by the angles of its coordinate, in single precision or better."""
        own = coordinates if coordinates.dim() == 3 else coordinates[:, None]
        angles = own[..., None] * self.frequencies
        cosine, sine = angles.cos(), angles.sin()
        first, second = x.to(torch.promote_types(x.dtype, torch.float32)).chunk(2, dim=-1)
        return torch.cat([first * cosine - second * sine, second * cosine + first * sine], dim=-1).to(x.dtype)

    def for_cross_attention(self, queries: Coordinates, keys: Coordinates) -> QueryKeyPositions | None:
        """Counts target and source from their beginnings."""
        return QueryKeyPositions(self, queries.start, keys.start)
