"""Keys and values that are kept: what makes decoding one token cost one token."""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor


class KeyValues(NamedTuple):
    """Keys and values after their projections, split into heads."""

    keys: Float[Tensor, "B H S K"]
    values: Float[Tensor, "B H S K"]


class KeyValueCache:
    """The keys and values of all tokens decoded so far.

    Room doubles when it runs out, so that n steps copy O(n) numbers in all, not O(n²). What comes first is kept as it
    is, so that a target read all at once costs no copy and has its gradients; from the second piece on, keys and values
    are written in place, and gradients find no way back through them.
    """

    def __init__(self) -> None:
        self._room: KeyValues | None = None
        self.length = 0

    def append(self, new: KeyValues) -> KeyValues:
        """Adds the keys and values of the next tokens and returns those of all tokens so far."""
        end = self.length + new.keys.size(-2)
        if self._room is None:
            self._room, self.length = new, end
            return new
        if end > self._room.keys.size(-2):
            self._room = KeyValues(*(self._moved(part, end) for part in self._room))
        for part, added in zip(self._room, new, strict=True):
            part[:, :, self.length : end] = added
        self.length = end
        return KeyValues(*(part[:, :, :end] for part in self._room))

    def _moved(self, part: Tensor, needed: int) -> Tensor:
        batch, heads, _, width = part.shape
        room = torch.empty(batch, heads, max(16, 2 * needed), width, dtype=part.dtype, device=part.device)
        room[:, :, : self.length] = part[:, :, : self.length]
        return room
