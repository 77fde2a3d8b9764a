"""Multi-head attention: several attentions side by side, each in a subspace of its own."""

from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional

from attention_lab.attention.key_values import KeyValues
from attention_lab.attention.mask import Mask, boolean
from attention_lab.attention.scaled_dot_product import AttentionOutput, scaled_dot_product_attention


class MultiHeadAttention(nn.Module):
    """MultiHead(Q, K, V) = Concat(head_1, ..., head_H) W_O with head_i = Attention(Q W_Q, K W_K, V W_V)_i.

    Vaswani et al. 2017, section 3.2.2. Constructor arguments, sub-modules and state-dict keys are the articles', so
    weights move between their code and this. Their `dropout` was never used; here it drops attention weights.

    Args:
        d_model: model width D.
        num_heads: number of heads H; each is K = D / H wide.
        dropout: probability of dropping an attention weight while training.

    Raises:
        ValueError: `d_model` is not positive, `num_heads` does not divide it, or `dropout` is not a probability.
    """

    def __init__(self, d_model: int = 512, num_heads: int = 8, dropout: float = 0.1) -> None:
        super().__init__()
        if d_model < 1:
            raise ValueError(f"d_model={d_model} must be at least 1")
        if num_heads < 1 or d_model % num_heads:
            divisors = [n for n in range(1, d_model + 1) if d_model % n == 0]
            raise ValueError(f"num_heads={num_heads} does not divide d_model={d_model}; use one of {divisors}")
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout={dropout} is not a probability; use 0 <= dropout < 1")
        self.d_model = d_model
        self.num_heads = num_heads
        self.d_k = d_model // num_heads
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self,
        q: Float[Tensor, "B L D"],
        k: Float[Tensor, "B S D"],
        v: Float[Tensor, "B S D"],
        mask: Mask | Bool[Tensor, "..."] | None = None,
        *,
        need_weights: bool = True,
    ) -> AttentionOutput:
        """Lets every query attend to the keys.

        Args:
            q: what asks. k: what is compared with. v: what is mixed; for self-attention all three are the same.
            mask: True = may attend: a description, or a matrix broadcastable to (B, H, L, S).
            need_weights: take the explicit path and return the weights; otherwise PyTorch's fused kernel runs and
                the weights are None. The output is the same up to rounding.

        Returns:
            Output (B, L, D) and weights (B, H, L, S), one map a head, never averaged.
        """
        return self.attend(q, self.project(k, v), mask, need_weights=need_weights)

    def project(self, k: Float[Tensor, "B S D"], v: Float[Tensor, "B S D"]) -> KeyValues:
        """Projects keys and values and splits them into heads."""
        return KeyValues(self._split_heads(self.w_k(k)), self._split_heads(self.w_v(v)))

    def attend(
        self,
        q: Float[Tensor, "B L D"],
        memory: KeyValues,
        mask: Mask | Bool[Tensor, "..."] | None = None,
        *,
        need_weights: bool = True,
    ) -> AttentionOutput:
        """The rest of `forward`, for keys and values that were projected before."""
        queries = self._split_heads(self.w_q(q))
        dropout = self.dropout.p if self.training else 0.0
        if need_weights:
            matrix = _matrix(mask, queries, memory.keys)
            mixed, weights = scaled_dot_product_attention(queries, *memory, matrix, dropout)
        else:
            mixed, weights = _fused(queries, memory, mask, dropout), None
        return AttentionOutput(self.w_o(mixed.transpose(1, 2).flatten(2)), weights)

    def _split_heads(self, x: Float[Tensor, "B L D"]) -> Float[Tensor, "B H L K"]:
        return x.unflatten(-1, (self.num_heads, self.d_k)).transpose(1, 2)


def _matrix(mask: Mask | Tensor | None, queries: Tensor, keys: Tensor) -> Tensor | None:
    if isinstance(mask, Mask):
        return mask.matrix(queries.size(-2), keys.size(-2), queries.device)
    return None if mask is None else boolean(mask)


def _fused(queries: Tensor, memory: KeyValues, mask: Mask | Tensor | None, dropout: float) -> Tensor:
    # PyTorch aligns `is_causal` at the top left; that is ours only where there are as many queries as keys.
    square = queries.size(-2) == memory.keys.size(-2)
    if square and isinstance(mask, Mask) and mask.is_causal_only:
        return functional.scaled_dot_product_attention(queries, *memory, dropout_p=dropout, is_causal=True)
    matrix = _matrix(mask, queries, memory.keys)
    return functional.scaled_dot_product_attention(queries, *memory, attn_mask=matrix, dropout_p=dropout)
