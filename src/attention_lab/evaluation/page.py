"""The report as one HTML file that opens from disk: no network, no notebook."""

import html
import json
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

import yaml
from plotly.offline import get_plotlyjs

from attention_lab.evaluation.figures import MappedExample
from attention_lab.plotting.labels import map_labels
from attention_lab.plotting.samples import Sample

_CUTS = {
    "intact": "intact",
    "without_heads": "without the aligned heads",
    "without_gold_edges": "without their gold edges",
    "without_random_edges": "without as many random edges",
}


def write_page(
    report: dict[str, Any],
    trained: tuple[int, int],
    mapped: Sequence[MappedExample],
    samples: Sequence[Sample],
    path: Path,
) -> None:
    """Writes `report.html`.

    Args:
        report: what `report.json` holds.
        trained: shortest and longest source length of training, in symbols.
        mapped: examples for the attention viewer.
        samples: predictions to show.
        path: where to write.
    """
    data = {
        "cuts": [{"name": name, **report["interventions"][key]} for key, name in _CUTS.items()],
        "curve": report["length_curve"],
        "trained": trained,
        "best": report["best_head"],
        "examples": [_viewed(number, *example) for number, example in enumerate(mapped)],
    }
    task = report["config"]["task"]["_target_"].rpartition(".")[2].lower()
    page = Template(files("attention_lab.evaluation").joinpath("page.html").read_text(encoding="utf-8")).substitute(
        title=html.escape(f"{task}, step {report['step']}"),
        checkpoint=html.escape(report["checkpoint"]),
        plotly=get_plotlyjs(),
        summary=_table(["", "test"], [[name, f"{report[name]:.4f}"] for name in report if name.startswith("test/")]),
        evidence=html.escape(_evidence(report)),
        heads=_heads(report["heads"]),
        samples=_samples(samples),
        config=html.escape(yaml.safe_dump({"config": report["config"], "environment": report["environment"]})),
        # A closing tag in the data would end the script that holds it.
        data=json.dumps(data).replace("</", "<\\/"),
    )
    path.write_text(page, encoding="utf-8")


def _evidence(report: dict[str, Any]) -> str:
    cuts, count = report["interventions"], len(report["interventions"]["aligned"])
    if not count:
        return "No head hits nine gold tokens in ten, so there is nothing to cut: intact and cut are the same."
    left = {name: f"{cuts[name]['exact_match']:.3f}" for name in _CUTS}
    return (
        f"{count} of {len(report['heads'])} heads put their largest weight on the gold token for at least nine target "
        f"tokens in ten. Exact match is {left['intact']} with all edges in place, {left['without_heads']} when these "
        f"heads are silenced together, {left['without_gold_edges']} when they lose only the edges to the gold tokens, "
        f"and {left['without_random_edges']} when they lose as many edges to other tokens. The table takes one head "
        "away at a time; heads that share the work can be missed one by one."
    )


def _heads(heads: Sequence[dict[str, Any]]) -> str:
    rows = [
        [f"{head['attention']}, layer {head['layer']}, head {head['head']}"]
        + [f"{head[name]:.4f}" for name in ("hit_rate", "mass", "exact_match_without", "token_accuracy_without")]
        for head in heads
    ]
    return _table(["", "hit rate", "mass", "exact match without it", "token accuracy without it"], rows)


def _samples(samples: Sequence[Sample]) -> str:
    rows = [
        f"<tr><td>{'✓' if sample.right else '✗'}</td><td>{_escaped(sample.source)}</td>"
        f"<td>{_escaped(sample.expected)}</td><td>{_said(sample)}</td></tr>"
        for sample in samples
    ]
    head = "<tr><th></th><th>source</th><th>expected</th><th>predicted</th></tr>"
    return f'<table class="tokens">{head}{"".join(rows)}</table>'


def _said(sample: Sample) -> str:
    return " ".join(
        html.escape(label) if right else f'<span class="wrong">{html.escape(label)}</span>'
        for label, right in sample.said
    )


def _escaped(labels: Sequence[str]) -> str:
    return html.escape(" ".join(labels))


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    cells = "".join(f"<th>{html.escape(name)}</th>" for name in head)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><tr>{cells}</tr>{body}</table>"


def _viewed(number: int, example: Any, maps: Any) -> dict[str, Any]:
    """Returns an example's maps as the viewer wants them."""
    attentions: list[dict[str, Any]] = []
    for name, layers in maps.items():
        labels = map_labels(name, 0, example)
        # Three digits are what a reader can tell apart.
        weights = [[[[round(w, 3) for w in row] for row in head] for head in layer[0].tolist()] for layer in layers]
        attentions.append(
            {
                "name": name,
                "queries": list(labels.queries),
                "keys": list(labels.keys),
                "gold": labels.gold,
                "query_name": labels.query_name,
                "key_name": labels.key_name,
                "layers": weights,
            }
        )
    source = map_labels("encoder_self", 0, example).queries
    return {"name": f"{number}: {' '.join(source)}", "attentions": attentions}
