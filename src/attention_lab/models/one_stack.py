"""What networks of a single stack of Transformer blocks have in common, whatever they see and say."""

from collections.abc import Sequence
from typing import ClassVar

from torch import nn

from attention_lab.attention.multi_head import MultiHeadAttention
from attention_lab.attention.projection import Projection
from attention_lab.models.blocks import AttentionFactory, TransformerBlock
from attention_lab.models.embedding import Embedding, PositionFactory
from attention_lab.models.initialisation import draw_xavier
from attention_lab.models.model import SequenceModel, State, check_shape, most_tokens
from attention_lab.positions.sampling import PositionSampling
from attention_lab.positions.sinusoidal import PositionalEncoding


class OneStack(SequenceModel[State]):
    """An embedding, a stack of blocks, post-norm, and logits; its attention is called `self`.

    Args:
        num_tokens: how many token ids there are, specials included (V).
        d_model: model width D.
        num_heads: heads of every attention; must divide `d_model`.
        num_layers: layers of the stack.
        d_ff: width of the feed-forward layers.
        dropout: probability of dropping an activation or an attention weight while training.
        attention: builds an attention from (d_model, num_heads, dropout).
        position: builds the position code.
        sampling: draws positions in training; they are counted where it is None.

    Raises:
        ValueError: an argument is out of its range.
    """

    alignment_attention = "self"
    causal: ClassVar[bool]
    """Whether a token sees none after itself."""

    sequences: ClassVar[int] = 1
    """How many sequences share its positions."""

    def __init__(
        self,
        num_tokens: int,
        d_model: int = 128,
        num_heads: int = 4,
        num_layers: int = 2,
        d_ff: int = 256,
        dropout: float = 0.0,
        *,
        attention: AttentionFactory = MultiHeadAttention,
        position: PositionFactory = PositionalEncoding,
        sampling: PositionSampling | None = None,
    ) -> None:
        super().__init__()
        check_shape(num_layers, num_heads)
        code = position(d_model, num_heads=num_heads, causal=self.causal)
        self.embedding = Embedding(num_tokens, d_model, dropout, code)
        self.blocks = nn.ModuleList(
            TransformerBlock(d_model, num_heads, d_ff, dropout, attention=attention) for _ in range(num_layers)
        )
        self.output = Projection(d_model, num_tokens)
        self.sampling = sampling
        self.max_length = most_tokens(self, code) // self.sequences
        draw_xavier(self)

    @property
    def frames(self) -> tuple[str, ...]:
        return self.embedding.position.frames

    @property
    def alignment_layers(self) -> Sequence[MultiHeadAttention]:
        return [block.attn for block in self.layers]

    @property
    def layers(self) -> list[TransformerBlock]:
        """The blocks, from the first to the last."""
        return [block for block in self.blocks if isinstance(block, TransformerBlock)]
