"""The names on the axes of a map, worked by hand for one example."""

import pytest
import torch

from attention_lab.data.batches import Batch
from attention_lab.models.decoder_only import DecoderOnly
from attention_lab.models.encoder_decoder import EncoderDecoder
from attention_lab.models.encoder_only import EncoderOnly
from attention_lab.plotting.attention_grid import MapLabels
from attention_lab.plotting.labels import map_view

# reverse: 4 1 -> 1 4
EXAMPLE = Batch(
    source=torch.tensor([[7, 4, 2]]),
    target=torch.tensor([[1, 4, 7]]),
    labels=torch.tensor([[4, 7, 2]]),
    alignment=torch.tensor([[1, 0, -1]]),
)


AXES = EncoderDecoder.axes


def labels_of(attention: str, layer: int, example: Batch) -> MapLabels:
    return map_view(attention, layer, AXES[attention], example).labels


def test_heads_are_called_by_what_they_measure_from_if_they_differ_in_that():
    axes = AXES["decoder_cross"]
    assert map_view("decoder_cross", 0, axes, EXAMPLE).labels.panel(1) == "head 1"
    view = map_view("decoder_cross", 0, axes, EXAMPLE, ("start", "end_again"))
    assert [view.labels.panel(head) for head in range(2)] == ["head 0, from start", "head 1, from end again"]


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
    view = map_view("decoder_cross", 0, AXES["decoder_cross"], EXAMPLE, most=3)
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
    view = map_view("decoder_cross", 0, AXES["decoder_cross"], long_example(alignment), most=7)
    assert view.cut == f"rows 1 to 7 of 100, columns {first + 1} to {first + 7} of 100"
    assert view.labels.keys == [str(number) for number in range(first, first + 7)]
    assert view.labels.queries == [str(number) for number in range(7)]
    weights = torch.rand(2, 100, 100)
    assert torch.equal(view.of(weights), weights[:, :7, first : first + 7])
    assert view.labels.gold == [place - first if place >= 0 else None for place in alignment[:7].tolist()]


def test_a_token_from_outside_the_part_shown_has_no_outline():
    alignment = torch.arange(100)
    alignment[6] = 77
    assert map_view("decoder_cross", 0, AXES["decoder_cross"], long_example(alignment), most=7).labels.gold == [
        0,
        1,
        2,
        3,
        4,
        5,
        None,
    ]


def test_a_long_self_attention_is_cut_at_its_beginning():
    view = map_view("encoder_self", 0, AXES["encoder_self"], long_example(torch.arange(100)), most=7)
    assert (view.rows, view.columns, view.labels.gold) == (slice(0, 7), slice(0, 7), None)


def test_a_causal_stack_has_the_source_and_then_the_target_along_both_sides():
    labels = map_view("self", 0, DecoderOnly.axes["self"], EXAMPLE).labels
    assert labels.queries == ["4", "1", "<eos>", "1", "4", "<eos>"]
    assert labels.keys == ["4", "1", "<eos>", "<bos>", "1", "4"]
    assert labels.gold == [None, None, None, 1, 0, None]


def test_of_a_long_causal_stack_the_rows_at_which_something_is_said_are_shown():
    view = map_view("self", 0, DecoderOnly.axes["self"], long_example(torch.arange(100)), most=7)
    assert view.cut == "rows 101 to 107 of 200, columns 1 to 7 of 200"
    assert view.labels.gold == list(range(7))


def test_a_stack_that_says_less_than_it_has_places_leaves_the_rest_without_a_name():
    shorter = EXAMPLE._replace(labels=torch.tensor([[4, 2]]), alignment=torch.tensor([[1, -1]]))
    labels = map_view("self", 0, EncoderOnly.axes["self"], shorter).labels
    assert labels.queries == ["1", "<eos>", ""]
    assert labels.keys == ["4", "1", "<eos>"]
    assert labels.gold == [1, None, None]
