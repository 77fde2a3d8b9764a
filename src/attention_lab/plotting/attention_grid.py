"""Attention maps: a grid with one labelled panel a head."""

import math
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, UInt8
from matplotlib import colormaps
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.font_manager import findfont
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

_COLUMNS = 2
"""TensorBoard shows a picture as wide as a card, some 330 pixels: two panels can be read there, and four cannot."""

_DPI = 100

# Pixels: a cell's largest and smallest side, how wide all cells of a panel become at most, the room around them for
# labels, for a panel's title, and for the two lines of the headline.
_LARGEST, _SMALLEST, _WIDEST = 26, 10, 440
_LEFT, _RIGHT, _BELOW, _TITLE, _HEADLINE = 98, 10, 98, 34, 62

# Cells have shades of blue, labels shades of grey, outlines are orange: few enough colours for one byte a pixel, which
# makes a PNG three times as fast to write as RGB does.
_SHADES, _GREYS = 200, 55
_GOLD = _SHADES + _GREYS
_PALETTE = np.concatenate(
    [
        colormaps["Blues"](np.linspace(0, 1, _SHADES))[:, :3],
        np.linspace(0, 1, _GREYS)[:, None].repeat(3, axis=1),
        [to_rgb("#e8590c")],
    ]
)


class MapLabels(NamedTuple):
    """What stands around and on a map.

    Attributes:
        title: what the whole picture shows.
        legend: what its colours mean.
        queries: the label of each row, from the top.
        keys: the label of each column.
        gold: for each row the column where attention belongs, None where there is none; None without any such truth.
        query_name: what the rows are.
        key_name: what the columns are.
        heads: what each head is called; empty where its number is all there is to say.
    """

    title: str
    legend: str
    queries: Sequence[str]
    keys: Sequence[str]
    gold: Sequence[int | None] | None
    query_name: str
    key_name: str
    heads: Sequence[str] = ()

    def panel(self, head: int) -> str:
        """Returns the title of a head's panel."""
        return self.heads[head] if self.heads else f"head {head}"


Weights = Tensor | np.ndarray
"""Attention weights, wherever they come from."""


def as_array(labels: MapLabels, weights: Weights) -> Float[np.ndarray, "H L S"]:
    """Returns weights as an array on the CPU, in single precision.

    Raises:
        ValueError: they are not one map a head with a row for each query label and a column for each key label.
    """
    expected = (len(labels.queries), len(labels.keys))
    if weights.ndim != 3 or tuple(weights.shape[1:]) != expected:
        raise ValueError(
            f"weights of shape {tuple(weights.shape)} are not (heads, {expected[0]} query labels, {expected[1]} key "
            "labels); a batch is drawn row by row: weights[0]"
        )
    if isinstance(weights, Tensor):
        weights = weights.detach().float().cpu().numpy()
    return weights.astype(np.float32)


