"""The picture of the evidence shows every head, every step of silencing, and every cut."""

import pytest
from matplotlib.patches import Rectangle

from attention_lab.plotting.canvas import save
from attention_lab.plotting.heads import CUTS, draw_heads

HEADS = [
    {"layer": 0, "head": head, "hit_rate": 0.5 + head / 10, "mass": 0.25, "exact_match_without": 0.75}
    for head in range(3)
]
TOGETHER = [{"silenced": count, "exact_match": 1 - count / 3, "token_accuracy": 1.0} for count in range(4)]
LEFT = (1.0, 0.125, 0.25, 0.5)


def draw(**changed):
    cuts = {name: {"exact_match": left} for name, left in zip(CUTS, LEFT, strict=True)}
    return draw_heads(HEADS, TOGETHER, {**cuts, "aligned": HEADS, "cut": HEADS, **changed}, chance=0.1)


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
