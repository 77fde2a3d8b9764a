"""Comparisons as tables: Markdown for a paper, rows for a spreadsheet."""

from collections.abc import Sequence
from statistics import mean
from typing import Any

from attention_lab.evaluation.comparison import Group, Run

COLUMNS = {
    "test/decoded_exact_match": "exact match, decoded",
    "test/token_accuracy": "token accuracy",
    "test/alignment_hit_rate": "hit rate",
    "test/alignment_mass": "mass",
}


LENGTH_TABLES = {
    "decoded_exact_match": "Exact match, decoded, by source length: worst seed (mean)",
    "token_accuracy": "Token accuracy by source length: worst seed (mean)",
    "alignment_hit_rate": "Hit rate of each run's best head by source length: worst seed (mean)",
    "alignment_mass": "Its mass on the gold token by source length: worst seed (mean)",
    "alignment_oracle_head_mass": "Mass of whichever head has most on it, token by token: worst seed (mean)",
}
"""What there is a table of, and its title."""


def table_of_groups(groups: Sequence[Group]) -> tuple[list[str], list[list[str]]]:
    """Returns head and rows of the table that people read: mean, 95 % interval and worst seed of each figure."""
    head = [*groups[0].settings, "seeds", *COLUMNS.values(), "steps to 99 %", "seconds", "weights"]
    rows = [
        [
            *(_written(value) for value in group.settings.values()),
            str(len(group.runs)),
            *(_in_short(group.figures[name]) for name in COLUMNS),
            *_when_solved(group.runs),
            str(group.runs[0].weights),
        ]
        for group in groups
    ]
    return head, rows


def table_of_lengths(groups: Sequence[Group], figure: str) -> tuple[list[str], list[list[str]]]:
    """Returns head and rows of a figure at each length, and of its mean over all: the worst seed's, and their mean."""
    lengths = sorted({record["length"] for group in groups for record in group.length_curve})
    rows: list[list[str]] = []
    for group in groups:
        # A network without attention has nothing to show of alignment.
        known = [[record for record in run.length_curve if record[figure] is not None] for run in group.runs]
        curves = [{record["length"]: record[figure] for record in records} for records in known]
        columns = [[curve[length] for curve in curves if length in curve] for length in lengths]
        columns.append([mean(curve.values()) for curve in curves if curve])
        cells = [f"{min(column):.4f} ({mean(column):.4f})" if column else "–" for column in columns]
        rows.append([*(_written(value) for value in group.settings.values()), str(len(group.runs)), *cells])
    return [*groups[0].settings, "seeds", *map(str, lengths), "mean of all"], rows


def as_markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Returns a table as Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)


def rows_of_groups(groups: Sequence[Group]) -> list[dict[str, Any]]:
    """Returns one row a group: its settings, and every figure's mean, worst, low and high in columns of their own."""
    return [
        {
            **group.settings,
            "seeds": len(group.runs),
            "solved": sum(run.solved is not None for run in group.runs),
            "weights": group.runs[0].weights,
            **{f"{name} {what}": value for name, summary in group.figures.items() for what, value in summary.items()},
        }
        for group in groups
    ]


def rows_of_runs(groups: Sequence[Group]) -> list[dict[str, Any]]:
    """Returns one row a checkpoint: its settings and its test figures."""
    return [
        {
            **group.settings,
            "seed": run.config.get("seed"),
            "step": run.step,
            "solved step": run.solved and run.solved.step,
            "solved seconds": run.solved and run.solved.seconds,
            "weights": run.weights,
            **run.figures,
            "checkpoint": run.checkpoint,
        }
        for group in groups
        for run in group.runs
    ]


def _when_solved(runs: Sequence[Run]) -> tuple[str, str]:
    """Returns the mean steps and seconds until the task was solved, or how many seeds have solved it."""
    times = [run.solved for run in runs if run.solved is not None]
    if len(times) < len(runs):
        return f"{len(times)} of {len(runs)}", "–"
    return f"{mean(time.step for time in times):.0f}", f"{mean(time.seconds for time in times):.1f}"


def _in_short(summary: dict[str, float | None]) -> str:
    if summary["mean"] is None:
        return "–"
    if summary["low"] is None:
        return f"{summary['mean']:.4f}"
    return f"{summary['mean']:.4f} [{summary['low']:.4f}, {summary['high']:.4f}], worst {summary['worst']:.4f}"


def _written(value: object) -> str:
    """Returns a setting as it is written on the command line; a dash for one that this kind of run does not have."""
    if value is None:
        return "–"
    return str(value).lower() if isinstance(value, bool) else str(value)
