"""Results as tables: rows of text for pages and Markdown, rows of values for a spreadsheet."""

from collections.abc import Sequence
from statistics import mean
from typing import NamedTuple

from attention_lab.escaping import markdown_cell
from attention_lab.evaluation.comparison import Group, Run, Summary
from attention_lab.evaluation.records import HeadRecord, Patching, Report, TaskRecord
from attention_lab.metrics.alignment import Head

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
    "alignment_mass": "Mass of that head on the gold token by source length: worst seed (mean)",
    "alignment_oracle_head_mass": "Mass of whichever head has most on it, token by token: worst seed (mean)",
}
"""What there is a table of, and its title."""

_ALIGNMENT = {
    "hit_rate": "hit rate",
    "mass": "mass",
    "mass_p5": "mass, 5th percentile",
    "mass_min": "mass, minimum",
    "alignment_error_rate": "alignment error rate",
    "entropy": "entropy",
    "confidence": "confidence",
}

_LOST = {
    "exact_match_without": "exact match lost, zero",
    "token_accuracy_without": "token accuracy lost, zero",
    "exact_match_with_mean": "exact match lost, mean",
    "token_accuracy_with_mean": "token accuracy lost, mean",
}


class Table(NamedTuple):
    """Text in rows and columns; the first column names the rows."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]


def figure(value: float | None) -> str:
    """Returns a figure with four digits; a dash where there is none."""
    return "–" if value is None else f"{value:.4f}"


def as_markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Returns a table as Markdown."""
    lines = [map(markdown_cell, head), ["---"] * len(head), *(map(markdown_cell, row) for row in rows)]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def table_of_baselines(report: Report) -> Table:
    """Returns how the best head aligns, and beside it chance, the best one before training, and attribution."""
    scores, untrained, chance = report.scores, report.baselines.untrained, report.baselines.chance
    attribution = report.attribution
    rows: list[list[str]] = []
    if report.best_head is not None:
        best = f"best head of this network ({report.best_head})"
        rows.append([best, figure(scores.alignment_hit_rate), figure(scores.alignment_mass)])
    if untrained is not None:
        before = f"best head before training ({untrained.address})"
        rows.append([before, figure(untrained.hit_rate), figure(untrained.mass)])
    if report.best_head is not None:
        rows.append(["chance: looking everywhere alike", figure(chance), figure(chance)])
    if attribution is not None:
        rows.append(["gradient × input, of the whole network", figure(attribution.hit_rate), figure(attribution.mass)])
    return Table(["head", "hit rate", "mass"], rows)


def table_of_patching(patching: Patching) -> Table:
    """Returns what each head brings back of each token, and all of them together."""
    rows = [[str(head), *map(_share, row)] for head, row in zip(patching.heads, patching.restored, strict=True)]
    rows.append(["all heads together", *map(_share, patching.together)])
    return Table(["patched", *patching.clean], rows)


def _share(value: float | None) -> str:
    """Returns a share with two digits, without a minus before zero; a dash where there is none."""
    return "–" if value is None else f"{round(value, 2) + 0.0:.2f}"


def table_of_heads(report: Report) -> Table:
    """Returns how each head aligns, and what the network loses without it."""
    intact = vars(report.interventions.intact)
    rows = [
        [str(head.address)]
        + [figure(getattr(head, name)) for name in _ALIGNMENT]
        + [figure(intact[name.partition("_with")[0]] - getattr(head, name)) for name in _LOST]
        for head in report.heads
    ]
    return Table(["head", *_ALIGNMENT.values(), *_LOST.values()], rows)


def table_of_patterns(report: Report) -> Table:
    """Returns how much each head of self-attention follows each pattern."""
    names = ("previous_token", "same_token", "duplicate_token", "induction", "first_token")
    rows = [
        [
            str(Head(each.attention, each.layer, each.head)),
            *(figure(getattr(each, name)) for name in names),
            f"{figure(each.position_mass)} at {each.position}",
        ]
        for each in report.patterns
    ]
    return Table(["head", *(name.replace("_", " ") for name in names), "most on one place"], rows)


def table_of_tasks(tasks: Sequence[TaskRecord]) -> Table:
    """Returns which head serves which task of a mixture."""
    columns = [f"{task.task}: {what}" for task in tasks for what in ("hit rate", "mass", "exact match lost, mean")]
    rows = [
        [str(heads[0].address)]
        + [cell for task, head in zip(tasks, heads, strict=True) for cell in _served(task, head)]
        for heads in zip(*(task.heads for task in tasks), strict=True)
    ]
    return Table(["head", *columns], rows)


