"""`cost`: time and memory of one layer of every kind against sequence length."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from torch import nn

from attention_lab.benchmark.fresh_process import MeasurementError, in_fresh_process
from attention_lab.benchmark.layer_cost import Case, measure_memory, measure_time
from attention_lab.benchmark.machine import Machine
from attention_lab.benchmark.results import Row, log, write_results
from attention_lab.benchmark.settings import CostSettings
from attention_lab.cli.composing import check_choice, choices, compose_settings
from attention_lab.composition.build import build_network
from attention_lab.errors import SettingError
from attention_lab.models.blocks import TransformerBlock
from attention_lab.models.recurrent import LSTM
from attention_lab.plotting.canvas import save
from attention_lab.plotting.cost import CostCurve, draw_cost
from attention_lab.report.tables import as_markdown

EXPLICIT = "full_explicit"
"""Full attention that is asked for its weights, an n x n matrix for each head."""

_RECURRENT = {"lstm": LSTM, "rnn": nn.RNN}

PUBLISHED = {
    "full": "O(n²·d) (Vaswani et al. 2017), memory O(n) in blocks (Dao et al. 2022)",
    EXPLICIT: "O(n²·d), memory O(n²) (Vaswani et al. 2017)",
    "flash": "O(n²·d), memory O(n) (Dao et al. 2022)",
    "grouped_query": "O(n²·d), cache G/H (Ainslie et al. 2023)",
    "multi_query": "O(n²·d), cache 1/H (Shazeer 2019)",
    "conv_mixed": "O(n²·d/2 + n·k·d) (Jiang et al. 2020)",
    "sliding_window": "O(n·w·d) (Beltagy et al. 2020)",
    "linear": "O(n·d²/H) (Katharopoulos et al. 2020)",
    "linformer": "O(n·k·d) (Wang et al. 2020)",
    "lstm": "O(n·d²), n steps one after another (Vaswani et al. 2017, table 1)",
    "rnn": "O(n·d²), n steps one after another (Vaswani et al. 2017, table 1)",
}
"""What the articles say about time, and about memory or the cache where that is the point; n tokens, width d."""


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


def layer_kinds(names: Sequence[str] | None) -> list[str]:
    """Returns all kinds, or those of these names: every attention of the configs, the explicit form, recurrent ones.

    Raises:
        SettingError: there is no kind of that name.
    """
    attentions = choices("attention")
    known = ["full", EXPLICIT, *(name for name in attentions if name != "full"), *_RECURRENT]
    for name in names or ():
        check_choice("kinds", name, known)
    return [name for name in known if names is None or name in names]


def build_case(kind: str, length: int, settings: CostSettings) -> Case:
    """Builds a layer, causal if it can be, for sequences of a length.

    Raises:
        SettingError: its settings do not go together.
    """
    width, shape = settings.d_model, (settings.batch_size, length, settings.d_model)
    if kind in _RECURRENT:
        return Case(_RECURRENT[kind](width, width, batch_first=True), True, False, shape, settings)
    # Every attention serves in a bidirectional stack.
    overrides = [f"attention={'full' if kind == EXPLICIT else kind}", "model=encoder_only", "model.num_layers=1"]
    sizes = {"d_model": width, "num_heads": settings.num_heads, "d_ff": settings.d_ff or 4 * width}
    run = compose_settings([*overrides, *(f"model.{name}={size}" for name, size in sizes.items())])
    limit = {"max_len": length} if "max_len" in run.attention else {}
    network = build_network(run.model, run.attention | limit, run.position, run.data)
    block = next(module for module in network.modules() if isinstance(module, TransformerBlock))
    return Case(block, "causal" not in block.attn.unsupported, kind == EXPLICIT, shape, settings)


def least_bytes(kind: str, length: int, batch_size: int, num_heads: int) -> int:
    """Returns an estimate of what a layer is bound to need for matrices of n x n; 0 where it makes none.

    Four of them are alive at once, in single precision: scores and weights, masked and not, and later their gradients.
    """
    return 4 * 4 * batch_size * num_heads * length**2 if kind == EXPLICIT else 0


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
