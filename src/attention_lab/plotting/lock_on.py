"""When heads lock on: each head's hit rate over the steps, below how much of the task was solved."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from attention_lab.plotting.canvas import BLUE, plain_axes

_WIDTH, _ROW, _ABOVE, _BELOW = 6.4, 0.3, 2.0, 0.75
"""Inches: of the picture, of a head's row, and of what stands above and below the rows."""


def draw_lock_on(
    steps: Sequence[int],
    exact_match: Sequence[float],
    hit_rate: Float[np.ndarray, "N layers H"],
) -> Image.Image:
    """Returns a picture of heads by steps: one glance says which head aligned when, and what the task gained by it.

    Args:
        steps: of each validation, ascending.
        exact_match: at each of them.
        hit_rate: of every head at each of them.
    """
    layers, heads = hit_rate.shape[1:]
    rows = layers * heads
    height = _ABOVE + max(rows, 2) * _ROW + _BELOW
    # Laid out by hand: to let Matplotlib find room for everything takes as long again as to draw it.
    figure = Figure(figsize=(_WIDTH, height), dpi=100)
    canvas = FigureCanvasAgg(figure)
    left, width = 0.135, 0.695
    bottom, tall = _BELOW / height, max(rows, 2) * _ROW / height
    map_axes = figure.add_axes((left, bottom, width, tall))
    line_axes = figure.add_axes((left, bottom + tall + 0.12 / height, width, 1.2 / height), sharex=map_axes)
    colour_axes = figure.add_axes((left + width + 0.02, bottom, 0.018, tall))
    edges = _edges(steps)
    shown = map_axes.pcolormesh(
        edges, np.arange(rows + 1) - 0.5, hit_rate.reshape(len(steps), rows).T, cmap="Blues", vmin=0, vmax=1
    )
    names = [f"{layer}.{head}" for layer in range(layers) for head in range(heads)]
    every = max(1, rows // 24)
    map_axes.set_yticks(range(0, rows, every), names[::every], fontsize=12)
    map_axes.set(ylim=(rows - 0.5, -0.5), xlim=(edges[0], edges[-1]))
    map_axes.set_xlabel("step", fontsize=12)
    map_axes.set_ylabel("layer.head", fontsize=12)
    map_axes.tick_params(axis="x", labelsize=12)
    figure.colorbar(shown, cax=colour_axes).set_label("hit rate", fontsize=12)
    line_axes.plot(steps, exact_match, "o-", color=BLUE, markersize=3)
    line_axes.set(ylim=(-0.05, 1.08))
    line_axes.set_ylabel("exact\nmatch", fontsize=12)
    line_axes.set_yticks([0, 0.5, 1], ["0", "0.5", "1"], fontsize=11)
    line_axes.tick_params(axis="x", labelbottom=False)
    plain_axes(line_axes)
    figure.text(0.015, 1 - 0.36 / height, "When heads lock on", fontsize=15)
    canvas.draw()
    return Image.fromarray(np.asarray(canvas.buffer_rgba())[..., :3])


def _edges(steps: Sequence[int]) -> Float[np.ndarray, " edges"]:
    """Returns where one validation's column ends and the next one's begins: half way between them."""
    at = np.asarray(steps, dtype=np.float64)
    before = at[0] - (at[1] - at[0]) if len(at) > 1 else at[0] - 1
    after = at[-1] + (at[-1] - at[-2]) if len(at) > 1 else at[0] + 1
    padded = np.concatenate([[before], at, [after]])
    return (padded[:-1] + padded[1:]) / 2
