"""Loops become a table."""

import statistics
from collections.abc import Sequence
from typing import Any, NamedTuple

from attention_lab.report.tables import as_markdown
from attention_lab.runs.checkpoint import Solved


class Loop(NamedTuple):
    """What was measured of one loop.

    Attributes:
        name: what it is called.
        milliseconds: of a step, round by round.
        solved: when each run had solved the task; None if it never did.
    """

    name: str
    milliseconds: list[float]
    solved: list[Solved | None]


def extra_milliseconds(loop: Loop, reference: Loop) -> float:
    """Returns what a step takes beyond one of the reference: the median of the rounds' differences."""
    rounds = zip(loop.milliseconds, reference.milliseconds, strict=True)
    return statistics.median(own - others for own, others in rounds)


def loop_table(loops: Sequence[Loop]) -> str:
    """Returns a row a loop as Markdown; the first one is the reference."""
    head = ["loop", "ms a step", "ms more", "steps to 99 %", "seconds"]
    rows = [
        [
            loop.name,
            f"{statistics.median(loop.milliseconds):.2f}",
            f"{extra_milliseconds(loop, loops[0]):.2f}",
            _each([None if solved is None else str(solved.step) for solved in loop.solved]),
            _each([None if solved is None else f"{solved.seconds:.2f}" for solved in loop.solved]),
        ]
        for loop in loops
    ]
    return as_markdown(head, rows)


def loop_rows(loops: Sequence[Loop]) -> list[dict[str, Any]]:
    """Returns one row a loop; the first one is the reference. Steps and seconds are None where a run solved nothing."""
    return [
        {
            "loop": loop.name,
            "milliseconds": statistics.median(loop.milliseconds),
            "extra_milliseconds": extra_milliseconds(loop, loops[0]),
            "rounds": loop.milliseconds,
            "steps_to_solve": [solved and solved.step for solved in loop.solved],
            "seconds_to_solve": [solved and solved.seconds for solved in loop.solved],
        }
        for loop in loops
    ]


def _each(figures: Sequence[str | None]) -> str:
    return ", ".join("–" if figure is None else figure for figure in figures)
