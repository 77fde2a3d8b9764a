"""Reports as HTML files that open from disk: no network, no notebook.

Pages are Jinja2 templates that escape whatever is put into them, so that nothing in a config, a path or a token becomes
markup; what scripts read is JSON without a sign that could end the script (Jinja2's `tojson`).
"""

from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path

import yaml
from jaxtyping import Float
from jinja2 import Environment, PackageLoader, StrictUndefined
from plotly.offline import get_plotlyjs
from torch import Tensor

from attention_lab.evaluation.answering import Answer
from attention_lab.evaluation.comparison import Group, best_first
from attention_lab.evaluation.examples import MappedExample
from attention_lab.evaluation.records import Report
from attention_lab.metrics.alignment import Head
from attention_lab.plotting.canvas import SERIES
from attention_lab.plotting.curves import LINES, PANELS
from attention_lab.plotting.heads import cuts_of
from attention_lab.plotting.samples import Sample
from attention_lab.report.as_json import curve_json, plain
from attention_lab.report.replay import Replay, replay_json
from attention_lab.report.tables import (
    LENGTH_TABLES,
    Table,
    figure,
    short_table,
    table_of_baselines,
    table_of_groups,
    table_of_heads,
    table_of_lengths,
    table_of_patching,
    table_of_patterns,
    table_of_runs,
    table_of_tasks,
)
from attention_lab.report.words import comparison_verdict, evidence, task_in_words, verdict
from attention_lab.runs.files import write_text
from attention_lab.tasks.vocabulary import token_labels

_SCRIPTS = {
    "report.html": ("glance.js", "report.js"),
    "comparison.html": ("comparison.js",),
    "answers.html": ("glance.js",),
}
"""What a page runs, after `page.js`."""

_MOST_TOKENS = 64
"""Of a longer sequence, so many tokens are shown."""


def write_page(
    report: Report,
    task: str,
    trained: tuple[int, int],
    mapped: Sequence[MappedExample],
    samples: Sequence[Sample],
    path: Path,
    replay: Replay | None = None,
    plotly_beside: bool = False,
) -> None:
    """Writes `report.html` on one checkpoint.

    Args:
        report: what was found.
        task: what the task is called.
        trained: shortest and longest source length of training, in symbols.
        mapped: examples for the attention viewer.
        samples: predictions to show.
        path: where to write.
        replay: how the alignment formed, if that is known.
        plotly_beside: leave the drawing library in a file beside (`write_plotly`), which several pages share.
    """
    page = _render(
        "report.html",
        f"{task}, step {report.step}",
        _report_data(report, trained, mapped, replay),
        plotly_beside,
        report=report,
        verdict=verdict(report, trained[1]),
        summary=Table(["figure", "test"], [[name, figure(value)] for name, value in report.scores.figures().items()]),
        baselines=table_of_baselines(report),
        evidence=evidence(report),
        heads=table_of_heads(report),
        lengths=Table(
            ["length", *(line.label for line in LINES.values())],
            [[str(each.length), *(figure(getattr(each, name)) for name in LINES)] for each in report.length_curve],
        ),
        tasks=table_of_tasks(report.tasks),
        patterns=table_of_patterns(report),
        patched=None if report.patching is None else table_of_patching(report.patching),
        task_in_words=task_in_words,
        samples=samples,
        most_tokens=_MOST_TOKENS,
        config=yaml.safe_dump({"config": report.config, "environment": plain(report.environment)}),
    )
    write_text(page, path)


def _report_data(
    report: Report, trained: tuple[int, int], mapped: Sequence[MappedExample], replay: Replay | None
) -> dict[str, object]:
    """Returns what the scripts of the page on one checkpoint read."""
    cuts = cuts_of(report.interventions)
    return {
        "cuts": [{"name": name.replace("\n", "<br>"), "exact_match": left.exact_match} for name, left in cuts.items()],
        "together": plain(report.interventions.together),
        "heads": plain(report.heads),
        "patching": plain(report.patching),
        "replay": None if replay is None else replay_json(replay),
        "curve": plain(report.length_curve),
        "lines": {name: line.label for name, line in LINES.items()},
        "shown": ("decoded_exact_match", "token_accuracy", "alignment_mass"),
        "trained": trained,
        "best": plain(report.best_head),
        "examples": _viewed(mapped),
    }


