"""What is to be seen of an attention map, and what stands on its axes."""

from statistics import median_high
from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor

from attention_lab.data.batches import Batch
from attention_lab.plotting.attention_grid import MapLabels
from attention_lab.tasks.vocabulary import token_labels

_SCALE = "white = 0, dark = 1"
_MOST = 48
"""Rows and columns that a reader, or a page, can cope with."""


class MapView(NamedTuple):
    """The part of a map that is shown.

    Attributes:
        labels: what stands around it.
        rows: the queries shown.
        columns: the keys shown.
        cut: what part of the whole that is, in words; empty where it is the whole.
    """

    labels: MapLabels
    rows: slice
    columns: slice
    cut: str

    def of(self, weights: Float[Tensor, "H L S"]) -> Float[Tensor, "H rows columns"]:
        """Cuts the part out of a map."""
        return weights[:, self.rows, self.columns]


def map_view(attention: str, layer: int, example: Batch, most: int = _MOST) -> MapView:
    """Returns what to show of an attention of an encoder-decoder.

    In cross-attention a row is named after the token that it must say, so that on a right alignment row and column
    carry the same name; in self-attention rows and columns are the tokens that are read. Of a long map the first rows
    are shown, and the columns where these should look.

    Args:
        attention: `encoder_self`, `decoder_self` or `decoder_cross`.
        layer: from 0.
        example: a batch of one, without padding.
        most: rows and columns to show at most.
    """
    labels = _labels(attention, layer, example)
    rows, columns = slice(0, most), slice(0, most)
    num_rows, num_columns = len(labels.queries), len(labels.keys)
    if max(num_rows, num_columns) <= most:
        return MapView(labels, rows, columns, "")
    wanted = [column for column in (labels.gold or [])[rows] if column is not None]
    if wanted:
        begin = max(0, min(median_high(wanted) - most // 2, num_columns - most))
        columns = slice(begin, begin + most)
    shown = range(num_columns)[columns]
    cut = f"rows 1 to {min(most, num_rows)} of {num_rows}, columns {shown[0] + 1} to {shown[-1] + 1} of {num_columns}"
    gold = labels.gold and [
        column - shown[0] if column is not None and column in shown else None for column in labels.gold[rows]
    ]
    part = labels._replace(
        title=f"{labels.title} ({cut})", queries=labels.queries[rows], keys=labels.keys[columns], gold=gold
    )
    return MapView(part, rows, columns, cut)


def _labels(attention: str, layer: int, example: Batch) -> MapLabels:
    title = f"{attention}, layer {layer}: {_SCALE}"
    source = token_labels(example.source[0].tolist())
    if attention == "encoder_self":
        return MapLabels(title, source, source, None, "source", "attends to source")
    if attention == "decoder_self":
        target = token_labels(example.target[0].tolist())
        return MapLabels(title, target, target, None, "target read", "attends to target")
    gold = [position if position >= 0 else None for position in example.alignment[0].tolist()]
    said = token_labels(example.labels[0].tolist())
    title += ", outlined = the token it comes from"
    return MapLabels(title, said, source, gold, "target to say", "attends to source")
