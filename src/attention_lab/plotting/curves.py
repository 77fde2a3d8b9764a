"""Curves over sequence length."""

from collections.abc import Sequence
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import ScalarFormatter

_LINES = {
    "decoded_exact_match": ("exact match, decoded", "#1864ab", "o-"),
    "exact_match": ("exact match, teacher-forced", "#74c0fc", "s--"),
    "token_accuracy": ("token accuracy", "#868e96", "^--"),
    "alignment_mass": ("mass on the gold token, best head", "#e8590c", "D-"),
}


def draw_length_curve(records: Sequence[dict[str, Any]], trained: tuple[int, int]) -> Figure:
    """Draws accuracy and alignment against length, with the lengths of training shaded.

    Args:
        records: one a length, as in `report.json`.
        trained: shortest and longest length of training, in symbols.
    """
    figure = Figure(figsize=(7.2, 4), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    axes.axvspan(max(trained[0], 0.9), trained[1], color="#f1f3f5", label="lengths of training")
    lengths = [record["length"] for record in records]
    for name, (label, colour, style) in _LINES.items():
        axes.plot(lengths, [record[name] for record in records], style, color=colour, label=label, markersize=5)
    axes.set_xscale("log", base=2)
    axes.set_xticks(lengths)
    axes.xaxis.set_major_formatter(ScalarFormatter())
    axes.minorticks_off()
    axes.set(xlabel="source length (symbols)", ylim=(-0.03, 1.03))
    axes.grid(color="#dee2e6", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(fontsize=8, frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    return figure
