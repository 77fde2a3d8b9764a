"""What `python evaluate.py` does with several checkpoints: score each, group them, compare the groups."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from attention_lab.errors import SettingError
from attention_lab.evaluation.comparison import Group, Run, group_runs
from attention_lab.evaluation.length_curve import check_length, curve_of
from attention_lab.evaluation.scoring import scores_of
from attention_lab.plotting.canvas import save
from attention_lab.plotting.curves import PANELS, SeedsCurve, draw_comparison
from attention_lab.report.comparison_page import write_comparison_page
from attention_lab.report.tables import (
    LENGTH_TABLES,
    as_markdown,
    rows_of_groups,
    rows_of_runs,
    table_of_groups,
    table_of_lengths,
)
from attention_lab.runs.files import write_csv, write_json, write_text
from attention_lab.runs.paths import shown
from attention_lab.runs.trained import load_trained
from attention_lab.settings.schema import EvaluateSettings

log = logging.getLogger(__name__)


def compare_checkpoints(files: Sequence[Path], settings: EvaluateSettings, run_dir: Path, device: torch.device) -> None:
    """Leaves `report.json`, `report.html`, `comparison.md`, `comparison.csv`, `runs.csv` and a figure in a folder.

    Raises:
        SettingError: a checkpoint or a length cannot be used.
    """
    for file in files:
        # Before any is scored: the last one's mistake should not cost the minutes of the others.
        _check(file, settings)
    runs: list[Run] = []
    for number, file in enumerate(files, 1):
        runs.append(_evaluated(file, settings, device))
        log.info("%d of %d: %s, exact match %.4f", number, len(files), file, runs[-1].figures["test/exact_match"])
    groups, copies = group_runs(runs)
    for copy in copies:
        log.warning("%s is left out: a later one has its config and its seed.", copy.checkpoint)
    tables = _write(groups, settings, run_dir)
    log.info("")
    for line in tables.splitlines():
        log.info("%s", line)
    log.info("")
    log.info(
        "Written to %s: report.html, report.json, comparison.md, comparison.csv (a row a group), runs.csv (a row a "
        "checkpoint) and figures/.",
        shown(run_dir),
    )


def _check(file: Path, settings: EvaluateSettings) -> None:
    trained = load_trained(file, trust=settings.trust)
    try:
        for length in settings.lengths or ():
            check_length(trained.network, trained.task, trained.settings.data, length)
    except SettingError as error:
        raise SettingError(f"{error} (checkpoint={file})") from error


def _evaluated(file: Path, settings: EvaluateSettings, device: torch.device) -> Run:
    trained = load_trained(file, settings.batch_size, settings.trust)
    scores = scores_of(trained, file, device)
    curve = curve_of(trained, settings, scores.best_head, device)
    weights = sum(weight.numel() for weight in trained.network.parameters())
    return Run(str(file), trained.config, trained.step, trained.solved, weights, scores.figures, curve)


def _write(groups: Sequence[Group], settings: EvaluateSettings, run_dir: Path) -> str:
    """Writes everything and returns what `comparison.md` says."""
    write_json({"groups": [_as_record(group) for group in groups]}, run_dir / "report.json")
    parts = [as_markdown(*table_of_groups(groups))]
    if any(group.length_curve for group in groups):
        for name, title in LENGTH_TABLES.items():
            parts += [f"{title}:\n", as_markdown(*table_of_lengths(groups, name))]
    tables = "\n".join(parts)
    write_text(tables, run_dir / "comparison.md")
    write_csv(rows_of_groups(groups), run_dir / "comparison.csv")
    write_csv(rows_of_runs(groups), run_dir / "runs.csv")
    trained = _lengths_of_all(groups)
    if any(group.length_curve for group in groups):
        curves = [_seeds_curve(group) for group in groups]
        save(draw_comparison(curves, trained), run_dir / "figures" / "comparison", settings.pdf)
    write_comparison_page(groups, trained, run_dir / "report.html")
    return tables


def _as_record(group: Group) -> dict[str, Any]:
    runs = [
        {"checkpoint": run.checkpoint, "seed": run.config.get("seed"), "step": run.step, **run.figures}
        | {"solved": run.solved and run.solved._asdict(), "weights": run.weights, "length_curve": run.length_curve}
        for run in group.runs
    ]
    return {"settings": group.settings, **group.figures, "length_curve": group.length_curve, "runs": runs}


def _lengths_of_all(groups: Sequence[Group]) -> tuple[int, int] | None:
    """Returns the shortest and the longest length that every run was trained on; None if there is none."""
    data = [run.config["data"] for group in groups for run in group.runs]
    shortest, longest = max(each["min_length"] for each in data), min(each["max_length"] for each in data)
    return (shortest, longest) if shortest <= longest else None


def _seeds_curve(group: Group) -> SeedsCurve:
    lengths = [record["length"] for record in group.length_curve]
    means, worst = (
        {name: [record[name][what] for record in group.length_curve] for name in PANELS} for what in ("mean", "worst")
    )
    return SeedsCurve(group.label, lengths, means, worst)
