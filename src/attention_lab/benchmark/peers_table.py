"""Races become tables."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from attention_lab.benchmark.race import Result
from attention_lab.report.tables import as_markdown


class Standing(NamedTuple):
    """How contenders did.

    Attributes:
        races: results by race and contender; the last race is decoding, the others are training.
        weights: how many weights each contender has.
        memory: MiB that training takes on top of the network, its gradients and the optimiser; None if that failed.
        not_installed: who could not take part.
    """

    races: Mapping[str, Mapping[str, Result]]
    weights: Mapping[str, int]
    memory: Mapping[str, float | None]
    not_installed: Sequence[str]


def training_table(standing: Standing) -> str:
    """Returns a row a contender as Markdown: weights, real target tokens per second, ours / theirs, memory."""
    races = list(standing.races)[:-1]
    head = ["network", "weights"]
    for race in races:
        head += [f"{race}: tokens/s", "ours / theirs"]
    head.append("MiB of a step")
    rows: list[list[str]] = []
    for name, weights in standing.weights.items():
        results = [standing.races[race][name] for race in races]
        memory = standing.memory[name]
        rows.append(
            [
                name,
                f"{weights:,}",
                *(cell for result in results for cell in _cells(result)),
                "–" if memory is None else f"{memory:.1f}",
            ]
        )
    rows += [[name, "not installed", *["–"] * (len(head) - 2)] for name in standing.not_installed]
    return as_markdown(head, rows)


def decoding_table(standing: Standing) -> str:
    """Returns a row a contender and way of decoding as Markdown."""
    race = list(standing.races)[-1]
    rows = [[name, *_cells(result)] for name, result in standing.races[race].items()]
    rows += [[name, "not installed", "–"] for name in standing.not_installed]
    return as_markdown([race, "tokens/s", "ours, cached / theirs"], rows)


def standing_rows(standing: Standing) -> list[dict[str, Any]]:
    """Returns one row a race and contender."""
    return [
        {
            "race": race,
            "network": name,
            "tokens_per_second": result.median,
            "ours_over_theirs": result.advantage,
            "rates": result.rates,
            "weights": standing.weights.get(name),
            "training_mebibytes": standing.memory.get(name),
        }
        for race, results in standing.races.items()
        for name, result in results.items()
    ]


def _cells(result: Result) -> list[str]:
    return [f"{result.median:,.0f}", f"{result.advantage:.2f}"]
