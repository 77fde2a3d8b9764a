"""What `python evaluate.py` does: score a checkpoint, intervene on its heads, draw it, write it all down."""

import logging
import platform
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from attention_lab.commands.terminal import quiet_libraries, shown
from attention_lab.configuration.settings import EvaluateSettings
from attention_lab.data.batches import spread_rows
from attention_lab.evaluation.ablation import ablate_heads, cut_aligned_heads
from attention_lab.evaluation.checkpoint import Trained, load_trained
from attention_lab.evaluation.figures import map_examples, save_attention_maps
from attention_lab.evaluation.length_curve import default_lengths, length_curve
from attention_lab.evaluation.page import write_page
from attention_lab.evaluation.report import write_json
from attention_lab.evaluation.scoring import TestScores, test_scores
from attention_lab.models.decoding import greedy_decode
from attention_lab.models.inference import evaluation_mode
from attention_lab.plotting.curves import draw_length_curve
from attention_lab.plotting.samples import compare
from attention_lab.training.trainer import choose_device

_NUM_SAMPLES = 12

log = logging.getLogger(__name__)


def evaluate(settings: EvaluateSettings, run_dir: Path) -> None:
    """Leaves `report.json`, `report.html` and `figures/*.png` in the run directory.

    Raises:
        SettingError: the checkpoint or a length cannot be used.
    """
    quiet_libraries()
    device = choose_device(settings.accelerator, "accelerator")
    trained = load_trained(Path(settings.checkpoint), settings.batch_size)
    scores = test_scores(trained.network, trained.data, device)
    curve = _length_curve(settings, trained, scores, device)
    batches = list(trained.data.loader("test"))
    cuts = cut_aligned_heads(trained.network, scores.heads, batches, device, trained.settings.seed)
    report = {
        **scores.figures,
        "checkpoint": settings.checkpoint,
        "step": trained.step,
        "best_head": scores.best_head._asdict(),
        "length_curve": curve,
        "heads": ablate_heads(trained.network, scores.heads, batches, device),
        "interventions": cuts,
        "config": trained.config,
        "environment": {"python": platform.python_version(), "torch": str(torch.__version__), "device": str(device)},
    }
    write_json(report, run_dir / "report.json")
    _draw(settings, trained, report, run_dir, device)
    log.info("%s, step %d, on the test split:", settings.checkpoint, trained.step)
    _say_what_was_found(scores, curve, cuts)
    log.info("")
    log.info("Written to %s: report.html (open it in a browser), report.json and figures/.", shown(run_dir))


def _draw(
    settings: EvaluateSettings, trained: Trained, report: dict[str, Any], run_dir: Path, device: torch.device
) -> None:
    rows, data = trained.data.rows("test"), trained.settings.data
    lengths = (data.min_length, data.max_length)
    mapped = map_examples(trained.network, rows, settings.num_figures, device)
    save_attention_maps(mapped, run_dir / "figures")
    if report["length_curve"]:
        draw_length_curve(report["length_curve"], lengths).savefig(run_dir / "figures" / "length_curve.png")
    examples = rows.__getitems__(spread_rows(rows, _NUM_SAMPLES))
    with evaluation_mode(trained.network):
        said = greedy_decode(trained.network, examples.source.to(device), examples.labels.size(1))
    write_page(report, lengths, mapped, compare(examples, said.cpu()), run_dir / "report.html")


def _length_curve(
    settings: EvaluateSettings, trained: Trained, scores: TestScores, device: torch.device
) -> list[dict[str, Any]]:
    data = replace(trained.settings.data, test_size=settings.num_per_length, batch_size=trained.data.batch_size)
    lengths = settings.lengths
    if lengths is None:
        lengths = default_lengths(trained.task, data, trained.network.max_length)
    seed = trained.settings.seed
    return length_curve(trained.network, trained.task, data, lengths, scores.best_head, seed, device)


def _say_what_was_found(scores: TestScores, curve: list[dict[str, Any]], cuts: dict[str, Any]) -> None:
    for name, value in scores.figures.items():
        log.info("  %-26s %.4f", name, value)
    log.info("  best head on validation    %s", scores.best_head)
    log.info("")
    log.info("Exact match when the %d aligned heads lose ...", len(cuts["aligned"]))
    for name, what in (("heads", "everything"), ("gold_edges", "their gold edges"), ("random_edges", "random edges")):
        log.info("  %-26s %.4f", what, cuts[f"without_{name}"]["exact_match"])
    if curve:
        log.info("")
        log.info("  length   exact match, decoded   token accuracy   mass on gold")
    for record in curve:
        figures = (record[name] for name in ("length", "decoded_exact_match", "token_accuracy", "alignment_mass"))
        log.info("  %6d   %20.4f   %14.4f   %12.4f", *figures)
