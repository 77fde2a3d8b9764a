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

    Room doubles when it runs out, so that n steps copy O(n) numbers in all, not O(n²). It is written in place, so
    gradients find no way back through it.
    """

    def __init__(self) -> None:
        self._room: KeyValues | None = None
        self.length = 0

    def append(self, new: KeyValues) -> KeyValues:
        """Adds the keys and values of the next tokens and returns those of all tokens so far."""
        end = self.length + new.keys.size(-2)
        room = self._room
        if room is None or end > room.keys.size(-2):
            room = KeyValues(*(self._grown(part, end) for part in new))
        for part, added in zip(room, new, strict=True):
            part[:, :, self.length : end] = added
        if self._room is not None and room is not self._room:
            for part, old in zip(room, self._room, strict=True):
                part[:, :, : self.length] = old[:, :, : self.length]
        self._room, self.length = room, end
        return KeyValues(*(part[:, :, :end] for part in room))

    @staticmethod
    def _grown(like: Tensor, needed: int) -> Tensor:
        batch, heads, _, width = like.shape
        return torch.empty(batch, heads, max(16, 2 * needed), width, dtype=like.dtype, device=like.device)
