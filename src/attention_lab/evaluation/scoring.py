"""The numbers of a trained network: the same ones after training and from a checkpoint."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import torch

from attention_lab.data.batches import Batch
from attention_lab.data.module import SequenceData
from attention_lab.metrics.alignment import AlignmentScores, Head, HeadScores
from attention_lab.metrics.sequence import DecodedExactMatch, TeacherForcedScores
from attention_lab.models.decoding import greedy_decode
from attention_lab.models.inference import evaluation_mode
from attention_lab.models.model import SequenceModel


class TestScores(NamedTuple):
    """How a network does on the test split.

    Attributes:
        figures: `test/loss`, `test/token_accuracy`, `test/exact_match`, `test/decoded_exact_match`,
            `test/alignment_hit_rate`, `test/alignment_mass`; the last two are the best head's.
        best_head: the head that aligns best on the *validation* split.
        heads: every head's alignment on the test split.
    """

    figures: dict[str, float]
    best_head: Head
    heads: HeadScores


def test_scores(network: SequenceModel[Any], data: SequenceData, device: torch.device) -> TestScores:
    """Scores a network, in single precision, on all of the test split.

    The best of many heads is a winner, and winners look better than they are; hence it is chosen on one split and
    scored on another.
    """
    network.to(device)
    layer, head = head_scores(network, data.loader("validation"), device).best()
    heads = head_scores(network, data.loader("test"), device)
    best_head = Head(network.alignment_attention, layer, head)
    figures = {**accuracy(network, data.loader("test"), device), **heads.figures(best_head)}
    return TestScores({f"test/{name}": value for name, value in figures.items()}, best_head, heads)


def head_scores(network: SequenceModel[Any], batches: Iterable[Batch], device: torch.device) -> HeadScores:
    """Returns how well each head of the attention from target to source aligns."""
    scores = AlignmentScores().to(device)
    with evaluation_mode(network):
        for batch in batches:
            source, target, _, alignment = (part.to(device) for part in batch)
            maps = network(source, target, need_weights=True).attention
            scores.update(maps[network.alignment_attention], alignment)
    return scores.heads()


def accuracy(network: SequenceModel[Any], batches: Iterable[Batch], device: torch.device) -> dict[str, float]:
    """Returns `loss`, `token_accuracy` and `exact_match`, teacher-forced, and `decoded_exact_match`."""
    teacher_forced, decoded = TeacherForcedScores().to(device), DecodedExactMatch().to(device)
    with evaluation_mode(network):
        for batch in batches:
            source, target, labels, _ = (part.to(device) for part in batch)
            teacher_forced.update(network(source, target).logits, labels)
            # Whatever is said beyond the length of the labels comes too late to be right.
            decoded.update(greedy_decode(network, source, labels.size(1)), labels)
    figures = {name: float(value) for name, value in teacher_forced.compute().items()}
    return {**figures, "decoded_exact_match": float(decoded.compute())}
