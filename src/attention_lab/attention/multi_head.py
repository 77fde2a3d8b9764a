"""Multi-head attention: several attentions side by side, each in a subspace of its own."""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional

from attention_lab.attention.key_values import Cache, KeyValueCache, KeyValues
from attention_lab.attention.mask import Mask, as_mask
from attention_lab.attention.packing import AttentionMetadata, Packing
from attention_lab.attention.projection import Projection
from attention_lab.attention.scaled_dot_product import AttentionOutput, scaled_dot_product_attention
from attention_lab.errors import SettingError
from attention_lab.positions.coordinates import UNLIMITED
from attention_lab.positions.position import QueryKeyPositions


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
        SettingError: `d_model` is not positive, `num_heads` does not divide it, `dropout` is not a probability, or
            `sharpness` is not positive.
    """

    unsupported: ClassVar[Mapping[str, str]] = {}
    """What this kind cannot be (`causal`, `cross`: queries and keys are different tokens, or only some of the same), do
    (`turn`, `bias`, `frames`, which positions require) or give (`cached_weights`, those of decoded tokens), and why."""

    max_keys: int = UNLIMITED
    """How many keys it can attend to."""

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
            raise SettingError("d_model", d_model, "must be at least 1")
        if num_heads < 1 or d_model % num_heads:
            raise SettingError(
                "num_heads", num_heads, f"does not divide d_model={d_model}; use one of {divisors(d_model)}"
            )
        if not 0 <= dropout < 1:
            raise SettingError("dropout", dropout, "is not a probability; use 0 <= dropout < 1")
        if not sharpness > 0:
            raise SettingError("sharpness", sharpness, "must be above 0")
        self.d_model = d_model
        self.num_heads = num_heads
        self.d_k = d_model // num_heads
        self.w_q = Projection(d_model, d_model)
        self.w_k = Projection(d_model, d_model)
        self.w_v = Projection(d_model, d_model)
        self.w_o: nn.Linear = Projection(d_model, d_model)
        self.dropout = nn.Dropout(dropout)
        self.sharpness = nn.Parameter(torch.full((num_heads,), sharpness)) if scalable_softmax else None
        self.q_norm, self.k_norm = (nn.RMSNorm(self.d_k) if qk_norm else None for _ in range(2))

    def forward(
        self,
        q: Float[Tensor, "B L D"],
        k: Float[Tensor, "B S D"],
        v: Float[Tensor, "B S D"],
        mask: Mask | Bool[Tensor, "..."] | None = None,
        *,
        need_weights: bool = True,
        positions: QueryKeyPositions | None = None,
    ) -> AttentionOutput:
        """Lets every query attend to the keys.

        Args:
            q: what asks. k: what is compared with. v: what is mixed; for self-attention all three are the same.
            mask: True = may attend: a description, or a matrix broadcastable to (B, H, L, S).
            need_weights: take the explicit path and return the weights; otherwise PyTorch's fused kernel runs and
                the weights are None. The output is the same up to rounding.
            positions: where queries and keys are, for codes that turn them or add to their scores.

        Returns:
            Output (B, L, D) and weights (B, H, L, S), one map a head, never averaged.
        """
        metadata = AttentionMetadata.of_batch(as_mask(mask, k.size(1)), q, k, positions)
        memory = self.project(k, v, metadata.keys, positions)
        return self.attend(q, memory, metadata, need_weights=need_weights)

    def project(
        self,
        k: Float[Tensor, "B S D"],
        v: Float[Tensor, "B S D"],
        packing: Packing,
        positions: QueryKeyPositions | None = None,
    ) -> Sequence[KeyValues]:
        """Projects a row of keys and values, splits them into heads, turns the keys to where they are, and unpacks.

        Returns:
            What there is to attend to in each part.
        """
        keys = self._split_heads(self.w_k(k))
        if self.k_norm is not None:
            keys = self.k_norm(keys).to(keys.dtype)
        if positions is not None:
            keys = positions.code.turn(keys, positions.keys)
        values = packing.unpack(self._split_heads(self.w_v(v)), heads=True)
        return [KeyValues(*part) for part in zip(packing.unpack(keys, heads=True), values, strict=True)]

    def new_cache(self, expected: int = 0) -> Cache:
        """Returns an empty cache for decoding `expected` tokens, as far as that is known."""
        return KeyValueCache(expected)

    def attend(
        self,
        q: Float[Tensor, "B L D"],
        memory: Sequence[KeyValues],
        metadata: AttentionMetadata,
        *,
        need_weights: bool = True,
    ) -> AttentionOutput:
        """The rest of `forward`, for a row of queries, and keys and values that were projected (and turned) before.

        Weights are there for a batch of one part only.
        """
        queries = metadata.queries.unpack(self.queries(q, metadata), heads=True)
        parts = zip(queries, memory, metadata.part_masks(), metadata.part_positions(), strict=True)
        mixed = [self.mix(*part, need_weights) for part in parts]
        heads = metadata.queries.pack([values.transpose(1, 2) for values, _ in mixed])
        return AttentionOutput(self.w_o(heads.flatten(2)), mixed[0][1] if len(mixed) == 1 else None)

    def queries(self, q: Float[Tensor, "B L D"], metadata: AttentionMetadata) -> Float[Tensor, "B H L K"]:
        """Projects a row of queries, splits them into heads, turns them to where they are, and sharpens them."""
        queries = self._split_heads(self.w_q(q))
        if self.q_norm is not None:
            queries = self.q_norm(queries).to(queries.dtype)
        queries = metadata.turned(queries)
        if self.sharpness is None:
            return queries
        # With a single key the scores make no difference, and log 1 = 0 would take its gradient away from everything.
        log_visible = metadata.num_visible(q.device).clamp(min=2).log()[..., None]
        return (queries * (self.sharpness.float()[:, None, None] * log_visible)).to(queries.dtype)

    def mix(
        self,
        queries: Float[Tensor, "B H L K"],
        memory: KeyValues,
        mask: Mask,
        positions: QueryKeyPositions | None,
        need_weights: bool,
    ) -> tuple[Float[Tensor, "B H L K"], Float[Tensor, "B H L S"] | None]:
        """Mixes the values of one part, head by head: what tells one kind of attention from another.

        `positions` are given where the code adds to the scores of pairs.
        """
        bias = None if positions is None else positions.bias
        dropout = self.dropout.p if self.training else 0.0
        if not need_weights:
            return fused(queries, memory, mask, dropout, bias), None
        matrix = mask.matrix(queries.size(-2), memory.keys.size(-2), queries.device)
        shared = queries.size(1) // memory.keys.size(1)
        keys, values = (part.repeat_interleave(shared, dim=1) for part in (memory.keys, memory.values))
        return scaled_dot_product_attention(queries, keys, values, matrix, dropout, bias)

    def _split_heads(self, x: Float[Tensor, "B L _"]) -> Float[Tensor, "B _ L K"]:
        return x.view(x.size(0), x.size(1), x.size(2) // self.d_k, self.d_k).transpose(1, 2)


def divisors(number: int) -> list[int]:
    """Returns what divides a number, ascending."""
    small = [n for n in range(1, math.isqrt(number) + 1) if number % n == 0]
    return sorted({*small, *(number // n for n in small)})


def fused(
    queries: Float[Tensor, "B H L K"],
    memory: KeyValues,
    mask: Mask,
    dropout: float,
    bias: Float[Tensor, "#B #H L S"] | None = None,
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
    if bias is None and mask.is_causal_only and queries.size(-2) == memory.keys.size(-2):
        return attention(is_causal=True)
    matrix = mask.matrix(queries.size(-2), memory.keys.size(-2), queries.device)
    if bias is None:
        return attention(attn_mask=matrix)
    exact = bias.to(torch.promote_types(bias.dtype, torch.promote_types(queries.dtype, torch.float32)))
    # Mixed precision would round it.
    with torch.autocast(queries.device.type, enabled=False):
        if matrix is None:
            return attention(attn_mask=exact)
        # The kernel makes zeros of a row whose every key is masked, but with a bias NaN.
        open_rows = matrix.any(dim=-1, keepdim=True)
        return attention(attn_mask=exact.masked_fill(~matrix & open_rows, -math.inf)).masked_fill(~open_rows, 0.0)
