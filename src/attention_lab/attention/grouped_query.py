"""Grouped-query attention: several heads of queries share one head of keys and values."""

from collections.abc import Mapping
from typing import ClassVar

from attention_lab.attention.multi_head import MultiHeadAttention, divisors
from attention_lab.attention.projection import Projection
from attention_lab.errors import SettingError


class GroupedQueryAttention(MultiHeadAttention):
    """head_i = Attention(Q W_Q,i, K W_K,g, V W_V,g) with g = ⌊i · G / H⌋: neighbouring heads share keys and values.

    Ainslie et al. 2023; with G = 1 it is multi-query attention (Shazeer 2019), with G = H multi-head attention. A cache
    holds G heads instead of H, which is what it is for.

    Args:
        d_model: model width D.
        num_heads: heads of queries H; each is K = D / H wide.
        dropout: probability of dropping an attention weight while training.
        num_kv_heads: heads of keys and values G; must divide `num_heads`.
        scalable_softmax: as in `MultiHeadAttention`, like the two below.
        sharpness: of a scalable softmax before training.
        qk_norm: whether queries and keys are normalised.

    Raises:
        SettingError: `num_kv_heads` does not divide `num_heads`, or another argument is out of its range.
    """

    unsupported: ClassVar[Mapping[str, str]] = {"frames": "heads that share keys cannot count them from different ends"}

    def __init__(
        self,
        d_model: int = 512,
        num_heads: int = 8,
        dropout: float = 0.1,
        *,
        num_kv_heads: int = 2,
        scalable_softmax: bool = False,
        sharpness: float = 0.43,
        qk_norm: bool = False,
    ) -> None:
        scaling = {"scalable_softmax": scalable_softmax, "qk_norm": qk_norm}
        super().__init__(d_model, num_heads, dropout, sharpness=sharpness, **scaling)
        if num_kv_heads < 1 or num_heads % num_kv_heads:
            reason = f"does not divide num_heads={num_heads}; use one of {divisors(num_heads)}"
            raise SettingError("num_kv_heads", num_kv_heads, reason)
        self.num_kv_heads = num_kv_heads
        self.w_k = Projection(d_model, num_kv_heads * self.d_k)
        self.w_v = Projection(d_model, num_kv_heads * self.d_k)
