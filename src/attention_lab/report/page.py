"""The report on one checkpoint as an HTML file that opens from disk: no network, no notebook."""

import html
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from attention_lab.metrics.alignment import Head
from attention_lab.plotting.curves import LINES
from attention_lab.plotting.heads import CUTS
from attention_lab.plotting.labels import map_view
from attention_lab.plotting.samples import Sample
from attention_lab.report.figures import MappedExample
from attention_lab.report.markup import fill, table
from attention_lab.report.numbers import figure
from attention_lab.runs.files import write_text
from attention_lab.tasks.vocabulary import token_labels

_NEEDED = 0.05
"""Without a needed head more than this share of sequences is lost."""
_ALIGNMENT = {
    "hit_rate": "hit rate",
    "mass": "mass",
    "mass_p5": "mass, 5th percentile",
    "mass_min": "mass, minimum",
    "alignment_error_rate": "alignment error rate",
    "entropy": "entropy",
    "confidence": "confidence",
}


def write_page(
    report: dict[str, Any],
    task: str,
    trained: tuple[int, int],
    mapped: Sequence[MappedExample],
    samples: Sequence[Sample],
    path: Path,
) -> None:
    """Writes `report.html`.

    Args:
        report: what `report.json` holds.
        task: what the task is called.
        trained: shortest and longest source length of training, in symbols.
        mapped: examples for the attention viewer.
        samples: predictions to show.
        path: where to write.
    """
    data = {
        "cuts": [{"name": name.replace("\n", "<br>"), **report["interventions"][key]} for key, name in CUTS.items()],
        "together": report["interventions"]["together"],
        "curve": report["length_curve"],
        "lines": {name: line.label for name, line in LINES.items()},
        "trained": trained,
        "best": report["best_head"],
        "examples": [_viewed(number, example) for number, example in enumerate(mapped)],
    }
    page = fill(
        "page.html",
        data,
        title=html.escape(f"{task}, step {report['step']}"),
        checkpoint=html.escape(report["checkpoint"]),
        summary=table(["", "test"], [[name, figure(report[name])] for name in report if name.startswith("test/")]),
        baselines=_baselines(report),
        evidence=html.escape(_evidence(report)),
        heads=_heads(report),
        tasks=_tasks(report["tasks"]),
        samples=_samples(samples),
        config=html.escape(yaml.safe_dump({"config": report["config"], "environment": report["environment"]})),
    )
    write_text(page, path)


def _baselines(report: dict[str, Any]) -> str:
    if report["best_head"] is None:
        return "<p class='note'>This network has no attention from target to source.</p>"
    untrained, chance = report["baselines"]["untrained"], report["baselines"]["chance"]
    lines = {
        f"best head of this network ({_address(report['best_head'])})": [
            report[f"test/alignment_{name}"] for name in ("hit_rate", "mass")
        ],
        f"best head before training ({_address(untrained)})": [untrained[name] for name in ("hit_rate", "mass")],
        "chance: looking everywhere alike": [chance, chance],
    }
    rows = [[name, *(f"{figure:.4f}" for figure in figures)] for name, figures in lines.items()]
    return table(["", "hit rate", "mass"], rows)


def _evidence(report: dict[str, Any]) -> str:
    if not report["heads"]:
        return "There is no attention from target to source to intervene on."
    cuts = report["interventions"]
    aligned, count = len(cuts["aligned"]), len(cuts["cut"])
    left = {name: f"{cuts[name]['exact_match']:.3f}" for name in CUTS}
    who = (
        f"{aligned} of {len(report['heads'])} heads put their largest weight on the gold token for at least nine "
        "target tokens in ten (on the validation split); they are taken together."
        if aligned
        else "No head hits nine gold tokens in ten by itself, so all heads are taken together."
    )
    return (
        f"{who} Exact match is {left['intact']} with all edges in place, {left['without_heads']} when "
        f"{'these heads are' if count > 1 else 'this head is'} silenced, {left['without_gold_edges']} when only the "
        f"edges to the gold tokens are cut, and {left['without_random_edges']} when as many edges to other tokens are. "
        f"{_who_is_needed(report)}"
    )


def _who_is_needed(report: dict[str, Any]) -> str:
    heads, intact = report["heads"], report["interventions"]["intact"]["exact_match"]
    if intact < _NEEDED:
        return "Next to nothing is answered right, so no head can be missed."
    lost = {_address(head): intact - head["exact_match_with_mean"] for head in heads}
    needed = [f"{name} (by {loss:.3f})" for name, loss in lost.items() if loss > _NEEDED]
    if needed:
        return f"Exact match falls when a single head always says its mean: {'; '.join(needed)}."
    if len(heads) == 1:
        return "There is but one head, and it is not needed."
    return (
        f"No single head is needed: with any one of them at its mean exact match falls by {max(lost.values()):.3f} at "
        "most, since the others stand in for it."
    )


