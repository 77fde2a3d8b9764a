"""From tokens to vectors that know what and where they are."""

import math
from typing import Protocol, runtime_checkable

from jaxtyping import Float, Integer
from torch import Tensor, nn
from torch.nn import functional

from attention_lab.errors import SettingError
from attention_lab.positions.position import Position


@runtime_checkable
class PositionFactory(Protocol):
    """Builds the position code for a stack of layers."""

    def __call__(self, d_model: int, /, *, num_heads: int, causal: bool) -> Position: ...


class Embedding(nn.Module):
    """Token embedding times √D, plus position, then dropout (Vaswani et al. 2017, sections 3.4 and 3.5).

    The embeddings are drawn with standard deviation 1/(4 √D), so that after the factor √D a token is a quarter as large
    as the position code's largest entry: position is what attention has to go by. With twice the deviation a head that
    aligns still slips now and then where neighbours say the same; with four times it takes longer to align at all.
    PyTorch's own N(0, 1) comes out √D times as large as the position code and drowns it.

    Args:
        num_tokens: how many token ids there are, specials included.
        d_model: model width D.
        dropout: probability of dropping an activation while training.
        position: the position code.

    Raises:
        SettingError: an argument is out of its range.
    """

    def __init__(self, num_tokens: int, d_model: int, dropout: float, position: Position) -> None:
        super().__init__()
        if num_tokens < 1:
            raise SettingError("num_tokens", num_tokens, "must be at least 1")
        if d_model < 1:
            raise SettingError("d_model", d_model, "must be at least 1")
        if not 0 <= dropout < 1:
            raise SettingError("dropout", dropout, "is not a probability; use 0 <= dropout < 1")
        self.tokens = nn.Embedding(num_tokens, d_model)
        self.position = position
        self.dropout = make_dropout(dropout)
        self.scale = math.sqrt(d_model)
        nn.init.normal_(self.tokens.weight, std=0.25 / self.scale)

    def forward(
        self, tokens: Integer[Tensor, "B L"], coordinates: Integer[Tensor, "#B L"] | None = None
    ) -> Float[Tensor, "B L D"]:
        """Embeds tokens; `coordinates` are their positions, 0, 1, 2, ... where not given."""
        if self.training and tokens.numel() > self.tokens.num_embeddings:
            # Of the table and what is taken out of it, scaling the smaller one makes a training step 1 % faster.
            embedded = functional.embedding(tokens, self.tokens.weight * self.scale)
        else:
            embedded = self.tokens(tokens) * self.scale
        return self.dropout(self.position(embedded, coordinates))


def make_dropout(dropout: float) -> nn.Module:
    """Returns dropout, or nothing for a probability of 0: a decoded token would pass through five that drop nothing."""
    return nn.Dropout(dropout) if dropout else nn.Identity()