class AttentionGrid:
    """A picture of all heads of one layer, on a fixed scale from 0 (white) to 1 (dark).

    matplotlib draws what never changes, once: titles, and a single panel with its labels and outlines, since all
    panels are alike. Painting weights then is array arithmetic of a few milliseconds, so that maps can be logged while
    training goes on; drawing the whole figure anew would take half a second. No pyplot, so no figure stays behind.

    Args:
        labels: what stands around and on each map.
        num_heads: how many panels there are.
    """

    def __init__(self, labels: MapLabels, num_heads: int) -> None:
        self._labels = labels
        self._side = side = max(_SMALLEST, min(_LARGEST, _WIDEST // max(len(labels.queries), len(labels.keys))))
        cells = (len(labels.queries) * side, len(labels.keys) * side)
        panel, self._gold = _panel(labels, cells), _outlines(labels, side)
        height, width = _TITLE + panel.shape[0], panel.shape[1]
        columns = min(_COLUMNS, num_heads)
        corners = [(_HEADLINE + head // columns * height, head % columns * width) for head in range(num_heads)]
        size = (
            _HEADLINE + math.ceil(num_heads / columns) * height,
            max(columns * width, 14 * len(labels.title), 10 * len(labels.legend)),
        )
        self._blank = _titles(labels, [(y, x + _LEFT + cells[1] // 2) for y, x in corners], size)
        for y, x in corners:
            self._blank[y + _TITLE : y + height, x : x + width] = panel
        self._places = [
            (slice(y + _TITLE, y + _TITLE + cells[0]), slice(x + _LEFT, x + _LEFT + cells[1])) for y, x in corners
        ]

    def paint(self, weights: Weights, note: str = "") -> Image.Image:
        """Returns the picture of weights (H, L, S), an array or a tensor on any device.

        Args:
            weights: one map a head.
            note: what else to write at the top on the right, for this picture alone.

        Raises:
            ValueError: they are not one map a head with as many rows and columns as there are labels.
        """
        maps = as_array(self._labels, weights)
        if len(maps) != len(self._places):
            raise ValueError(f"{len(maps)} maps for {len(self._places)} heads")
        pixels = self._blank.copy()
        shades = (maps.clip(0, 1) * (_SHADES - 1)).round().astype(np.uint8)
        for place, head in zip(self._places, shades, strict=True):
            cells = head.repeat(self._side, axis=0).repeat(self._side, axis=1)
            pixels[place] = np.where(self._gold, _GOLD, cells)
        picture = Image.fromarray(pixels)
        picture.putpalette((_PALETTE * 255).round().astype(np.uint8).tobytes())
        if note:
            place = picture.width - _RIGHT, _HEADLINE // 2
            ImageDraw.Draw(picture).text(place, note, fill=_SHADES, font=_font(), anchor="rm")
        return picture

    def place(self, head: int) -> tuple[slice, slice]:
        """Returns where a head's cells are in the picture: rows and columns of pixels."""
        return self._places[head]


def _panel(labels: MapLabels, cells: tuple[int, int]) -> UInt8[np.ndarray, "height width"]:
    """Draws a panel, but for its title and what is in its cells."""
    height, width = cells[0] + _BELOW, _LEFT + cells[1] + _RIGHT
    figure, canvas = _canvas((height, width))
    axes = figure.add_axes((_LEFT / width, _BELOW / height, cells[1] / width, cells[0] / height))
    axes.set(xlim=(-0.5, len(labels.keys) - 0.5), ylim=(len(labels.queries) - 0.5, -0.5))
    axes.spines[:].set_visible(False)
    # Letters as high as a cell, where they stand upright.
    size = cells[0] / len(labels.queries) * 0.75 * 72 / _DPI
    axes.set_xticks(range(len(labels.keys)), labels.keys, fontsize=size)
    for tick, key in zip(axes.get_xticklabels(), labels.keys, strict=True):
        tick.set_rotation(0 if len(key) <= 2 else 90)
    axes.set_yticks(range(len(labels.queries)), labels.queries, fontsize=size)
    axes.tick_params(length=0, pad=3)
    figure.text(6 / width, 1 - cells[0] / 2 / height, labels.query_name, fontsize=14, rotation=90, va="center")
    figure.text((_LEFT + cells[1] / 2) / width, 8 / height, labels.key_name, fontsize=14, ha="center")
    return _greys(canvas)


def _outlines(labels: MapLabels, side: int) -> Bool[np.ndarray, "height width"]:
    """Says which pixels of a panel's cells belong to the outline of a gold cell."""
    pixels = np.zeros((len(labels.queries) * side, len(labels.keys) * side), dtype=bool)
    for row, column in enumerate(labels.gold or ()):
        if column is not None:
            cell = pixels[row * side : (row + 1) * side, column * side : (column + 1) * side]
            cell[[0, 1, -2, -1], :] = cell[:, [0, 1, -2, -1]] = True
    return pixels


def _titles(labels: MapLabels, tops: list[tuple[int, int]], size: tuple[int, int]) -> UInt8[np.ndarray, "height width"]:
    """Draws the headline and each panel's title; `tops` says where panels begin, and where their middle is."""
    figure, canvas = _canvas(size)
    height, width = size
    figure.text(10 / width, 1 - 26 / height, labels.title, fontsize=17)
    figure.text(10 / width, 1 - 50 / height, labels.legend, fontsize=13)
    for head, (y, x) in enumerate(tops):
        figure.text(x / width, 1 - (y + _TITLE - 9) / height, labels.panel(head), fontsize=16, ha="center")
    return _greys(canvas)


@cache
def _font() -> ImageFont.FreeTypeFont:
    """Returns the letters that Matplotlib writes with."""
    return ImageFont.truetype(findfont("DejaVu Sans"), 22)


def _canvas(size: tuple[int, int]) -> tuple[Figure, FigureCanvasAgg]:
    figure = Figure(figsize=(size[1] / _DPI, size[0] / _DPI), dpi=_DPI)
    return figure, FigureCanvasAgg(figure)


def _greys(canvas: FigureCanvasAgg) -> UInt8[np.ndarray, "height width"]:
    """Returns what was drawn in black on white, as numbers of the palette."""
    canvas.draw()
    brightness = np.asarray(canvas.buffer_rgba())[..., 0] / 255
    return (_SHADES + brightness * (_GREYS - 1)).round().astype(np.uint8)
