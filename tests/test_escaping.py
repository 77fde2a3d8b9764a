"""Text that leaves for another program is shown by it and never run."""

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attention_lab.escaping import csv_cell, figure_text, markdown_cell, one_line
from attention_lab.report.tables import as_markdown
from attention_lab.runs.files import write_csv

TEXT = st.text(st.sampled_from("=+-@\t\r\n|`*\\<>&[]()$ '\"1e.,\u2028\x1b＝a"), max_size=12) | st.text(max_size=12)


@pytest.mark.parametrize(
    "formula",
    ["=cmd|'/c calc'!A0", "=1+1.ckpt", "+1+1", "-1+1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "＝1+1", " =1", "-inf", "+"],
)
def test_a_formula_is_text(formula):
    assert csv_cell(formula) == f"'{one_line(formula)}"


@pytest.mark.parametrize(
    "number", [-0.5, 3, -3, 1e-9, "-0.5", "+3", "-1e-3", None, True, "0.5", "copy", "", "a=b", "–"]
)
def test_numbers_and_plain_text_stay_as_they_are(number):
    assert csv_cell(number) == number
    assert type(csv_cell(number)) is type(number)


@given(TEXT)
def test_no_cell_begins_like_a_formula_unless_it_is_a_number(text):
    cell = csv_cell(text)
    assert isinstance(cell, str)
    assert cell in (one_line(text), f"'{one_line(text)}")
    if cell.lstrip().startswith(tuple("=+-@＝＋－＠")):
        assert float(cell) == float(text)


@given(st.lists(st.lists(TEXT | st.floats(allow_nan=False) | st.none(), min_size=2, max_size=2), min_size=1))
def test_a_csv_file_reads_back_cell_by_cell(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("csv") / "some.csv"
    write_csv([{"=a": first, "b": second} for first, second in rows], path)
    with path.open(newline="", encoding="utf-8") as file:
        head, *found = csv.reader(io.StringIO(file.read(), newline=""))
    assert head == ["'=a", "b"]
    shown = [["" if cell is None else str(csv_cell(cell)) for cell in row] for row in rows]
    assert found == shown


@given(TEXT, TEXT)
def test_a_markdown_row_keeps_its_cells_on_one_line(first, second):
    *_, line = as_markdown(["a", "b"], [[first, second]]).split("\n")[:-1]
    assert line.splitlines() == [line]
    # Backslashes come in pairs, or before a sign that they escape; whatever bar is left parts two cells.
    bare = line.replace("\\\\", "").replace("\\|", "")
    assert bare.count("|") == 3
    for sign in ("`", "*"):
        assert sign not in line.replace("\\\\", "").replace(f"\\{sign}", "")
    assert "<" not in line
    assert "](" not in line


def test_a_markdown_cell_worked_by_hand():
    assert markdown_cell("a|b `c` <img> *d*\n&amp; \\") == "a\\|b \\`c\\` &lt;img> \\*d\\* &amp;amp; \\\\"
    assert markdown_cell("![x](http://y)") == "![x]\\(http://y)"
    # What tables are full of stays readable.
    assert markdown_cell("0.5100 [0.4852, 0.5348], worst 0.5000") == "0.5100 [0.4852, 0.5348], worst 0.5000"
    assert markdown_cell("position_sampling.range") == "position_sampling.range"


@given(TEXT)
def test_a_figure_gets_no_formula_and_a_terminal_no_control(text):
    assert figure_text(text).replace(r"\$", "").count("$") == 0
    assert all(sign.isprintable() or ord(sign) > 159 for sign in one_line(text))
