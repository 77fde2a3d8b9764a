"""Causal evidence: what is lost when heads are silenced.

Attention weights alone are not an explanation (Jain and Wallace 2019); an intervention is. A head's output enters its
layer through its own columns of W_O, so a network without the head is a network like any other, with other weights.
"""

import copy
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from attention_lab.data.batches import Batch
from attention_lab.evaluation.records import Accuracy, HeadRecord, JointAblation
from attention_lab.evaluation.scoring import own_figures
from attention_lab.metrics.alignment import Head, HeadScores
from attention_lab.metrics.sequence import TeacherForcedScores
from attention_lab.models.inference import evaluation_mode
from attention_lab.models.model import SequenceModel
from attention_lab.tasks.vocabulary import PAD


class Silenced(NamedTuple):
    """Heads to silence: their output is zero, or always their mean where means, (layers, H, K), are given."""

    heads: Sequence[Head]
    means: Float[Tensor, "layers H K"] | None = None


def ablate_heads(
    network: SequenceModel[Any],
    scores: HeadScores,
    means: Float[Tensor, "layers H K"],
    batches: Sequence[Batch],
    device: torch.device,
) -> list[HeadRecord]:
    """Returns a record a head of the attention from target to source: how it aligns, and what is left without it.

    The mean is a fairer test than zeros: the layers above have never seen zeros, and might fail for that alone.

    Args:
        network: what to take heads from.
        scores: each head's alignment.
        means: each head's mean output, from `head_means`.
        batches: the sequences to answer.
        device: where to run.
    """
    heads = all_heads(network)
    variants = [Silenced([head]) for head in heads] + [Silenced([head], means) for head in heads]
    left = accuracies_left(network, variants, batches, device)
    records: list[HeadRecord] = []
    for head, without, with_mean in zip(heads, left[: len(heads)], left[len(heads) :], strict=True):
        record = HeadRecord(
            *head,
            **own_figures(scores, head),
            exact_match_without=without.exact_match,
            token_accuracy_without=without.token_accuracy,
            exact_match_with_mean=with_mean.exact_match,
            token_accuracy_with_mean=with_mean.token_accuracy,
        )
        records.append(record)
    return records


def ablate_together(
    network: SequenceModel[Any], validated: HeadScores, batches: Sequence[Batch], device: torch.device
) -> list[JointAblation]:
    """Returns what is left when 0, 1, ... heads are silenced, the best aligned first, up to all of them.

    Heads that share the work can be missed one by one; this says how many of them have to go.

    Args:
        network: what to take heads from.
        validated: each head's alignment on the validation split, which decides their order.
        batches: the sequences to answer.
        device: where to run.
    """
    figures = {head: validated.of(head) for head in all_heads(network)}
    order = sorted(figures, key=lambda head: (figures[head]["hit_rate"], figures[head]["mass"]), reverse=True)
    left = accuracies_left(network, [Silenced(order[:count]) for count in range(len(order) + 1)], batches, device)
    return [JointAblation(count, each.exact_match, each.token_accuracy) for count, each in enumerate(left)]


def accuracies_left(
    network: SequenceModel[Any], variants: Sequence[Silenced], batches: Sequence[Batch], device: torch.device
) -> list[Accuracy]:
    """Returns what is left of the teacher-forced accuracy with each choice of silenced heads.

    All of them answer a batch before the next one comes, so that its source is read only once where these heads have no
    part in that: half of the work in an encoder-decoder.
    """
    ablated = copy.deepcopy(network).to(device)
    scores = [TeacherForcedScores().to(device) for _ in variants]
    with evaluation_mode(ablated):
        for batch in batches:
            source, target, labels, _ = (part.to(device) for part in batch)
            answer = ablated.answering(source, target)
            for variant, counted in zip(variants, scores, strict=True):
                with silencing(ablated, variant):
                    counted.update(answer(), labels)
    figures = [counted.compute() for counted in scores]
    return [Accuracy(float(each["exact_match"]), float(each["token_accuracy"])) for each in figures]


def all_heads(network: SequenceModel[Any]) -> list[Head]:
    """Returns every head of the attention from target to source."""
    layers, frames = network.alignment_layers, network.frames
    return [
        Head(network.alignment_attention, layer, head, frames[head] if frames else "")
        for layer, module in enumerate(layers)
        for head in range(module.num_heads)
    ]


@contextmanager
def silencing(network: SequenceModel[Any], variant: Silenced) -> Generator[None]:
    """Silences heads of this very network for a while, through their columns of W_O."""
    layers = {head.layer for head in variant.heads}
    before = {layer: copy.deepcopy(network.alignment_layers[layer].w_o.state_dict()) for layer in layers}
    try:
        with torch.no_grad():
            for head in variant.heads:
                attention = network.alignment_layers[head.layer]
                weight, bias = attention.w_o.weight, attention.w_o.bias
                columns = slice(head.head * attention.d_k, (head.head + 1) * attention.d_k)
                if variant.means is not None:
                    bias += weight[:, columns] @ variant.means[head.layer, head.head].to(weight)
                weight[:, columns] = 0
        yield
    finally:
        for layer, weights in before.items():
            network.alignment_layers[layer].w_o.load_state_dict(weights)


def head_means(
    network: SequenceModel[Any], batches: Sequence[Batch], device: torch.device
) -> Float[Tensor, "layers H K"]:
    """Returns each head's mean output over all real target positions, the one that predicts EOS included."""
    if not network.alignment_layers:
        return torch.zeros(0, 0, 0)
    observed = copy.deepcopy(network).to(device)
    recorders = [_OutputRecorder(attention.w_o) for attention in observed.alignment_layers]
    for attention, recorder in zip(observed.alignment_layers, recorders, strict=True):
        attention.add_module("w_o", recorder)
    tokens = 0
    with evaluation_mode(observed):
        for batch in batches:
            observed(batch.source.to(device), batch.target.to(device))
            real = batch.labels.to(device) != PAD
            tokens += int(real.sum())
            for recorder in recorders:
                outputs = network.target_rows(recorder.outputs, real.size(1))
                recorder.total += outputs[real].double().sum(dim=0)
    heads = network.alignment_layers[0].num_heads
    return torch.stack([(recorder.total / tokens).unflatten(0, (heads, -1)) for recorder in recorders]).cpu()


class _OutputRecorder(nn.Module):
    """Stands before W_O in a copy of a network and keeps the outputs of all heads, side by side."""

    def __init__(self, w_o: nn.Linear) -> None:
        super().__init__()
        self.w_o = w_o
        self.outputs = torch.empty(0)
        self.total = torch.zeros(w_o.in_features, dtype=torch.float64, device=w_o.weight.device)

    def forward(self, outputs: Float[Tensor, "B L D"]) -> Float[Tensor, "B L D"]:
        self.outputs = outputs
        return self.w_o(outputs)
