"""What `python evaluate.py` does: score a checkpoint, draw its attention, write it all down."""

import logging
import platform
from pathlib import Path

import torch

from attention_lab.commands.quiet import quiet_libraries
from attention_lab.configuration.settings import EvaluateSettings
from attention_lab.evaluation.checkpoint import load_trained
from attention_lab.evaluation.figures import save_attention_maps
from attention_lab.evaluation.report import write_json
from attention_lab.evaluation.scoring import test_scores
from attention_lab.training.trainer import choose_device

log = logging.getLogger(__name__)


def evaluate(settings: EvaluateSettings, run_dir: Path) -> None:
    """Leaves `report.json` and `figures/*.png` in the run directory.

    Raises:
        SettingError: the checkpoint cannot be used.
    """
    quiet_libraries()
    device = choose_device(settings.accelerator)
    trained = load_trained(Path(settings.checkpoint), settings.batch_size)
    scores = test_scores(trained.network, trained.data, device)
    rows = trained.data.rows("test")
    figures = save_attention_maps(trained.network, rows, settings.num_figures, run_dir / "figures", device)
    report = {
        **scores.figures,
        "checkpoint": settings.checkpoint,
        "step": trained.step,
        "best_head": scores.best_head._asdict(),
        "heads": scores.records(),
        "config": trained.config,
        "environment": {"python": platform.python_version(), "torch": torch.__version__, "device": str(device)},
    }
    write_json(report, run_dir / "report.json")
    log.info("%s, step %d, on %d test sequences:", settings.checkpoint, trained.step, len(rows))
    for name, value in scores.figures.items():
        log.info("  %-26s %.4f", name, value)
    log.info("  best head: %s", scores.best_head)
    log.info("\nWritten to %s: report.json and %d attention maps in figures/.", run_dir, len(figures))