def write_answers_page(
    task: str, checkpoint: str, step: int, answers: Sequence[Answer], head: Head | None, path: Path
) -> None:
    """Writes `report.html` on sequences of one's own.

    Args:
        task: what the task is called.
        checkpoint: the path of the checkpoint that answered.
        step: after how many steps it was written.
        answers: what it said.
        head: the head to open with; None where there is none.
        path: where to write.
    """
    mapped = [answer.mapped for answer in answers if answer.mapped is not None]
    data = {"examples": _viewed(mapped), "heads": [], "best": plain(head)}
    known = [answer.right for answer in answers if answer.right is not None]
    verdict = "The file that it learned from does not say what is right."
    if known:
        verdict = "Right." if all(known) else "Wrong."
    if len(known) > 1:
        verdict = f"{sum(known)} of {len(known)} answered rightly."
    page = _render(
        "answers.html",
        f"{task}: sequences of one's own",
        data,
        verdict=verdict,
        checkpoint=checkpoint,
        step=step,
        answers=answers,
    )
    write_text(page, path)


def write_comparison_page(groups: Sequence[Group], trained: tuple[int, int] | None, path: Path) -> None:
    """Writes `report.html` on several checkpoints.

    Args:
        groups: what is compared.
        trained: shortest and longest length that all of them were trained on, in symbols; None if there is none.
        path: where to write.
    """
    ranked = best_first(groups)
    data = {
        "groups": [_in_brief(group) for group in ranked],
        "colours": SERIES,
        "trained": trained,
        "panels": PANELS,
    }
    page = _render(
        "comparison.html",
        f"{sum(len(group.runs) for group in groups)} checkpoints compared",
        data,
        verdict=comparison_verdict(ranked),
        short=short_table(ranked),
        groups=table_of_groups(groups),
        lengths={title: table_of_lengths(groups, name) for name, title in LENGTH_TABLES.items()},
        runs=table_of_runs(groups),
        links=[(run.page, Path(run.page).stem) for group in groups for run in group.runs],
    )
    write_text(page, path)


def _in_brief(group: Group) -> dict[str, object]:
    """Returns what the charts of a comparison show of a group: its curve, and the best head's map of its worst run."""
    run = group.worst_run
    brief = {
        "label": group.label,
        "exact_match": plain(group.exact_match),
        "records": curve_json(group.length_curve),
        "page": run.page,
        "map": None,
    }
    if run.mapped is None or run.best_head is None or run.best_head.attention not in run.mapped.maps:
        return brief
    head, mapped = run.best_head, run.mapped
    view = mapped.view(head.attention, head.layer)
    weights = view.of(mapped.maps[head.attention][head.layer][0])[head.head]
    drawn = {"weights": _rounded(weights), "gold": view.labels.gold, "head": str(head), "seed": run.seed}
    return {**brief, "map": drawn}


def write_plotly(folder: Path) -> None:
    """Writes the drawing library for the pages in a folder that are written without."""
    write_text(get_plotlyjs(), folder / "plotly.js")


def _render(template: str, title: str, data: Mapping[str, object], plotly_beside: bool = False, **parts: object) -> str:
    """Returns a page of this folder, filled in: one file that needs no network.

    Args:
        template: its file name.
        title: its headline.
        data: what its script reads.
        plotly_beside: leave the drawing library in a file beside.
        parts: what else its template shows.
    """
    script = "".join(map(_part, ("page.js", *_SCRIPTS[template])))
    own = {"style": _part("style.css"), "script": script, "plotly": "" if plotly_beside else get_plotlyjs()}
    return _templates().get_template(template).render(title=title, data=data, **own, **parts)


def _part(name: str) -> str:
    return files("attention_lab.report").joinpath(name).read_text(encoding="utf-8")


@cache
def _templates() -> Environment:
    templates = Environment(
        loader=PackageLoader("attention_lab.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        keep_trailing_newline=True,
    )
    templates.policies["json.dumps_kwargs"] = {"allow_nan": False}
    return templates


def _viewed(examples: Sequence[MappedExample]) -> list[dict[str, object]]:
    """Returns the maps of all examples that have some, as the viewer wants them."""
    return [_one_viewed(number, example) for number, example in enumerate(examples) if example.shown]


def _one_viewed(number: int, mapped: MappedExample) -> dict[str, object]:
    attentions: list[dict[str, object]] = []
    for name, layers in mapped.shown.items():
        view = mapped.view(name, 0)
        labels = view.labels
        attentions.append(
            {
                "name": name,
                "queries": list(labels.queries),
                "keys": list(labels.keys),
                "gold": labels.gold,
                "query_name": labels.query_name,
                "key_name": labels.key_name,
                "cut": view.cut,
                "heads": list(labels.heads),
                "layers": [[_rounded(head) for head in view.of(layer[0])] for layer in layers],
            }
        )
    labels = token_labels(mapped.example.source[0].tolist(), mapped.symbols)
    rest = f" … and {len(labels) - 24} more" if len(labels) > 24 else ""
    return {"name": f"{number}: {' '.join(labels[:24])}{rest}", "attentions": attentions}


def _rounded(weights: Float[Tensor, "L S"]) -> list[list[float]]:
    """Returns a map with three digits, which is what a reader can tell apart."""
    return [[round(weight, 3) for weight in row] for row in weights.tolist()]
