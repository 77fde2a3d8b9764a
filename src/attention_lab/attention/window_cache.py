"""What a window keeps while decoding: the first tokens, the last ones, and how many are gone in between."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attention_lab.attention.key_values import KeyValues


class Earlier(NamedTuple):
    """What is kept of the tokens before a window.

    Attributes:
        keys: those of the first tokens of all, which every later token sees.
        values: theirs.
        length: how many tokens came before the first one in the window.
    """

    keys: Float[Tensor, "B G N K"]
    values: Float[Tensor, "B G N K"]
    length: int


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
        """Adds the next tokens and returns the last ones before them, themselves, and (as `before`) the first ones."""
        earlier, self.length = self.length, self.length + new.keys.size(2)
        memory, first = new, new
        if self._last is not None and self._first is not None:
            memory = _joined(self._last, new)
            first = self._first if self._first.keys.size(2) == self.num_global else _joined(self._first, new)
        self._first = _copied(first, slice(self.num_global))
        self._last = _copied(memory, slice(-self.window, None))
        if not earlier:
            return new
        gone = self.length - memory.keys.size(2)
        return memory._replace(before=Earlier(self._first.keys, self._first.values, gone))


def all_tokens(memory: KeyValues) -> KeyValues:
    """Returns keys and values in the places of all tokens so far, zeros where they are gone."""
    if not isinstance(memory.before, Earlier):
        return memory
    first, length = memory.before, memory.before.length
    gone = max(0, length - first.keys.size(2))

    def placed(start: Tensor, end: Tensor) -> Tensor:
        batch, heads, _, width = end.shape
        return torch.cat([start[:, :, :length], end.new_zeros(batch, heads, gone, width), end], dim=2)

    return KeyValues(placed(first.keys, memory.keys), placed(first.values, memory.values))


def _joined(one: KeyValues, other: KeyValues) -> KeyValues:
    return KeyValues(torch.cat([one.keys, other.keys], dim=2), torch.cat([one.values, other.values], dim=2))


def _copied(memory: KeyValues, tokens: slice) -> KeyValues:
    """Returns some tokens only: a view of them would keep all the others in memory."""
    return KeyValues(memory.keys[:, :, tokens].clone(), memory.values[:, :, tokens].clone())
