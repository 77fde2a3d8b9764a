"""A mask is a description: which keys are real, and whether a query may look ahead."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Integer
from torch import Tensor


def boolean(mask: Tensor) -> Bool[Tensor, "..."]:
    """Returns the mask as it is.

    Raises:
        ValueError: it is not boolean, so that its meaning would have to be guessed (0/1 or 0/-inf?).
    """
    if mask.dtype != torch.bool:
        raise ValueError(
            f"mask has dtype {mask.dtype}; it must be torch.bool with True = may attend (for a 0/1 mask: mask.bool())"
        )
    return mask


class Mask(NamedTuple):
    """Which keys a query may attend to, without spelling out a matrix until somebody needs one.

    True always means "may attend", as in `torch.nn.functional.scaled_dot_product_attention` (and unlike
    `torch.nn.MultiheadAttention`).

    Attributes:
        keys: True where a key is a real token, shape (B, S); None when all are.
        causal: whether a query sees no key after itself. With fewer queries than keys the queries are the *last*
            ones, as in decoding with a cache (PyTorch's own `is_causal` takes them to be the first).
        allowed: True where a head may attend, broadcastable to (B, H, L, S); None where all may everywhere.
    """

    keys: Bool[Tensor, "B S"] | None = None
    causal: bool = False
    allowed: Bool[Tensor, "..."] | None = None

    @property
    def is_causal_only(self) -> bool:
        """Whether nothing but the future is hidden, which the fused kernel does without a matrix."""
        return self.causal and self.keys is None and self.allowed is None

    def narrowed(self, allowed: Bool[Tensor, "..."]) -> "Mask":
        """Returns the mask with some more edges closed."""
        return self._replace(allowed=boolean(allowed) if self.allowed is None else self.allowed & boolean(allowed))

    def num_visible(self, num_queries: int, num_keys: int, device: torch.device) -> Integer[Tensor, "#B #H #L"]:
        """Returns how many keys each query may attend to."""
        matrix = None if self.allowed is None else self.matrix(num_queries, num_keys, device)
        if matrix is not None:
            return matrix.expand(*matrix.shape[:-1], num_keys).sum(dim=-1)
        if self.causal and self.keys is not None:
            return self.keys.cumsum(dim=1)[:, None, num_keys - num_queries :]
        if self.causal:
            return torch.arange(num_keys - num_queries + 1, num_keys + 1, device=device)[None, None]
        if self.keys is None:
            return torch.tensor([[[num_keys]]], device=device)
        return self.keys.sum(dim=1)[:, None, None]

    def matrix(
        self, num_queries: int, num_keys: int, device: torch.device | None = None
    ) -> Bool[Tensor, "#B #H #L #S"] | None:
        """Spells the mask out, broadcastable to (B, H, L, S); None when everything may be attended to."""
        matrix = None if self.keys is None else boolean(self.keys)[:, None, None, :]
        if self.causal and num_queries > 1:
            future = torch.ones(num_queries, num_keys, dtype=torch.bool, device=device)
            causal = future.tril(num_keys - num_queries)[None, None]
            matrix = causal if matrix is None else matrix & causal
        if self.allowed is not None:
            matrix = boolean(self.allowed) if matrix is None else matrix & boolean(self.allowed)
        return matrix


def as_mask(mask: Mask | Bool[Tensor, "..."] | None, num_keys: int) -> Mask:
    """Returns the description of what a caller gives: nothing, a description, or a matrix.

    A matrix, broadcastable to (B, H, L, S), that closes keys to every query and head alike is read as padding.
    """
    if mask is None or isinstance(mask, Mask):
        return mask or Mask()
    matrix = boolean(mask)[(None,) * (4 - mask.dim())]
    return Mask(matrix[:, 0, 0]) if matrix.shape[1:] == (1, 1, num_keys) else Mask(allowed=matrix)


def hiding_padding(real: Bool[Tensor, "B S"]) -> Mask:
    """Returns the mask that hides what is not real.

    Where everything is, it hides nothing, so that fused kernels need no matrix. On a GPU nobody looks, since that would
    be waiting for it, and neither does who traces a network for all batches.
    """
    look = real.device.type == "cpu" and not torch.compiler.is_compiling()
    return Mask(keys=None if look and bool(real.all()) else real)