def _served(task: TaskRecord, head: HeadRecord) -> list[str]:
    return [figure(head.hit_rate), figure(head.mass), figure(task.exact_match - head.exact_match_with_mean)]


def table_of_groups(groups: Sequence[Group]) -> Table:
    """Returns what people read of a comparison: mean, 95 % interval and worst seed of each figure."""
    head = [*groups[0].settings, "seeds", *COLUMNS.values(), "steps to 99 %", "seconds", "weights"]
    rows = [
        [
            *map(_as_typed, group.settings.values()),
            str(len(group.runs)),
            *(_in_short(group.figures[name]) for name in COLUMNS),
            *_when_solved(group.runs),
            str(group.runs[0].weights),
        ]
        for group in groups
    ]
    return Table(head, rows)


def short_table(groups: Sequence[Group]) -> Table:
    """Returns what a comparison comes to: a row a group, mean and worst seed of what matters most.

    Of the settings that differ it has only as many as tell the groups apart.
    """
    named_by = groups[0].named_by
    head = [*named_by, "seeds", "exact match", "worst", "hit rate", "worst", "steps to 99 %"]
    rows = [
        [
            *(_as_typed(group.settings[name]) for name in named_by),
            str(len(group.runs)),
            *_mean_and_worst(group.exact_match),
            *_mean_and_worst(group.figures["test/alignment_hit_rate"]),
            _when_solved(group.runs)[0],
        ]
        for group in groups
    ]
    return Table(head, rows)


def _mean_and_worst(summary: Summary) -> tuple[str, str]:
    return figure(summary.mean), figure(summary.worst)


def table_of_lengths(groups: Sequence[Group], name: str) -> Table:
    """Returns a figure at each length, and its mean over all: the worst seed's, and the mean over seeds.

    A cell is a dash where nothing was measured: no attention to measure, or a length that the network cannot read.
    """
    lengths = sorted({record.length for group in groups for record in group.length_curve})
    rows: list[list[str]] = []
    for group in groups:
        curves: list[dict[int, float]] = [
            {record.length: value for record in run.length_curve if (value := getattr(record, name)) is not None}
            for run in group.runs
        ]
        columns = [[curve[length] for curve in curves if length in curve] for length in lengths]
        columns.append([mean(curve.values()) for curve in curves if curve])
        cells = [f"{min(column):.4f} ({mean(column):.4f})" if column else "–" for column in columns]
        rows.append([*map(_as_typed, group.settings.values()), str(len(group.runs)), *cells])
    return Table([*groups[0].settings, "seeds", *map(str, lengths), "mean of all"], rows)


def table_of_runs(groups: Sequence[Group]) -> Table:
    """Returns a row a checkpoint: where it is, and its figures."""
    rows = [
        [run.checkpoint, str(run.seed), str(run.step)] + [figure(run.scores.figures()[name]) for name in COLUMNS]
        for group in groups
        for run in group.runs
    ]
    return Table(["checkpoint", "seed", "step", *COLUMNS.values()], rows)


def rows_of_groups(groups: Sequence[Group]) -> list[dict[str, object]]:
    """Returns one row a group: its settings, and every figure's mean, worst, low and high in columns of their own."""
    return [
        {
            **group.settings,
            "seeds": len(group.runs),
            "solved": sum(run.solved is not None for run in group.runs),
            "weights": group.runs[0].weights,
            **{
                f"{name} {part}": value
                for name, summary in group.figures.items()
                for part, value in summary._asdict().items()
            },
        }
        for group in groups
    ]


def rows_of_runs(groups: Sequence[Group]) -> list[dict[str, object]]:
    """Returns one row a checkpoint: its settings and its test figures."""
    return [
        {
            **group.settings,
            "seed": run.seed,
            "step": run.step,
            "solved step": run.solved and run.solved.step,
            "solved seconds": run.solved and run.solved.seconds,
            "weights": run.weights,
            **run.scores.figures(),
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


def _in_short(summary: Summary) -> str:
    if summary.low is None:
        return figure(summary.mean)
    return f"{figure(summary.mean)} [{summary.low:.4f}, {summary.high:.4f}], worst {summary.worst:.4f}"


def _as_typed(value: object) -> str:
    """Returns a setting as it is typed on the command line; a dash for one that this kind of run does not have."""
    if value is None:
        return "–"
    return str(value).lower() if isinstance(value, bool) else str(value)
