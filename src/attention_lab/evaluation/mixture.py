"""Which head serves which task, where a network has learned several."""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from attention_lab.data.batches import Batch, SequenceRows, readable_rows
from attention_lab.evaluation.ablation import ablate_heads
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
) -> list[dict[str, Any]]:
    """Returns a record for each task of a mixture, scored on the sequences that ask for it; none for a single task.

    Args:
        network: what to score.
        task: what it learned.
        validation: decides which head is each task's best.
        test: the sequences to answer.
        means: what each head says on average, from `head_means`.
        device: where to run.

    Returns:
        `task`, `sequences` (how many), `token_accuracy`, `exact_match`, `decoded_exact_match`, the best head's
        `alignment_hit_rate` and `alignment_mass`, `best_head` (which that is), and `heads` (the records of
        `ablate_heads`). A task that no sequence of a split asks for is
        left out.
    """
    if not isinstance(task, Mixture):
        return []
    records: list[dict[str, Any]] = []
    for number, part in enumerate(task.tasks):
        chosen, asked = (_asking_for(task, number, batches) for batches in (validation, test))
        if not chosen or not asked:
            continue
        best = head_scores(network, chosen, device).best(network.alignment_attention, network.frames)
        scores = head_scores(network, asked, device)
        figures = accuracy(network, asked, device)
        del figures["loss"]
        records.append(
            {
                "task": part.name,
                "sequences": sum(len(batch.source) for batch in asked),
                **figures,
                **alignment_figures(scores, best, ("hit_rate", "mass")),
                "best_head": best and best._asdict(),
                "heads": ablate_heads(network, scores, means, asked, device),
            }
        )
    return records


def telling_rows(task: Task, rows: SequenceRows, count: int) -> list[int]:
    """Chooses rows that are easy to read, and of a mixture some for each task in turn."""
    if not isinstance(task, Mixture):
        return readable_rows(rows, count)
    candidates = readable_rows(rows, 32 * count)
    if not candidates:
        return []
    asked = task.asked(rows.__getitems__(candidates).source.numpy()).tolist()
    # The first of every task, then the second of every task, and so on.
    turn = [asked[:place].count(number) for place, number in enumerate(asked)]
    return [row for _, _, row in sorted(zip(turn, asked, candidates, strict=True))][:count]


def _asking_for(mixture: Mixture, number: int, batches: Sequence[Batch]) -> list[Batch]:
    found: list[Batch] = []
    for batch in batches:
        rows = torch.from_numpy(mixture.asked(batch.source.numpy()) == number)
        if rows.any():
            found.append(Batch(*(part[rows] for part in batch)))
    return found
