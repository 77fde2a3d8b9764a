"""How well each head's attention agrees with the task's own alignment."""

from typing import NamedTuple

import torch
from jaxtyping import Float, Integer
from torch import Tensor
from torchmetrics import Metric


class Head(NamedTuple):
    """Where a head is: attention name, layer and head, both from 0."""

    attention: str
    layer: int
    head: int

    def __str__(self) -> str:
        return f"{self.attention}, layer {self.layer}, head {self.head}"


class HeadScores(NamedTuple):
    """One figure for every head of an attention.

    Attributes:
        hit_rate: share of target tokens whose largest weight lies on the source token they come from; in [0, 1].
        mass: mean weight that target tokens put on the source token they come from; in [0, 1].
    """

    hit_rate: Float[Tensor, "layers H"]
    mass: Float[Tensor, "layers H"]

    def figures(self, head: Head) -> dict[str, float]:
        """Returns one head's `alignment_hit_rate` and `alignment_mass`."""
        place = (head.layer, head.head)
        return {"alignment_hit_rate": float(self.hit_rate[place]), "alignment_mass": float(self.mass[place])}

    def best(self) -> tuple[int, int]:
        """Returns the layer and head with the highest hit rate, among equals the one with the most mass."""
        hit_rate, mass = self.hit_rate.double(), self.mass.double()
        rank = torch.where(hit_rate == hit_rate.max(), mass, -1.0)
        layer, head = divmod(int(rank.argmax()), rank.size(1))
        return layer, head


class AlignmentScores(Metric):
    """Hit rate and mass of every head of an attention from target to source.

    Only target tokens with a known source position count; EOS and padding come from nowhere. A head that looks at
    all S source tokens alike has a mass of 1/S.
    """

    full_state_update = False
    hits: Tensor
    mass: Tensor
    tokens: Tensor

    def __init__(self) -> None:
        super().__init__()
        # The first batch says how many layers and heads there are; sums grow into that shape by broadcasting.
        for name in ("hits", "mass", "tokens"):
            self.add_state(name, torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")

    def update(self, weights: tuple[Float[Tensor, "B H T S"], ...], alignment: Integer[Tensor, "B T"]) -> None:
        """Takes in each layer's weights for a batch; `alignment` is negative where a token comes from nowhere."""
        known = alignment >= 0
        gold = alignment.clamp(min=0)[:, None, :, None]
        hits: list[Tensor] = []
        mass: list[Tensor] = []
        for layer in weights:
            on_gold = layer.gather(-1, gold.expand(-1, layer.size(1), -1, 1))[..., 0]
            hit = layer.argmax(dim=-1) == gold[..., 0]
            hits.append((hit & known[:, None]).sum(dim=(0, 2)))
            mass.append((on_gold.double() * known[:, None]).sum(dim=(0, 2)))
        self.hits = self.hits + torch.stack(hits)
        self.mass = self.mass + torch.stack(mass)
        self.tokens = self.tokens + known.sum()

    def compute(self) -> Float[Tensor, "2 layers H"]:
        """Returns hit rate and mass of every head; NaN if there was nothing to count.

        One tensor, since torchmetrics takes the dimensions off any result with a single element.
        """
        return torch.stack([self.hits, self.mass]) / self.tokens

    def heads(self) -> HeadScores:
        """Returns the same under their names."""
        return HeadScores(*self.compute())
