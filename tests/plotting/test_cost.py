"""Cost and throughput figures show every number they are given."""

import pytest

from attention_lab.plotting.cost import CostCurve, draw_cost, draw_throughput

CURVES = [
    CostCurve("full", "causal", {256: 2.0, 512: 8.0, 1024: 32.0}, {256: 3.0, 512: 6.0}),
    CostCurve("linear", "causal", {256: 4.0, 1024: 16.0}, {}),
]


def test_every_kind_is_a_line_in_both_panels() -> None:
    time, memory = draw_cost(CURVES).axes
    drawn = {line.get_label(): (list(line.get_xdata()), list(line.get_ydata())) for line in time.lines}
    assert drawn["full, causal"] == ([256, 512, 1024], [2.0, 8.0, 32.0])
    assert drawn["linear, causal"] == ([256, 1024], [4.0, 16.0])
    assert drawn["slope 1"][1] == pytest.approx([2.0, 8.0])
    assert drawn["slope 2"][1] == pytest.approx([2.0, 32.0])
    assert next(list(line.get_ydata()) for line in memory.lines if line.get_label() == "full, causal") == [3.0, 6.0]
    assert [label.get_text() for label in time.get_xticklabels()] == ["256", "512", "1024"]
    assert time.get_yscale() == memory.get_yscale() == "log"


def test_nothing_measured_still_draws(tmp_path) -> None:
    draw_cost([]).savefig(tmp_path / "cost.png")
    assert (tmp_path / "cost.png").stat().st_size > 1000


def test_every_contender_is_a_bar() -> None:
    first, second = draw_throughput({"training": {"ours": 3.0, "theirs": 2.0}, "decoding": {"ours": 5.0}}).axes
    assert [bar.get_width() for bar in first.patches] == [3.0, 2.0]
    assert [bar.get_width() for bar in second.patches] == [5.0]
    assert [axes.get_title(loc="left") for axes in (first, second)] == ["training", "decoding"]


def test_time_without_memory_still_draws(tmp_path) -> None:
    draw_cost([CostCurve("full", "causal", {64: 2.0, 128: 4.0}, {64: 0.0, 128: 0.0})]).savefig(tmp_path / "cost.png")
    assert (tmp_path / "cost.png").stat().st_size > 1000
