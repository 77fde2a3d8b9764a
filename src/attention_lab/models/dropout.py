"""Dropout where there is any."""

from torch import nn


def make_dropout(dropout: float) -> nn.Module:
    """Returns dropout, or nothing for a probability of 0: even dropping nothing takes as long as a small addition."""
    return nn.Dropout(dropout) if dropout else nn.Identity()
