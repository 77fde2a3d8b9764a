"""One checkpoint: everything that is measured of it, and the page that shows it."""

import platform
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from attention_lab.data.batches import readable_rows
from attention_lab.data.module import SequenceData
from attention_lab.evaluation.ablation import ablate_heads, ablate_together, head_means
from attention_lab.evaluation.attribution import score_attribution
from attention_lab.evaluation.edges import cut_edges
from attention_lab.evaluation.examples import MappedExample, example_rows, map_examples, predict
from attention_lab.evaluation.length_curve import length_curve
from attention_lab.evaluation.mixture import each_task
from attention_lab.evaluation.patching import patched_example
from attention_lab.evaluation.patterns import find_patterns
from attention_lab.evaluation.records import Environment, Interventions, Report
from attention_lab.evaluation.scoring import baselines, scores_of
from attention_lab.plotting.attention_figure import save_maps
from attention_lab.plotting.labels import map_view
from attention_lab.plotting.samples import compare
from attention_lab.report.page import write_page
from attention_lab.report.replay import Replay
from attention_lab.runs.folder import HISTORY
from attention_lab.runs.history import read_history
from attention_lab.runs.trained import Trained
from attention_lab.settings.schema import EvaluateSettings

PARTS = 5
"""Of the work of `measure`."""

_NUM_SAMPLES = 12


def measure(
    trained: Trained,
    file: Path,
    drawn: dict[int, SequenceData],
    settings: EvaluateSettings,
    device: torch.device,
    begin: Callable[[str], None],
) -> Report:
    """Returns everything that is measured of one checkpoint.

    Args:
        trained: what lies in it.
        file: the checkpoint.
        drawn: the sequences of its length curve.
        settings: what to measure.
        device: where to.
        begin: is told which part of the work begins.

    Raises:
        SettingError: the checkpoint cannot be used.
    """
    network, data = trained.network, trained.data
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
    begin("patterns, patching, attribution")
    rows = data.rows("test")
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
        patterns=find_patterns(network, rows, device),
        patching=patched_example(network, trained.task, rows, rows[readable_rows(rows, 1)[0]], device),
        attribution=score_attribution(network, rows, device),
        config=trained.config,
        environment=Environment(platform.python_version(), str(torch.__version__), str(device)),
    )


def map_checkpoint(trained: Trained, count: int, device: torch.device) -> list[MappedExample]:
    """Returns the attention for some readable examples of the test split."""
    rows = trained.data.rows("test")
    return map_examples(trained.network, rows, example_rows(trained.task, rows, count), device, trained.task.symbols)


def draw_examples(mapped: Sequence[MappedExample | None], name: str, folder: Path, pdf: bool) -> None:
    """Writes `<name>_<n>_<attention>_layer_<i>.png` for all attention of some examples, and PDFs if asked for."""
    for number, example in enumerate(mapped):
        if example is None:
            continue
        for attention, layers in example.maps.items():
            for layer, weights in enumerate(layers):
                view = example.view(attention, layer)
                save_maps(view.labels, view.of(weights[0]), folder / f"{name}_{number}_{attention}_layer_{layer}", pdf)


def replay_of(trained: Trained, file: Path) -> Replay | None:
    """Returns how the alignment formed, as far as the run has written it down; None for a lone checkpoint."""
    network, rows = trained.network, trained.data.rows("validation")
    if not network.alignment_layers or file.parent.name != "checkpoints":
        return None
    name = network.alignment_attention
    moments = [each for each in read_history(file.absolute().parents[1] / HISTORY) if each.maps is not None]
    example = rows[readable_rows(rows, 1)[0]]
    view = map_view(name, 0, network.axes[name], example, network.frames, symbols=trained.task.symbols)
    shape = (len(network.alignment_layers), network.alignment_layers[0].num_heads)
    expected = (*shape, len(view.labels.queries), len(view.labels.keys))
    # Another network's history is none of this one's.
    if not moments or any(each.maps is None or each.maps.shape != expected for each in moments):
        return None
    return Replay(example, view.labels, moments, trained.task.symbols)


def write_checkpoint_page(
    report: Report,
    trained: Trained,
    mapped: Sequence[MappedExample],
    replay: Replay | None,
    path: Path,
    device: torch.device,
    plotly_beside: bool = False,
) -> None:
    """Writes the page on one checkpoint; `plotly_beside` leaves Plotly in a file that several pages share."""
    own = trained.settings.data
    samples = compare(*predict(trained.network, trained.data.rows("test"), _NUM_SAMPLES, device), trained.task.symbols)
    lengths = (own.min_length, own.max_length)
    write_page(report, trained.task.name, lengths, mapped, samples, path, replay, plotly_beside)
