"""What is to be seen of an attention map, and what stands on its axes."""

from collections.abc import Sequence
from statistics import median_high
from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor

from attention_lab.data.batches import Batch
from attention_lab.models.model import Axis
from attention_lab.plotting.attention_grid import MapLabels
from attention_lab.tasks.vocabulary import token_labels

_SCALE = "white = 0, dark = 1"
_MOST = 48
"""Rows and columns that a reader, or a page, can cope with."""


_LONGEST = 12
"""Characters of a label, so that there is room for the map beside them."""


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


def map_view(
    attention: str,
    layer: int,
    axes: tuple[Axis, Axis],
    example: Batch,
    frames: Sequence[str] = (),
    most: int = _MOST,
    symbols: Sequence[str] = (),
) -> MapView:
    """Returns what to show of an attention.

    A row at which something is predicted is named after that, so that on a right alignment row and column carry the
    same name; other rows, and all columns, are the tokens that are read. Of a long map the first such rows are shown,
    and the columns where these should look.

    Args:
        attention: its name.
        layer: from 0.
        axes: what its rows and its columns are, from `SequenceModel.axes`.
        example: a batch of one, without padding.
        frames: where each head measures from, if heads differ in that.
        most: rows and columns to show at most.
        symbols: what the symbols are called, if they have names.
    """
    heads = [f"head {head}, from {frame.replace('_', ' ')}" for head, frame in enumerate(frames)]
    labels = _labels(attention, layer, axes, example, symbols)._replace(heads=heads)
    num_rows, num_columns = len(labels.queries), len(labels.keys)
    if max(num_rows, num_columns) <= most:
        return MapView(labels, slice(0, num_rows), slice(0, num_columns), "")
    gold = labels.gold or [None] * num_rows
    first = next((row for row, column in enumerate(gold) if column is not None), 0)
    rows = slice(max(0, min(first, num_rows - most)), min(first + most, num_rows))
    wanted = [column for column in gold[rows] if column is not None]
    begin = max(0, min(median_high(wanted) - most // 2, num_columns - most)) if wanted else 0
    columns = range(begin, min(begin + most, num_columns))
    cut = f"rows {rows.start + 1} to {rows.stop} of {num_rows}, columns {begin + 1} to {columns.stop} of {num_columns}"
    inside = [column - begin if column is not None and column in columns else None for column in gold[rows]]
    part = labels._replace(
        title=f"{labels.title} ({cut})",
        queries=labels.queries[rows],
        keys=labels.keys[begin : columns.stop],
        gold=labels.gold and inside,
    )
    return MapView(part, rows, slice(begin, columns.stop), cut)


def _short(label: str) -> str:
    return label if len(label) <= _LONGEST else f"{label[: _LONGEST - 1]}…"


def _labels(attention: str, layer: int, axes: tuple[Axis, Axis], example: Batch, symbols: Sequence[str]) -> MapLabels:
    title, legend = f"{attention}, layer {layer}", _SCALE
    shown = (example.source, example.target, example.labels)
    source, target, predicted = ([_short(label) for label in token_labels(part[0].tolist(), symbols)] for part in shown)
    along: dict[Axis, list[str]] = {
        "source": source,
        "target": target,
        "predicted": predicted,
        # There may be more places than there is to predict.
        "predicted in place": predicted + [""] * (len(source) - len(predicted)),
        "source, target": source + target,
        "source, predicted": source + predicted,
    }
    queries, keys = axes
    rows, columns = along[queries], along[keys]
    if "predicted" not in queries:
        return MapLabels(title, legend, rows, columns, None, f"{queries} read", f"attends to {keys}")
    before = len(source) if queries == "source, predicted" else 0
    gold = [place if place >= 0 else None for place in example.alignment[0].tolist()]
    gold = [None] * before + gold + [None] * (len(rows) - before - len(gold))
    if any(place is not None for place in gold):
        legend += ", outlined = the token it comes from"
    return MapLabels(title, legend, rows, columns, gold, queries, f"attends to {keys}")
