"""Learned positions: a vector for every place, found by training."""

import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn

from attention_lab.errors import SettingError
from attention_lab.positions.position import Position, check_length


class LearnedPosition(Position):
    """Adds a learned vector to each embedding (Gehring et al. 2017; Devlin et al. 2019).

    Drawn as small as BERT's, with standard deviation 0.02. A position that never occurred in training keeps the vector
    it was drawn with.

    Args:
        d_model: model width D.
        max_len: how many positions there are.

    Raises:
        SettingError: an argument is not positive.
    """

    def __init__(self, d_model: int, max_len: int = 512, *, num_heads: int = 1, causal: bool = False) -> None:
        super().__init__(d_model)
        if d_model < 1:
            raise SettingError("d_model", d_model, "must be at least 1")
        if not 1 <= max_len <= 10**6:
            raise SettingError("max_len", max_len, "must lie between 1 and 1000000")
        self.max_len = max_len
        self.vectors = nn.Embedding(max_len, d_model)
        nn.init.normal_(self.vectors.weight, std=0.02)

    def forward(
        self, x: Float[Tensor, "B L D"], coordinates: Integer[Tensor, "#B L"] | None = None
    ) -> Float[Tensor, "B L D"]:
        """Adds to each embedding the vector of its coordinate.

        Raises:
            ValueError: the sequence is longer than `max_len`.
        """
        if coordinates is None:
            check_length(x.size(1), self.max_len)
            coordinates = torch.arange(x.size(1), device=x.device)[None]
        return x + self.vectors(coordinates)
