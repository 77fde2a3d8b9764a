"""Mixed attention: half of the heads attend, the other half are convolutions whose kernels the tokens choose."""

from collections.abc import Mapping
from typing import ClassVar, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional

from attention_lab.attention.key_values import KeyValues
from attention_lab.attention.mask import Mask
from attention_lab.attention.multi_head import MultiHeadAttention, fused, spelled_out
from attention_lab.attention.packing import PackedMask
from attention_lab.attention.projection import Projection
from attention_lab.attention.scaled_dot_product import AttentionOutput, scaled_dot_product_attention
from attention_lab.positions.position import Placed


class Spans(NamedTuple):
    """What the convolutions read of the keys and values.

    Attributes:
        inputs: the keys before any projection, from which the kernels are generated.
        values: what is mixed, N = H / 2 heads of it.
    """

    inputs: Float[Tensor, "B S D"]
    values: Float[Tensor, "B N S K"]


class ConvMixedAttention(MultiHeadAttention):
    """Concat(head_1, ..., head_N, conv_1, ..., conv_N) W_O with N = H / 2: ConvBERT's mixed attention.

    Jiang et al. 2020, arXiv:2008.02496 (head ratio 2). head_i are heads of self-attention. conv_i are span-based
    dynamic convolutions: a depthwise-separable convolution of the keys' input makes a span-aware key K_s of every
    token, and over a window of T tokens, with the queries of the attention heads and values of its own,

        kernel_t = softmax(W_f (Q ⊙ K_s)_t),    conv_t = Σ_j kernel_t,j · V_(t + j - ⌊T/2⌋)    for j = 0, ..., T - 1.

    Differs from Hugging Face's implementation, whose convolutions read the padding: here a key that no query of any
    head may attend to is zero to both convolutions, as what lies beyond the sequence is, so that padding changes
    nothing. An edge closed to some queries or heads only takes its value from the convolution; the kernel stays as it
    is. Dropout drops weights of the attention heads only, as there.

    Position codes that act inside attention act on the N attention heads. Of a bias, which has one map for each of
    the network's H heads, those use the first N.

    Args:
        d_model: model width D.
        num_heads: heads H, even; the first H / 2 attend, the others convolve, and each is K = D / H wide.
        dropout: probability of dropping an attention weight while training.
        kernel_size: tokens in the window of a convolution, its own token in the middle; odd.

    Raises:
        ValueError: `num_heads` is odd, `kernel_size` is even, or an argument is out of its range.
    """

    unable: ClassVar[Mapping[str, str]] = {
        "causal": "a convolution reads the tokens after its own, too",
        "cross": "a convolution reads the tokens around its own, so queries and keys must be the same tokens",
        "frames": "half of its heads convolve, and a convolution knows no end to count from",
    }

    def __init__(self, d_model: int = 512, num_heads: int = 8, dropout: float = 0.1, *, kernel_size: int = 9) -> None:
        super().__init__(d_model, num_heads, dropout)
        if num_heads % 2:
            raise ValueError(f"num_heads={num_heads} must be even: half of the heads attend, the other half convolve")
        if kernel_size < 1 or kernel_size % 2 == 0:
            raise ValueError(f"kernel_size={kernel_size} must be odd and at least 1")
        half = d_model // 2
        self.num_attending = num_heads // 2
        self.kernel_size = kernel_size
        self.w_q = Projection(d_model, half)
        self.w_k = Projection(d_model, half)
        self.w_v = Projection(d_model, half)
        self.depthwise = nn.Conv1d(d_model, d_model, kernel_size, padding=kernel_size // 2, groups=d_model, bias=False)
        self.pointwise = Projection(d_model, half)
        self.kernel = Projection(half, self.num_attending * kernel_size)
        self.conv_value = Projection(d_model, half)

    def project(self, k: Float[Tensor, "B S D"], v: Float[Tensor, "B S D"], placed: Placed | None = None) -> KeyValues:
        """Projects keys and values; what the convolutions need of them is in `before`."""
        spans = Spans(k, self._split_heads(self.conv_value(v)))
        return super().project(k, v, placed)._replace(before=spans)

    def attend(
        self,
        q: Float[Tensor, "B L D"],
        memory: KeyValues,
        mask: Mask | PackedMask | Bool[Tensor, "..."] | None = None,
        *,
        need_weights: bool = True,
        placed: Placed | None = None,
    ) -> AttentionOutput:
        """The rest of `forward`, for keys and values that were projected before.

        Returns:
            Output (B, L, D), and where asked for (B, H, L, L) weights: the attention heads' and then the convolutions'
            kernels as bands of a matrix. A band's row sums to less than 1 where the kernel reaches over an edge of the
            sequence, or a closed one.

        Raises:
            ValueError: the mask is causal or packed, or queries and keys are not the same tokens.
        """
        spans = memory.before
        if isinstance(mask, PackedMask):
            raise ValueError("mixed attention cannot be packed: a convolution would run on into the next sequence")
        if isinstance(mask, Mask) and mask.causal:
            raise ValueError(f"mixed attention cannot be causal: {self.unable['causal']}")
        if not isinstance(spans, Spans) or q.size(1) != spans.inputs.size(1):
            raise ValueError(f"{q.size(1)} queries met {memory.keys.size(-2)} keys: {self.unable['cross']}")
        queries = self._split_heads(self.w_q(q))
        matrix = spelled_out(mask, queries, memory.keys)
        if matrix is not None:
            matrix = matrix[(None,) * (4 - matrix.dim())]
        attended, weights = self._attended(queries, memory, matrix, need_weights, placed)
        convolved, bands = self._convolved(queries, spans, matrix, need_weights)
        heads = torch.cat([attended, convolved], dim=1)
        weights = None if weights is None or bands is None else torch.cat([weights, bands], dim=1)
        return AttentionOutput(self.w_o(heads.transpose(1, 2).flatten(2)), weights)

    def _attended(
        self,
        queries: Float[Tensor, "B N L K"],
        memory: KeyValues,
        matrix: Bool[Tensor, "#B #H #L #S"] | None,
        need_weights: bool,
        placed: Placed | None,
    ) -> tuple[Float[Tensor, "B N L K"], Float[Tensor, "B N L S"] | None]:
        """What the attention heads say."""
        bias = None
        if placed is not None:
            queries = placed.position.turn(queries, placed.queries)
            bias = placed.bias
            bias = None if bias is None else bias[:, : self.num_attending]
        own = None if matrix is None else matrix[:, : self.num_attending]
        dropout = self.dropout.p if self.training else 0.0
        if not need_weights:
            return fused(queries, memory, own, dropout, bias), None
        return scaled_dot_product_attention(queries, memory.keys, memory.values, own, dropout, bias)

    def _convolved(
        self,
        queries: Float[Tensor, "B N L K"],
        spans: Spans,
        matrix: Bool[Tensor, "#B #H #L #S"] | None,
        need_weights: bool,
    ) -> tuple[Float[Tensor, "B N L K"], Float[Tensor, "B N L S"] | None]:
        """What the convolutions say; without a map unless one is asked for or the mask tells pairs apart."""
        inputs, values = spans
        if matrix is not None:
            padding = ~matrix.any(dim=1).any(dim=1)
            inputs = inputs.masked_fill(padding[..., None], 0.0)
            values = values.masked_fill(padding[:, None, :, None], 0.0)
        kernels = self._kernels(queries, inputs)
        if not need_weights and (matrix is None or matrix.shape[1:3] == (1, 1)):
            reach = self.kernel_size // 2
            windows = functional.pad(values, (0, 0, reach, reach)).unfold(2, self.kernel_size, 1)
            return torch.einsum("bnlt,bnlkt->bnlk", kernels, windows), None
        bands = banded(kernels)
        if matrix is not None:
            bands = bands.masked_fill(~matrix[:, -self.num_attending :], 0.0)
        return bands @ values, bands if need_weights else None

    def _kernels(self, queries: Float[Tensor, "B N L K"], inputs: Float[Tensor, "B L D"]) -> Float[Tensor, "B N L T"]:
        """Generates, for every head and token, the weights of the T tokens in the window around it."""
        span_keys = self.pointwise(self.depthwise(inputs.transpose(1, 2)).transpose(1, 2))
        scores = self.kernel(span_keys * queries.transpose(1, 2).flatten(2))
        return scores.unflatten(-1, (-1, self.kernel_size)).transpose(1, 2).softmax(dim=-1)


def banded(kernels: Float[Tensor, "B N L T"]) -> Float[Tensor, "B N L L"]:
    """Returns the matrix that mixes values as the kernels do: row t holds kernel_t around its diagonal entry."""
    length, taps = kernels.shape[-2:]
    rows = kernels.new_zeros(*kernels.shape[:-1], length + taps - 1)
    columns = torch.arange(length, device=kernels.device)[:, None] + torch.arange(taps, device=kernels.device)
    return rows.scatter(-1, columns.expand_as(kernels), kernels)[..., taps // 2 : taps // 2 + length]
