"""Multi-head attention: several attentions side by side, each in a subspace of its own."""

import math
from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional

from attention_lab.attention.key_values import Cache, KeyValueCache, KeyValues
from attention_lab.attention.mask import Mask, boolean
from attention_lab.attention.packing import PackedMask, Packing
from attention_lab.attention.projection import Projection
from attention_lab.attention.scaled_dot_product import AttentionOutput, scaled_dot_product_attention
from attention_lab.positions.position import UNLIMITED, Placed


class AlignmentLayer(nn.Module):
    """What measuring and silencing heads need of an attention, of whatever kind.

    A base class and no protocol: `nn.Module` keeps `w_o` among its sub-modules, where the `isinstance` of a protocol
    does not look from Python 3.12 on.

    Attributes:
        num_heads: number of heads H.
        d_k: width K of a head.
        w_o: the output projection. Head i enters through columns i K to (i + 1) K.
    """

    num_heads: int
    d_k: int
    w_o: nn.Linear


class MultiHeadAttention(AlignmentLayer):
    """MultiHead(Q, K, V) = Concat(head_1, ..., head_H) W_O with head_i = Attention(Q W_Q, K W_K, V W_V)_i.

    Vaswani et al. 2017, section 3.2.2. Constructor arguments, sub-modules and state-dict keys are the articles', so
    weights move between their code and this. Their `dropout` was never used; here it drops attention weights.

    Args:
        d_model: model width D.
        num_heads: number of heads H; each is K = D / H wide.
        dropout: probability of dropping an attention weight while training.
        scalable_softmax: multiply a query's scores by s_h · log n, where it may attend to n keys and each head learns
            its s_h (Nakanishi 2025, "Scalable-Softmax Is Superior for Attention"): attention then stays as sharp as it
            was when there are more keys than ever in training, where plain softmax disperses.
        sharpness: s_h before training; 0.43 is what Nakanishi found, so that s_h · log n is about 1 at ten keys.
        qk_norm: bring every query and key to root mean square 1, times a learned gain, before positions turn them
            (Henry et al. 2020, "Query-Key Normalization for Transformers"; by RMSNorm, as in Qwen3): no token's score
            then stands out for its size.

    Raises:
        ValueError: `d_model` is not positive, `num_heads` does not divide it, `dropout` is not a probability, or
            `sharpness` is not positive.
    """

    unable: ClassVar[Mapping[str, str]] = {}
    """What this kind cannot be (`causal`, `cross`) or do (`turn` or `bias`, which positions ask for), and why."""

    packs: ClassVar[bool] = True
    """Whether batches may be packed, and gain by it: but for mixing by a fused kernel, all is done to each token alike.
    Every subclass has to say so for itself."""

    max_keys: int = UNLIMITED
    """How many keys it can attend to."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.packs = bool(vars(cls).get("packs", False))

    def __init__(
        self,
        d_model: int = 512,
        num_heads: int = 8,
        dropout: float = 0.1,
        *,
        scalable_softmax: bool = False,
        sharpness: float = 0.43,
        qk_norm: bool = False,
    ) -> None:
        super().__init__()
        if d_model < 1:
            raise ValueError(f"d_model={d_model} must be at least 1")
        if num_heads < 1 or d_model % num_heads:
            raise ValueError(f"num_heads={num_heads} does not divide d_model={d_model}; use one of {divisors(d_model)}")
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout={dropout} is not a probability; use 0 <= dropout < 1")
        if not sharpness > 0:
            raise ValueError(f"sharpness={sharpness} must be above 0")
        self.d_model = d_model
        self.num_heads = num_heads
        self.d_k = d_model // num_heads
        self.w_q = Projection(d_model, d_model)
        self.w_k = Projection(d_model, d_model)
        self.w_v = Projection(d_model, d_model)
        self.w_o = Projection(d_model, d_model)
        self.dropout = nn.Dropout(dropout)
        self.sharpness = nn.Parameter(torch.full((num_heads,), sharpness)) if scalable_softmax else None
        self.q_norm, self.k_norm = (nn.RMSNorm(self.d_k) if qk_norm else None for _ in range(2))

    def forward(
        self,
        q: Float[Tensor, "B L D"],
        k: Float[Tensor, "B S D"],
        v: Float[Tensor, "B S D"],
        mask: Mask | PackedMask | Bool[Tensor, "..."] | None = None,
        *,
        need_weights: bool = True,
        placed: Placed | None = None,
    ) -> AttentionOutput:
        """Lets every query attend to the keys.

        Args:
            q: what asks. k: what is compared with. v: what is mixed; for self-attention all three are the same.
            mask: True = may attend: a description, or a matrix broadcastable to (B, H, L, S). With a packed one,
                queries and keys are packed rows, which have no weights and know no bias.
            need_weights: take the explicit path and return the weights; otherwise PyTorch's fused kernel runs and
                the weights are None. The output is the same up to rounding.
            placed: where queries and keys are, for codes that turn them or add to their scores.

        Returns:
            Output (B, L, D) and weights (B, H, L, S), one map a head, never averaged.
        """
        return self.attend(q, self.project(k, v, placed), mask, need_weights=need_weights, placed=placed)

    def project(self, k: Float[Tensor, "B S D"], v: Float[Tensor, "B S D"], placed: Placed | None = None) -> KeyValues:
        """Projects keys and values, splits them into heads, and turns the keys to where they are."""
        keys = self._split_heads(self.w_k(k))
        if self.k_norm is not None:
            keys = self.k_norm(keys).to(keys.dtype)
        if placed is not None:
            keys = placed.position.turn(keys, placed.keys)
        return KeyValues(keys, self._split_heads(self.w_v(v)))

    def new_cache(self, expected: int = 0) -> Cache:
        """Returns an empty cache for decoding `expected` tokens, as far as that is known."""
        return KeyValueCache(expected)

    def attend(
        self,
        q: Float[Tensor, "B L D"],
        memory: KeyValues,
        mask: Mask | PackedMask | Bool[Tensor, "..."] | None = None,
        *,
        need_weights: bool = True,
        placed: Placed | None = None,
    ) -> AttentionOutput:
        """The rest of `forward`, for keys and values that were projected (and turned) before."""
        queries = self._split_heads(self.w_q(q))
        if self.q_norm is not None:
            queries = self.q_norm(queries).to(queries.dtype)
        if placed is not None:
            queries = placed.position.turn(queries, placed.queries)
        if self.sharpness is not None:
            scale = self._scale(self.sharpness, mask, queries.size(2), memory.keys.size(2))
            queries = (queries * scale).to(queries.dtype)
        if isinstance(mask, PackedMask):
            if placed is not None and "bias" in placed.position.asks:
                raise ValueError(f"{type(placed.position).__name__} adds to the scores of pairs, which are not packed")
            return AttentionOutput(self.w_o(self._mix_packed(queries, memory, mask).flatten(2)), None)
        mixed, weights = self.mix(queries, memory, mask, placed, need_weights)
        return AttentionOutput(self.w_o(mixed.transpose(1, 2).flatten(2)), weights)

    def _mix_packed(
        self, queries: Float[Tensor, "1 H N K"], memory: KeyValues, mask: PackedMask
    ) -> Float[Tensor, "1 N H K"]:
        """Mixes values batch by batch."""

        def batches(packing: Packing, heads: Tensor) -> list[Tensor]:
            return [batch.transpose(1, 2) for batch in packing.unpack(heads.transpose(1, 2))]

        parts = zip(
            batches(mask.queries, queries),
            batches(mask.keys, memory.keys),
            batches(mask.keys, memory.values),
            mask.masks,
            strict=True,
        )
        mixed = [self.mix(q, KeyValues(k, v), own, None, need_weights=False)[0] for q, k, v, own in parts]
        return mask.queries.pack([batch.transpose(1, 2) for batch in mixed])

    def mix(
        self,
        queries: Float[Tensor, "B H L K"],
        memory: KeyValues,
        mask: Mask | Bool[Tensor, "..."] | None,
        placed: Placed | None,
        need_weights: bool,
    ) -> tuple[Float[Tensor, "B H L K"], Float[Tensor, "B H L S"] | None]:
        """Mixes values, head by head: what tells one kind of attention from another."""
        bias = None if placed is None else placed.bias
        dropout = self.dropout.p if self.training else 0.0
        if not need_weights:
            return fused(queries, memory, mask, dropout, bias), None
        matrix = spelled_out(mask, queries, memory.keys)
        shared = queries.size(1) // memory.keys.size(1)
        keys, values = (part.repeat_interleave(shared, dim=1) for part in (memory.keys, memory.values))
        return scaled_dot_product_attention(queries, keys, values, matrix, dropout, bias)

    def _scale(
        self, sharpness: Float[Tensor, " H"], mask: Mask | PackedMask | Tensor | None, num_queries: int, num_keys: int
    ) -> Float[Tensor, "*#B H #L 1"]:
        """Returns s_h · log n for each query; queries are scaled instead of scores."""
        described = Mask() if mask is None else mask
        if isinstance(described, Mask | PackedMask):
            visible = described.num_visible(num_queries, num_keys, sharpness.device)[:, None]
        else:
            visible = boolean(described).sum(dim=-1)
        # With a single key the scores make no difference, and log 1 = 0 would take its gradient away from everything.
        return sharpness[:, None, None] * visible.clamp(min=2).log()[..., None]

    def _split_heads(self, x: Float[Tensor, "B L D"]) -> Float[Tensor, "B H L K"]:
        return x.view(x.size(0), x.size(1), x.size(2) // self.d_k, self.d_k).transpose(1, 2)


def divisors(number: int) -> list[int]:
    """Returns what divides a number, ascending."""
    small = [n for n in range(1, math.isqrt(number) + 1) if number % n == 0]
    return sorted({*small, *(number // n for n in small)})


def spelled_out(mask: Mask | Tensor | None, queries: Tensor, keys: Tensor) -> Bool[Tensor, "..."] | None:
    """Returns a mask as a matrix, broadcastable to (B, H, L, S)."""
    if isinstance(mask, Mask):
        return mask.matrix(queries.size(-2), keys.size(-2), queries.device)
    return None if mask is None else boolean(mask)


def fused(
    queries: Float[Tensor, "B H L K"],
    memory: KeyValues,
    mask: Mask | Tensor | None,
    dropout: float,
    bias: Tensor | None = None,
) -> Float[Tensor, "B H L K"]:
    """Returns what scaled dot-product attention returns, by PyTorch's fused kernel and without the weights."""
    attention = partial(
        functional.scaled_dot_product_attention,
        queries,
        memory.keys,
        memory.values,
        dropout_p=dropout,
        enable_gqa=queries.size(1) != memory.keys.size(1),
    )
    # PyTorch aligns `is_causal` at the top left; that is ours only where there are as many queries as keys.
    square = queries.size(-2) == memory.keys.size(-2)
    if bias is None and square and isinstance(mask, Mask) and mask.is_causal_only:
        return attention(is_causal=True)
    matrix = spelled_out(mask, queries, memory.keys)
    if bias is None or matrix is None:
        return attention(attn_mask=matrix if bias is None else bias.to(queries.dtype))
    # The kernel makes zeros of a row whose every key is masked, but with a bias NaN.
    open_rows = matrix.any(dim=-1, keepdim=True)
    scores = bias.to(queries.dtype).masked_fill(~matrix & open_rows, -math.inf)
    return attention(attn_mask=scores).masked_fill(~open_rows, 0.0)
