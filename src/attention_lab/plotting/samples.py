"""Sample predictions, token by token: what is right, wrong or missing."""

from collections.abc import Sequence
from typing import NamedTuple

from jaxtyping import Integer
from torch import Tensor

from attention_lab.data.batches import Batch
from attention_lab.escaping import markdown_cell
from attention_lab.tasks.vocabulary import PAD, token_label, token_labels


class Sample(NamedTuple):
    """One sequence and what a network predicted.

    Attributes:
        source: labels of the source's tokens, EOS included.
        expected: labels of the true target.
        predicted: labels of the predicted tokens, each with whether it is right; a missing token is a wrong `…`.
        right: whether all of it is.
    """

    source: list[str]
    expected: list[str]
    predicted: list[tuple[str, bool]]
    right: bool


def compare(examples: Batch, predicted: Integer[Tensor, "B L"], symbols: Sequence[str] = ()) -> list[Sample]:
    """Compares predictions with the true targets, row by row; `symbols` are what these are called, if not numbers."""
    samples: list[Sample] = []
    rows = zip(examples.source.tolist(), examples.labels.tolist(), predicted.tolist(), strict=True)
    for source, labels, prediction in rows:
        expected = [token for token in labels if token != PAD]
        tokens = [token for token in prediction if token != PAD]
        marked = [
            (token_label(token, symbols), place < len(expected) and token == expected[place])
            for place, token in enumerate(tokens)
        ]
        if len(tokens) < len(expected):
            marked.append(("…", False))
        shown = token_labels((token for token in source if token != PAD), symbols)
        samples.append(Sample(shown, token_labels(expected, symbols), marked, tokens == expected))
    return samples


def as_markdown(samples: Sequence[Sample]) -> str:
    """Returns a table with one row a sample; wrong tokens are bold."""
    lines = ["| | source | expected | predicted |", "|---|---|---|---|"]
    for sample in samples:
        source, expected = (markdown_cell(" ".join(labels)) for labels in (sample.source, sample.expected))
        labels = [(markdown_cell(label), right) for label, right in sample.predicted]
        predicted = " ".join(label if right else f"**{label}**" for label, right in labels)
        lines.append(f"| {'✓' if sample.right else '✗'} | {source} | {expected} | {predicted} |")
    return "\n".join(lines)
