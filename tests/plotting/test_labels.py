"""The names on the axes of a map, worked by hand for one example."""

import pytest
import torch

from attention_lab.data.batches import Batch
from attention_lab.plotting.labels import map_labels

# reverse: 4 1 -> 1 4
EXAMPLE = Batch(
    source=torch.tensor([[7, 4, 2]]),
    target=torch.tensor([[1, 4, 7]]),
    labels=torch.tensor([[4, 7, 2]]),
    alignment=torch.tensor([[1, 0, -1]]),
)


def test_cross_attention_names_rows_after_what_is_to_be_said_and_outlines_where_it_comes_from():
    labels = map_labels("decoder_cross", 3, EXAMPLE)
    assert list(labels.queries) == ["1", "4", "<eos>"]
    assert list(labels.keys) == ["4", "1", "<eos>"]
    assert labels.gold == [1, 0, None]
    assert [labels.keys[place] for place in labels.gold if place is not None] == list(labels.queries)[:2]
    assert labels.title.startswith("decoder_cross, layer 3")


@pytest.mark.parametrize(
    ("attention", "tokens"), [("encoder_self", ["4", "1", "<eos>"]), ("decoder_self", ["<bos>", "1", "4"])]
)
def test_self_attention_names_rows_and_columns_after_what_is_read(attention, tokens):
    labels = map_labels(attention, 0, EXAMPLE)
    assert list(labels.queries) == list(labels.keys) == tokens
    assert labels.gold is None
