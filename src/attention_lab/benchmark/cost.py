"""`cost`: time and memory of one layer of every kind against sequence length."""

import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from attention_lab.benchmark.alone import Failed, run_alone
from attention_lab.benchmark.cost_table import Cost, cost_rows, cost_table
from attention_lab.benchmark.kinds import Kind, choose_kinds, least_bytes
from attention_lab.benchmark.layer import LayerQuestion
from attention_lab.benchmark.options import CostOptions
from attention_lab.plotting.canvas import save
from attention_lab.plotting.cost import CostCurve, draw_cost
from attention_lab.report.files import write_csv, write_json, write_text

_LAYER = "attention_lab.benchmark.layer"


def run_cost(options: CostOptions, out: Path) -> str:
    """Measures, leaves `cost.json`, `cost.csv`, `cost.md` and a figure in a folder, and returns the table.

    Raises:
        BenchmarkError: there is no kind of a name, or nothing could be measured.
    """
    costs: list[Cost] = []
    machine: dict[str, Any] = {}
    for kind in choose_kinds(options.kinds):
        sweep = _Sweep(kind, options)
        for length in options.lengths:
            cost = sweep.at(length)
            print(f"{kind.name} at {length}: {cost.in_words()}", file=sys.stderr, flush=True)
            costs.append(cost)
        machine = machine or sweep.machine
    table = cost_table(costs)
    write_json(
        {"options": asdict(options), "machine": machine, "costs": cost_rows(costs)},
        out / "cost.json",
    )
    write_csv(cost_rows(costs), out / "cost.csv")
    write_text(table, out / "cost.md")
    save(draw_cost(_curves(costs)), out / "cost", options.pdf)
    return table


class _Sweep:
    """Measures one kind at one length after the other."""

    def __init__(self, kind: Kind, options: CostOptions) -> None:
        self.machine: dict[str, Any] = {}
        self._kind = kind
        self._options = options

    def at(self, length: int) -> Cost:
        """Returns what the kind costs at a length, or why that is not known."""
        kind, options = self._kind, self._options
        unknown = Cost(kind.name, kind.articles, "–", length, None, None, None)
        gib = least_bytes(kind, length, options.batch_size, options.num_heads) / 2**30
        if gib > options.memory_limit_gib:
            reason = f"skipped: needs about {gib:.2g} GiB, and --memory-limit-gib is {options.memory_limit_gib:g}"
            return unknown._replace(note=reason)
        asked = self._question(length)
        try:
            measured = run_alone(_LAYER, asdict(asked), options.timeout)
            baseline = 0 if measured["on_gpu"] else self._baseline(asked)
        except Failed as failure:
            return unknown._replace(note=str(failure))
        self.machine = measured["machine"]
        extra = measured["peak_bytes"] - baseline
        return unknown._replace(
            form=measured["form"], milliseconds=1000 * measured["seconds"], mebibytes=max(extra, 0) / 2**20
        )

    def _question(self, length: int) -> LayerQuestion:
        options = self._options
        return LayerQuestion(
            component=self._kind.at(length),
            need_weights=self._kind.need_weights,
            length=length,
            batch_size=options.batch_size,
            d_model=options.d_model,
            num_heads=options.num_heads,
            d_ff=options.d_ff or 4 * options.d_model,
            repeats=options.repeats,
            device=options.device,
            precision=options.precision,
            threads=options.threads,
        )

    def _baseline(self, asked: LayerQuestion) -> int:
        """Returns the peak of a process that only builds the layer, and its input, and warms up."""
        return run_alone(_LAYER, asdict(replace(asked, repeats=0)), self._options.timeout)["peak_bytes"]


def _curves(costs: Sequence[Cost]) -> list[CostCurve]:
    names = dict.fromkeys(cost.kind for cost in costs)
    curves: list[CostCurve] = []
    for name in names:
        own = [cost for cost in costs if cost.kind == name]
        timed = {cost.length: cost.milliseconds for cost in own if cost.milliseconds}
        weighed = {cost.length: cost.mebibytes for cost in own if cost.mebibytes}
        form = next((cost.form for cost in own if cost.milliseconds is not None), "")
        if timed:
            curves.append(CostCurve(f"{name}, {form}", timed, weighed))
    return curves
