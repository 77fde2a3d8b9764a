"""Sinusoidal positions: every coordinate pair of the embedding is a clock hand of its own speed."""

import math

import torch
from jaxtyping import Float, Integer
from torch import Tensor
from torch.nn import functional

from attention_lab.errors import SettingError
from attention_lab.positions.position import Position, check_length


class PositionalEncoding(Position):
    """PE(p, 2i) = sin(p / 10000^(2i/D)), PE(p, 2i+1) = cos(p / 10000^(2i/D)), added to the embedding.

    Vaswani et al. 2017, section 3.5. Same arguments and same buffer `pe` of shape (1, max_len, D) as the article's;
    an odd `d_model` works as well (the last cosine is left out).

    Args:
        d_model: model width D.
        max_len: how many positions there are.

    Raises:
        SettingError: an argument is not positive.
    """

    pe: Tensor

    def __init__(self, d_model: int, max_len: int = 5000, *, num_heads: int = 1, causal: bool = False) -> None:
        super().__init__(d_model)
        if d_model < 1:
            raise SettingError("d_model", d_model, "must be at least 1")
        if max_len < 1:
            raise SettingError("max_len", max_len, "must be at least 1")
        self.max_len = max_len
        positions = torch.arange(max_len, dtype=torch.float).unsqueeze(1)
        frequencies = torch.exp(torch.arange(0, d_model, 2, dtype=torch.float) * (-math.log(10000.0) / d_model))
        angles = positions * frequencies
        pe = torch.zeros(max_len, d_model)
        pe[:, 0::2] = angles.sin()
        pe[:, 1::2] = angles.cos()[:, : d_model // 2]
        self.register_buffer("pe", pe.unsqueeze(0))

    def forward(
        self, x: Float[Tensor, "B L D"], coordinates: Integer[Tensor, "#B L"] | None = None
    ) -> Float[Tensor, "B L D"]:
        """Adds to each embedding the code of its coordinate.

        Args:
            x: embeddings.
            coordinates: the position of each token (from 0); 0, 1, 2, ... where not given.

        Raises:
            ValueError: the sequence is longer than `max_len`.
        """
        if coordinates is None:
            check_length(x.size(1), self.max_len)
            return (x + self.pe[:, : x.size(1)]).to(x.dtype)
        # Added in single precision and then rounded, whatever the embeddings are in.
        return (x + functional.embedding(coordinates, self.pe[0])).to(x.dtype)
