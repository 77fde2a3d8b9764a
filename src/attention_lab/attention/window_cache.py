"""What a window keeps while decoding: the first tokens, the last ones, and how many are gone in between."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool
from torch import Tensor

from attention_lab.attention.key_values import KeyValues


@dataclass(slots=True)
class WindowKeyValues(KeyValues):
    """The keys and values of the tokens in a window, and of those before it that every later token sees.

    Attributes:
        first: keys and values of the first tokens of all.
        num_before: how many tokens came before the first one in the window.
    """

    first: KeyValues
    num_before: int

    def spread(self) -> KeyValues:
        """Returns keys and values in the places of all tokens so far, zeros where they are gone."""
        gone = max(0, self.num_before - self.first.keys.size(2))

        def whole(start: Tensor, end: Tensor) -> Tensor:
            batch, heads, _, width = end.shape
            return torch.cat([start[:, :, : self.num_before], end.new_zeros(batch, heads, gone, width), end], dim=2)

        return KeyValues(whole(self.first.keys, self.keys), whole(self.first.values, self.values))


class WindowCache:
    """The keys and values of the first `num_global` and the last `window` tokens decoded so far, and no others.

    What comes first is returned as it is. Gradients find their way back through what is kept.

    Args:
        window: how many tokens back a query sees.
        num_global: how many of the first tokens every query sees.
    """

    def __init__(self, window: int, num_global: int) -> None:
        self.window = window
        self.num_global = num_global
        self.length = 0
        self._first: KeyValues | None = None
        self._last: KeyValues | None = None

    def append(self, new: KeyValues, real: Bool[Tensor, "B S"] | None = None) -> KeyValues:
        """Adds the next tokens and returns them with the last ones before them, and with the first ones."""
        earlier, self.length = self.length, self.length + new.keys.size(2)
        memory, first = new, new
        if self._last is not None and self._first is not None:
            memory = _joined(self._last, new)
            first = self._first if self._first.keys.size(2) == self.num_global else _joined(self._first, new)
        self._first = _copied(first, slice(self.num_global))
        self._last = _copied(memory, slice(-self.window, None))
        if not earlier:
            return new
        return WindowKeyValues(memory.keys, memory.values, self._first, self.length - memory.keys.size(2))


def _joined(one: KeyValues, other: KeyValues) -> KeyValues:
    return KeyValues(torch.cat([one.keys, other.keys], dim=2), torch.cat([one.values, other.values], dim=2))


def _copied(memory: KeyValues, tokens: slice) -> KeyValues:
    """Returns some tokens only: a view of them would keep all the others in memory."""
    return KeyValues(memory.keys[:, :, tokens].clone(), memory.values[:, :, tokens].clone())
