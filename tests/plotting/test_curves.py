"""The length curve shows every figure at every length."""

from attention_lab.plotting.curves import LINES, draw_length_curve

NAMES = tuple(LINES)
RECORDS = [{"length": length, **{name: 1 / (length + i) for i, name in enumerate(NAMES)}} for length in (4, 16, 64)]


def test_every_figure_is_a_line_through_its_values():
    axes = draw_length_curve(RECORDS, (1, 16)).axes[0]
    lines = [line for line in axes.lines if len(line.get_xdata()) == 3]
    assert [
        line.get_ydata().tolist() if hasattr(line.get_ydata(), "tolist") else list(line.get_ydata()) for line in lines
    ] == [[record[name] for record in RECORDS] for name in NAMES]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["4", "16", "64"]


def test_a_single_length_can_be_drawn(tmp_path):
    draw_length_curve(RECORDS[:1], (1, 16)).savefig(tmp_path / "curve.png")
    assert (tmp_path / "curve.png").stat().st_size > 1000
