"""The length curve shows every figure at every length."""

from attention_lab.evaluation.comparison import Group, LengthSummary, Summary
from attention_lab.evaluation.records import LengthRecord
from attention_lab.plotting.curves import LINES, PANELS, draw_comparison, draw_length_curve

NAMES = tuple(LINES)
RECORDS = [LengthRecord(length, 5, *(1 / (length + number) for number in range(9))) for length in (4, 16, 64)]


def test_every_figure_is_a_line_through_its_values():
    axes = draw_length_curve(RECORDS, (1, 16)).axes[0]
    lines = [line for line in axes.lines if len(line.get_xdata()) == 3]
    assert [
        line.get_ydata().tolist() if hasattr(line.get_ydata(), "tolist") else list(line.get_ydata()) for line in lines
    ] == [[getattr(record, name) for record in RECORDS] for name in NAMES]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["4", "16", "64"]


def test_a_single_length_can_be_drawn(tmp_path):
    draw_length_curve(RECORDS[:1], (1, 16)).savefig(tmp_path / "curve.png")
    assert (tmp_path / "curve.png").stat().st_size > 1000


def group(setting: str, *lengths: int) -> Group:
    figures = dict.fromkeys(PANELS, Summary(0.5, 0.25, None, None))
    return Group({"task": setting}, ["task"], [], {}, [LengthSummary(length, figures) for length in lengths])


def test_groups_are_compared_at_the_lengths_that_each_has(tmp_path):
    figure = draw_comparison([group("Copy", 4, 16), group("$\\nothing$", 4), group("none")], None)
    figure.savefig(tmp_path / "comparison.png")
    lines = figure.axes[0].lines
    assert [list(line.get_xdata()) for line in lines] == [[4, 16], [4]]
    # A dollar sign in a config begins no formula.
    assert [line.get_label() for line in lines] == ["task=Copy", r"task=\$\nothing\$"]
