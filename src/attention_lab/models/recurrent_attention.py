"""The network that attention was invented for: a recurrent decoder that looks back at every token of the source."""

from collections.abc import Sequence
from typing import ClassVar, NamedTuple

from jaxtyping import Bool, Float, Integer
from torch import Tensor, nn

from attention_lab.attention.luong import LuongAttention
from attention_lab.attention.mask import Mask
from attention_lab.attention.multi_head import AlignmentLayer
from attention_lab.errors import SettingError
from attention_lab.models.embedding import Embedding
from attention_lab.models.model import (
    Axis,
    Intervention,
    ModelOutput,
    SequenceModel,
    Tokens,
    attention_maps,
    in_one_row,
    parts_of,
)
from attention_lab.models.recurrent import output_layer, read, recurrent_layers
from attention_lab.positions.coordinates import UNLIMITED
from attention_lab.positions.none import NoPositionalEncoding
from attention_lab.tasks.vocabulary import PAD

LSTMState = tuple[Float[Tensor, "layers B D"], Float[Tensor, "layers B D"]]
"""Every layer's h and c."""


class LookingBack(NamedTuple):
    """What the decoder keeps between two tokens.

    Attributes:
        memory: the encoder's state at every source token.
        real: which source tokens are not padding.
        state: its own state.
    """

    memory: Float[Tensor, "B S D"]
    real: Bool[Tensor, "B S"]
    state: LSTMState


class LSTMWithAttention(SequenceModel[LookingBack]):
    """An LSTM decoder that attends, after every step, to the states of a bidirectional LSTM encoder.

    Luong et al. 2015: global attention, general score; the encoder reads in both directions, as in Bahdanau et al.
    2015. Luong's input feeding (h̃_t goes into the next step) is left out: so no step waits for the attention of the one
    before it, and attention runs for all target tokens at once when the LSTM is through. Each direction of the encoder
    is D / 2 wide; where it ends, both directions side by side are the decoder's first state.

    Its one attention has one head and is called `decoder_cross`. The order of reading is the position, and any number
    of tokens can be read. Dropout acts from layer to layer, never from token to token nor on attention weights.

    Args:
        num_tokens: how many token ids there are, specials included (V).
        d_model: width D of the embeddings and of a layer's state; even.
        num_heads: not needed, there is one; every network takes it, so that a sweep over networks may set it.
        num_layers: layers of the encoder, and of the decoder.
        d_ff: not needed, either.
        dropout: probability of dropping an activation on its way into a layer while training.

    Raises:
        SettingError: an argument is out of its range.
    """

    alignment_attention = "decoder_cross"
    axes: ClassVar[dict[str, tuple[Axis, Axis]]] = {"decoder_cross": ("predicted", "source")}
    batch_parts = 3

    def __init__(
        self,
        num_tokens: int,
        d_model: int = 128,
        num_heads: int = 1,
        num_layers: int = 1,
        d_ff: int = 0,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if d_model < 2 or d_model % 2:
            raise SettingError(
                "d_model", d_model, "must be even and at least 2: each direction of the encoder has half"
            )
        self.source_embedding = Embedding(num_tokens, d_model, dropout, NoPositionalEncoding(d_model))
        self.target_embedding = Embedding(num_tokens, d_model, dropout, NoPositionalEncoding(d_model))
        self.encoder = recurrent_layers("lstm", d_model, d_model, num_layers, dropout, bidirectional=True)
        self.decoder = recurrent_layers("lstm", d_model, d_model, num_layers, dropout)
        self.attention = LuongAttention(d_model)
        self.dropout = nn.Dropout(dropout)
        self.output = output_layer(d_model, num_tokens)
        self.max_length = UNLIMITED
        for matrix in (self.attention.w_a, self.attention.w_o, self.attention.w_h):
            nn.init.xavier_uniform_(matrix.weight)
        nn.init.zeros_(self.attention.w_o.bias)

    @property
    def alignment_layers(self) -> Sequence[AlignmentLayer]:
        return [self.attention]

    def forward(
        self,
        source: Tokens,
        target: Tokens,
        *,
        need_weights: bool = False,
        intervention: Intervention | None = None,
    ) -> ModelOutput:
        whole = need_weights or bool(intervention)
        parts = zip(parts_of(source, whole=whole), parts_of(target, whole=whole), strict=True)
        return in_one_row([self._step(each, self.begin(read), need_weights, intervention)[0] for read, each in parts])

    def begin(self, source: Integer[Tensor, "B S"], num_targets: int = 0) -> LookingBack:
        memory, (h, c) = read(source, self.source_embedding, self.encoder)
        return LookingBack(memory, source != PAD, (_side_by_side(h), _side_by_side(c)))

    def step(
        self, tokens: Integer[Tensor, "B L"], state: LookingBack, *, need_weights: bool = False
    ) -> tuple[ModelOutput, LookingBack]:
        return self._step(tokens, state, need_weights)

    def _step(
        self, tokens: Tensor, state: LookingBack, need_weights: bool, intervention: Intervention | None = None
    ) -> tuple[ModelOutput, LookingBack]:
        hidden, own = self.decoder(self.target_embedding(tokens), state.state)
        mask = Mask(keys=state.real, allowed=(intervention or {}).get(("decoder_cross", 0)))
        attended, weights = self.attention(self.dropout(hidden), state.memory, mask, need_weights=need_weights)
        maps = attention_maps({"decoder_cross": [weights]})
        return ModelOutput(self.output(self.dropout(attended)), maps), state._replace(state=own)


def _side_by_side(last: Float[Tensor, "directions B K"]) -> Float[Tensor, "layers B D"]:
    """Joins both directions of every layer; PyTorch has them take turns, forward first."""
    return last.unflatten(0, (-1, 2)).transpose(1, 2).flatten(2)
