"""Linformer: as many mixtures of tokens to attend to, however many tokens there are."""

from collections.abc import Mapping
from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional

from attention_lab.attention.key_values import KeyValues
from attention_lab.attention.mask import Mask, boolean
from attention_lab.attention.multi_head import MultiHeadAttention, fused
from attention_lab.attention.scaled_dot_product import scaled_dot_product_attention
from attention_lab.errors import SettingError
from attention_lab.positions.coordinates import from_start
from attention_lab.positions.position import QueryKeyPositions


class LinformerAttention(MultiHeadAttention):
    """head_i = softmax(Q W_Q (E K W_K)ᵀ / √d_k) F V W_V: attention over P learned mixtures of the S keys.

    Wang et al. 2020, "Linformer: Self-Attention with Linear Complexity", equation 7, with E and F shared between heads
    (their "headwise sharing"). S tokens cost O(S P) time and memory. The first S columns of E and F serve a source of S
    tokens, so that a token's share in the mixtures depends on where it is, counted from the first real token; padding
    has no share, on whichever side it is.

    The weights that are returned are the equivalent map from queries to keys, softmax(...) F: times the values they
    give the output, but entries may be negative and rows need not sum to 1. `dropout` drops weights of mixtures.

    Closing edges (`Mask.allowed`) takes entries out of this map. That is exact for what a
    query takes from a token, and for whole heads; a closed token still has its share in the mixed *keys*, so that a
    matrix cannot hide the future.

    Args:
        d_model: model width D.
        num_heads: number of heads H; each is K = D / H wide.
        dropout: probability of dropping the weight of a mixture while training.
        num_projected: number of mixtures P.
        max_len: longest source, in tokens.

    Raises:
        SettingError: an argument is out of its range.
    """

    unsupported: ClassVar[Mapping[str, str]] = {
        "causal": "each of its mixtures holds tokens from the whole sequence, the future included",
        "bias": "a mixture of tokens has no position, so that no pair has a score of its own to add a bias to",
        "turn": "a query and a mixture of turned keys do not meet by a distance: a mixture has no position",
    }

    def __init__(
        self,
        d_model: int = 512,
        num_heads: int = 8,
        dropout: float = 0.1,
        *,
        num_projected: int = 16,
        max_len: int = 256,
    ) -> None:
        super().__init__(d_model, num_heads, dropout)
        if num_projected < 1:
            raise SettingError("num_projected", num_projected, "must be at least 1")
        if max_len < 1:
            raise SettingError("max_len", max_len, "must be at least 1")
        self.max_keys = max_len
        # The variance 1 / P of the paper's theorem, whatever the length.
        self.e = nn.Parameter(torch.randn(num_projected, max_len) / num_projected**0.5)
        self.f = nn.Parameter(torch.randn(num_projected, max_len) / num_projected**0.5)

    def mix(
        self,
        queries: Float[Tensor, "B H L K"],
        memory: KeyValues,
        mask: Mask,
        positions: QueryKeyPositions | None,
        need_weights: bool,
    ) -> tuple[Float[Tensor, "B H L K"], Float[Tensor, "B H L S"] | None]:
        """Mixes values, head by head.

        Raises:
            ValueError: `mask` is causal, or there are more keys than `max_len`.
        """
        num_keys = memory.keys.size(-2)
        if num_keys > self.max_keys:
            raise ValueError(f"num_keys={num_keys} is beyond max_len={self.max_keys}; build it with a larger max_len")
        if mask.causal:
            raise ValueError(f"mask.causal=True is impossible here: {self.unsupported['causal']}")
        real, allowed = (None if part is None else boolean(part) for part in (mask.keys, mask.allowed))
        mix_keys, mix_values = _mixtures(self.e, real, num_keys), _mixtures(self.f, real, num_keys)
        keys, dropout = mix_keys @ memory.keys, self.dropout.p if self.training else 0.0
        if allowed is not None and allowed.size(-1) > 1:
            # Dropped mixtures are missing from the map that mixes values, but not from the one that is returned.
            spread = mix_values.expand(*keys.shape[:2], -1, -1)
            dropped, weights = scaled_dot_product_attention(queries, keys, spread, None, dropout)
            output = dropped.masked_fill(~allowed, 0.0) @ memory.values
        else:
            values = mix_values @ memory.values
            if need_weights:
                output, weights = scaled_dot_product_attention(queries, keys, values, None, dropout)
            else:
                output, weights = fused(queries, KeyValues(keys, values), Mask(), dropout), None
            output = output if allowed is None else output.masked_fill(~allowed, 0.0)
        if weights is None or not need_weights:
            return output, None
        equivalent = weights @ mix_values
        return output, equivalent if allowed is None else equivalent.masked_fill(~allowed, 0.0)


def _mixtures(
    shares: Float[Tensor, "P max_len"], real: Bool[Tensor, "#B S"] | None, num_keys: int
) -> Float[Tensor, "#B 1 P S"]:
    """Returns each token's share in the mixtures: the column of its place, and zeros for padding."""
    if real is None:
        return shares[None, None, :, :num_keys]
    of_places = functional.embedding(from_start(real), shares.T)
    return of_places.masked_fill(~real[..., None], 0.0).transpose(1, 2)[:, None]
