"""What a Transformer's decoder keeps: of the source, and between two tokens."""

from typing import NamedTuple

from jaxtyping import Integer
from torch import Tensor

from attention_lab.attention.key_values import Cache, KeyValues
from attention_lab.attention.mask import Mask
from attention_lab.attention.packing import PackedMask
from attention_lab.positions.coordinates import Coordinates, Ruler


class Memory(NamedTuple):
    """What the decoder sees of the source.

    Attributes:
        layers: each layer's keys and values, computed once.
        mask: which source tokens are real.
        places: the source tokens' coordinates.
    """

    layers: tuple[KeyValues, ...]
    mask: Mask | PackedMask
    places: Coordinates


class DecodingState(NamedTuple):
    """What the decoder keeps between two tokens.

    Attributes:
        memory: what it sees of the source.
        ruler: the coordinates of both sequences.
        num_symbols: how many tokens each source has before its EOS.
        history: what each layer's self-attention keeps of the target so far.
        position: how many target tokens there were.
    """

    memory: Memory
    ruler: Ruler
    num_symbols: Integer[Tensor, "B 1"]
    history: tuple[Cache, ...]
    position: int
