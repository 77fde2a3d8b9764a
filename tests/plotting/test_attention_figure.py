"""Attention maps for a paper: every weight in its cell, every gold cell outlined."""

import numpy as np
import pytest
import torch
from matplotlib.patches import Rectangle

from attention_lab.plotting.attention_figure import draw_attention
from attention_lab.plotting.attention_grid import AttentionGrid, MapLabels

WEIGHTS = torch.rand(5, 2, 3)
LABELS = MapLabels("some attention", "dark = 1", ["1", "<eos>"], ["4", "1", "<eos>"], [1, None], "rows", "columns")


def test_every_head_has_a_panel_with_its_weights_labels_and_outlines():
    panels = draw_attention(LABELS, WEIGHTS).axes
    assert len(panels) == 8
    for head, axes in enumerate(panels[:5]):
        (image,) = axes.images
        np.testing.assert_array_equal(image.get_array(), WEIGHTS[head].numpy())
        assert image.get_clim() == (0, 1)
        assert [label.get_text() for label in axes.get_xticklabels()] == list(LABELS.keys)
        assert [label.get_text() for label in axes.get_yticklabels()] == list(LABELS.queries)
        outlines = [patch.get_xy() for patch in axes.patches if isinstance(patch, Rectangle)]
        assert outlines == [(0.5, -0.5)]
        assert axes.get_title() == f"head {head}"
    assert not any(axes.axison for axes in panels[5:])


def test_without_any_truth_nothing_is_outlined():
    (axes,) = draw_attention(LABELS._replace(gold=None), WEIGHTS[:1]).axes
    assert not axes.patches


@pytest.mark.parametrize(
    "kind",
    [
        lambda weights: weights.numpy().astype(np.float64),
        lambda weights: weights.clone().requires_grad_() * 1,
        lambda weights: weights.bfloat16(),
    ],
    ids=["array", "with gradient", "bfloat16"],
)
def test_weights_are_drawn_from_wherever_they_come(kind):
    axes = draw_attention(LABELS, kind(WEIGHTS)).axes
    for head in range(5):
        np.testing.assert_allclose(axes[head].images[0].get_array(), WEIGHTS[head].numpy(), atol=4e-3)
    grid = AttentionGrid(LABELS, 5)
    difference = np.asarray(grid.paint(kind(WEIGHTS))).astype(int) - np.asarray(grid.paint(WEIGHTS)).astype(int)
    assert abs(difference).max() <= 1


@pytest.mark.parametrize("shape", [(2, 3), (1, 5, 2, 3), (5, 3, 2), (5, 2, 4)])
def test_weights_of_another_shape_are_refused_by_name(shape):
    with pytest.raises(ValueError, match=r"weights of shape .* are not \(heads, 2 query labels, 3 key labels\)"):
        draw_attention(LABELS, torch.zeros(shape))
    with pytest.raises(ValueError, match="weights of shape"):
        AttentionGrid(LABELS, 5).paint(np.zeros(shape))


def test_a_grid_paints_as_many_heads_as_it_has():
    with pytest.raises(ValueError, match="4 maps for 5 heads"):
        AttentionGrid(LABELS, 5).paint(WEIGHTS[:4])
