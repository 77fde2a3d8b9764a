"""Attention maps: the right cell gets the right colour, and painting again leaves nothing behind."""

import numpy as np
import pytest
from matplotlib import colormaps

from attention_lab.plotting.attention_grid import AttentionGrid, MapLabels

QUERIES, KEYS, HEADS = ["0", "1", "<eos>"], ["1", "0", "4", "<eos>", "7"], 7


def grid(gold: list[int | None] | None = None) -> AttentionGrid:
    return AttentionGrid(MapLabels("some attention", "dark = 1", QUERIES, KEYS, gold, "rows", "columns"), HEADS)


def rgb(made: AttentionGrid, weights: np.ndarray) -> np.ndarray:
    return np.asarray(made.paint(weights).convert("RGB")).astype(int)


def cells(picture: np.ndarray, made: AttentionGrid, head: int) -> np.ndarray:
    """The pixels of a head's cells: rows, pixels of a row, columns, pixels of a column, colours."""
    inside = picture[made.place(head)]
    side = inside.shape[0] // len(QUERIES)
    assert inside.shape == (len(QUERIES) * side, len(KEYS) * side, 3)
    return inside.reshape(len(QUERIES), side, len(KEYS), side, 3).swapaxes(1, 2)


def test_every_weight_fills_its_own_cell_on_a_scale_from_0_to_1():
    weights = np.random.default_rng(3).random((HEADS, len(QUERIES), len(KEYS)))
    weights[0, 0, :2] = 0, 1
    made = grid()
    picture = rgb(made, weights)
    expected = (colormaps["Blues"](weights)[..., :3] * 255).round()
    for head in range(HEADS):
        assert abs(cells(picture, made, head) - expected[head][:, :, None, None]).max() <= 3


def test_heads_have_places_of_their_own():
    made = grid()
    covered = np.zeros(made.paint(np.zeros((HEADS, 3, 5))).size[::-1], dtype=int)
    for head in range(HEADS):
        covered[made.place(head)] += 1
    assert covered.max() == 1


def test_painting_again_leaves_nothing_of_the_picture_before():
    ones, zeros = np.ones((HEADS, 3, 5)), np.zeros((HEADS, 3, 5))
    made = grid([1, None, 2])
    first = rgb(made, zeros)
    assert not np.array_equal(rgb(made, ones), first)
    assert np.array_equal(rgb(made, zeros), first)


def test_the_gold_cells_are_outlined_and_no_others():
    made = grid([1, None, 4])
    picture = rgb(made, np.zeros((HEADS, 3, 5)))
    orange = (picture == (232, 89, 12)).all(axis=-1)
    for head in range(HEADS):
        inside = cells(orange[..., None].repeat(3, axis=-1), made, head)[..., 0]
        outlined = np.argwhere(inside.any(axis=(2, 3))).tolist()
        assert outlined == [[0, 1], [2, 4]]
        assert inside[0, 1, 0].all()
        assert not inside[0, 1, 2:-2, 2:-2].any()
    assert not (rgb(grid(), np.zeros((HEADS, 3, 5))) == (232, 89, 12)).all(axis=-1).any()


def test_labels_and_titles_are_drawn_around_the_cells():
    picture = rgb(grid(), np.zeros((HEADS, 3, 5)))
    made = grid()
    dark = (picture < 128).all(axis=-1)
    for head in range(HEADS):
        rows, columns = made.place(head)
        assert dark[rows.start - 20 : rows.start, columns].any(), "no title"
        assert dark[rows, columns.start - 30 : columns.start].any(), "no row labels"
        assert dark[rows.stop : rows.stop + 20, columns].any(), "no column labels"


def test_a_grid_leaves_no_figure_behind():
    pyplot = pytest.importorskip("matplotlib.pyplot")
    for _ in range(3):
        grid().paint(np.zeros((HEADS, 3, 5)))
    assert pyplot.get_fignums() == []


def test_one_head_is_a_grid_as_well():
    made = AttentionGrid(MapLabels("one", "dark = 1", ["0"], ["<eos>"], [0], "rows", "columns"), 1)
    assert made.paint(np.ones((1, 1, 1))).mode == "P"
