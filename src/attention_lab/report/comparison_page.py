"""The report on several checkpoints as an HTML file that opens from disk."""

import html
from collections.abc import Sequence
from pathlib import Path

from attention_lab.evaluation.comparison import Group
from attention_lab.plotting.canvas import SERIES
from attention_lab.plotting.curves import PANELS
from attention_lab.report.markup import fill, table
from attention_lab.report.numbers import figure
from attention_lab.report.tables import COLUMNS, LENGTH_TABLES, table_of_groups, table_of_lengths
from attention_lab.runs.files import write_text


def write_comparison_page(groups: Sequence[Group], trained: tuple[int, int] | None, path: Path) -> None:
    """Writes `report.html` for a comparison.

    Args:
        groups: what is compared.
        trained: shortest and longest length that all of them were trained on, in symbols; None if there is none.
        path: where to write.
    """
    runs = [
        [run.checkpoint, str(run.config.get("seed")), str(run.step)] + [figure(run.figures[name]) for name in COLUMNS]
        for group in groups
        for run in group.runs
    ]
    data = {
        "curves": [{"label": group.label, "records": group.length_curve} for group in groups],
        "colours": SERIES,
        "trained": trained,
        "panels": PANELS,
    }
    page = fill(
        "comparison_page.html",
        data,
        title=html.escape(f"{len(runs)} checkpoints compared"),
        groups=table(*table_of_groups(groups)),
        lengths="".join(
            f'<p class="note">{title}.</p><div class="scroll">{table(*table_of_lengths(groups, name))}</div>'
            for name, title in LENGTH_TABLES.items()
        ),
        runs=table(["checkpoint", "seed", "step", *COLUMNS.values()], runs),
    )
    write_text(page, path)
