"""Causal evidence: what happens to the answers when a head, or a single edge of its attention, is taken away.

Attention weights alone are not an explanation (Jain and Wallace 2019); an intervention is.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor

from attention_lab.data.batches import Batch
from attention_lab.metrics.alignment import Head, HeadScores
from attention_lab.metrics.sequence import TeacherForcedScores
from attention_lab.models.inference import evaluation_mode
from attention_lab.models.model import Intervention, SequenceModel
from attention_lab.tasks.vocabulary import PAD

_ALIGNED = 0.9
"""A head counts as aligned when it hits at least this share of target tokens."""

Close = Callable[[Batch], Intervention]
"""Says, for a batch, which edges are to be closed."""


def ablate_heads(
    network: SequenceModel[Any], scores: HeadScores, batches: Sequence[Batch], device: torch.device
) -> list[dict[str, Any]]:
    """Returns a record a head of the attention from target to source: how it aligns, and what is lost without it.

    Without a head means that its output is zero.

    Args:
        network: what to take heads from.
        scores: each head's alignment.
        batches: the sequences to answer.
        device: where to run.
    """
    records: list[dict[str, Any]] = []
    layers, heads = scores.mass.shape
    for layer in range(layers):
        for number in range(heads):
            head = Head(network.alignment_attention, layer, number)
            without = _accuracy_under(network, batches, device, lambda _, head=head: _without([head], heads))
            records.append(
                {
                    **head._asdict(),
                    "hit_rate": float(scores.hit_rate[layer, number]),
                    "mass": float(scores.mass[layer, number]),
                    "exact_match_without": without["exact_match"],
                    "token_accuracy_without": without["token_accuracy"],
                }
            )
    return records


def cut_aligned_heads(
    network: SequenceModel[Any], scores: HeadScores, batches: Sequence[Batch], device: torch.device, seed: int
) -> dict[str, Any]:
    """Returns what is left when all aligned heads lose everything, only their gold edges, or as many random ones.

    Heads that share the work have to be taken together: any one of them can be missed. If the gold edges are what
    carries the task, cutting them is as bad as cutting the heads, and cutting others does nothing.

    Returns:
        `aligned` (the heads), and under `intact`, `without_heads`, `without_gold_edges` and `without_random_edges` the
        `exact_match` and `token_accuracy` that are left.
    """
    count = scores.mass.size(1)
    aligned = [
        Head(network.alignment_attention, int(layer), int(head))
        for layer, head in (scores.hit_rate >= _ALIGNED).nonzero().tolist()
    ]
    generator = torch.Generator().manual_seed(seed)
    cuts: dict[str, Close] = {
        "intact": lambda _: {},
        "without_heads": lambda _: _without(aligned, count),
        "without_gold_edges": lambda batch: _cut(aligned, count, batch, batch.alignment),
        "without_random_edges": lambda batch: _cut(aligned, count, batch, _other_places(batch, generator)),
    }
    left = {name: _accuracy_under(network, batches, device, close) for name, close in cuts.items()}
    return {"aligned": [head._asdict() for head in aligned], **left}


def _accuracy_under(
    network: SequenceModel[Any], batches: Iterable[Batch], device: torch.device, close: Close
) -> dict[str, float]:
    scores = TeacherForcedScores().to(device)
    with evaluation_mode(network):
        for batch in batches:
            intervention = {place: allowed.to(device) for place, allowed in close(batch).items()}
            logits = network(batch.source.to(device), batch.target.to(device), intervention=intervention).logits
            scores.update(logits, batch.labels.to(device))
    figures = scores.compute()
    return {name: float(figures[name]) for name in ("exact_match", "token_accuracy")}


def _without(heads: Sequence[Head], count: int) -> Intervention:
    """Closes every edge of some heads."""
    closed: dict[tuple[str, int], Tensor] = {}
    for attention, layer, head in heads:
        allowed = closed.setdefault((attention, layer), torch.ones(1, count, 1, 1, dtype=torch.bool))
        allowed[:, head] = False
    return closed


def _cut(heads: Sequence[Head], count: int, batch: Batch, places: Tensor) -> Intervention:
    """Closes for each target token the edge to one source token, in some heads; none where the place is negative."""
    here = torch.arange(batch.source.size(1)) == places[..., None]
    closed: dict[tuple[str, int], Tensor] = {}
    for attention, layer, head in heads:
        shape = (len(here), count, *here.shape[1:])
        allowed: Bool[Tensor, "B H T S"] = closed.setdefault((attention, layer), torch.ones(shape, dtype=torch.bool))
        allowed[:, head] = ~here
    return closed


def _other_places(batch: Batch, generator: torch.Generator) -> Tensor:
    """Draws for each aligned target token a source token that is not the gold one; EOS counts as a source token."""
    real = (batch.source != PAD).sum(dim=1, keepdim=True)
    # A step of 1 to S - 1 around the real source tokens never comes back to where it started.
    step = (torch.rand(batch.alignment.shape, generator=generator) * (real - 1)).long() + 1
    return torch.where(batch.alignment >= 0, (batch.alignment + step) % real, batch.alignment)
