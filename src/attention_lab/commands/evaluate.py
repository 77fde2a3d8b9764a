"""What `python evaluate.py` does: score a checkpoint, intervene on its heads, draw it; or compare several."""

import logging
import platform
from pathlib import Path
from typing import Any

import torch

from attention_lab.commands.compare import compare_checkpoints
from attention_lab.commands.terminal import quiet_libraries
from attention_lab.data.batches import spread_rows
from attention_lab.evaluation.ablation import ablate_heads, ablate_together, head_means
from attention_lab.evaluation.checkpoint import Trained, find_checkpoints, load_trained, untrained_network
from attention_lab.evaluation.edges import cut_edges
from attention_lab.evaluation.length_curve import curve_of
from attention_lab.evaluation.mixture import each_task, telling_rows
from attention_lab.evaluation.scoring import TestScores, head_scores, scores_of
from attention_lab.metrics.alignment import Head
from attention_lab.models.inference import evaluation_mode, greedy_decode
from attention_lab.plotting.canvas import save
from attention_lab.plotting.curves import draw_length_curve
from attention_lab.plotting.heads import draw_heads
from attention_lab.plotting.samples import compare
from attention_lab.report.figures import map_examples, save_attention_maps
from attention_lab.report.numbers import figure
from attention_lab.report.page import write_page
from attention_lab.runs.files import write_json
from attention_lab.runs.paths import shown
from attention_lab.settings.schema import EvaluateSettings
from attention_lab.training.trainer import choose_device
from attention_lab.training.tuning import flush_denormals

_NUM_SAMPLES = 12

log = logging.getLogger(__name__)


def evaluate(settings: EvaluateSettings, run_dir: Path) -> None:
    """Leaves `report.json`, `report.html` and `figures/*.png` in the run directory.

    Raises:
        SettingError: a checkpoint or a length cannot be used.
    """
    quiet_libraries()
    flush_denormals()
    device = choose_device(settings.accelerator, "accelerator")
    files = find_checkpoints(settings.checkpoint)
    if len(files) > 1:
        compare_checkpoints(files, settings, run_dir, device)
    else:
        _evaluate_one(files[0], settings, run_dir, device)


def _evaluate_one(file: Path, settings: EvaluateSettings, run_dir: Path, device: torch.device) -> None:
    trained = load_trained(file, settings.batch_size)
    scores = scores_of(trained, file, device)
    report = {
        **scores.figures,
        "checkpoint": str(file),
        "step": trained.step,
        "best_head": scores.best_head and scores.best_head._asdict(),
        "baselines": _baselines(trained, device),
        "length_curve": curve_of(trained, settings, scores.best_head, device),
        **_evidence(trained, scores, device),
        "config": trained.config,
        "environment": {"python": platform.python_version(), "torch": str(torch.__version__), "device": str(device)},
    }
    write_json(report, run_dir / "report.json")
    _draw(settings, trained, report, run_dir, device)
    _say_what_was_found(report, scores)
    log.info("")
    log.info("Written to %s: report.html (open it in a browser), report.json and figures/.", shown(run_dir))


def _baselines(trained: Trained, device: torch.device) -> dict[str, Any]:
    """Returns how well the best head aligned before training, and one that looks everywhere alike."""
    before = untrained_network(trained.settings)
    best = head_scores(before, trained.data.loader("validation"), device).best(
        before.alignment_attention, before.frames
    )
    if best is None:
        return {"untrained": None, "chance": None}
    scores = head_scores(before, trained.data.loader("test"), device)
    return {"untrained": {**best._asdict(), **scores.own(best)}, "chance": scores.of(best)["chance"]}


def _evidence(trained: Trained, scores: TestScores, device: torch.device) -> dict[str, Any]:
    """Returns `heads`, `interventions` and `tasks`: which heads carry what."""
    network, data = trained.network, trained.data
    validation, test = list(data.loader("validation")), list(data.loader("test"))
    means = head_means(network, validation, device)
    cuts = cut_edges(network, scores.validated, test, device, trained.settings.seed)
    return {
        "heads": ablate_heads(network, scores.heads, means, test, device),
        "interventions": {**cuts, "together": ablate_together(network, scores.validated, test, device)},
        "tasks": each_task(network, trained.task, validation, test, means, device),
    }


def _draw(
    settings: EvaluateSettings, trained: Trained, report: dict[str, Any], run_dir: Path, device: torch.device
) -> None:
    rows, data, figures = trained.data.rows("test"), trained.settings.data, run_dir / "figures"
    lengths = (data.min_length, data.max_length)
    shown_rows = telling_rows(trained.task, rows, settings.num_figures)
    mapped = map_examples(trained.network, rows, shown_rows, device)
    save_attention_maps(mapped, figures, settings.pdf)
    cuts = report["interventions"]
    if report["heads"]:
        evidence = draw_heads(report["heads"], cuts["together"], cuts, report["baselines"]["chance"])
        save(evidence, figures / "heads", settings.pdf)
    if report["length_curve"]:
        save(draw_length_curve(report["length_curve"], lengths), figures / "length_curve", settings.pdf)
    examples = rows.__getitems__(spread_rows(rows, _NUM_SAMPLES))
    with evaluation_mode(trained.network):
        said = greedy_decode(trained.network, examples.source.to(device), examples.labels.size(1))
    samples = compare(examples, said.cpu())
    write_page(report, trained.task.name, lengths, mapped, samples, run_dir / "report.html")


def _say_what_was_found(report: dict[str, Any], scores: TestScores) -> None:
    log.info("%s, step %d, on the test split:", report["checkpoint"], report["step"])
    for name, value in scores.figures.items():
        log.info("  %-26s %s", name, figure(value))
    if scores.best_head is not None:
        _say_what_heads_do(report, scores.best_head)
    if report["tasks"]:
        log.info("")
        log.info("  task           exact match, decoded   hit rate   mass     best aligned head")
    for task in report["tasks"]:
        figures = (figure(task[name]) for name in ("decoded_exact_match", "alignment_hit_rate", "alignment_mass"))
        best = "–" if task["best_head"] is None else Head(**task["best_head"])
        log.info("  %-12s   %20s   %8s   %6s   %s", task["task"], *figures, best)
    if report["length_curve"]:
        log.info("")
        log.info("  length   exact match, decoded   token accuracy   mass on gold")
    for record in report["length_curve"]:
        figures = (figure(record[name]) for name in ("decoded_exact_match", "token_accuracy", "alignment_mass"))
        log.info("  %6d   %20s   %14s   %12s", record["length"], *figures)


def _say_what_heads_do(report: dict[str, Any], best: Head) -> None:
    baselines, cuts = report["baselines"], report["interventions"]
    log.info("  best head on validation    %s", best)
    log.info(
        "  before training            hit rate %.4f, mass %.4f (chance %.4f)",
        *(baselines["untrained"][name] for name in ("hit_rate", "mass")),
        baselines["chance"],
    )
    log.info("")
    count = len(cuts["cut"])
    kind = "aligned head" if cuts["aligned"] else "head (none is aligned)"
    who = f"the {kind} loses" if count == 1 else f"the {count} {kind.replace('head', 'heads')} lose"
    log.info("Exact match when %s ...", who)
    for name, what in (("heads", "everything"), ("gold_edges", "their gold edges"), ("random_edges", "random edges")):
        log.info("  %-26s %.4f", what, cuts[f"without_{name}"]["exact_match"])
