"""What `python evaluate.py` does with several checkpoints: score each, group them, compare the groups."""

import logging
from collections.abc import Sequence
from pathlib import Path
from textwrap import wrap

import torch

from attention_lab.callbacks.progress import bar
from attention_lab.commands.checkpoint import map_checkpoint, measure, replay_of, write_checkpoint_page
from attention_lab.evaluation.comparison import Group, Run, best_first, group_runs
from attention_lab.evaluation.length_curve import draw_lengths, refuse
from attention_lab.plotting.canvas import save
from attention_lab.plotting.curves import draw_comparison
from attention_lab.report.as_json import comparison_json
from attention_lab.report.page import write_comparison_page, write_plotly
from attention_lab.report.tables import (
    LENGTH_TABLES,
    as_markdown,
    rows_of_groups,
    rows_of_runs,
    short_table,
    table_of_groups,
    table_of_lengths,
)
from attention_lab.report.words import comparison_verdict
from attention_lab.runs.files import write_csv, write_json, write_text
from attention_lab.runs.naming import LONGEST, plain_name
from attention_lab.runs.paths import shown
from attention_lab.runs.trained import load_trained
from attention_lab.settings.flat import flat_settings
from attention_lab.settings.schema import EvaluateSettings

_PAGES = "reports"
"""The folder of the checkpoints' own pages."""

log = logging.getLogger(__name__)


def compare_checkpoints(files: Sequence[Path], settings: EvaluateSettings, run_dir: Path, device: torch.device) -> None:
    """Leaves `report.json`, `report.html`, `comparison.md`, `comparison.csv`, `runs.csv`, a figure and `reports/`.

    Raises:
        SettingError: a checkpoint cannot be used, or a length by none of them.
    """
    # Before any is scored: the last one's mistake should not cost the minutes of the others.
    named = _check(files, settings)
    (run_dir / _PAGES).mkdir(parents=True, exist_ok=True)
    write_plotly(run_dir / _PAGES)
    names = unique_names(files)
    runs: list[Run] = []
    with bar(len(files), "checkpoint") as drawn:
        for number, (file, name) in enumerate(zip(files, names, strict=True), 1):
            runs.append(_evaluate(file, settings, device, named, run_dir / _PAGES / f"{name}.html"))
            drawn.clear()
            log.info("%d of %d: %s, exact match %.4f", number, len(files), file, runs[-1].scores.exact_match)
            drawn.update()
    groups, copies = group_runs(runs)
    for copy in copies:
        log.warning("%s is left out: a later one has its config and its seed.", copy.checkpoint)
    _write(groups, settings.pdf, run_dir)
    ranked = best_first(groups)
    for line in ("", *wrap(comparison_verdict(ranked), 100), "", *as_markdown(*short_table(ranked)).splitlines(), ""):
        log.info("%s", line)
    log.info(
        "Written to %s: report.html (open it in a browser), with a page for each checkpoint in %s/; report.json, "
        "comparison.md, comparison.csv (a row a group), runs.csv (a row a checkpoint) and figures/.",
        shown(run_dir),
        _PAGES,
    )


def unique_names(files: Sequence[Path]) -> list[str]:
    """Returns what each checkpoint's page is called: by its run, and by its file where one run has left several."""
    runs = [file.absolute().parents[1].name if file.parent.name == "checkpoints" else file.stem for file in files]
    several = len(set(runs)) < len(runs)
    names = [f"{run}_{file.stem}" if several else run for run, file in zip(runs, files, strict=True)]
    names = [plain_name(name)[:LONGEST] or "checkpoint" for name in names]
    # In upper and lower case alike, which some systems do not tell apart.
    again = len({name.lower() for name in names}) < len(names)
    return [f"{number}_{name}" if again else name for number, name in enumerate(names)]


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


def _evaluate(file: Path, settings: EvaluateSettings, device: torch.device, named: set[str], page: Path) -> Run:
    trained = load_trained(file, settings.batch_size, settings.trust)
    drawn, _ = draw_lengths(trained, settings)
    report = measure(trained, file, drawn, settings, device, lambda _: None)
    mapped = map_checkpoint(trained, max(1, settings.num_figures), device)
    write_checkpoint_page(report, trained, mapped, replay_of(trained, file), page, device, plotly_beside=True)
    return Run(
        checkpoint=str(file),
        settings=flat_settings(trained.config, named),
        trained=(trained.settings.data.min_length, trained.settings.data.max_length),
        step=trained.step,
        solved=trained.solved,
        weights=sum(weight.numel() for weight in trained.network.parameters()),
        scores=report.scores,
        length_curve=report.length_curve,
        best_head=report.best_head,
        mapped=mapped[0] if mapped else None,
        page=f"{page.parent.name}/{page.name}",
    )


def _tables(groups: Sequence[Group]) -> str:
    """Returns what `comparison.md` says."""
    parts = [as_markdown(*table_of_groups(groups))]
    if any(group.length_curve for group in groups):
        for name, title in LENGTH_TABLES.items():
            parts += [f"{title}:\n", as_markdown(*table_of_lengths(groups, name))]
    return "\n".join(parts)


def _write(groups: Sequence[Group], pdf: bool, run_dir: Path) -> None:
    write_json(comparison_json(groups), run_dir / "report.json")
    write_text(_tables(groups), run_dir / "comparison.md")
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
