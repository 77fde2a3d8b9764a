"""Luong's attention: what a recurrent decoder looks up in the states of its encoder, after each of its own steps."""

import math

from jaxtyping import Bool, Float
from torch import Tensor, nn

from attention_lab.attention.key_values import KeyValues
from attention_lab.attention.mask import Mask, as_mask
from attention_lab.attention.multi_head import AlignmentLayer, fused
from attention_lab.attention.scaled_dot_product import AttentionOutput, scaled_dot_product_attention
from attention_lab.errors import SettingError


class LuongAttention(AlignmentLayer):
    """Global attention with the general score (Luong et al. 2015, section 3.1, equations 5, 7 and 8).

        score(h_t, s) = h_tᵀ W_a s    α_t = softmax of the scores    c_t = Σ_s α_t(s) s    h̃_t = tanh(W_c [c_t; h_t])

    W_c is held as its two halves, W_c [c; h] = W_o c + W_h h: what is found enters by a matrix of its own, as in
    multi-head attention, and the one head there is can be measured and silenced like any other.

    Args:
        d_model: width D of the decoder's and of the encoder's states.

    Raises:
        SettingError: `d_model` is not positive.
    """

    def __init__(self, d_model: int) -> None:
        super().__init__()
        if d_model < 1:
            raise SettingError("d_model", d_model, "must be at least 1")
        self.num_heads = 1
        self.d_k = d_model
        self.w_a = nn.Linear(d_model, d_model, bias=False)
        self.w_o = nn.Linear(d_model, d_model)
        self.w_h = nn.Linear(d_model, d_model, bias=False)

    def forward(
        self,
        h: Float[Tensor, "B L D"],
        states: Float[Tensor, "B S D"],
        mask: Mask | Bool[Tensor, "..."] | None = None,
        *,
        need_weights: bool = True,
    ) -> AttentionOutput:
        """Lets every state of the decoder attend to those of the encoder.

        Args:
            h: the decoder's states h_t.
            states: the encoder's states s.
            mask: True = may attend: a description, or a matrix broadcastable to (B, 1, L, S). A query that may attend
                to nothing finds c_t = 0.
            need_weights: take the explicit path and return the weights; otherwise PyTorch's fused kernel runs and
                the weights are None. The output is the same up to rounding.

        Returns:
            The attentional states h̃_t (B, L, D) and the weights α (B, 1, L, S).
        """
        # Luong's score is not divided by √D, as the common equation's is; hence the factor.
        queries = (self.w_a(h) * math.sqrt(self.d_k))[:, None]
        memory = KeyValues(states[:, None], states[:, None])
        mask = as_mask(mask, states.size(1))
        if need_weights:
            matrix = mask.matrix(h.size(1), states.size(1), h.device)
            found, weights = scaled_dot_product_attention(queries, memory.keys, memory.values, matrix)
        else:
            found, weights = fused(queries, memory, mask, dropout=0.0), None
        context = found.squeeze(1)
        return AttentionOutput((self.w_o(context) + self.w_h(h)).tanh(), weights)
