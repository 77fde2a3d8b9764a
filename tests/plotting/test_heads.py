"""The picture of the evidence shows every head, every step of silencing, and every cut."""

from dataclasses import replace
from math import isnan

import pytest
from matplotlib.patches import Rectangle

from attention_lab.evaluation.records import Accuracy, HeadRecord, Interventions, JointAblation
from attention_lab.metrics.alignment import Head
from attention_lab.plotting.canvas import save
from attention_lab.plotting.heads import draw_heads

ADDRESSES = [Head("decoder_cross", 0, head) for head in range(3)]
HEADS = [
    HeadRecord(*address, 0.5 + address.head / 10, 0.25, 0.1, 0.1, 0.1, 0.1, 0.1, 0.75, 0.8, 0.9, 0.95)
    for address in ADDRESSES
]
TOGETHER = [JointAblation(count, 1 - count / 3, 1.0) for count in range(4)]
LEFT = (1.0, 0.125, 0.25, 0.5)
CUTS = Interventions(ADDRESSES, ADDRESSES, *(Accuracy(left, 1.0) for left in LEFT), together=TOGETHER)


def draw(**changed):
    return draw_heads(HEADS, replace(CUTS, **changed), chance=0.1)


def heights(axes) -> list[float]:
    return [patch.get_height() for patch in axes.patches if isinstance(patch, Rectangle)]


def test_every_figure_has_a_bar_or_a_point():
    alone, joint, edges = draw().axes
    assert heights(alone) == pytest.approx([0.5, 0.6, 0.7] + [0.25] * 3 + [0.75] * 3)
    assert heights(edges) == pytest.approx(LEFT)
    assert list(joint.lines[0].get_ydata()) == pytest.approx([1, 2 / 3, 1 / 3, 0])
    assert edges.get_title() == "Cutting 3 aligned heads' edges"


def test_where_none_is_aligned_the_title_does_not_say_so():
    assert draw(aligned=[]).axes[2].get_title() == "Cutting 3 heads' edges"


def test_a_figure_becomes_png_and_on_request_pdf(tmp_path):
    save(draw(), tmp_path / "heads")
    assert [file.name for file in tmp_path.iterdir()] == ["heads.png"]
    save(draw(), tmp_path / "heads", pdf=True)
    assert (tmp_path / "heads.pdf").read_bytes().startswith(b"%PDF")


def test_what_was_not_measured_has_no_bar(tmp_path):
    blank = replace(HEADS[0], hit_rate=None, mass=None)
    figure = draw_heads([blank], replace(CUTS, without_gold_edges=None, without_random_edges=None), chance=None)
    save(figure, tmp_path / "heads")
    single, _, edges = figure.axes
    assert [height for height in heights(single) if not isnan(height)] == [0.75]
    assert heights(edges) == pytest.approx(LEFT[:2])
