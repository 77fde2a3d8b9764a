"""Using a network: without disturbing it, and free-running, when it reads its own output."""

from collections.abc import Generator
from contextlib import contextmanager

import torch
from jaxtyping import Integer
from torch import Tensor, nn

from attention_lab.errors import SettingError
from attention_lab.models.model import SequenceModel, State
from attention_lab.tasks.vocabulary import BOS, EOS, PAD


@contextmanager
def evaluation_mode(network: nn.Module) -> Generator[None]:
    """Turns dropout and gradients off, and leaves every module in the mode it was in."""
    training = {module: module.training for module in network.modules()}
    network.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, mode in training.items():
            module.training = mode


@torch.inference_mode()
def greedy_decode(
    model: SequenceModel[State], source: Integer[Tensor, "B S"], max_length: int
) -> Integer[Tensor, "B T"]:
    """Predicts the likeliest token, reads it, predicts the next, until every row has ended with EOS.

    Args:
        model: the network, in evaluation mode.
        source: source tokens, padded with PAD.
        max_length: how many tokens to predict at most, EOS included.

    Returns:
        What was predicted, EOS included, then PAD; T <= max_length.

    Raises:
        SettingError: `max_length` is not positive, or the model has not as many positions.
    """
    if max_length < 1:
        raise SettingError("max_length", max_length, "must be at least 1")
    if max_length > model.max_length:
        raise SettingError("max_length", max_length, f"is beyond the model's {model.max_length} positions")
    tokens = source.new_full((source.size(0),), BOS)
    finished = torch.zeros_like(tokens, dtype=torch.bool)
    unfinished = len(source)
    state = model.begin(source, max_length)
    predicted: list[Tensor] = []
    while len(predicted) < max_length and unfinished:
        output, state = model.step(tokens[:, None], state)
        tokens = output.logits[:, -1].argmax(dim=-1).masked_fill(finished, PAD)
        predicted.append(tokens)
        # One transfer of the tokens, which on a GPU is one wait, says how many rows have ended.
        ended = tokens.tolist().count(EOS)
        if ended:
            finished = finished | (tokens == EOS)
            unfinished -= ended
    return torch.stack(predicted, dim=1)
