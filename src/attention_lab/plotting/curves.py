"""Curves over sequence length."""

from collections.abc import Sequence
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import ScalarFormatter

from attention_lab.escaping import figure_text
from attention_lab.evaluation.comparison import Group
from attention_lab.evaluation.records import LengthRecord
from attention_lab.plotting.canvas import BLUE, GOLD, GREY, PALE_BLUE, PALE_GOLD, SERIES, new_figure, plain_axes


class Line(NamedTuple):
    """How a figure is drawn: what it is called, its colour, and Matplotlib's marker and dashes."""

    label: str
    colour: str
    style: str


LINES = {
    "decoded_exact_match": Line("exact match, decoded", BLUE, "o-"),
    "exact_match": Line("exact match, teacher-forced", PALE_BLUE, "s--"),
    "token_accuracy": Line("token accuracy", GREY, "^--"),
    "alignment_hit_rate": Line("hit rate of the best head", PALE_GOLD, "v--"),
    "alignment_mass": Line("its mass on the gold token", GOLD, "D-"),
    "alignment_entropy": Line("its entropy (1: looks everywhere alike)", GREY, "x:"),
}
"""Of a single checkpoint's curve."""

PANELS = {
    "decoded_exact_match": "exact match, decoded",
    "token_accuracy": "token accuracy",
    "alignment_hit_rate": "best head: hit rate",
    "alignment_mass": "best head: mass on the gold token",
    "alignment_entropy": "best head: entropy (1 looks everywhere alike)",
}
"""What is compared over length, and what it is called. A head that jumps misses with little entropy; one that disperses
has much."""


def draw_length_curve(records: Sequence[LengthRecord], trained: tuple[int, int]) -> Figure:
    """Draws accuracy and alignment against length, with the lengths of training shaded.

    Args:
        records: one a length.
        trained: shortest and longest length of training, in symbols.
    """
    figure = new_figure(7.2, 4.0)
    axes = figure.subplots()
    lengths = [record.length for record in records]
    _length_axes(axes, lengths, trained)
    for name, (label, colour, style) in LINES.items():
        values: list[float] = [value for record in records if (value := getattr(record, name)) is not None]
        # A network without attention has no mass to show.
        if len(values) == len(records):
            axes.plot(lengths, values, style, color=colour, label=label, markersize=5)
    axes.legend(fontsize=8, frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


def draw_comparison(groups: Sequence[Group], trained: tuple[int, int] | None) -> Figure:
    """Draws groups of runs over each other: lines are means over seeds, bands reach down to the worst seed.

    Args:
        groups: what is compared.
        trained: shortest and longest length that all of them were trained on, in symbols; None if there is none.
    """
    figure = new_figure(11.0, 6.8)
    panels = figure.subplots(2, 3, sharey=True).ravel()
    lengths = sorted({record.length for group in groups for record in group.length_curve})
    for axes, (name, title) in zip(panels, PANELS.items(), strict=False):
        _length_axes(axes, lengths, trained)
        for number, group in enumerate(groups):
            colour = SERIES[number % len(SERIES)]
            style = ("o-", "s--", "^:")[number // len(SERIES) % 3]
            own = [record.length for record in group.length_curve]
            means = [record.figures[name].mean for record in group.length_curve]
            worst = [record.figures[name].worst for record in group.length_curve]
            if not own or None in means:
                continue
            axes.plot(own, means, style, color=colour, label=figure_text(group.label), markersize=4)
            axes.fill_between(own, worst, means, color=colour, alpha=0.15, lw=0)
        axes.set_title(title, fontsize=9)
    handles, labels = panels[0].get_legend_handles_labels()
    panels[-1].set_axis_off()
    panels[-1].legend(handles, labels, fontsize=7, frameon=False, loc="upper left", bbox_to_anchor=(-0.1, 1.05))
    return figure


def _length_axes(axes: Axes, lengths: Sequence[int], trained: tuple[int, int] | None) -> None:
    if trained is not None:
        axes.axvspan(*trained, color="#f1f3f5", label="lengths of training")
    axes.set_xscale("log", base=2)
    axes.set_xticks(lengths)
    axes.xaxis.set_major_formatter(ScalarFormatter())
    axes.minorticks_off()
    axes.set(xlabel="source length (symbols)", ylim=(-0.03, 1.03))
    plain_axes(axes)
