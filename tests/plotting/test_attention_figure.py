"""Attention maps for a paper: every weight in its cell, every gold cell outlined."""

import numpy as np
import torch
from matplotlib.patches import Rectangle

from attention_lab.plotting.attention_figure import draw_attention
from attention_lab.plotting.attention_grid import MapLabels

WEIGHTS = torch.rand(5, 2, 3)
LABELS = MapLabels("some attention", ["1", "<eos>"], ["4", "1", "<eos>"], [1, None], "rows", "columns")


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
