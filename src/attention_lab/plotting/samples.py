"""Sample predictions, token by token: what is right, wrong or missing."""

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from attention_lab.data.batches import Batch
from attention_lab.tasks.vocabulary import PAD, token_label, token_labels


class Sample(NamedTuple):
    """One sequence and what a network made of it.

    Attributes:
        source: labels of the source's tokens, EOS included.
        expected: labels of what should be said.
        said: labels of what was said, each with whether it is right; a token that is missing is a wrong `…`.
        right: whether all of it is.
    """

    source: list[str]
    expected: list[str]
    said: list[tuple[str, bool]]
    right: bool


def compare(examples: Batch, said: Tensor) -> list[Sample]:
    """Compares what was said, row by row, with what should have been."""
    samples: list[Sample] = []
    for source, labels, answer in zip(examples.source.tolist(), examples.labels.tolist(), said.tolist(), strict=True):
        expected = [token for token in labels if token != PAD]
        tokens = [token for token in answer if token != PAD]
        marked = [
            (token_label(token), place < len(expected) and token == expected[place])
            for place, token in enumerate(tokens)
        ]
        if len(tokens) < len(expected):
            marked.append(("…", False))
        shown = token_labels(token for token in source if token != PAD)
        samples.append(Sample(shown, token_labels(expected), marked, tokens == expected))
    return samples


def as_markdown(samples: Sequence[Sample]) -> str:
    """Returns a table with one row a sample; wrong tokens are bold."""
    lines = ["| | source | expected | predicted |", "|---|---|---|---|"]
    for sample in samples:
        said = " ".join(label if right else f"**{label}**" for label, right in sample.said)
        verdict = "✓" if sample.right else "✗"
        lines.append(f"| {verdict} | {' '.join(sample.source)} | {' '.join(sample.expected)} | {said} |")
    return "\n".join(lines)