def _heads(report: dict[str, Any]) -> str:
    intact = report["interventions"]["intact"]
    falls = {
        f"{figure}_{how}": f"{figure.replace('_', ' ')} lost, {said}"
        for how, said in (("without", "zero"), ("with_mean", "mean"))
        for figure in ("exact_match", "token_accuracy")
    }
    rows = [
        [_address(head)]
        + [f"{head[name]:.4f}" for name in _ALIGNMENT]
        + [f"{intact[name.removesuffix('_without').removesuffix('_with_mean')] - head[name]:.4f}" for name in falls]
        for head in report["heads"]
    ]
    return table(["", *_ALIGNMENT.values(), *falls.values()], rows)


def _tasks(tasks: Sequence[dict[str, Any]]) -> str:
    """Returns which head serves which task, for a mixture; nothing for a single task."""
    if not tasks:
        return ""
    said = [
        f"{task['task']}: exact match {task['decoded_exact_match']:.4f} decoded on {task['sequences']} sequences"
        if task["best_head"] is None
        else f"{task['task']}: exact match {task['decoded_exact_match']:.4f} decoded on {task['sequences']} sequences; "
        f"best aligned is {_address(task['best_head'])}, hit rate {task['alignment_hit_rate']:.4f}, "
        f"mass {task['alignment_mass']:.4f}."
        for task in tasks
    ]
    columns = [f"{task['task']}: {what}" for task in tasks for what in ("hit rate", "mass", "exact match lost, mean")]
    rows = [
        [_address(tasks[0]["heads"][number])]
        + [figure for task in tasks for figure in _served(task, task["heads"][number])]
        for number in range(len(tasks[0]["heads"]))
    ]
    notes = "".join(f"<li>{html.escape(line)}</li>" for line in said)
    return (
        f"<h2>Which head serves which task</h2><ul class='note'>{notes}</ul>"
        f"<div class='scroll'>{table(['', *columns], rows)}</div>"
    )


def _served(task: dict[str, Any], head: dict[str, Any]) -> list[str]:
    lost = task["exact_match"] - head["exact_match_with_mean"]
    return [f"{head['hit_rate']:.4f}", f"{head['mass']:.4f}", f"{lost:.4f}"]


def _address(head: dict[str, Any]) -> str:
    return str(Head(head["attention"], head["layer"], head["head"], head.get("frame", "")))


def _samples(samples: Sequence[Sample]) -> str:
    rows = [
        f"<tr><td>{'✓' if sample.right else '✗'}</td><td>{_capped([html.escape(label) for label in sample.source])}"
        f"</td><td>{_capped([html.escape(label) for label in sample.expected])}</td><td>{_said(sample)}</td></tr>"
        for sample in samples
    ]
    head = "<tr><th></th><th>source</th><th>expected</th><th>predicted</th></tr>"
    return f'<table class="tokens">{head}{"".join(rows)}</table>'


def _said(sample: Sample) -> str:
    return _capped(
        [
            html.escape(label) if right else f'<span class="wrong">{html.escape(label)}</span>'
            for label, right in sample.said
        ]
    )


def _capped(tokens: Sequence[str], most: int = 64) -> str:
    rest = len(tokens) - most
    return " ".join(tokens[:most]) + (f" … and {rest} more" if rest > 0 else "")


def _viewed(number: int, mapped: MappedExample) -> dict[str, Any]:
    """Returns an example's maps as the viewer wants them."""
    attentions: list[dict[str, Any]] = []
    for name, layers in mapped.maps.items():
        view = map_view(name, 0, mapped.axes[name], mapped.example, mapped.frames.get(name, ()))
        attentions.append(
            {
                "name": name,
                "queries": list(view.labels.queries),
                "keys": list(view.labels.keys),
                "gold": view.labels.gold,
                "query_name": view.labels.query_name,
                "key_name": view.labels.key_name,
                "cut": view.cut,
                "heads": list(view.labels.heads),
                # Three digits are what a reader can tell apart.
                "layers": [
                    [[[round(w, 3) for w in row] for row in head] for head in view.of(layer[0]).tolist()]
                    for layer in layers
                ],
            }
        )
    source = _capped(token_labels(mapped.example.source[0].tolist()), most=24)
    return {"name": f"{number}: {source}", "attentions": attentions}
