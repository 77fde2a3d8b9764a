"""Free-running decoding: the network reads its own output."""

import torch
from jaxtyping import Integer
from torch import Tensor

from attention_lab.models.model import SequenceModel, State
from attention_lab.tasks.vocabulary import BOS, EOS, PAD


@torch.inference_mode()
def greedy_decode(
    model: SequenceModel[State], source: Integer[Tensor, "B S"], max_length: int
) -> Integer[Tensor, "B T"]:
    """Says the likeliest token, reads it, says the next, until every row has said EOS.

    Args:
        model: the network, in evaluation mode.
        source: source tokens, padded with PAD.
        max_length: how many tokens to say at most, EOS included.

    Returns:
        What was said, EOS included, then PAD; T <= max_length.

    Raises:
        ValueError: `max_length` is not positive, or the model has not as many positions.
    """
    if max_length < 1:
        raise ValueError(f"max_length={max_length} must be at least 1")
    if max_length > model.max_length:
        raise ValueError(f"max_length={max_length} is beyond the model's {model.max_length} positions")
    tokens = source.new_full((source.size(0),), BOS)
    finished = torch.zeros_like(tokens, dtype=torch.bool)
    unfinished = len(source)
    state = model.begin(source, max_length)
    said: list[Tensor] = []
    while len(said) < max_length and unfinished:
        output, state = model.step(tokens[:, None], state)
        tokens = output.logits[:, -1].argmax(dim=-1).masked_fill(finished, PAD)
        said.append(tokens)
        # One transfer of the tokens, which on a GPU is one wait, says how many rows have ended.
        ended = tokens.tolist().count(EOS)
        if ended:
            finished = finished | (tokens == EOS)
            unfinished -= ended
    return torch.stack(said, dim=1)
