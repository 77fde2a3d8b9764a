"""What `python evaluate.py` does with several checkpoints: score each, group them, compare the groups."""

import logging
from collections.abc import Sequence
from pathlib import Path

import torch

from attention_lab.evaluation.comparison import Group, Run, group_runs
from attention_lab.evaluation.length_curve import draw_lengths, length_curve, refuse
from attention_lab.evaluation.scoring import scores_of
from attention_lab.plotting.canvas import save
from attention_lab.plotting.curves import draw_comparison
from attention_lab.report.as_json import comparison_json
from attention_lab.report.page import write_comparison_page
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
from attention_lab.settings.flat import flat_settings
from attention_lab.settings.schema import EvaluateSettings

log = logging.getLogger(__name__)


def compare_checkpoints(files: Sequence[Path], settings: EvaluateSettings, run_dir: Path, device: torch.device) -> None:
    """Leaves `report.json`, `report.html`, `comparison.md`, `comparison.csv`, `runs.csv` and a figure in a folder.

    Raises:
        SettingError: a checkpoint cannot be used, or a length by none of them.
    """
    # Before any is scored: the last one's mistake should not cost the minutes of the others.
    named = _check(files, settings)
    runs: list[Run] = []
    for number, file in enumerate(files, 1):
        runs.append(_evaluate(file, settings, device, named))
        log.info("%d of %d: %s, exact match %.4f", number, len(files), file, runs[-1].scores.exact_match)
    groups, copies = group_runs(runs)
    for copy in copies:
        log.warning("%s is left out: a later one has its config and its seed.", copy.checkpoint)
    tables = _tables(groups)
    _write(groups, tables, settings.pdf, run_dir)
    for line in ("", *tables.splitlines(), ""):
        log.info("%s", line)
    log.info(
        "Written to %s: report.html, report.json, comparison.md, comparison.csv (a row a group), runs.csv (a row a "
        "checkpoint) and figures/.",
        shown(run_dir),
    )


def _check(files: Sequence[Path], settings: EvaluateSettings) -> set[str]:
    """Loads every checkpoint once; a length that some cannot read is left empty there, and refused if none can.

    Returns:
        The groups whose choice every checkpoint knows by name; earlier ones know classes alone.
    """
    all_trained = {file: load_trained(file, trust=settings.trust) for file in files}
    refused = {file: draw_lengths(trained, settings)[1] for file, trained in all_trained.items()}
    for length in settings.lengths or ():
        errors = {file: errors[length] for file, errors in refused.items() if length in errors}
        if len(errors) == len(files):
            refuse({length: errors[files[0]]}, where=f" (checkpoint={files[0]})")
        for file, error in errors.items():
            log.warning("%s (checkpoint=%s): left empty.", error, file)
    return set.intersection(*(set(trained.settings.choices) for trained in all_trained.values()))


def _evaluate(file: Path, settings: EvaluateSettings, device: torch.device, named: set[str]) -> Run:
    trained = load_trained(file, settings.batch_size, settings.trust)
    scores = scores_of(trained, file, device)
    drawn, _ = draw_lengths(trained, settings)
    return Run(
        checkpoint=str(file),
        settings=flat_settings(trained.config, named),
        trained=(trained.settings.data.min_length, trained.settings.data.max_length),
        step=trained.step,
        solved=trained.solved,
        weights=sum(weight.numel() for weight in trained.network.parameters()),
        scores=scores.scores,
        length_curve=length_curve(trained.network, drawn, settings.decode_up_to, scores.best_head, device),
    )


def _tables(groups: Sequence[Group]) -> str:
    """Returns what `comparison.md` says."""
    parts = [as_markdown(*table_of_groups(groups))]
    if any(group.length_curve for group in groups):
        for name, title in LENGTH_TABLES.items():
            parts += [f"{title}:\n", as_markdown(*table_of_lengths(groups, name))]
    return "\n".join(parts)


def _write(groups: Sequence[Group], tables: str, pdf: bool, run_dir: Path) -> None:
    write_json(comparison_json(groups), run_dir / "report.json")
    write_text(tables, run_dir / "comparison.md")
    write_csv(rows_of_groups(groups), run_dir / "comparison.csv")
    write_csv(rows_of_runs(groups), run_dir / "runs.csv")
    trained = _lengths_of_all(groups)
    if any(group.length_curve for group in groups):
        save(draw_comparison(groups, trained), run_dir / "figures" / "comparison", pdf)
    write_comparison_page(groups, trained, run_dir / "report.html")


def _lengths_of_all(groups: Sequence[Group]) -> tuple[int, int] | None:
    """Returns the shortest and the longest length that every run was trained on; None if there is none."""
    each = [run.trained for group in groups for run in group.runs]
    shortest, longest = max(first for first, _ in each), min(last for _, last in each)
    return (shortest, longest) if shortest <= longest else None
