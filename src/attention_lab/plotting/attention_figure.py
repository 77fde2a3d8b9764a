"""Attention maps for a paper: drawn in full, so that they stay sharp at any size."""

import math
from pathlib import Path

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from attention_lab.plotting.attention_grid import AttentionGrid, MapLabels, Weights, as_array
from attention_lab.plotting.canvas import GOLD, new_figure, save_pdf

_COLUMNS = 4
_CELL, _MARGIN = 0.17, 0.75
"""Inches."""


def draw_attention(labels: MapLabels, weights: Weights) -> Figure:
    """Draws all heads of one layer, on a fixed scale from 0 (white) to 1 (dark), outlined where attention belongs.

    Args:
        labels: what stands around and on each map.
        weights: one map a head (H, L, S), as an array or as a tensor on any device, with a gradient or without.

    Raises:
        ValueError: the weights have no such shape, or labels are missing.
    """
    maps = as_array(labels, weights)
    heads, rows, columns = maps.shape
    across = min(_COLUMNS, heads)
    down = math.ceil(heads / across)
    width, height = across * (columns * _CELL + _MARGIN), down * (rows * _CELL + _MARGIN + 0.3) + 0.4
    figure = new_figure(max(width, 5.5), height)
    figure.suptitle(f"{labels.title}: {labels.legend}", fontsize=9, x=0.01, ha="left")
    panels = figure.subplots(down, across, squeeze=False).flat
    for head, axes in enumerate(panels):
        if head < heads:
            _draw_map(axes, labels, maps[head], first_column=head % across == 0)
            axes.set_title(labels.panel(head), fontsize=8)
        else:
            axes.set_axis_off()
    return figure


def save_maps(labels: MapLabels, weights: Weights, file: Path, pdf: bool = False) -> None:
    """Writes the maps of a layer's heads as PNG, and for a paper as PDF beside it.

    Args:
        labels: what stands around and on each map.
        weights: one map a head (H, L, S).
        file: where to, without a suffix.
        pdf: write the PDF, too.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    # A tenth of the time that Matplotlib takes to draw every cell and label.
    AttentionGrid(labels, len(weights)).paint(weights).save(file.with_name(file.name + ".png"))
    if pdf:
        save_pdf(draw_attention(labels, weights), file)


def _draw_map(axes: Axes, labels: MapLabels, weights: Float[np.ndarray, "L S"], first_column: bool) -> None:
    axes.imshow(weights, cmap="Blues", vmin=0, vmax=1, interpolation="nearest", aspect="equal")
    axes.set_xticks(range(len(labels.keys)), labels.keys, fontsize=5.5)
    for tick, key in zip(axes.get_xticklabels(), labels.keys, strict=True):
        tick.set_rotation(0 if len(key) <= 2 else 90)
    axes.set_yticks(range(len(labels.queries)), labels.queries, fontsize=5.5)
    axes.tick_params(length=0, pad=1.5)
    axes.set_xlabel(labels.key_name, fontsize=7)
    if first_column:
        axes.set_ylabel(labels.query_name, fontsize=7)
    for row, column in enumerate(labels.gold or ()):
        if column is not None:
            place = (column - 0.5, row - 0.5)
            axes.add_patch(Rectangle(place, 1, 1, fill=False, edgecolor=GOLD, linewidth=0.9))
