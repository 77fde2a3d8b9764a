"""The names on the axes of a map, worked by hand for one example."""

import pytest
import torch

from attention_lab.data.batches import Batch
from attention_lab.plotting.attention_grid import MapLabels
from attention_lab.plotting.labels import map_view

# reverse: 4 1 -> 1 4
EXAMPLE = Batch(
    source=torch.tensor([[7, 4, 2]]),
    target=torch.tensor([[1, 4, 7]]),
    labels=torch.tensor([[4, 7, 2]]),
    alignment=torch.tensor([[1, 0, -1]]),
)


def labels_of(attention: str, layer: int, example: Batch) -> MapLabels:
    return map_view(attention, layer, example).labels


def test_cross_attention_names_rows_after_what_is_to_be_said_and_outlines_where_it_comes_from():
    labels = labels_of("decoder_cross", 3, EXAMPLE)
    assert list(labels.queries) == ["1", "4", "<eos>"]
    assert list(labels.keys) == ["4", "1", "<eos>"]
    assert labels.gold == [1, 0, None]
    assert [labels.keys[place] for place in labels.gold if place is not None] == list(labels.queries)[:2]
    assert labels.title.startswith("decoder_cross, layer 3")


@pytest.mark.parametrize(
    ("attention", "tokens"), [("encoder_self", ["4", "1", "<eos>"]), ("decoder_self", ["<bos>", "1", "4"])]
)
def test_self_attention_names_rows_and_columns_after_what_is_read(attention, tokens):
    labels = labels_of(attention, 0, EXAMPLE)
    assert list(labels.queries) == list(labels.keys) == tokens
    assert labels.gold is None


def long_example(alignment: torch.Tensor) -> Batch:
    tokens = torch.arange(3, 103)[None]
    return Batch(tokens, tokens, tokens, alignment[None])


def test_a_short_map_is_shown_whole():
    view = map_view("decoder_cross", 0, EXAMPLE, most=3)
    weights = torch.rand(2, 3, 3)
    assert view.cut == ""
    assert torch.equal(view.of(weights), weights)


@pytest.mark.parametrize(
    ("alignment", "first"),
    [
        (torch.arange(100), 0),
        (torch.arange(99, -1, -1), 93),
        (torch.arange(100).roll(-50), 50),
        (torch.full((100,), -1), 0),
    ],
    ids=["copy", "reverse", "from the middle", "no truth"],
)
def test_of_a_long_map_the_first_rows_are_shown_and_the_columns_where_they_should_look(alignment, first):
    view = map_view("decoder_cross", 0, long_example(alignment), most=7)
    assert view.cut == f"rows 1 to 7 of 100, columns {first + 1} to {first + 7} of 100"
    assert view.labels.keys == [str(number) for number in range(first, first + 7)]
    assert view.labels.queries == [str(number) for number in range(7)]
    weights = torch.rand(2, 100, 100)
    assert torch.equal(view.of(weights), weights[:, :7, first : first + 7])
    assert view.labels.gold == [place - first if place >= 0 else None for place in alignment[:7].tolist()]


def test_a_token_from_outside_the_part_shown_has_no_outline():
    alignment = torch.arange(100)
    alignment[6] = 77
    assert map_view("decoder_cross", 0, long_example(alignment), most=7).labels.gold == [0, 1, 2, 3, 4, 5, None]


def test_a_long_self_attention_is_cut_at_its_beginning():
    view = map_view("encoder_self", 0, long_example(torch.arange(100)), most=7)
    assert (view.rows, view.columns, view.labels.gold) == (slice(0, 7), slice(0, 7), None)
