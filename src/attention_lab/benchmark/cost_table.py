"""Costs at several lengths become exponents and a table."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

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

    def in_words(self) -> str:
        """Returns the figures, or the reason why there are none, as a line for the terminal."""
        if self.milliseconds is None or self.mebibytes is None:
            return self.note or "not measured"
        return f"{self.milliseconds:.1f} ms, {self.mebibytes:.1f} MiB"


def fitted_exponent(values: Mapping[int, float | None]) -> float | None:
    """Returns the slope of log(value) over log(length), by least squares: 1 is linear, 2 quadratic.

    Args:
        values: under each length what was measured there; what was not, or came out as 0, is left out.

    Returns:
        The exponent, or None where there are fewer than two lengths to fit it to.
    """
    measured = {length: value for length, value in values.items() if value}
    if len(measured) < 2:
        return None
    return float(np.polyfit(np.log(list(measured)), np.log(list(measured.values())), 1)[0])


def exponents(costs: Sequence[Cost]) -> tuple[float | None, float | None]:
    """Returns the exponents of time and of memory of one kind's costs."""
    return (
        fitted_exponent({cost.length: cost.milliseconds for cost in costs}),
        fitted_exponent({cost.length: cost.mebibytes for cost in costs}),
    )


def cost_table(costs: Sequence[Cost]) -> str:
    """Returns a row a kind as Markdown, and below it what was not measured and why."""
    lengths = sorted({cost.length for cost in costs})
    head = ["kind", "form", *(f"ms at {n}" for n in lengths), *(f"MiB at {n}" for n in lengths)]
    head += ["time ~ n^", "memory ~ n^", "articles"]
    rows = [_row(own, lengths) for own in _by_kind(costs).values()]
    notes = [f"- {cost.kind} at {cost.length}: {cost.note}\n" for cost in costs if cost.note]
    return as_markdown(head, rows) + ("\n" if notes else "") + "".join(notes)


def cost_rows(costs: Sequence[Cost]) -> list[dict[str, Any]]:
    """Returns one row a kind and length, each with the exponents of its kind."""
    fitted = {kind: exponents(own) for kind, own in _by_kind(costs).items()}
    return [
        cost._asdict() | {"time_exponent": fitted[cost.kind][0], "memory_exponent": fitted[cost.kind][1]}
        for cost in costs
    ]


def _row(own: Sequence[Cost], lengths: Sequence[int]) -> list[str]:
    at = {cost.length: cost for cost in own}
    form = next((cost.form for cost in own if cost.milliseconds is not None), "–")
    return [
        own[0].kind,
        form,
        *(_figure(at[n].milliseconds if n in at else None) for n in lengths),
        *(_figure(at[n].mebibytes if n in at else None) for n in lengths),
        *("–" if exponent is None else f"{exponent:.2f}" for exponent in exponents(own)),
        own[0].articles,
    ]


def _by_kind(costs: Sequence[Cost]) -> dict[str, list[Cost]]:
    return {kind: [cost for cost in costs if cost.kind == kind] for kind in dict.fromkeys(cost.kind for cost in costs)}


def _figure(value: float | None) -> str:
    """Returns three digits that count; a dash where there is no figure."""
    if value is None:
        return "–"
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"
