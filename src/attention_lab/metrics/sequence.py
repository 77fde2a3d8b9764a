"""How much of the target a model gets right."""

import torch
from jaxtyping import Bool, Float, Integer
from torch import Tensor
from torch.nn import functional
from torchmetrics import Metric
from torchmetrics.functional.text import word_error_rate

from attention_lab.tasks.vocabulary import EOS, FIRST_SYMBOL, PAD


class TeacherForcedScores(Metric):
    """Loss, token accuracy and exact match when every token is predicted from the true ones before it.

    Counts are summed over all batches and divided once, so that no figure depends on how rows were batched or padded.
    EOS counts as a token, padding never.

        loss            cross-entropy per real token, in nats
        token_accuracy  share of real tokens whose likeliest prediction is right
        exact_match     share of sequences with every token right
    """

    full_state_update = False
    loss_sum: Tensor
    tokens: Tensor
    right_tokens: Tensor
    sequences: Tensor
    right_sequences: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.add_state("loss_sum", torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")
        for count in ("tokens", "right_tokens", "sequences", "right_sequences"):
            self.add_state(count, torch.zeros((), dtype=torch.long), dist_reduce_fx="sum")

    def update(self, logits: Float[Tensor, "B T V"], labels: Integer[Tensor, "B T"]) -> None:
        """Takes in a batch; `labels` are padded with PAD."""
        real = labels != PAD
        right = logits.argmax(dim=-1) == labels
        self.loss_sum += token_loss(logits, labels, reduction="sum").double()
        self.tokens += real.sum()
        self.right_tokens += (right & real).sum()
        self.sequences += len(labels)
        self.right_sequences += (right | ~real).all(dim=1).sum()

    def compute(self) -> dict[str, Float[Tensor, ""]]:
        """Returns the three figures; NaN, not 0, if there was nothing to count."""
        return {
            "loss": self.loss_sum / self.tokens,
            "token_accuracy": self.right_tokens / self.tokens,
            "exact_match": self.right_sequences / self.sequences,
        }


class DecodedExactMatch(Metric):
    """Share of sequences that a model says right to the last token, EOS included, when it reads its own output."""

    full_state_update = False
    sequences: Tensor
    right_sequences: Tensor

    def __init__(self) -> None:
        super().__init__()
        for count in ("sequences", "right_sequences"):
            self.add_state(count, torch.zeros((), dtype=torch.long), dist_reduce_fx="sum")

    def update(self, said: Integer[Tensor, "B L"], labels: Integer[Tensor, "B T"]) -> None:
        """Takes in what was said and what should have been, both padded with PAD, of whatever lengths."""
        self.sequences += len(labels)
        self.right_sequences += decoded_right(said, labels).sum()

    def compute(self) -> Float[Tensor, ""]:
        """Returns the share; NaN if there was nothing to count."""
        return self.right_sequences / self.sequences


class TokenErrorRate(Metric):
    """Edits that make what a model says into what it should say, over the tokens that it should say, EOS not counted.

    Of phonemes this is the phoneme error rate, PER. What is said beyond one token more than
    is due is not counted: decoding ends with the longest target of a batch, and no figure is to depend on batches.
    """

    full_state_update = False
    edits: Tensor
    tokens: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.add_state("edits", torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("tokens", torch.zeros((), dtype=torch.long), dist_reduce_fx="sum")

    def update(self, said: Integer[Tensor, "B L"], labels: Integer[Tensor, "B T"]) -> None:
        """Takes in what was said and what should have been, both padded with PAD, of whatever lengths."""
        self.tokens += (labels >= FIRST_SYMBOL).sum()
        for wrong in (~decoded_right(said, labels)).nonzero().flatten().tolist():
            due = _listed(labels[wrong])
            given = _listed(said[wrong])[: len(due) + 1]
            # A library for texts compares words.
            rate = word_error_rate(" ".join(map(str, given)), " ".join(map(str, due)))
            self.edits += float(rate) * len(due) if due else len(given)

    def compute(self) -> Float[Tensor, ""]:
        """Returns the rate; NaN if there was nothing to count."""
        return self.edits / self.tokens


def _listed(tokens: Integer[Tensor, " L"]) -> list[int]:
    """Returns the tokens up to EOS."""
    listed: list[int] = tokens.tolist()
    end = listed.index(EOS) if EOS in listed else len(listed)
    return [token for token in listed[:end] if token != PAD]


def token_loss(logits: Float[Tensor, "B T V"], labels: Integer[Tensor, "B T"], reduction: str = "mean") -> Tensor:
    """Returns the cross-entropy over real tokens, in nats and single precision or better."""
    flat = logits.flatten(0, 1)
    flat = flat.to(torch.promote_types(flat.dtype, torch.float32))
    return functional.cross_entropy(flat, labels.flatten(), ignore_index=PAD, reduction=reduction)


def decoded_right(said: Integer[Tensor, "B L"], labels: Integer[Tensor, "B T"]) -> Bool[Tensor, " B"]:
    """Says which rows were said right, to the last token."""
    longest = max(said.size(1), labels.size(1))
    said, labels = (functional.pad(part, (0, longest - part.size(1)), value=PAD) for part in (said, labels))
    return (said == labels).all(dim=1)
