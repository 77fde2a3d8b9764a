"""Causal evidence: what is lost when heads are silenced.

Attention weights alone are not an explanation (Jain and Wallace 2019); an intervention is. What a head finds enters its
layer through its own columns of W_O, so a network without the head is a network like any other, with other weights.
"""

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from attention_lab.data.batches import Batch
from attention_lab.evaluation.scoring import teacher_forced
from attention_lab.metrics.alignment import Head, HeadScores
from attention_lab.models.inference import evaluation_mode
from attention_lab.models.model import Intervention, SequenceModel
from attention_lab.tasks.vocabulary import PAD


def ablate_heads(
    network: SequenceModel[Any],
    scores: HeadScores,
    means: Float[Tensor, "layers H K"],
    batches: Sequence[Batch],
    device: torch.device,
) -> list[dict[str, Any]]:
    """Returns a record a head of the attention from target to source: how it aligns, and what is left without it.

    `..._without` is what is left when the head says nothing (zeros), `..._with_mean` when it always says its mean. The
    mean is the fairer test: the layers above have never seen zeros, and might fail for that alone.

    Args:
        network: what to take heads from.
        scores: each head's alignment.
        means: what each head says on average, from `head_means`.
        batches: the sequences to answer.
        device: where to run.
    """
    records: list[dict[str, Any]] = []
    for head in all_heads(network):
        without = what_is_left(silenced(network, [head]), batches, device)
        with_mean = what_is_left(silenced(network, [head], means), batches, device)
        left = {f"{figure}_without": value for figure, value in without.items()}
        left |= {f"{figure}_with_mean": value for figure, value in with_mean.items()}
        records.append({**head._asdict(), **scores.own(head), **left})
    return records


def ablate_together(
    network: SequenceModel[Any], validated: HeadScores, batches: Sequence[Batch], device: torch.device
) -> list[dict[str, Any]]:
    """Returns what is left when the best aligned head is silenced, then the two best, and so on to all of them.

    Heads that share the work can be missed one by one; this says how many of them have to go.

    Args:
        network: what to take heads from.
        validated: each head's alignment on the validation split, which decides their order.
        batches: the sequences to answer.
        device: where to run.

    Returns:
        For 0, 1, ... heads: `silenced` (how many), `exact_match` and `token_accuracy`.
    """
    figures = {head: validated.of(head) for head in all_heads(network)}
    order = sorted(figures, key=lambda head: (figures[head]["hit_rate"], figures[head]["mass"]), reverse=True)
    return [
        {"silenced": count, **what_is_left(silenced(network, order[:count]), batches, device)}
        for count in range(len(order) + 1)
    ]


def what_is_left(
    network: SequenceModel[Any],
    batches: Sequence[Batch],
    device: torch.device,
    close: Callable[[Batch], Intervention] | None = None,
) -> dict[str, float]:
    """Returns the teacher-forced `exact_match` and `token_accuracy`, with some edges closed if `close` says so."""
    figures = teacher_forced(network, batches, device, close)
    return {name: figures[name] for name in ("exact_match", "token_accuracy")}


def all_heads(network: SequenceModel[Any]) -> list[Head]:
    """Returns every head of the attention from target to source."""
    layers, frames = network.alignment_layers, network.frames
    return [
        Head(network.alignment_attention, layer, head, frames[head] if frames else "")
        for layer, module in enumerate(layers)
        for head in range(module.num_heads)
    ]


def silenced(
    network: SequenceModel[Any], heads: Sequence[Head], means: Float[Tensor, "layers H K"] | None = None
) -> SequenceModel[Any]:
    """Returns a copy of the network in which some heads say nothing, or always their mean."""
    ablated = copy.deepcopy(network)
    with torch.no_grad():
        for head in heads:
            attention = ablated.alignment_layers[head.layer]
            weight, bias = attention.w_o.weight, attention.w_o.bias
            columns = slice(head.head * attention.d_k, (head.head + 1) * attention.d_k)
            if means is not None:
                bias += weight[:, columns] @ means[head.layer, head.head].to(weight)
            weight[:, columns] = 0
    return ablated


def head_means(
    network: SequenceModel[Any], batches: Sequence[Batch], device: torch.device
) -> Float[Tensor, "layers H K"]:
    """Returns what each head says on average over all target tokens to say, EOS included."""
    if not network.alignment_layers:
        return torch.zeros(0, 0, 0)
    listened = copy.deepcopy(network).to(device)
    ears = [_Ear(attention.w_o) for attention in listened.alignment_layers]
    for attention, ear in zip(listened.alignment_layers, ears, strict=True):
        attention.add_module("w_o", ear)
    tokens = 0
    with evaluation_mode(listened):
        for batch in batches:
            listened(batch.source.to(device), batch.target.to(device))
            real = batch.labels.to(device) != PAD
            tokens += int(real.sum())
            for ear in ears:
                ear.total += network.target_rows(ear.heard, real.size(1))[real].double().sum(dim=0)
    heads = network.alignment_layers[0].num_heads
    return torch.stack([(ear.total / tokens).unflatten(0, (heads, -1)) for ear in ears]).cpu()


class _Ear(nn.Module):
    """Stands before W_O in a copy of a network and hears what the heads say, all of them side by side."""

    def __init__(self, w_o: nn.Linear) -> None:
        super().__init__()
        self.w_o = w_o
        self.heard = torch.empty(0)
        self.total = torch.zeros(w_o.in_features, dtype=torch.float64, device=w_o.weight.device)

    def forward(self, heads: Float[Tensor, "B L D"]) -> Float[Tensor, "B L D"]:
        self.heard = heads
        return self.w_o(heads)
