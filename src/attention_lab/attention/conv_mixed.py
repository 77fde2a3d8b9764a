"""Mixed attention: half of the heads attend, the other half are convolutions whose kernels the tokens choose."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional

from attention_lab.attention.key_values import KeyValues
from attention_lab.attention.mask import Mask
from attention_lab.attention.multi_head import MultiHeadAttention, fused
from attention_lab.attention.packing import AttentionMetadata, Packing
from attention_lab.attention.scaled_dot_product import scaled_dot_product_attention
from attention_lab.errors import SettingError
from attention_lab.positions.position import QueryKeyPositions


@dataclass(slots=True)
class ConvKeyValues(KeyValues):
    """Keys and values of the H / 2 attention heads, and what the H / 2 convolutions read.

    Attributes:
        inputs: the keys before any projection, from which the kernels are generated.
        conv_values: what the convolutions mix.
    """

    inputs: Float[Tensor, "B S D"]
    conv_values: Float[Tensor, "B G S K"]


class ConvMixedAttention(MultiHeadAttention):
    """Concat(head_1, ..., head_G, conv_1, ..., conv_G) W_O with G = H / 2: ConvBERT's mixed attention.

    Jiang et al. 2020, arXiv:2008.02496 (head ratio 2). head_i are heads of self-attention. conv_i are span-based
    dynamic convolutions: a depthwise-separable convolution of the keys' input makes a span-aware key K_s of every
    token, and over a window of W tokens, with the queries of the attention heads and values of its own,

        kernel_t = softmax(W_f (Q ⊙ K_s)_t),    conv_t = Σ_j kernel_t,j · V_(t + j - ⌊W/2⌋)    for j = 0, ..., W - 1.

    Differs from Hugging Face's implementation, whose convolutions read the padding: here a key that no query of any
    head may attend to is zero to both convolutions, as what lies beyond the sequence is, so that padding changes
    nothing. An edge closed to some queries or heads only takes its value from the convolution; the kernel stays as it
    is. Dropout drops weights of the attention heads only, as there.

    Position codes that act inside attention act on the G attention heads. Of a bias, which has one map for each of
    the network's H heads, those use the first G.

    Args:
        d_model: model width D.
        num_heads: heads H, even; the first H / 2 attend, the others convolve, and each is K = D / H wide.
        dropout: probability of dropping an attention weight while training.
        kernel_size: tokens in the window of a convolution, its own token in the middle; odd.

    Raises:
        SettingError: `num_heads` is odd, `kernel_size` is even, or an argument is out of its range.
    """

    unsupported: ClassVar[Mapping[str, str]] = {
        "causal": "a convolution reads the tokens after its own, too",
        "cross": "a convolution reads the tokens around its own, so queries and keys must be the same tokens",
        "frames": "half of its heads convolve, and a convolution knows no end to count from",
    }

    def __init__(self, d_model: int = 512, num_heads: int = 8, dropout: float = 0.1, *, kernel_size: int = 9) -> None:
        super().__init__(d_model, num_heads, dropout)
        if num_heads % 2:
            raise SettingError(
                "num_heads", num_heads, "must be even: half of the heads attend, the other half convolve"
            )
        if kernel_size < 1 or kernel_size % 2 == 0:
            raise SettingError("kernel_size", kernel_size, "must be odd and at least 1")
        half = d_model // 2
        self.num_attending = num_heads // 2
        self.kernel_size = kernel_size
        self.w_q = nn.Linear(d_model, half)
        self.w_k = nn.Linear(d_model, half)
        self.w_v = nn.Linear(d_model, half)
        self.depthwise = nn.Conv1d(d_model, d_model, kernel_size, padding=kernel_size // 2, groups=d_model, bias=False)
        self.pointwise = nn.Linear(d_model, half)
        self.kernel = nn.Linear(half, self.num_attending * kernel_size)
        self.conv_value = nn.Linear(d_model, half)

    def project(
        self,
        k: Float[Tensor, "B S D"],
        v: Float[Tensor, "B S D"],
        packing: Packing,
        positions: QueryKeyPositions | None = None,
    ) -> Sequence[ConvKeyValues]:
        """Projects keys and values, and keeps what the convolutions read."""
        inputs, conv_values = packing.unpack(k), packing.unpack(self._split_heads(self.conv_value(v)), heads=True)
        parts = zip(super().project(k, v, packing, positions), inputs, conv_values, strict=True)
        return [ConvKeyValues(part.keys, part.values, *read) for part, *read in parts]

    def queries(self, q: Float[Tensor, "B L D"], metadata: AttentionMetadata) -> Float[Tensor, "B H L K"]:
        """Projects queries twice over: turned for the attention heads, and as they are for the convolutions."""
        queries = self._split_heads(self.w_q(q))
        return torch.cat([metadata.turned(queries), queries], dim=1)

    def mix(
        self,
        queries: Float[Tensor, "B H L K"],
        memory: KeyValues,
        mask: Mask,
        positions: QueryKeyPositions | None,
        need_weights: bool,
    ) -> tuple[Float[Tensor, "B H L K"], Float[Tensor, "B H L S"] | None]:
        """Mixes values, head by head.

        Returns:
            The heads, and where asked for their weights: the attention heads' and then the convolutions' kernels as
            bands of a matrix. A band's row sums to less than 1 where the kernel reaches over an edge of the sequence,
            or a closed one.

        Raises:
            ValueError: the mask is causal, or queries and keys are not the same tokens.
        """
        num_tokens = queries.size(-2)
        if mask.causal:
            raise ValueError(f"mixed attention cannot be causal: {self.unsupported['causal']}")
        if not isinstance(memory, ConvKeyValues) or num_tokens != memory.inputs.size(1):
            raise ValueError(f"{num_tokens} queries met {memory.keys.size(-2)} keys: {self.unsupported['cross']}")
        turned, plain = queries.chunk(2, dim=1)
        matrix = mask.matrix(num_tokens, num_tokens, queries.device)
        if matrix is not None:
            matrix = matrix[(None,) * (4 - matrix.dim())]
        bias = None if positions is None or positions.bias is None else positions.bias[:, : self.num_attending]
        own = None if matrix is None else matrix[:, : self.num_attending]
        dropout = self.dropout.p if self.training else 0.0
        convolved, bands = self._convolved(plain, memory, matrix, need_weights)
        if bands is None:
            attended = fused(turned, memory, Mask(allowed=own), dropout, bias)
            return torch.cat([attended, convolved], dim=1), None
        attended, weights = scaled_dot_product_attention(turned, memory.keys, memory.values, own, dropout, bias)
        return torch.cat([attended, convolved], dim=1), torch.cat([weights, bands], dim=1)

    def _convolved(
        self,
        queries: Float[Tensor, "B G L K"],
        memory: ConvKeyValues,
        matrix: Bool[Tensor, "#B #H #L #L"] | None,
        need_weights: bool,
    ) -> tuple[Float[Tensor, "B G L K"], Float[Tensor, "B G L L"] | None]:
        """What the convolutions find; without a map unless one is asked for or the mask tells pairs apart."""
        inputs, values = memory.inputs, memory.conv_values
        if matrix is not None:
            padding = ~matrix.any(dim=1).any(dim=1)
            inputs = inputs.masked_fill(padding[..., None], 0.0)
            values = values.masked_fill(padding[:, None, :, None], 0.0)
        kernels = self._kernels(queries, inputs)
        if not need_weights and (matrix is None or matrix.shape[1:3] == (1, 1)):
            reach = self.kernel_size // 2
            windows = functional.pad(values, (0, 0, reach, reach)).unfold(2, self.kernel_size, 1)
            return torch.einsum("bglw,bglkw->bglk", kernels, windows), None
        bands = banded(kernels)
        if matrix is not None:
            bands = bands.masked_fill(~matrix[:, -self.num_attending :], 0.0)
        return bands @ values, bands if need_weights else None

    def _kernels(self, queries: Float[Tensor, "B G L K"], inputs: Float[Tensor, "B L D"]) -> Float[Tensor, "B G L W"]:
        """Generates, for every head and token, the weights of the W tokens in the window around it."""
        span_keys = self.pointwise(self.depthwise(inputs.transpose(1, 2)).transpose(1, 2))
        scores = self.kernel(span_keys * queries.transpose(1, 2).flatten(2))
        kernels = scores.unflatten(-1, (-1, self.kernel_size)).transpose(1, 2)
        return kernels.softmax(dim=-1, dtype=torch.promote_types(kernels.dtype, torch.float32)).to(kernels.dtype)


def banded(kernels: Float[Tensor, "B G L W"]) -> Float[Tensor, "B G L L"]:
    """Returns the matrix that mixes values as the kernels do: row t holds kernel_t around its diagonal entry."""
    length, taps = kernels.shape[-2:]
    rows = kernels.new_zeros(*kernels.shape[:-1], length + taps - 1)
    columns = torch.arange(length, device=kernels.device)[:, None] + torch.arange(taps, device=kernels.device)
    return rows.scatter(-1, columns.expand_as(kernels), kernels)[..., taps // 2 : taps // 2 + length]
