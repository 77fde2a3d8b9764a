"""What a layer costs against sequence length, and how fast contenders are."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import ScalarFormatter

from attention_lab.plotting.canvas import GREY, SERIES, new_figure, plain_axes


class CostCurve(NamedTuple):
    """What one kind of layer costs.

    Attributes:
        kind: its name.
        form: causal or bidirectional.
        milliseconds: time under each length, in tokens.
        mebibytes: memory under each length.
    """

    kind: str
    form: str
    milliseconds: Mapping[int, float]
    mebibytes: Mapping[int, float]


def draw_cost(curves: Sequence[CostCurve]) -> Figure:
    """Draws time and memory against length, both axes logarithmic, with slopes 1 and 2 to compare with.

    Args:
        curves: one a kind.
    """
    figure = new_figure(10.0, 4.4 + 0.11 * len(curves))
    panels = figure.subplots(1, 2)
    for axes, name, unit in zip(panels, ("milliseconds", "mebibytes"), ("time (ms)", "memory (MiB)"), strict=True):
        # A logarithm has no place for 0.
        lines = [{n: value for n, value in getattr(curve, name).items() if value > 0} for curve in curves]
        for number, (curve, values) in enumerate(zip(curves, lines, strict=True)):
            style = ("o-", "s--", "^:")[number // len(SERIES) % 3]
            colour = SERIES[number % len(SERIES)]
            label = f"{curve.kind}, {curve.form}"
            axes.plot(list(values), list(values.values()), style, color=colour, label=label, markersize=4)
        _slopes(axes, lines)
        lengths = sorted({length for values in lines for length in values})
        if lengths:
            # A logarithmic axis without a value has no ticks, and would raise an error.
            axes.set_xscale("log", base=2)
            axes.set_yscale("log")
            axes.set_xticks(lengths)
            axes.xaxis.set_major_formatter(ScalarFormatter())
            axes.minorticks_off()
        axes.set(xlabel="length (tokens)", ylabel=unit)
        plain_axes(axes)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, fontsize=8, frameon=False, loc="outside lower center", ncols=3)
    return figure


def draw_throughput(panels: Mapping[str, Mapping[str, float]]) -> Figure:
    """Draws one panel of bars a race.

    Args:
        panels: under each race's name, tokens per second of each contender.
    """
    most = max((len(bars) for bars in panels.values()), default=1)
    figure = new_figure(9.0, len(panels) * (0.6 + 0.3 * most))
    for axes, (race, bars) in zip(figure.subplots(len(panels), 1, squeeze=False)[:, 0], panels.items(), strict=True):
        colours = [SERIES[0] if name.startswith("ours") else GREY for name in bars]
        drawn = axes.barh(list(bars), list(bars.values()), color=colours)
        axes.bar_label(drawn, labels=[f"{value:,.0f}" for value in bars.values()], padding=3, fontsize=8)
        axes.invert_yaxis()
        axes.margins(x=0.12)
        axes.set_title(race, fontsize=9, loc="left")
        plain_axes(axes)
        axes.grid(visible=False, axis="y")
    figure.supxlabel("tokens per second", fontsize=9)
    return figure


def _slopes(axes: Axes, lines: Sequence[Mapping[int, float]]) -> None:
    """Draws what is linear and what is quadratic through the lowest point."""
    points = sorted((length, value) for values in lines for length, value in values.items())
    if not points:
        return
    (start, least), end = points[0], points[-1][0]
    for exponent, style in ((1, ":"), (2, "--")):
        ends = [least, least * (end / start) ** exponent]
        label = f"slope {exponent}"
        axes.plot([start, end], ends, style, color=GREY, linewidth=0.8, label=label, zorder=1)
