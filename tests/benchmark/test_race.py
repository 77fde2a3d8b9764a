"""Contenders take turns, are compared within rounds, and stand in the tables."""

import pytest

from attention_lab.benchmark.machine import Machine
from attention_lab.benchmark.peers_table import Standing, decoding_table, standing_rows, training_table
from attention_lab.benchmark.race import Result, Runner, advantage, race


def test_contenders_take_turns() -> None:
    calls: list[tuple[str, int]] = []

    def runner(name: str) -> Runner:
        def run(work: int) -> int:
            calls.append((name, work))
            return 17 * work

        return Runner(run, warm_up=2, work=5)

    results = race({"a": runner("a"), "b": runner("b")}, 3, Machine("cpu", "auto", None), reference="b")
    assert calls == [("a", 2), ("b", 2), *[("a", 5), ("b", 5)] * 3]
    assert all(len(result.rates) == 3 and min(result.rates) > 0 for result in results.values())
    assert results["b"].advantage == 1
    assert results["a"].advantage == advantage(results["b"].rates, results["a"].rates)


def test_a_slow_round_is_slow_for_all() -> None:
    # Ours is twice as fast in two rounds of three; medians alone would say 20 / 10, whichever rounds these are.
    assert advantage([20.0, 2.0, 40.0], [10.0, 1.0, 80.0]) == pytest.approx(2.0)
    assert advantage([20.0, 20.0, 1.0], [5.0, 10.0, 0.25]) == pytest.approx(4.0)


STANDING = Standing(
    races={
        "lengths 1-7": {"ours": Result([1000.0, 3000.0, 2000.0], 1.0), "torch": Result([1000.0], 2.25)},
        "length 7": {"ours": Result([4000.0], 1.0), "torch": Result([5000.0], 0.8)},
        "decoding 9 tokens": {"ours, cached": Result([70.0], 1.0), "torch, uncached": Result([7.0], 10.0)},
    },
    weights={"ours": 123456, "torch": 234567},
    memory={"ours": 33.33, "torch": None},
    not_installed=["BART"],
)


def test_the_table_of_training() -> None:
    assert training_table(STANDING).splitlines() == [
        "| network | weights | lengths 1-7: tokens/s | ours / theirs | length 7: tokens/s | ours / theirs "
        "| MiB of a step |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        "| ours | 123,456 | 2,000 | 1.00 | 4,000 | 1.00 | 33.3 |",
        "| torch | 234,567 | 1,000 | 2.25 | 5,000 | 0.80 | – |",
        "| BART | not installed | – | – | – | – | – |",
    ]


def test_the_table_of_decoding() -> None:
    assert decoding_table(STANDING).splitlines() == [
        "| decoding 9 tokens | tokens/s | ours, cached / theirs |",
        "| --- | --- | --- |",
        "| ours, cached | 70 | 1.00 |",
        "| torch, uncached | 7 | 10.00 |",
        "| BART | not installed | – |",
    ]


def test_rows_name_race_and_network() -> None:
    rows = standing_rows(STANDING)
    assert [(row["race"], row["network"], row["weights"]) for row in rows][-3:] == [
        ("length 7", "torch", 234567),
        ("decoding 9 tokens", "ours, cached", None),
        ("decoding 9 tokens", "torch, uncached", None),
    ]
