"""Figures without pyplot, which would keep each of them for ever; and the colours they share."""

from pathlib import Path

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

BLUE, PALE_BLUE, GREY, GOLD, PALE_GOLD = "#1864ab", "#74c0fc", "#868e96", "#e8590c", "#ffa94d"
SERIES = ("#1864ab", "#e8590c", "#2b8a3e", "#862e9c", "#c92a2a", "#0b7285", "#e67700", "#495057")
"""Colours that can be told apart, also in print."""


def new_figure(width: float, height: float) -> Figure:
    """Returns an empty figure of a size in inches that makes room for its labels by itself."""
    figure = Figure(figsize=(width, height), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def plain_axes(axes: Axes) -> None:
    """Leaves of the axes what a reader needs."""
    axes.grid(color="#dee2e6", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def save(figure: Figure, file: Path, pdf: bool = False) -> None:
    """Writes a figure as PNG and, if it is to go into a paper, as PDF beside it.

    Args:
        figure: what to write.
        file: where to, without a suffix.
        pdf: write the PDF, too.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file.with_name(file.name + ".png"), dpi=150, bbox_inches="tight")
    if pdf:
        save_pdf(figure, file)


def save_pdf(figure: Figure, file: Path) -> None:
    """Writes a figure as PDF, with letters that stay letters: Matplotlib's type 3 is refused by some publishers."""
    with rc_context({"pdf.fonttype": 42}):
        figure.savefig(file.with_name(file.name + ".pdf"), bbox_inches="tight")
