"""Sequence to sequence without attention: all that the decoder learns of the source has to fit into one state."""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from attention_lab.attention.multi_head import AlignmentLayer
from attention_lab.models.embedding import Embedding
from attention_lab.models.model import (
    Intervention,
    ModelOutput,
    SequenceModel,
    Tokens,
    check_shape,
    in_one_row,
    parts_of,
)
from attention_lab.positions.coordinates import UNLIMITED
from attention_lab.positions.none import NoPositionalEncoding
from attention_lab.tasks.vocabulary import PAD

Cell = Literal["rnn", "lstm"]
"""h_t = tanh(W x_t + U h_{t-1} + b) (Elman 1990), or the long short-term memory of Gers et al. 2000."""

CellState = Float[Tensor, "layers B D"] | tuple[Float[Tensor, "layers B D"], Float[Tensor, "layers B D"]]
"""What a cell keeps from one token to the next, in each layer: h; of an LSTM, h and c."""


class RecurrentSeq2Seq(SequenceModel[CellState]):
    """A recurrent encoder reads the source, and its last state is the decoder's first.

    Sutskever et al. 2014, section 2, but the source is read as it stands, not reversed; Cho et al. 2014 hand the state
    to every step of the decoder as well. Nothing is attended to, so there are no maps and no edges to close. Tokens are
    read one after another: that order is their position, and any number of them can be read. Dropout acts from layer to
    layer and never from token to token (Zaremba et al. 2015).

    Args:
        num_tokens: how many token ids there are, specials included (V).
        d_model: width D of the embeddings and of a layer's state.
        num_heads: not needed; every network takes it, so that a sweep over networks may set it.
        num_layers: layers of the encoder, and of the decoder.
        d_ff: not needed, either.
        dropout: probability of dropping an activation on its way into a layer while training.
        cell: what a layer is made of.

    Raises:
        SettingError: an argument is out of its range.
    """

    batch_parts = 3

    def __init__(
        self,
        num_tokens: int,
        d_model: int = 128,
        num_heads: int = 0,
        num_layers: int = 1,
        d_ff: int = 0,
        dropout: float = 0.0,
        *,
        cell: Cell,
    ) -> None:
        super().__init__()
        self.source_embedding = Embedding(num_tokens, d_model, dropout, NoPositionalEncoding(d_model))
        self.target_embedding = Embedding(num_tokens, d_model, dropout, NoPositionalEncoding(d_model))
        self.encoder = recurrent_layers(cell, d_model, d_model, num_layers, dropout)
        self.decoder = recurrent_layers(cell, d_model, d_model, num_layers, dropout)
        self.dropout = nn.Dropout(dropout)
        self.output = output_layer(d_model, num_tokens)
        self.max_length = UNLIMITED

    @property
    def alignment_layers(self) -> Sequence[AlignmentLayer]:
        return []

    def forward(
        self,
        source: Tokens,
        target: Tokens,
        *,
        need_weights: bool = False,
        intervention: Intervention | None = None,
    ) -> ModelOutput:
        parts = zip(parts_of(source), parts_of(target), strict=True)
        return in_one_row([self.step(each, self.begin(read))[0] for read, each in parts])

    def begin(self, source: Integer[Tensor, "B S"], num_targets: int = 0) -> CellState:
        return read(source, self.source_embedding, self.encoder).last

    def step(
        self, tokens: Integer[Tensor, "B L"], state: CellState, *, need_weights: bool = False
    ) -> tuple[ModelOutput, CellState]:
        hidden, state = self.decoder(self.target_embedding(tokens), state)
        return ModelOutput(self.output(self.dropout(hidden)), {}), state


class Reading(NamedTuple):
    """What a recurrent encoder makes of a source.

    Attributes:
        states: the last layer's state h at every token, zeros at padding; D is both directions', side by side.
        last: every layer's state when it has read all tokens; both directions' take turns where there are two.
    """

    states: Float[Tensor, "B S D"]
    last: CellState


def read(source: Integer[Tensor, "B S"], embedding: Embedding, encoder: nn.RNNBase) -> Reading:
    """Reads the real tokens of a source and nothing else, wherever the padding is.

    A recurrent net has no mask: what it reads, it remembers. So the padding of every row is moved to its end, where
    packing leaves it out; afterwards the states go back to where their tokens were.
    """
    real = source != PAD
    order = (~real).int().argsort(dim=1, stable=True)
    # Packing refuses an empty row. One of nothing but padding has a single token read, however long it is.
    lengths = real.sum(dim=1).clamp(min=1).cpu()
    embedded = embedding(source.gather(1, order))
    states, last = encoder(pack_padded_sequence(embedded, lengths, batch_first=True, enforce_sorted=False))
    states, _ = pad_packed_sequence(states, batch_first=True, total_length=source.size(1))
    places = order.argsort(dim=1)[..., None].expand_as(states)
    return Reading(states.gather(1, places), last)


class LSTM(nn.LSTM):
    """PyTorch's LSTM, which on a CPU keeps to its weights' precision under autocast.

    There oneDNN runs it, which fails in half precision on CPUs without AVX-512 (seen with PyTorch 2.13 on AVX2).
    """

    def forward(self, input: Any, hx: Any = None) -> Any:
        if not self.weight_hh_l0.is_cpu:
            return super().forward(input, hx)
        with torch.autocast("cpu", enabled=False):
            return super().forward(input.to(self.weight_hh_l0.dtype), hx)


@torch.no_grad()
def recurrent_layers(
    cell: Cell, width: int, d_model: int, num_layers: int, dropout: float, *, bidirectional: bool = False
) -> nn.RNNBase:
    """Builds layers of recurrent cells whose memory lasts from the start.

    The recurrent matrix of every gate is orthogonal, so that it neither stretches nor shrinks a state (Saxe et al.
    2014), the others are Xavier-uniform, and biases are zero, except that an LSTM's forget gates begin at 1, open (Gers
    et al. 2000; Jozefowicz et al. 2015).

    Args:
        cell: what a layer is made of.
        width: how wide the input is.
        d_model: how wide a layer's output is, both directions side by side.
        num_layers: how many layers there are.
        dropout: probability of dropping an activation between two layers.
        bidirectional: whether half of each layer reads backwards.

    Raises:
        SettingError: `num_layers` is not positive.
    """
    check_shape(num_layers, num_heads=1)
    cells: dict[Cell, type[nn.RNN | nn.LSTM]] = {"rnn": nn.RNN, "lstm": LSTM}
    layers = cells[cell](
        width,
        d_model // 2 if bidirectional else d_model,
        num_layers,
        batch_first=True,
        # PyTorch warns of a dropout that has no layer to act between.
        dropout=dropout if num_layers > 1 else 0.0,
        bidirectional=bidirectional,
    )
    for name, parameter in layers.named_parameters():
        for gate in parameter.split(layers.hidden_size):
            if name.startswith("bias"):
                nn.init.zeros_(gate)
            elif name.startswith("weight_hh"):
                nn.init.orthogonal_(gate)
            else:
                nn.init.xavier_uniform_(gate)
        if cell == "lstm" and name.startswith("bias_ih"):
            _, forget, _, _ = parameter.split(layers.hidden_size)
            nn.init.ones_(forget)
    return layers


def output_layer(d_model: int, num_tokens: int) -> nn.Linear:
    """Builds what turns a state into logits, drawn Xavier-uniform."""
    layer = nn.Linear(d_model, num_tokens)
    nn.init.xavier_uniform_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer
