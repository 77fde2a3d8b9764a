"""Activation patching: which head, at which token, brings an answer back.

The network reads a corrupted source. At one target token one head puts out what it put out when the source was clean
(Vig et al. 2020; how to measure: Zhang and Nanda 2024). Silencing shows what a network cannot do without; this shows
what is enough.
"""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn

from attention_lab.data.batches import Batch, SequenceRows
from attention_lab.evaluation.ablation import all_heads
from attention_lab.evaluation.records import Patching
from attention_lab.metrics.alignment import Head
from attention_lab.models.inference import evaluation_mode
from attention_lab.models.model import MAX_CELLS, SequenceModel
from attention_lab.tasks.mixture import Mixture
from attention_lab.tasks.task import Task
from attention_lab.tasks.vocabulary import token_labels

MOST_TOKENS = 48
"""Target tokens that are patched, at most, each of them in a row of its own."""

_CANDIDATES = 256
"""Sequences among which the corrupted one is looked for."""

_FALL = 1.0
"""In nats: where a corrupted source takes less from an answer, there is nothing to bring back."""


def patch_heads(
    network: SequenceModel[Any], clean: Batch, corrupted: Batch, device: torch.device, symbols: Sequence[str] = ()
) -> Patching:
    """Returns what each head of the attention from target to source brings back, token by token.

    Both times the clean target is read, so that the sources alone make the difference.

    Args:
        network: whose heads.
        clean: a batch of one, and the answer to bring back.
        corrupted: another with a source of that length, and its answer.
        device: where to run.
        symbols: what the symbols are called, if not numbers.

    Raises:
        ValueError: the sources are not of one length, or so long that nothing can be patched (`patched_tokens`).
    """
    if clean.source.shape != corrupted.source.shape:
        raise ValueError(f"sources of {clean.source.size(1)} and of {corrupted.source.size(1)} tokens")
    tokens = min(clean.labels.size(1), corrupted.labels.size(1), patched_tokens(network, clean))
    if not tokens:
        raise ValueError(f"a source of {clean.source.size(1)} tokens, whose maps do not fit")
    right, wrong = (batch.labels[0, :tokens].to(device) for batch in (clean, corrupted))
    target = clean.target[:, :tokens].to(device)
    sources = clean.source.to(device), corrupted.source.to(device)
    layers = network.to(device).alignment_layers
    with evaluation_mode(network):
        with _recorded(layers) as outputs:
            intact = _margins(network(sources[0], target).logits.expand(tokens, -1, -1), right, wrong)
        kept = [network.target_rows(each, tokens)[0] for each in outputs]
        # A row for each token, at which alone it is patched: what it does to later ones is none of its own.
        read = sources[1].expand(tokens, -1), target.expand(tokens, -1)
        lost = _margins(network(*read).logits, right, wrong)

        def restored(heads: Sequence[Head]) -> list[float | None]:
            with _patched(network, heads, kept):
                margins = _margins(network(*read).logits, right, wrong)
            shares = ((margins - lost) / (intact - lost)).tolist()
            return [share if fall >= _FALL else None for share, fall in zip(shares, falls, strict=True)]

        falls = (intact - lost).tolist()
        heads = all_heads(network)
        alone = [restored([head]) for head in heads]
        together = restored(heads)
    clean_source, corrupted_source, clean_answer, corrupted_answer = (
        token_labels(part.tolist(), symbols) for part in (clean.source[0], corrupted.source[0], right, wrong)
    )
    return Patching(clean_source, corrupted_source, clean_answer, corrupted_answer, heads, alone, together)


def patched_tokens(network: SequenceModel[Any], batch: Batch) -> int:
    """Returns at how many target tokens a sequence can be patched, each a row with maps of its own (`MAX_CELLS`)."""
    return min(MOST_TOKENS, MAX_CELLS // network.map_side(batch.source.size(1), batch.target.size(1)) ** 2)


def patched_example(
    network: SequenceModel[Any], task: Task, rows: SequenceRows, clean: Batch, device: torch.device
) -> Patching | None:
    """Patches one example, corrupted to the sequence of its length whose target differs from its own the most.

    Returns:
        What came back; None without heads to patch, or without such a sequence.
    """
    others = rows.of_length(clean.source.size(1) - 1)
    if not (network.alignment_layers and len(others) and patched_tokens(network, clean)):
        return None
    asked = task.asked(clean.source.numpy())[0] if isinstance(task, Mixture) else None
    best: tuple[int, Batch | None] = (0, None)
    for other in (others[row] for row in range(min(_CANDIDATES, len(others)))):
        if isinstance(task, Mixture) and task.asked(other.source.numpy())[0] != asked:
            continue
        tokens = min(clean.labels.size(1), other.labels.size(1), MOST_TOKENS)
        differing = int((clean.labels[0, :tokens] != other.labels[0, :tokens]).sum())
        best = max(best, (differing, other), key=lambda each: each[0])
    return None if best[1] is None else patch_heads(network, clean, best[1], device, task.symbols)


def _margins(
    logits: Float[Tensor, "T T V"], right: Integer[Tensor, " T"], wrong: Integer[Tensor, " T"]
) -> Float[Tensor, " T"]:
    """Returns of each row's own token how far the right label is ahead of the wrong one, in nats."""
    row = torch.arange(len(right), device=logits.device)
    own = logits[row, row].double()
    return own[row, right] - own[row, wrong]


@contextmanager
def _recorded(layers: Sequence[Any]) -> Generator[list[Tensor]]:
    """Yields a list into which each layer's heads put what they give, side by side, when the network runs."""
    outputs: list[Tensor] = []

    def keep(_: nn.Module, given: tuple[Tensor, ...]) -> None:
        outputs.append(given[0])

    hooks = [layer.w_o.register_forward_pre_hook(keep) for layer in layers]
    try:
        yield outputs
    finally:
        for hook in hooks:
            hook.remove()


@contextmanager
def _patched(
    network: SequenceModel[Any], heads: Sequence[Head], kept: Sequence[Float[Tensor, "T D"]]
) -> Generator[None]:
    """Lets heads put out, at the token that is a row's own, what was kept of them."""
    hooks = [_patch(network, head, kept[head.layer]) for head in heads]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _patch(network: SequenceModel[Any], head: Head, kept: Float[Tensor, "T D"]) -> Any:
    attention = network.alignment_layers[head.layer]
    columns = slice(head.head * attention.d_k, (head.head + 1) * attention.d_k)

    def replace(_: nn.Module, given: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        outputs = given[0].clone()
        row = torch.arange(len(kept), device=kept.device)
        network.target_rows(outputs, len(kept))[row, row, columns] = kept[:, columns]
        return (outputs, *given[1:])

    return attention.w_o.register_forward_pre_hook(replace)
