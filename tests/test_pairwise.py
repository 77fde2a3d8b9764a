"""The part of a matrix that plain pytest tries has all pairs, and is small."""

import itertools

from tests.pairwise import matrix, pairwise


def pairs(rows):
    return {pair for row in rows for pair in itertools.combinations(enumerate(row), 2)}


def test_every_pair_that_can_be_is_there():
    # Not every combination exists.
    rows = [row for row in itertools.product(range(3), range(5), range(7)) if sum(row) % 4 != 3]
    chosen = pairwise(rows)
    assert pairs(chosen) == pairs(rows)
    assert set(chosen) <= set(rows)
    assert len(chosen) < 0.7 * len(rows)
    assert chosen == pairwise(rows)


def test_one_row_is_its_own_cover():
    assert pairwise([("a", "b")]) == [("a", "b")]


def test_the_other_rows_are_slow():
    rows = list(itertools.product("ab", "cd", "ef"))
    plain = [param.values[0] for param in matrix(rows) if not param.marks]
    assert plain == pairwise(rows)
    assert len(plain) < len(rows)
    assert {mark.name for param in matrix(rows) for mark in param.marks} == {"slow"}
