"""Looking at a network without disturbing it."""

from collections.abc import Generator
from contextlib import contextmanager

import torch
from torch import nn


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
