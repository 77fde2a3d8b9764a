"""What heads of self-attention do, as far as it has a name: where each of them looks, whatever the tokens mean.

The patterns are those that Olsson et al. 2022 and others look for in language models. A score is the mean weight that a
head puts where the pattern says, over the tokens of which it says anything.
"""

from collections.abc import Sequence
from math import isnan
from typing import Any, cast

import torch
from jaxtyping import Float, Integer
from torch import Tensor

from attention_lab.data.batches import Batch, SequenceRows, spread_rows
from attention_lab.evaluation.examples import map_example
from attention_lab.evaluation.records import PatternRecord
from attention_lab.models.model import Axis, SequenceModel

_ROWS = 64
"""Sequences that are looked at."""

_LONGEST = 1024
"""Tokens of a sequence that is looked at."""

_PLACES = 32
"""Of so many places the one is found that a head looks at most."""


def find_patterns(network: SequenceModel[Any], rows: SequenceRows, device: torch.device) -> list[PatternRecord]:
    """Returns how much each head of self-attention follows each pattern; of no heads where none has a map.

    Args:
        network: whose heads.
        rows: sequences; some of all lengths are looked at, one by one, so that there is no padding among them.
        device: where to run.
    """
    # Of each attention and layer: of each pattern the weight, head by head, and the tokens.
    found: dict[tuple[str, int], tuple[Tensor, Tensor]] = {}
    for row in spread_rows(rows, _ROWS) if network.axes else ():
        example = rows[row]
        if network.map_side(example.source.size(1), example.target.size(1)) > _LONGEST:
            continue
        mapped = map_example(network, example, device)
        for name, layers in mapped.maps.items():
            tokens = _read(example, mapped.axes[name])
            for layer, weights in enumerate(layers if tokens is not None else ()):
                weight, count = found.get((name, layer), (0.0, 0.0))
                more, times = follow(weights[0].double().clamp(0, 1), cast(Tensor, tokens))
                found[name, layer] = weight + more, count + times
    return [
        _record(name, layer, head, (weight / count).tolist())
        for (name, layer), (heads, count) in found.items()
        for head, weight in enumerate(heads)
    ]


def follow(
    weights: Float[Tensor, "H L L"], tokens: Integer[Tensor, " L"]
) -> tuple[Float[Tensor, "H patterns"], Float[Tensor, " patterns"]]:
    """Returns the weight that each head puts where each pattern says, and how many tokens it says something of.

    The patterns are the token before, the same token, earlier tokens that are the same, what came after these; then one
    for each place from 0.
    """
    place = torch.arange(len(tokens))
    away = place[:, None] - place[None, :]
    earlier = (tokens[:, None] == tokens[None, :]) & (away > 0)
    after = torch.zeros_like(earlier)
    after[:, 1:] = earlier[:, :-1]
    where = torch.stack([away == 1, away == 0, earlier, after])
    followed = torch.einsum("hls,pls->hp", weights, where.to(weights))
    looks = torch.zeros(len(weights), _PLACES).to(weights)
    looks[:, : len(tokens)] = weights[:, :, :_PLACES].sum(dim=1)
    there = torch.where(torch.arange(_PLACES) < len(tokens), float(len(tokens)), 0.0)
    return torch.cat([followed, looks], dim=1), torch.cat([where.any(dim=2).sum(dim=1), there]).to(weights)


def _read(example: Batch, axes: tuple[Axis, Axis]) -> Tensor | None:
    """Returns the tokens that look at one another; None where one sequence looks at another."""
    queries, keys = axes
    if (queries, keys) == ("predicted", "source"):
        return None
    parts = {"source": example.source[0], "target": example.target[0]}
    return torch.cat([parts[name] for name in keys.split(", ")])


def _record(name: str, layer: int, head: int, scores: Sequence[float]) -> PatternRecord:
    # A pattern that no sequence has an example of has no score.
    known = [None if isnan(score) else score for score in scores]
    places = [score or 0.0 for score in known[4:]]
    most = max(range(len(places)), key=places.__getitem__)
    return PatternRecord(
        attention=name,
        layer=layer,
        head=head,
        previous_token=known[0],
        same_token=known[1],
        duplicate_token=known[2],
        induction=known[3],
        first_token=known[4],
        position=most,
        position_mass=places[most],
    )
