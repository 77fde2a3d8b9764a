"""A part of all combinations in which any two values still meet: what plain pytest tries of a matrix."""

import itertools
from collections.abc import Sequence
from typing import Any

import pytest

Row = tuple[Any, ...]


def pairwise(rows: Sequence[Row]) -> list[Row]:
    """Returns some of the rows, in which every two values that stand in one row still stand in one.

    Each time the row with most new pairs is taken, so that the same rows always give the same choice.
    """
    pairs = {row: set(itertools.combinations(enumerate(row), 2)) for row in rows}
    missing, chosen = set().union(*pairs.values()), set()
    while missing:
        best = max(rows, key=lambda row: len(pairs[row] & missing))
        chosen.add(best)
        missing -= pairs[best]
    return [row for row in rows if row in chosen]


def matrix(rows: Sequence[Row]) -> list[Any]:
    """Returns all rows as parameters of a test; those that no pair needs are slow."""
    chosen = set(pairwise(rows))
    return [pytest.param(row, marks=[] if row in chosen else [pytest.mark.slow]) for row in rows]
