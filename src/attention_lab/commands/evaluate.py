"""What `python evaluate.py` does: score a checkpoint, intervene on its heads, draw it; or compare several."""

import logging
from collections.abc import Sequence
from pathlib import Path

from attention_lab.commands.answer import answer_sources
from attention_lab.commands.checkpoint import (
    PARTS,
    draw_examples,
    map_checkpoint,
    measure,
    replay_of,
    write_checkpoint_page,
)
from attention_lab.commands.compare import compare_checkpoints
from attention_lab.commands.terminal import parts_of_work, quiet_libraries
from attention_lab.errors import SettingError
from attention_lab.evaluation.examples import MappedExample
from attention_lab.evaluation.length_curve import draw_lengths, refuse
from attention_lab.evaluation.records import Report
from attention_lab.plotting.canvas import save
from attention_lab.plotting.curves import draw_length_curve
from attention_lab.plotting.heads import draw_heads
from attention_lab.report.as_json import report_json
from attention_lab.report.replay import Replay, animate
from attention_lab.report.words import terminal_summary
from attention_lab.runs.files import remove_leftovers, write_json
from attention_lab.runs.folder import check_places
from attention_lab.runs.paths import shown
from attention_lab.runs.trained import find_checkpoints, load_trained
from attention_lab.settings.schema import EvaluateSettings
from attention_lab.training.trainer import choose_device
from attention_lab.training.tuning import flush_denormals

_FILES = ("report.json", "report.html", "comparison.md", "comparison.csv", "runs.csv")
"""What it may write into its folder, besides `figures/` and `reports/`."""

log = logging.getLogger(__name__)


def evaluate(settings: EvaluateSettings, run_dir: Path) -> None:
    """Leaves `report.json`, `report.html` and `figures/*.png` in the run directory.

    Raises:
        SettingError: a checkpoint or a length cannot be used.
    """
    quiet_libraries()
    check_places(run_dir, _FILES, ("figures", "reports"))
    remove_leftovers(run_dir)
    flush_denormals()
    device = choose_device(settings.accelerator, "accelerator")
    files = find_checkpoints(settings.checkpoint)
    if settings.source is not None and len(files) > 1:
        raise SettingError("source", settings.source, f"is answered by one checkpoint, and there are {len(files)}")
    if len(files) > 1:
        compare_checkpoints(files, settings, run_dir, device)
        return
    trained = load_trained(files[0], settings.batch_size, settings.trust)
    if settings.source is not None:
        answer_sources(trained, files[0], settings.source, run_dir, device, settings.pdf)
        return
    # Before anything is scored: a mistake should not cost the minutes of that.
    drawn, refused = draw_lengths(trained, settings)
    refuse(refused)
    with parts_of_work(PARTS + 1) as begin:
        report = measure(trained, files[0], drawn, settings, device, begin)
        write_json(report_json(report), run_dir / "report.json")
        begin("figures and page")
        lengths = (trained.settings.data.min_length, trained.settings.data.max_length)
        mapped, replay = map_checkpoint(trained, settings.num_figures, device), replay_of(trained, files[0])
        _draw(report, lengths, mapped, replay, run_dir / "figures", settings.pdf)
        write_checkpoint_page(report, trained, mapped, replay, run_dir / "report.html", device)
    log.info("")
    for line in terminal_summary(report, lengths[1]):
        log.info("%s", line)
    log.info("")
    log.info("Written to %s: report.html (open it in a browser), report.json and figures/.", shown(run_dir))


def _draw(
    report: Report,
    lengths: tuple[int, int],
    mapped: Sequence[MappedExample],
    replay: Replay | None,
    folder: Path,
    pdf: bool,
) -> None:
    """Writes `example_<n>_<attention>_layer_<i>.png`, `heads.png`, `length_curve.png` and `replay.webp`."""
    draw_examples(mapped, "example", folder, pdf)
    if report.heads:
        save(draw_heads(report.heads, report.interventions, report.baselines.chance), folder / "heads", pdf)
    if report.length_curve:
        save(draw_length_curve(report.length_curve, lengths), folder / "length_curve", pdf)
    if replay is not None and report.best_head is not None:
        animate(replay, report.best_head.layer, folder / "replay.webp")
