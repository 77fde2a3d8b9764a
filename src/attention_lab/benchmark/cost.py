"""`cost`: time and memory of one layer of every kind against sequence length."""

import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from attention_lab.benchmark.alone import TIGHT_HEAP, Failed, run_alone
from attention_lab.benchmark.cost_table import Cost, cost_rows, cost_table
from attention_lab.benchmark.kinds import Kind, choose_kinds, least_bytes
from attention_lab.benchmark.layer import LayerQuestion
from attention_lab.benchmark.options import CostOptions
from attention_lab.plotting.canvas import save
from attention_lab.plotting.cost import CostCurve, draw_cost
from attention_lab.runs.files import write_csv, write_json, write_text

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
        try:
            # The first step gets memory from the system, which later ones find at hand.
            timed = self._run(length, steps=1, repeats=options.repeats)
            weighed = self._run(length, steps=1, repeats=0, environment=TIGHT_HEAP)
            baseline = 0
            if not weighed["on_gpu"]:
                baseline = self._run(length, steps=0, repeats=0, environment=TIGHT_HEAP)["peak_bytes"]
        except Failed as failure:
            return unknown._replace(note=str(failure))
        self.machine = timed["machine"]
        extra = weighed["peak_bytes"] - baseline
        return unknown._replace(
            form=timed["form"], milliseconds=1000 * timed["seconds"], mebibytes=max(extra, 0) / 2**20
        )

    def _run(self, length: int, steps: int, repeats: int, environment: dict[str, str] | None = None) -> dict[str, Any]:
        options = self._options
        asked = LayerQuestion(
            component=self._kind.at(length),
            need_weights=self._kind.need_weights,
            length=length,
            batch_size=options.batch_size,
            d_model=options.d_model,
            num_heads=options.num_heads,
            d_ff=options.d_ff or 4 * options.d_model,
            steps=steps,
            repeats=repeats,
            device=options.device,
            precision=options.precision,
            threads=options.threads,
        )
        return run_alone(_LAYER, asdict(asked), options.timeout, environment)


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
