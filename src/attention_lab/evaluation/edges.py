"""Causal evidence, finer: what is lost when heads may no longer look at one single token."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attention_lab.data.batches import Batch
from attention_lab.evaluation.ablation import Silenced, accuracies_left, all_heads
from attention_lab.evaluation.records import Accuracy, EdgeCuts
from attention_lab.evaluation.scoring import teacher_forced, whole_map_fits
from attention_lab.metrics.alignment import Head, HeadScores
from attention_lab.models.model import Intervention, SequenceModel
from attention_lab.tasks.vocabulary import PAD

_ALIGNED = 0.9
"""A head counts as aligned when it hits at least this share of target tokens."""


def cut_edges(
    network: SequenceModel[Any], validated: HeadScores, batches: Sequence[Batch], device: torch.device, seed: int
) -> EdgeCuts:
    """Returns what is left when all aligned heads lose everything, only their gold edges, or as many random ones.

    Heads that share the work have to be taken together: any one of them can be missed. If the gold edges are what
    carries the task, cutting them is as bad as silencing the heads, and cutting others does nothing.

    Args:
        network: what to intervene on.
        validated: each head's alignment on the validation split; where none is aligned, all heads are cut.
        batches: the sequences to answer. Where one is so long that a matrix of its edges does not fit
            (`whole_map_fits`), or nothing is known to be right, no edges are cut.
        device: where to run.
        seed: decides the random edges.
    """
    heads = all_heads(network)
    aligned = [head for head in heads if validated.of(head)["hit_rate"] >= _ALIGNED]
    cut = aligned or heads
    generator = np.random.default_rng(seed)
    gold = random = None
    known = any(bool((batch.alignment >= 0).any()) for batch in batches)
    if known and all(whole_map_fits(network, batch) for batch in batches):
        gold = _left(network, cut, batches, device, lambda batch: batch.alignment)
        random = _left(network, cut, batches, device, lambda batch: _other_places(batch, generator))
    intact, without = accuracies_left(network, [Silenced([]), Silenced(cut)], batches, device)
    return EdgeCuts(aligned, cut, intact, without, gold, random)


def _left(
    network: SequenceModel[Any],
    heads: Sequence[Head],
    batches: Sequence[Batch],
    device: torch.device,
    places: Callable[[Batch], Tensor],
) -> Accuracy:
    figures = teacher_forced(network, batches, device, lambda batch: _closed(network, heads, batch, places(batch)))
    return Accuracy(figures["exact_match"], figures["token_accuracy"])


def _closed(network: SequenceModel[Any], heads: Sequence[Head], batch: Batch, places: Tensor) -> Intervention:
    """Closes for each target token the edge to one source token, in some heads; none where the place is negative."""
    here = torch.arange(batch.source.size(1)) == places[..., None]
    closed: dict[tuple[str, int], Tensor] = {}
    for layer, module in enumerate(network.alignment_layers):
        own = [head.head for head in heads if head.layer == layer]
        allowed = torch.ones(len(here), module.num_heads, *here.shape[1:], dtype=torch.bool)
        allowed[:, own] = ~here[:, None]
        closed[network.alignment_attention, layer] = network.alignment_mask(allowed)
    return closed


def _other_places(batch: Batch, generator: np.random.Generator) -> Tensor:
    """Draws for each aligned target token a source token that is not the gold one; EOS counts as a source token.

    Numbers are drawn token by token, so that it makes no difference how rows are batched.
    """
    row, step = (batch.alignment >= 0).nonzero(as_tuple=True)
    real = (batch.source != PAD).sum(dim=1)[row]
    # A step of 1 to S - 1 around the real source tokens never comes back to where it started.
    away = (torch.from_numpy(generator.random(len(row))) * (real - 1)).long() + 1
    places = batch.alignment.clone()
    places[row, step] = (batch.alignment[row, step] + away) % real
    return places
