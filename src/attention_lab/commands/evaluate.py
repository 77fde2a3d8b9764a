"""What `python evaluate.py` does: score a checkpoint, intervene on its heads, draw it; or compare several."""

import logging
import platform
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from attention_lab.commands.compare import compare_checkpoints
from attention_lab.commands.terminal import parts_of_work, quiet_libraries
from attention_lab.evaluation.ablation import ablate_heads, ablate_together, head_means
from attention_lab.evaluation.edges import cut_edges
from attention_lab.evaluation.examples import MappedExample, example_rows, map_examples, predict
from attention_lab.evaluation.length_curve import draw_lengths, length_curve, refuse
from attention_lab.evaluation.mixture import each_task
from attention_lab.evaluation.records import Environment, Interventions, Report
from attention_lab.evaluation.scoring import baselines, scores_of
from attention_lab.plotting.attention_figure import draw_attention
from attention_lab.plotting.canvas import save
from attention_lab.plotting.curves import draw_length_curve
from attention_lab.plotting.heads import draw_heads
from attention_lab.plotting.labels import map_view
from attention_lab.plotting.samples import compare
from attention_lab.report.as_json import report_json
from attention_lab.report.page import write_page
from attention_lab.report.words import terminal_summary
from attention_lab.runs.files import remove_leftovers, write_json
from attention_lab.runs.folder import check_places
from attention_lab.runs.paths import shown
from attention_lab.runs.trained import Trained, find_checkpoints, load_trained
from attention_lab.settings.schema import EvaluateSettings
from attention_lab.training.trainer import choose_device
from attention_lab.training.tuning import flush_denormals

_FILES = ("report.json", "report.html", "comparison.md", "comparison.csv", "runs.csv")
"""What it may write into its folder, besides `figures/`."""

_NUM_SAMPLES = 12

log = logging.getLogger(__name__)


def evaluate(settings: EvaluateSettings, run_dir: Path) -> None:
    """Leaves `report.json`, `report.html` and `figures/*.png` in the run directory.

    Raises:
        SettingError: a checkpoint or a length cannot be used.
    """
    quiet_libraries()
    check_places(run_dir, _FILES, ("figures",))
    remove_leftovers(run_dir)
    flush_denormals()
    device = choose_device(settings.accelerator, "accelerator")
    files = find_checkpoints(settings.checkpoint)
    if len(files) > 1:
        compare_checkpoints(files, settings, run_dir, device)
        return
    trained = load_trained(files[0], settings.batch_size, settings.trust)
    with parts_of_work(5) as begin:
        report = measure(trained, files[0], settings, device, begin)
        write_json(report_json(report), run_dir / "report.json")
        begin("figures and page")
        rows, lengths = trained.data.rows("test"), (trained.settings.data.min_length, trained.settings.data.max_length)
        mapped = map_examples(trained.network, rows, example_rows(trained.task, rows, settings.num_figures), device)
        _draw(report, lengths, mapped, run_dir / "figures", settings.pdf)
        samples = compare(*predict(trained.network, rows, _NUM_SAMPLES, device))
        write_page(report, trained.task.name, lengths, mapped, samples, run_dir / "report.html")
    log.info("")
    for line in terminal_summary(report, lengths[1]):
        log.info("%s", line)
    log.info("")
    log.info("Written to %s: report.html (open it in a browser), report.json and figures/.", shown(run_dir))


def measure(
    trained: Trained, file: Path, settings: EvaluateSettings, device: torch.device, begin: Callable[[str], None]
) -> Report:
    """Returns everything that is measured of one checkpoint.

    Args:
        trained: what lies in it.
        file: the checkpoint.
        settings: what to measure.
        device: where to.
        begin: is told which part of the work begins.

    Raises:
        SettingError: the checkpoint or a length cannot be used.
    """
    network, data = trained.network, trained.data
    # Before anything is scored: a mistake should not cost the minutes of that.
    drawn, refused = draw_lengths(trained, settings)
    refuse(refused)
    begin("validation and test split")
    scores = scores_of(trained, file, device)
    validation, test = list(data.loader("validation")), list(data.loader("test"))
    untrained = baselines(trained, device, settings.trust)
    begin("length curve")
    curve = length_curve(network, drawn, settings.decode_up_to, scores.best_head, device)
    begin("heads silenced one by one")
    means = head_means(network, validation, device)
    heads = ablate_heads(network, scores.heads, means, test, device)
    begin("heads silenced together, and their edges cut")
    cuts = cut_edges(network, scores.validated, test, device, trained.settings.seed)
    together = ablate_together(network, scores.validated, test, device)
    return Report(
        scores=scores.scores,
        checkpoint=str(file),
        step=trained.step,
        best_head=scores.best_head,
        baselines=untrained,
        length_curve=curve,
        heads=heads,
        interventions=Interventions(**vars(cuts), together=together),
        tasks=each_task(network, trained.task, validation, test, means, device),
        config=trained.config,
        environment=Environment(platform.python_version(), str(torch.__version__), str(device)),
    )


def _draw(report: Report, lengths: tuple[int, int], mapped: Sequence[MappedExample], folder: Path, pdf: bool) -> None:
    """Writes attention maps as `example_<n>_<attention>_layer_<i>.png`, `heads.png` and `length_curve.png`."""
    for number, (example, maps, axes, frames) in enumerate(mapped):
        for attention, layers in maps.items():
            for layer, weights in enumerate(layers):
                view = map_view(attention, layer, axes[attention], example, frames.get(attention, ()))
                figure = draw_attention(view.labels, view.of(weights[0]))
                save(figure, folder / f"example_{number}_{attention}_layer_{layer}", pdf)
    if report.heads:
        save(draw_heads(report.heads, report.interventions, report.baselines.chance), folder / "heads", pdf)
    if report.length_curve:
        save(draw_length_curve(report.length_curve, lengths), folder / "length_curve", pdf)
