"""`cost`: time and memory of one layer of every kind against sequence length."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from attention_lab.benchmark.fresh_process import MeasurementError, in_fresh_process
from attention_lab.benchmark.layer_cost import measure_memory, measure_time
from attention_lab.benchmark.layers import PUBLISHED, build_case, layer_kinds, least_bytes
from attention_lab.benchmark.machine import Machine
from attention_lab.benchmark.results import Row, log, write_results
from attention_lab.benchmark.settings import CostSettings
from attention_lab.errors import SettingError
from attention_lab.plotting.canvas import save
from attention_lab.plotting.cost import CostCurve, draw_cost
from attention_lab.report.tables import as_markdown


class Cost(NamedTuple):
    """What one kind of layer costs at one length.

    Attributes:
        kind: name of the kind.
        articles: what is published about its cost.
        form: causal or bidirectional; a dash where nothing was measured.
        length: tokens of a sequence.
        milliseconds: of one forward and backward pass, median; None where not measured.
        mebibytes: peak memory of it on top of the layer itself; None where not measured.
        note: why nothing was measured.
    """

    kind: str
    articles: str
    form: str
    length: int
    milliseconds: float | None
    mebibytes: float | None
    note: str | None

    def __str__(self) -> str:
        if self.milliseconds is None or self.mebibytes is None:
            return f"{self.kind} at {self.length}: {self.note}"
        return f"{self.kind} at {self.length}: {self.milliseconds:.1f} ms, {self.mebibytes:.1f} MiB"


def run(settings: CostSettings, out: Path) -> str:
    """Measures, leaves `cost.json`, `cost.csv`, `cost.md` and a figure in a folder, and returns the table.

    Raises:
        SettingError: there is no kind of a name, or no such device.
    """
    machine = Machine(settings)
    costs: list[Cost] = []
    for kind in layer_kinds(settings.kinds):
        for length in sorted(set(settings.lengths)):
            costs.append(_measure(kind, length, settings, machine))
            log(costs[-1])
    table, rows = cost_table(costs), cost_rows(costs)
    write_results(out / "cost", settings, machine, rows, table, costs=rows)
    save(draw_cost([curve for curve in _curves(costs).values() if curve.milliseconds]), out / "cost", settings.pdf)
    return table


def _measure(kind: str, length: int, settings: CostSettings, machine: Machine) -> Cost:
    """Returns what a kind costs at a length, or why that is not known."""
    unknown = Cost(kind, PUBLISHED.get(kind, "–"), "–", length, None, None, None)
    gib = least_bytes(kind, length, settings.batch_size, settings.num_heads) / 2**30
    if gib > settings.memory_limit_gib:
        limit = f"--memory-limit-gib is {settings.memory_limit_gib:g}"
        return unknown._replace(note=f"skipped: needs about {gib:.2g} GiB, and {limit}")
    try:
        case = build_case(kind, length, settings)
        seconds = in_fresh_process(partial(measure_time, case, settings.repeats), settings.timeout)
        mebibytes = machine.mebibytes(partial(measure_memory, case), 1, settings.timeout)
    except (SettingError, MeasurementError) as error:
        # Not every kind takes every number of heads; the others are measured all the same.
        return unknown._replace(note=str(error))
    form = "causal" if case.causal else "bidirectional"
    return unknown._replace(form=form, milliseconds=1000 * seconds, mebibytes=mebibytes)


def fitted_exponent(values: Mapping[int, float]) -> float | None:
    """Returns the slope of log(value) over log(length), by least squares: 1 is linear, 2 quadratic.

    Args:
        values: under each length what was measured there; 0 is left out.

    Returns:
        The exponent, or None where there are fewer than two lengths to fit it to.
    """
    points = {length: value for length, value in values.items() if value > 0}
    if len(points) < 2:
        return None
    return float(np.polyfit(np.log(list(points)), np.log(list(points.values())), 1)[0])


def cost_rows(costs: Sequence[Cost]) -> list[Row]:
    """Returns one row a kind and length, each with the exponents of its kind."""
    fitted = {
        kind: {
            "time_exponent": fitted_exponent(curve.milliseconds),
            "memory_exponent": fitted_exponent(curve.mebibytes),
        }
        for kind, curve in _curves(costs).items()
    }
    return [cost._asdict() | fitted[cost.kind] for cost in costs]


def cost_table(costs: Sequence[Cost]) -> str:
    """Returns a row a kind as Markdown, and below it what was not measured and why."""
    lengths = sorted({cost.length for cost in costs})
    head = ["kind", "form", *(f"ms at {n}" for n in lengths), *(f"MiB at {n}" for n in lengths)]
    articles = {cost.kind: cost.articles for cost in costs}
    rows: list[list[str]] = []
    for kind, curve in _curves(costs).items():
        measured = (curve.milliseconds, curve.mebibytes)
        figures = [_three_digits(values.get(n)) for values in measured for n in lengths]
        exponents = [fitted_exponent(values) for values in measured]
        fitted = ["–" if exponent is None else f"{exponent:.2f}" for exponent in exponents]
        rows.append([kind, curve.form, *figures, *fitted, articles[kind]])
    notes = [f"- {cost}\n" for cost in costs if cost.note]
    table = as_markdown([*head, "time ~ n^", "memory ~ n^", "articles"], rows)
    return table + ("\n" if notes else "") + "".join(notes)


def _curves(costs: Sequence[Cost]) -> dict[str, CostCurve]:
    """Returns what each kind costs at the lengths at which it was measured."""
    curves: dict[str, CostCurve] = {}
    for kind in dict.fromkeys(cost.kind for cost in costs):
        own = [cost for cost in costs if cost.kind == kind]
        form = next((cost.form for cost in own if cost.milliseconds is not None), "–")
        milliseconds = {cost.length: cost.milliseconds for cost in own if cost.milliseconds is not None}
        mebibytes = {cost.length: cost.mebibytes for cost in own if cost.mebibytes is not None}
        curves[kind] = CostCurve(kind, form, milliseconds, mebibytes)
    return curves


def _three_digits(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"
