"""Sinusoidal positions: the formula in a plain loop, the article's module, coordinates and limits."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attention_lab.positions.sinusoidal import PositionalEncoding
from tests.articles import ArticlePositionalEncoding

B, L, MAX_LEN, D = 2, 7, 11, 22


@pytest.mark.parametrize("d_model", [22, 13, 2, 1])
def test_the_code_is_the_formula(d_model):
    pe = PositionalEncoding(d_model, MAX_LEN).pe
    for position in range(MAX_LEN):
        for dimension in range(d_model):
            angle = position / 10000 ** (2 * (dimension // 2) / d_model)
            expected = math.cos(angle) if dimension % 2 else math.sin(angle)
            assert pe[0, position, dimension].item() == pytest.approx(expected, abs=1e-5)


def test_equals_the_article():
    ours, article = PositionalEncoding(D), ArticlePositionalEncoding(D)
    x = torch.randn(B, L, D, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(ours.pe, article.pe)
    torch.testing.assert_close(ours(x), article(x))


def test_the_buffer_moves_between_the_article_and_us():
    ours, article = PositionalEncoding(D, MAX_LEN), ArticlePositionalEncoding(D, MAX_LEN)
    article.pe.fill_(3)
    ours.load_state_dict(article.state_dict(), strict=True)
    assert (ours.pe == 3).all()
    ours.pe.fill_(5)
    article.load_state_dict(ours.state_dict(), strict=True)
    assert (article.pe == 5).all()


def test_there_is_one_buffer_and_nothing_to_learn():
    encoding = PositionalEncoding(D, MAX_LEN)
    assert {name: tuple(buffer.shape) for name, buffer in encoding.named_buffers()} == {"pe": (1, MAX_LEN, D)}
    assert not list(encoding.parameters())


def test_the_code_is_added_at_each_tokens_coordinate():
    encoding = PositionalEncoding(D, MAX_LEN)
    x = torch.randn(B, L, D, generator=torch.Generator().manual_seed(0))
    coordinates = torch.tensor([[0, 0, 0, 1, 2, 3, 4], [10, 3, 5, 5, 9, 0, 2]])
    out = encoding(x, coordinates)
    for row in range(B):
        for token in range(L):
            expected = x[row, token] + encoding.pe[0, coordinates[row, token]]
            torch.testing.assert_close(out[row, token], expected)


def test_coordinates_count_from_zero_where_not_given():
    encoding = PositionalEncoding(D, MAX_LEN)
    x = torch.randn(B, L, D, generator=torch.Generator().manual_seed(0))
    assert torch.equal(encoding(x), encoding(x, torch.arange(L)[None]))


def test_one_row_of_coordinates_serves_the_whole_batch():
    encoding = PositionalEncoding(D, MAX_LEN)
    x = torch.randn(B, L, D, generator=torch.Generator().manual_seed(0))
    row = torch.tensor([[3, 1, 4, 1, 5, 9, 2]])
    assert torch.equal(encoding(x, row), encoding(x, row.expand(B, L)))


@settings(deadline=None)
@given(first=st.integers(0, 40), second=st.integers(0, 40), distance=st.integers(0, 40))
def test_how_alike_two_codes_are_depends_on_their_distance_alone(first, second, distance):
    pe = PositionalEncoding(D, 81).pe[0]
    torch.testing.assert_close(pe[first] @ pe[first + distance], pe[second] @ pe[second + distance], rtol=0, atol=1e-4)


def test_a_sequence_as_long_as_the_positions_fits():
    x = torch.zeros(B, MAX_LEN, D)
    encoding = PositionalEncoding(D, MAX_LEN)
    torch.testing.assert_close(encoding(x), encoding.pe.expand(B, MAX_LEN, D))


def test_refuses_a_sequence_longer_than_the_positions():
    with pytest.raises(ValueError, match=r"13 tokens .*max_len=11"):
        PositionalEncoding(D, MAX_LEN)(torch.zeros(B, MAX_LEN + 2, D))


def test_a_row_of_several_sequences_may_be_longer_than_the_positions():
    encoding, coordinates = PositionalEncoding(D, MAX_LEN), torch.arange(MAX_LEN + 2)[None] % MAX_LEN
    torch.testing.assert_close(encoding(torch.zeros(1, MAX_LEN + 2, D), coordinates), encoding.pe[:, coordinates[0]])


@pytest.mark.parametrize(("setting", "value"), [("d_model", 0), ("d_model", -2), ("max_len", 0), ("max_len", -1)])
def test_refuses_sizes_that_are_not_positive(setting, value):
    sizes = {"d_model": D, "max_len": MAX_LEN, setting: value}
    with pytest.raises(ValueError, match=rf"{setting}={value}\b.*at least 1"):
        PositionalEncoding(**sizes)
