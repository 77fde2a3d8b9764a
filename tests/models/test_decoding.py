"""Greedy decoding: a naive loop, stopping, padding, independent rows."""

from functools import partial
from typing import NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from attention_lab.attention.multi_head import MultiHeadAttention
from attention_lab.models.encoder_decoder import EncoderDecoder
from attention_lab.models.inference import greedy_decode
from attention_lab.models.model import ModelOutput, SequenceModel
from attention_lab.positions.sinusoidal import PositionalEncoding
from attention_lab.tasks.vocabulary import BOS, EOS, FIRST_SYMBOL, PAD

B, V, MAX_LEN = 5, 13, 29


class Place(NamedTuple):
    number: int


class Parrot(SequenceModel[Place]):
    """Says what it was taught, whatever it reads; token by token only."""

    max_length = 11
    alignment_attention = "none"

    def __init__(self, *rows: list[int]) -> None:
        super().__init__()
        self.taught = torch.tensor(rows)
        self.read: list[list[int]] = []

    def forward(self, source: Tensor, target: Tensor, *, need_weights: bool = False) -> ModelOutput:
        raise NotImplementedError

    def begin(self, source: Tensor, num_targets: int = 0) -> Place:
        return Place(0)

    @property
    def alignment_layers(self) -> list[MultiHeadAttention]:
        return []

    def step(self, tokens: Tensor, state: Place, *, need_weights: bool = False) -> tuple[ModelOutput, Place]:
        self.read.append(tokens[:, 0].tolist())
        logits = functional.one_hot(self.taught[:, state.number, None], V).float()
        return ModelOutput(logits, {}), Place(state.number + 1)


@pytest.fixture(params=[5, 14, 34])
def model(request) -> EncoderDecoder:
    """An untrained network, drawn so that it says different things at different places and now and then EOS."""
    model = EncoderDecoder(V, 35, 5, 2, 19, position=partial(PositionalEncoding, max_len=MAX_LEN))
    torch.manual_seed(request.param)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1:
                nn.init.xavier_uniform_(parameter)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)
        for embedding in (model.source_embedding, model.target_embedding):
            embedding.tokens.weight.mul_(5)
        model.output.bias[EOS] = 0.6
    return model.eval()


def ragged_source() -> Tensor:
    torch.manual_seed(1)
    source = torch.randint(FIRST_SYMBOL, V, (B, 7))
    source[1, 4:] = PAD
    source[2, :3] = PAD
    return source


@torch.no_grad()
def naive_decode(model: EncoderDecoder, source: Tensor, max_length: int) -> list[list[int]]:
    """Reads everything from the beginning for every token, one row at a time, without padding or cache."""
    rows = []
    for row in source:
        said = [BOS]
        while len(said) <= max_length and said[-1] != EOS:
            logits = model(row[row != PAD][None], torch.tensor([said])).logits
            said.append(int(logits[0, -1].argmax()))
        rows.append(said[1:])
    return rows


def empty_source(batch: int) -> Tensor:
    return torch.full((batch, 3), FIRST_SYMBOL)


def test_equals_a_naive_loop_without_cache(model):
    source = ragged_source()
    expected = naive_decode(model, source, MAX_LEN)
    # Comparing constant answers, all of one length, would say little.
    assert len({len(row) for row in expected}) > 2
    assert max(len(set(row)) for row in expected) > 3
    said = greedy_decode(model, source, MAX_LEN)
    longest = max(len(row) for row in expected)
    assert said.tolist() == [row + [PAD] * (longest - len(row)) for row in expected]


def test_rows_are_independent_of_the_batch(model):
    source = ragged_source()
    together = greedy_decode(model, source, MAX_LEN)
    for row in range(B):
        alone = greedy_decode(model, source[row : row + 1], MAX_LEN)[0]
        assert torch.equal(together[row, : alone.numel()], alone)
        assert (together[row, alone.numel() :] == PAD).all()


def test_stops_as_soon_as_every_row_has_said_eos():
    parrot = Parrot([5, EOS, 7, 7, 7], [6, 5, EOS, 8, 8])
    said = greedy_decode(parrot, empty_source(2), 5)
    assert said.tolist() == [[5, EOS, PAD], [6, 5, EOS]]
    assert len(parrot.read) == 3


def test_says_nothing_but_pad_after_eos():
    parrot = Parrot([EOS, 9, EOS, 9, 9], [5, 6, 7, 8, 9])
    said = greedy_decode(parrot, empty_source(2), 5)
    assert said.tolist() == [[EOS, PAD, PAD, PAD, PAD], [5, 6, 7, 8, 9]]


def test_reads_bos_and_then_what_it_said():
    parrot = Parrot([5, 6, 7, EOS])
    greedy_decode(parrot, empty_source(1), 4)
    assert parrot.read == [[BOS], [5], [6], [7]]


def test_says_no_more_than_max_length():
    parrot = Parrot([5] * 11, [6] * 11)
    assert greedy_decode(parrot, empty_source(2), 3).tolist() == [[5] * 3, [6] * 3]
    assert len(parrot.read) == 3


def test_all_positions_can_be_used(model):
    with torch.no_grad():
        model.output.bias[EOS] = -1e4
    said = greedy_decode(model, ragged_source(), MAX_LEN)
    assert said.shape == (B, MAX_LEN)


def test_refuses_to_say_more_than_there_are_positions(model):
    with pytest.raises(ValueError, match=r"max_length=30 .* 29 positions"):
        greedy_decode(model, ragged_source(), MAX_LEN + 1)


def test_nothing_to_say_is_refused() -> None:
    with pytest.raises(ValueError, match="max_length=0"):
        greedy_decode(EncoderDecoder(7, d_model=6, num_heads=3, d_ff=5).eval(), torch.tensor([[3]]), 0)
