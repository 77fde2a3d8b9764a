"""Exponents are those of the power laws that the figures were made of, and tables hold every figure."""

import pytest

from attention_lab.benchmark.cost import Cost, cost_rows, cost_table, fitted_exponent

LENGTHS = (128, 256, 1024)


def costs(kind: str, time: float, memory: float) -> list[Cost]:
    return [Cost(kind, f"O({kind})", "causal", n, 0.5 * n**time, 3.0 * n**memory, None) for n in LENGTHS]


@pytest.mark.parametrize("exponent", [0.0, 1.0, 1.5, 2.0])
def test_the_exponent_of_a_power_law_is_found(exponent: float) -> None:
    assert fitted_exponent({n: 0.07 * n**exponent for n in LENGTHS}) == pytest.approx(exponent, abs=1e-9)


def test_the_exponent_is_the_least_squares_slope() -> None:
    # By hand: log2 of lengths -1, 0, 1 around their mean, of values 0, 1, 4: slope (1 * 4 - 1 * 0) / 2.
    assert fitted_exponent({2: 1.0, 4: 2.0, 8: 16.0}) == pytest.approx(2.0)


def test_an_exponent_needs_two_lengths_that_were_measured() -> None:
    assert fitted_exponent({128: 3.0, 512: 0.0}) is None
    assert fitted_exponent({128: 3.0, 256: 0.0, 512: 12.0}) == pytest.approx(1.0)


def test_a_kind_is_a_row_with_its_figures_its_exponents_and_the_articles() -> None:
    table = cost_table([*costs("full", 2.0, 1.0), *costs("linear", 1.0, 1.0)]).splitlines()
    assert table[0] == (
        "| kind | form | ms at 128 | ms at 256 | ms at 1024 | MiB at 128 | MiB at 256 | MiB at 1024 "
        "| time ~ n^ | memory ~ n^ | articles |"
    )
    assert table[2] == "| full | causal | 8192 | 32768 | 524288 | 384 | 768 | 3072 | 2.00 | 1.00 | O(full) |"
    assert table[3] == "| linear | causal | 64 | 128 | 512 | 384 | 768 | 3072 | 1.00 | 1.00 | O(linear) |"
    assert len(table) == 4


def test_what_was_not_measured_is_a_dash_with_its_reason_below() -> None:
    skipped = Cost("full", "O(full)", "–", 4096, None, None, "skipped: needs about 7 GiB")
    table = cost_table([*costs("full", 1.0, 2.0), skipped]).splitlines()
    assert table[2].startswith("| full | causal | 64 | 128 | 512 | – |")
    assert table[2].endswith("| – | 1.00 | 2.00 | O(full) |")
    assert table[3:] == ["", "- full at 4096: skipped: needs about 7 GiB"]


def test_rows_carry_the_exponents_of_their_kind() -> None:
    rows = cost_rows([*costs("full", 2.0, 1.0), *costs("linear", 1.0, 1.0)])
    assert [(row["kind"], row["length"]) for row in rows] == [(k, n) for k in ("full", "linear") for n in LENGTHS]
    assert {(row["kind"], round(row["time_exponent"], 6)) for row in rows} == {("full", 2.0), ("linear", 1.0)}
