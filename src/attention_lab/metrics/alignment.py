"""How well each head's attention agrees with the task's own alignment."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Integer
from torch import Tensor
from torchmetrics import Metric

from attention_lab.tasks.vocabulary import FIRST_SYMBOL, PAD

_BINS = 1000
"""Masses are counted in steps of 1/1000, so that a percentile needs no more memory for more tokens."""


class Head(NamedTuple):
    """Where a head is: attention name, layer and head, both from 0; and its frame, where heads measure differently."""

    attention: str
    layer: int
    head: int
    frame: str = ""

    def __str__(self) -> str:
        frame = f" (from {self.frame.replace('_', ' ')})" if self.frame else ""
        return f"{self.attention}, layer {self.layer}, head {self.head}{frame}"


class HeadScores(NamedTuple):
    """How well every head of an attention aligns, each figure of shape (layers, H).

    Target tokens count that come from a source token: EOS comes from nowhere, and padding is no token. A source of S
    symbols offers n = S + 1 tokens to look at, since it ends with EOS; on padding there is no weight. In brackets: the
    range, and what a head gets that looks at all n tokens alike.

    Which weight is the largest is judged on the weights as they are; for everything else they are clipped to 0 to 1,
    which those of a mechanism's equivalent map may leave.

    Attributes:
        hit_rate: share of target tokens whose largest weight lies on the token they come from (0 to 1; by chance 1/n).
        mass: mean weight on the token they come from (0 to 1; 1/n).
        mass_p5: what that weight reaches for all but the worst 5 % of them: the 5th percentile, to 0.0005 (0 to 1).
        mass_min: its smallest value (0 to 1).
        alignment_error_rate: 1 - 2 |A and G| / (|A| + |G|) with the gold links G and a link in A from each target token
            to the token of its largest weight; looking at EOS links it to nothing (0 to 1; 1 - 2/(2n - 1) for looks at
            random). Och and Ney 2003, with every gold link sure.
        entropy: mean entropy of a token's weights, divided by log n (0 to 1; 1). Ghader and Monz 2017.
        confidence: mean largest weight (1/n to 1; 1/n). Voita et al. 2019, who leave EOS out.
        chance: mean of 1/n, the same for every head.
        oracle_head_hit_rate: share of target tokens that at least one head hits, the same for every head: heads may
            share the work. The head is chosen by who knows the right token, so K heads that look at random reach more
            than one does (0 to 1; 1 - (1 - 1/n)^K for K of them).
        oracle_head_mass: mean, over target tokens, of the largest weight that any head has on the token they come from,
            the same for every head (0 to 1; 1/n where all look everywhere alike).
    """

    hit_rate: Float[Tensor, "layers H"]
    mass: Float[Tensor, "layers H"]
    mass_p5: Float[Tensor, "layers H"]
    mass_min: Float[Tensor, "layers H"]
    alignment_error_rate: Float[Tensor, "layers H"]
    entropy: Float[Tensor, "layers H"]
    confidence: Float[Tensor, "layers H"]
    chance: Float[Tensor, "layers H"]
    oracle_head_hit_rate: Float[Tensor, "layers H"]
    oracle_head_mass: Float[Tensor, "layers H"]

    def of(self, head: Head) -> dict[str, float]:
        """Returns one head's figures."""
        return {name: float(figure[head.layer, head.head]) for name, figure in self._asdict().items()}

    def best(self, attention: str, frames: Sequence[str] = ()) -> Head | None:
        """Returns the head with the highest hit rate, among equals the one with the most mass.

        None of no heads, and where no hit is known: there is no map, or no token of which it is known where it comes
        from.

        Args:
            attention: what the attention is called.
            frames: each head's frame, if they have any.
        """
        if not self.hit_rate.numel() or self.hit_rate.isnan().all():
            return None
        hit_rate, mass = self.hit_rate.double(), self.mass.double()
        rank = torch.where(hit_rate == hit_rate.max(), mass, -1.0)
        layer, head = divmod(int(rank.argmax()), rank.size(1))
        return Head(attention, layer, head, frames[head] if frames else "")


