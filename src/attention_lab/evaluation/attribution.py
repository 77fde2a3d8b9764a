"""Attribution: which source tokens an answer depends on, asked of the whole network and not of its attention.

Gradient × input (Shrikumar et al. 2016): by how much the logit of a predicted token moves with the embedding of a
source token. It needs no attention, so that a network without has a map, too; where it and a head's map agree, the
head's weights are not the only witness.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from attention_lab.data.batches import Batch, SequenceRows, spread_rows
from attention_lab.evaluation.records import Attribution
from attention_lab.evaluation.scoring import few_rows
from attention_lab.metrics.alignment import AlignmentScores
from attention_lab.models.embedding import Embedding
from attention_lab.models.inference import evaluation_mode
from attention_lab.models.model import Axis, SequenceModel

NAME = "gradient_x_input"
"""Its address, among those of attention maps."""

AXES: tuple[Axis, Axis] = ("predicted", "source")

_LONGEST = 256
"""Tokens of a sequence that is looked at: each target token needs a row of its own."""

_ROWS = 32
"""Sequences that are scored."""


def attribute(network: SequenceModel[Any], example: Batch, device: torch.device) -> Float[Tensor, "T S"] | None:
    """Returns what share each source token has in each predicted one: |gradient · embedding|, adding up to 1.

    A row is zero where no source token has any part in it.

    Args:
        network: what predicts, teacher-forced.
        example: a batch of one, without padding.
        device: where to run.

    Returns:
        The map, on the CPU; None for a sequence so long that it does not fit.
    """
    tokens, read = example.labels.size(1), example.source.size(1)
    if max(tokens, read) > _LONGEST:
        return None
    embedded: list[Tensor] = []

    def keep(_: nn.Module, __: tuple[Tensor, ...], output: Tensor) -> Tensor:
        embedded.append(output.detach().requires_grad_())
        return embedded[-1]

    hooks = [
        each.tokens.register_forward_hook(keep) for each in network.to(device).modules() if isinstance(each, Embedding)
    ]
    copies = Batch(*(part.expand(tokens, -1) for part in example))
    shares: list[Tensor] = []
    try:
        # cuDNN's recurrent layers have no gradient outside training.
        with evaluation_mode(network), torch.enable_grad(), torch.backends.cudnn.flags(enabled=False):
            for piece in few_rows(network, [copies]):
                # Cloned: what was decoded is out of autograd's reach.
                source, target, labels = (part.to(device).clone() for part in piece[:3])
                row = torch.arange(len(source), device=device)
                own = row + sum(map(len, shares))
                picked = network(source, target).logits[row, own, labels[row, own]].sum()
                # What every network reads first is the source.
                (gradient,) = torch.autograd.grad(picked, embedded[0])
                shares.append((gradient * embedded[0]).sum(dim=-1)[:, :read].detach().abs().double())
                embedded.clear()
    finally:
        for hook in hooks:
            hook.remove()
    all_shares = torch.cat(shares)
    return (all_shares / all_shares.sum(dim=1, keepdim=True).clamp(min=1e-30)).float().cpu()


def score_attribution(network: SequenceModel[Any], rows: SequenceRows, device: torch.device) -> Attribution | None:
    """Returns how well these maps find the tokens that target tokens come from, scored as a head is.

    Returns:
        The score over some sequences of all lengths; None where it is not known where tokens come from, or all are too
        long.
    """
    scores, scored = AlignmentScores(1, 1), False
    for row in spread_rows(rows, _ROWS) if rows.aligned else ():
        example = rows[row]
        shares = attribute(network, example, device)
        if shares is not None and bool((example.alignment >= 0).any()):
            scores.update((shares[None, None],), example.alignment, example.source)
            scored = True
    if not scored:
        return None
    found = scores.heads()
    return Attribution(float(found.hit_rate), float(found.mass))
