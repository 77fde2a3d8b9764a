"""Embeddings: as large as the position code, and at the place they were told."""

import math

import pytest
import torch

from attention_lab.models.embedding import Embedding
from attention_lab.positions.sinusoidal import PositionalEncoding

B, L, D, V, MAX_LEN = 2, 7, 13, 23, 11


@pytest.fixture
def embedding() -> Embedding:
    torch.manual_seed(0)
    return Embedding(V, D, 0.0, PositionalEncoding(D, MAX_LEN))


def random_tokens() -> torch.Tensor:
    return torch.randint(V, (B, L), generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("d_model", [13, 61, 251])
def test_tokens_are_drawn_with_a_deviation_of_a_quarter_of_one_over_root_d(d_model):
    torch.manual_seed(0)
    weight = Embedding(997, d_model, 0.0, PositionalEncoding(d_model)).tokens.weight
    assert weight.std().item() == pytest.approx(0.25 / math.sqrt(d_model), rel=0.03)
    assert weight.mean().item() == pytest.approx(0, abs=0.01)


@pytest.mark.parametrize("d_model", [13, 61, 251])
def test_tokens_do_not_drown_their_positions(d_model):
    torch.manual_seed(0)
    embedding = Embedding(997, d_model, 0.0, PositionalEncoding(d_model))
    everything = torch.arange(997)[None]
    code = embedding.position.pe[:, :997]
    token_part = embedding(everything) - code
    assert token_part.std() < code.square().mean().sqrt() < 3 * token_part.std()


def test_is_the_scaled_token_plus_the_code_of_its_coordinate(embedding):
    tokens = random_tokens()
    coordinates = torch.tensor([[0, 0, 1, 2, 3, 3, 3], [7, 10, 2, 2, 0, 5, 9]])
    out = embedding(tokens, coordinates)
    assert out.shape == (B, L, D)
    for row in range(B):
        for place in range(L):
            token = embedding.tokens.weight[tokens[row, place]]
            code = embedding.position.pe[0, coordinates[row, place]]
            torch.testing.assert_close(out[row, place], math.sqrt(D) * token + code)


@pytest.mark.parametrize("length", [2, V + 3], ids=["fewer tokens than the table has", "more"])
def test_training_embeds_as_evaluation_does_whichever_is_scaled(embedding, length):
    tokens = torch.randint(V, (1, length))
    embedding.position = PositionalEncoding(D)
    pull = torch.randn(1, length, D)
    gradients = []
    for training in (True, False):
        embedding.train(training).zero_grad()
        out = embedding(tokens)
        (out * pull).sum().backward()
        gradients.append((out, embedding.tokens.weight.grad))
    (learned, one), (told, other) = gradients
    assert torch.equal(learned, told)
    torch.testing.assert_close(one, other)


def test_coordinates_count_from_zero_where_not_given(embedding):
    tokens = random_tokens()
    assert torch.equal(embedding(tokens), embedding(tokens, torch.arange(L)[None]))


def test_dropout_acts_in_training_only():
    torch.manual_seed(0)
    embedding = Embedding(V, D, 0.5, PositionalEncoding(D))
    tokens = random_tokens()
    dropped = embedding(tokens)
    whole = embedding.eval()(tokens)
    kept = dropped != 0
    assert 0 < kept.sum() < kept.numel()
    torch.testing.assert_close(dropped[kept], 2 * whole[kept])


def test_refuses_more_tokens_than_positions(embedding):
    with pytest.raises(ValueError, match=r"13 tokens .*max_len=11"):
        embedding(torch.ones(B, MAX_LEN + 2, dtype=torch.long))


@pytest.mark.parametrize(
    ("setting", "value"), [("d_model", 0), ("d_model", -2), ("dropout", -0.1), ("dropout", 1.0), ("dropout", 1.5)]
)
def test_refuses_settings_out_of_their_range(setting, value):
    settings = {"num_tokens": V, "d_model": D, "dropout": 0.0, "position": PositionalEncoding(D), setting: value}
    with pytest.raises(ValueError, match=rf"{setting}={value}\b"):
        Embedding(**settings)
