"""Which head serves which task, where a network has learned several."""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from attention_lab.data.batches import Batch
from attention_lab.evaluation.ablation import ablate_heads
from attention_lab.evaluation.records import TaskRecord
from attention_lab.evaluation.scoring import accuracy, alignment_figures, head_scores
from attention_lab.models.model import SequenceModel
from attention_lab.tasks.mixture import Mixture
from attention_lab.tasks.task import Task


def each_task(
    network: SequenceModel[Any],
    task: Task,
    validation: Sequence[Batch],
    test: Sequence[Batch],
    means: Float[Tensor, "layers H K"],
    device: torch.device,
) -> list[TaskRecord]:
    """Returns a record for each task of a mixture, scored on the sequences that ask for it; none for a single task.

    A task that no sequence of a split asks for is left out.

    Args:
        network: what to score.
        task: what it learned.
        validation: decides which head is each task's best.
        test: the sequences to answer.
        means: each head's mean output, from `head_means`.
        device: where to run.
    """
    if not isinstance(task, Mixture):
        return []
    records: list[TaskRecord] = []
    for number, part in enumerate(task.tasks):
        chosen, asked = (_asking_for(task, number, batches) for batches in (validation, test))
        if not chosen or not asked:
            continue
        best = head_scores(network, chosen, device).best(network.alignment_attention, network.frames)
        scores = head_scores(network, asked, device)
        figures = accuracy(network, asked, device)
        record = TaskRecord(
            task=part.name,
            sequences=sum(len(batch.source) for batch in asked),
            token_accuracy=figures["token_accuracy"],
            exact_match=figures["exact_match"],
            decoded_exact_match=figures["decoded_exact_match"],
            **alignment_figures(scores, best, ("hit_rate", "mass")),
            best_head=best,
            heads=ablate_heads(network, scores, means, asked, device),
        )
        records.append(record)
    return records


def _asking_for(mixture: Mixture, number: int, batches: Sequence[Batch]) -> list[Batch]:
    found: list[Batch] = []
    for batch in batches:
        rows = torch.from_numpy(mixture.asked(batch.source.numpy()) == number)
        if rows.any():
            found.append(Batch(*(part[rows] for part in batch)))
    return found
