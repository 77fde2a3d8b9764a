"""Causal evidence, finer: what is lost when heads may no longer look at one single token."""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor

from attention_lab.data.batches import Batch
from attention_lab.evaluation.ablation import all_heads, silenced
from attention_lab.evaluation.scoring import teacher_forced
from attention_lab.metrics.alignment import Head, HeadScores
from attention_lab.models.model import Intervention, SequenceModel
from attention_lab.tasks.vocabulary import PAD

_ALIGNED = 0.9
"""A head counts as aligned when it hits at least this share of target tokens."""


def cut_edges(
    network: SequenceModel[Any], scores: HeadScores, batches: Sequence[Batch], device: torch.device, seed: int
) -> dict[str, Any]:
    """Returns what is left when all aligned heads lose everything, only their gold edges, or as many random ones.

    Heads that share the work have to be taken together: any one of them can be missed. If the gold edges are what
    carries the task, cutting them is as bad as silencing the heads, and cutting others does nothing.

    Args:
        network: what to intervene on.
        scores: each head's alignment; where none is aligned, all heads are cut.
        batches: the sequences to answer.
        device: where to run.
        seed: decides the random edges.

    Returns:
        `aligned` (the heads), `cut` (the heads that were cut), and under `intact`, `without_heads`,
        `without_gold_edges` and `without_random_edges` the `exact_match` and `token_accuracy` that are left.
    """
    heads = all_heads(network)
    aligned = [head for head in heads if scores.of(head)["hit_rate"] >= _ALIGNED]
    cut = aligned or heads
    counts = [module.num_heads for module in network.alignment_layers]
    generator = torch.Generator().manual_seed(seed)
    left = {
        "intact": teacher_forced(network, batches, device),
        "without_heads": teacher_forced(silenced(network, cut), batches, device),
        "without_gold_edges": teacher_forced(
            network, batches, device, lambda batch: _closed(cut, counts, batch, batch.alignment)
        ),
        "without_random_edges": teacher_forced(
            network, batches, device, lambda batch: _closed(cut, counts, batch, _other_places(batch, generator))
        ),
    }
    figures = {
        name: {figure: found[figure] for figure in ("exact_match", "token_accuracy")} for name, found in left.items()
    }
    return {"aligned": [head._asdict() for head in aligned], "cut": [head._asdict() for head in cut], **figures}


def _closed(heads: Sequence[Head], counts: Sequence[int], batch: Batch, places: Tensor) -> Intervention:
    """Closes for each target token the edge to one source token, in some heads; none where the place is negative."""
    here = torch.arange(batch.source.size(1)) == places[..., None]
    closed: dict[tuple[str, int], Tensor] = {}
    for attention, layer, head in heads:
        shape = (len(here), counts[layer], *here.shape[1:])
        allowed: Bool[Tensor, "B H T S"] = closed.setdefault((attention, layer), torch.ones(shape, dtype=torch.bool))
        allowed[:, head] = ~here
    return closed


def _other_places(batch: Batch, generator: torch.Generator) -> Tensor:
    """Draws for each aligned target token a source token that is not the gold one; EOS counts as a source token."""
    real = (batch.source != PAD).sum(dim=1, keepdim=True)
    # A step of 1 to S - 1 around the real source tokens never comes back to where it started.
    step = (torch.rand(batch.alignment.shape, generator=generator) * (real - 1)).long() + 1
    return torch.where(batch.alignment >= 0, (batch.alignment + step) % real, batch.alignment)
