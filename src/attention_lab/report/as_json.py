"""What `report.json` holds, as plain types."""

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import cast

from attention_lab.evaluation.comparison import Group, LengthSummary, Summary
from attention_lab.evaluation.records import Report
from attention_lab.metrics.alignment import Head
from attention_lab.runs.checkpoint import Solved


def report_json(report: Report) -> dict[str, object]:
    """Returns the report on one checkpoint."""
    rest = {field.name: plain(getattr(report, field.name)) for field in fields(report) if field.name != "scores"}
    return {**report.scores.figures(), **rest}


def comparison_json(groups: Sequence[Group]) -> dict[str, object]:
    """Returns the report on several checkpoints."""
    return {"groups": [_group(group) for group in groups]}


def curve_json(curve: Sequence[LengthSummary]) -> list[dict[str, object]]:
    """Returns a group's length curve: under each figure's name its summary over seeds."""
    return [{"length": each.length, **_summaries(each.figures)} for each in curve]


def plain(value: object) -> object:
    """Returns a record, or a list of records, as plain types."""
    if is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Head | Solved | Summary):
        return value._asdict()
    return [plain(each) for each in cast(Sequence[object], value)] if isinstance(value, list | tuple) else value


def _group(group: Group) -> dict[str, object]:
    runs = [
        {"checkpoint": run.checkpoint, "seed": run.seed, "step": run.step, **run.scores.figures()}
        | {"solved": plain(run.solved), "weights": run.weights, "length_curve": plain(run.length_curve)}
        for run in group.runs
    ]
    curve = curve_json(group.length_curve)
    return {"settings": group.settings, **_summaries(group.figures), "length_curve": curve, "runs": runs}


def _summaries(figures: Mapping[str, Summary]) -> dict[str, object]:
    return {name: plain(summary) for name, summary in figures.items()}
