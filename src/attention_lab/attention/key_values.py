"""Keys and values that are kept: what makes decoding one token cost one token."""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from jaxtyping import Bool, Float
from torch import Tensor


@dataclass(slots=True)
class KeyValues:
    """Keys and values after their projections, split into G heads (fewer than queries have, where heads share them).

    A mechanism that needs more than these of a token, or keeps something else of earlier ones, derives a record of its
    own.

    Attributes:
        keys: what queries are compared with.
        values: what is mixed.
    """

    keys: Float[Tensor, "B G S K"]
    values: Float[Tensor, "B G S K"]


@runtime_checkable
class Cache(Protocol):
    """What a mechanism keeps of the tokens decoded so far."""

    def append(self, new: KeyValues, real: Bool[Tensor, "B S"] | None = None) -> KeyValues:
        """Takes in the next tokens and returns what they may attend to, themselves included.

        Args:
            new: the keys and values of the next tokens.
            real: which of these are not padding; all where not given. A cache that keeps sums has to know at once.
        """
        ...


class KeyValueCache:
    """The keys and values of all tokens decoded so far.

    Room doubles when it runs out, so that n steps copy O(n) numbers in all, not O(n²). What comes first is kept as it
    is, so that a target read all at once costs no copy and has its gradients; from the second piece on, keys and values
    are written in place, and gradients find no way back through them.

    Args:
        expected: how many tokens there may be, as far as is known; for as many there is room from the second piece on.
    """

    def __init__(self, expected: int = 0) -> None:
        self.expected = expected
        self.length = 0
        self._room: KeyValues | None = None

    def append(self, new: KeyValues, real: Bool[Tensor, "B S"] | None = None) -> KeyValues:
        """Adds the keys and values of the next tokens and returns those of all tokens so far; masks hide padding."""
        end = self.length + new.keys.size(-2)
        if self._room is None:
            self._room, self.length = new, end
            return new
        if end > self._room.keys.size(-2):
            size = self.expected if end <= self.expected else max(16, 2 * end)
            self._room = KeyValues(self._moved(self._room.keys, size), self._moved(self._room.values, size))
        self._room.keys[:, :, self.length : end] = new.keys
        self._room.values[:, :, self.length : end] = new.values
        self.length = end
        return KeyValues(self._room.keys[:, :, :end], self._room.values[:, :, :end])

    def _moved(self, part: Tensor, size: int) -> Tensor:
        batch, heads, _, width = part.shape
        # Heads lie side by side, as projections leave them, so that a token is written in one place.
        room = part.new_empty(batch, size, heads, width).transpose(1, 2)
        room[:, :, : self.length] = part[:, :, : self.length]
        return room
