"""Scaled dot-product attention: the equation that everything else is built on."""

import math
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional

from attention_lab.attention.mask import boolean


class AttentionOutput(NamedTuple):
    """What attention gives back; unpacks like the articles' `out, attn`.

    Attributes:
        output: the mixed values, (B, H, L, K) from the equation and (B, L, D) from a module.
        weights: the probabilities behind it *before* dropout, so every row sums to 1 (or to 0 where a query may
            attend to nothing), (B, H, L, S); None when they were not asked for.
    """

    output: Float[Tensor, "..."]
    weights: Float[Tensor, "B H L S"] | None


def scaled_dot_product_attention(
    q: Float[Tensor, "*batch L K"],
    k: Float[Tensor, "*batch S K"],
    v: Float[Tensor, "*batch S M"],
    mask: Bool[Tensor, "..."] | None = None,
    dropout: float = 0.0,
    bias: Float[Tensor, "..."] | None = None,
) -> tuple[Float[Tensor, "*batch L M"], Float[Tensor, "*batch L S"]]:
    """Attention(Q, K, V) = softmax(Q Kᵀ / √d_k) V, spelled out (Vaswani et al. 2017, equation 1).

    Differs from the articles where they break: masked scores are filled with the smallest number of their own type
    (-1e9 overflows in half precision), and a query that may attend to nothing gets zeros and finite gradients
    (theirs averages over the very keys it must not see; filling with -inf gives NaN).

    Args:
        q: queries.
        k: keys, as wide as the queries.
        v: values, one for each key.
        mask: True = may attend, broadcastable to (*batch, L, S).
        dropout: probability of dropping a weight on its way to the values; the returned weights are whole.
        bias: added to the scores, broadcastable to (*batch, L, S): Attention = softmax(Q Kᵀ / √d_k + bias) V.

    Returns:
        The output and the weights. Each row of weights sums to 1, or to 0 where everything was masked.

    Raises:
        ValueError: `mask` is not boolean.
    """
    # In single precision or better, whatever the queries are in: half precision would make near scores equal.
    exact = torch.promote_types(q.dtype, torch.float32)
    with torch.autocast(q.device.type, enabled=False):
        scores = (q.to(exact) / math.sqrt(q.size(-1))) @ k.to(exact).transpose(-2, -1)
        if bias is not None:
            scores = scores + bias
        if mask is None:
            weights = scores.softmax(dim=-1)
        else:
            mask = boolean(mask)
            # The second fill changes only rows without a single allowed key: elsewhere those weights are 0 already.
            scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
            weights = scores.softmax(dim=-1).masked_fill(~mask, 0.0)
    weights = weights.to(q.dtype)
    return functional.dropout(weights, dropout, training=dropout > 0) @ v, weights