class AlignmentScores(Metric):
    """The `HeadScores` of an attention from target to source.

    Everything is a sum, a count or a minimum over target tokens, so that no figure depends on how rows were batched,
    padded, or spread over processes.

    Args:
        num_layers: layers of the attention.
        num_heads: heads of each.
    """

    full_state_update = False
    tokens: Tensor
    chance: Tensor
    oracle_hits: Tensor
    oracle_mass: Tensor
    hits: Tensor
    links: Tensor
    mass: Tensor
    mass_min: Tensor
    mass_counts: Tensor
    entropy: Tensor
    confidence: Tensor

    def __init__(self, num_layers: int, num_heads: int) -> None:
        super().__init__()
        shape = (num_layers, num_heads)
        for name in ("hits", "links", "mass", "entropy", "confidence"):
            self.add_state(name, torch.zeros(shape, dtype=torch.float64), dist_reduce_fx="sum")
        for name in ("tokens", "chance", "oracle_hits", "oracle_mass"):
            self.add_state(name, torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("mass_counts", torch.zeros(*shape, _BINS + 1, dtype=torch.long), dist_reduce_fx="sum")
        self.add_state("mass_min", torch.ones(shape, dtype=torch.float64), dist_reduce_fx="min")

    def update(
        self,
        weights: tuple[Float[Tensor, "B H T S"], ...],
        alignment: Integer[Tensor, "B T"],
        source: Integer[Tensor, "B S"],
    ) -> None:
        """Takes in a batch.

        Args:
            weights: each layer's.
            alignment: the source position of every target token, negative where it comes from nowhere.
            source: the source's tokens.
        """
        rows, steps = (alignment >= 0).nonzero(as_tuple=True)
        if not len(rows):
            return
        gold = alignment[rows, steps]
        keys = (source != PAD).sum(dim=1)[rows]
        is_symbol = (source >= FIRST_SYMBOL)[rows]
        self.tokens += len(rows)
        self.chance += (1 / keys.double()).sum()
        hit_by_any, most_on_gold = torch.zeros_like(gold, dtype=torch.bool), torch.zeros_like(gold, dtype=torch.float)
        padding = (source == PAD)[rows]
        for layer, each in enumerate(weights):
            weights_NHS = each[rows, :, steps].float()
            hits, on_gold = self._take_in(layer, weights_NHS, padding, gold, keys, is_symbol)
            hit_by_any |= hits.any(dim=1)
            most_on_gold = torch.maximum(most_on_gold, on_gold.amax(dim=1))
        self.oracle_hits += hit_by_any.sum()
        self.oracle_mass += most_on_gold.sum(dtype=torch.float64)

    def _take_in(
        self,
        layer: int,
        weights: Float[Tensor, "N H S"],
        padding: Bool[Tensor, "N S"],
        gold: Integer[Tensor, " N"],
        keys: Integer[Tensor, " N"],
        is_symbol: Bool[Tensor, "N S"],
    ) -> tuple[Bool[Tensor, "N H"], Float[Tensor, "N H"]]:
        """Adds a layer's weights of N target tokens that each come from somewhere.

        Returns hits and gold masses; a head without numbers has none.
        """
        heads = weights.size(1)
        # A mechanism's equivalent map may hold what no distribution does: which weight is the largest is judged on it
        # as it is; as a mass, less than nothing counts as nothing and more than all as all.
        largest, place = weights.masked_fill(padding[:, None], -torch.inf).max(dim=-1)
        weights, largest = weights.clamp(0, 1), largest.clamp(0, 1)
        on_gold = weights.gather(-1, gold[:, None, None].expand(-1, heads, 1))[..., 0]
        hits = place == gold[:, None]
        self.hits[layer] += hits.sum(dim=0)
        self.links[layer] += is_symbol.gather(1, place).sum(dim=0)
        self.mass[layer] += on_gold.double().sum(dim=0)
        self.mass_min[layer] = torch.minimum(self.mass_min[layer], on_gold.double().amin(dim=0))
        # A network that has diverged has no weights to count; its sums are NaN, and all its figures with them.
        bins = (on_gold.nan_to_num() * _BINS).round().long() + torch.arange(heads, device=gold.device) * (_BINS + 1)
        self.mass_counts[layer] += bins.flatten().bincount(minlength=heads * (_BINS + 1)).view(heads, -1)
        # The only token that there is leaves nothing to be uncertain about: 0 whatever it is divided by.
        most = keys.clamp(min=2).double().log()[:, None]
        self.entropy[layer] += (torch.special.entr(weights).sum(dim=-1, dtype=torch.float64) / most).sum(dim=0)
        self.confidence[layer] += largest.double().sum(dim=0)
        is_number = ~largest.isnan()
        return hits & is_number, on_gold.where(is_number, 0.0)

    def compute(self) -> Float[Tensor, "10 layers H"]:
        """Returns the figures in the order of `HeadScores`; NaN if there was nothing to count.

        One tensor, since torchmetrics takes the dimensions off any result with a single element.
        """
        tokens = self.tokens
        # The first step that at least one token in twenty, and at least one token, does not go beyond.
        reached = self.mass_counts.cumsum(dim=-1) >= (0.05 * tokens).ceil().clamp(min=1)
        figures = HeadScores(
            hit_rate=self.hits / tokens,
            mass=self.mass / tokens,
            mass_p5=reached.double().argmax(dim=-1).double() / _BINS,
            mass_min=self.mass_min,
            alignment_error_rate=1 - 2 * self.hits / (self.links + tokens),
            entropy=self.entropy / tokens,
            confidence=self.confidence / tokens,
            chance=(self.chance / tokens).expand_as(self.hits),
            oracle_head_hit_rate=(self.oracle_hits / tokens).expand_as(self.hits),
            oracle_head_mass=(self.oracle_mass / tokens).expand_as(self.hits),
        )
        counted = (tokens > 0) & ~self.mass.isnan()
        return torch.where(counted, torch.stack(list(figures)), torch.nan)

    def heads(self) -> HeadScores:
        """Returns the same under their names, on the CPU."""
        return HeadScores(*self.compute().cpu())
