"""Attention maps: a grid with one labelled panel a head."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, UInt8
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

_COLUMNS = 4
_DPI = 100
_GOLD_COLOUR = "#e8590c"

# Inches: a cell, the room that labels need left of and below a panel, and its title above.
_CELL, _LEFT, _BELOW, _ABOVE = 0.16, 0.62, 0.62, 0.24
_HEADLINE = 0.36


class MapLabels(NamedTuple):
    """What stands around and on a map.

    Attributes:
        title: what the whole picture shows.
        queries: the label of each row, from the top.
        keys: the label of each column.
        gold: for each row the column where attention belongs, None where there is none; None without any such truth.
        query_name: what the rows are.
        key_name: what the columns are.
    """

    title: str
    queries: Sequence[str]
    keys: Sequence[str]
    gold: Sequence[int | None] | None
    query_name: str
    key_name: str


class AttentionGrid:
    """A picture of all heads of one layer, on a fixed scale from 0 (white) to 1 (dark).

    Axes and labels are drawn once, when the grid is made (about a tenth of a second); painting other weights into it
    then takes a few milliseconds, so that maps can be logged while training goes on. It holds no pyplot state: a grid
    is freed like any other object.

    Args:
        labels: what stands around and on each map.
        num_heads: how many panels there are.
    """

    def __init__(self, labels: MapLabels, num_heads: int) -> None:
        columns = min(_COLUMNS, num_heads)
        rows = math.ceil(num_heads / columns)
        panel_width, panel_height = len(labels.keys) * _CELL, len(labels.queries) * _CELL
        width = max(columns * (_LEFT + panel_width) + 0.1, 5.0)
        height = rows * (_ABOVE + panel_height + _BELOW) + _HEADLINE
        self.figure = Figure(figsize=(width, height), dpi=_DPI)
        self._canvas = FigureCanvasAgg(self.figure)
        self.figure.text(0.1 / width, 1 - 0.24 / height, labels.title, fontsize=9.5)
        self._images: list[AxesImage] = []
        for head in range(num_heads):
            row, column = divmod(head, columns)
            left = _LEFT + column * (_LEFT + panel_width)
            bottom = height - _HEADLINE - row * (panel_height + _ABOVE + _BELOW) - _ABOVE - panel_height
            place = (left / width, bottom / height, panel_width / width, panel_height / height)
            self._images.append(_panel(self.figure.add_axes(place), labels, head))
        self._canvas.draw()
        self._background = self._canvas.copy_from_bbox(self.figure.bbox)

    def paint(self, weights: Float[np.ndarray, "H L S"]) -> UInt8[np.ndarray, "height width 3"]:
        """Returns the picture of these weights, as RGB."""
        self._canvas.restore_region(self._background)
        for image, head in zip(self._images, weights, strict=True):
            image.set_data(head)
            image.axes.draw_artist(image)
            for outline in image.axes.collections:
                image.axes.draw_artist(outline)
        return np.asarray(self._canvas.buffer_rgba())[..., :3].copy()


def _panel(axes: Axes, labels: MapLabels, head: int) -> AxesImage:
    shape = (len(labels.queries), len(labels.keys))
    image = axes.imshow(np.zeros(shape), cmap="Blues", vmin=0, vmax=1, interpolation="nearest", aspect="auto")
    image.set_animated(True)
    axes.set_title(f"head {head}", fontsize=9, pad=3)
    axes.spines[:].set_visible(False)
    axes.set_xticks(range(shape[1]), labels.keys, fontsize=6.5)
    for tick, key in zip(axes.get_xticklabels(), labels.keys, strict=True):
        tick.set_rotation(0 if len(key) <= 2 else 90)
    axes.set_yticks(range(shape[0]), labels.queries, fontsize=6.5)
    axes.tick_params(length=0, pad=2)
    axes.set_ylabel(labels.query_name, fontsize=7.5, labelpad=1)
    axes.set_xlabel(labels.key_name, fontsize=7.5, labelpad=1)
    if labels.gold is not None:
        cells = [_cell(row, column) for row, column in enumerate(labels.gold) if column is not None]
        axes.add_collection(
            PolyCollection(cells, facecolors="none", edgecolors=_GOLD_COLOUR, linewidths=1.0, animated=True)
        )
    return image


def _cell(row: int, column: int) -> list[tuple[float, float]]:
    left, right, top, bottom = column - 0.5, column + 0.5, row - 0.5, row + 0.5
    return [(left, top), (right, top), (right, bottom), (left, bottom)]
