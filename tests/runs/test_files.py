"""Results are written whole or not at all."""

import csv
import json

import pytest

from attention_lab.runs.files import remove_leftovers, write_csv, write_json


def test_what_is_written_reads_back(tmp_path):
    write_json({"test/loss": 0.5, "seed": 3}, tmp_path / "some.json")
    assert json.loads((tmp_path / "some.json").read_text()) == {"test/loss": 0.5, "seed": 3}
    assert [path.name for path in tmp_path.iterdir()] == ["some.json"]


def test_a_figure_that_is_none_is_not_written_over_one_that_is(tmp_path):
    write_json({"test/loss": 0.5}, tmp_path / "some.json")
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json({"test/loss": float("nan")}, tmp_path / "some.json")
    assert json.loads((tmp_path / "some.json").read_text()) == {"test/loss": 0.5}


def test_what_cannot_be_written_leaves_nothing(tmp_path):
    (tmp_path / "some.json").mkdir()
    with pytest.raises(OSError, match="directory"):
        write_json({}, tmp_path / "some.json")
    assert [path.name for path in tmp_path.iterdir()] == ["some.json"]


def test_half_written_files_are_removed_and_no_others(tmp_path):
    for name in ("a/.b.json.part", "a/b.part", ".part", "a/.c"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.touch()
    remove_leftovers(tmp_path)
    assert {path.name for path in tmp_path.rglob("*")} == {"a", "b.part", ".part", ".c"}


def test_a_table_reads_back_whatever_is_in_its_cells(tmp_path):
    rows = [{"name": 'a "quoted", one', "mean": 0.5, "low": None}, {"name": "two", "mean": 1, "low": 0.25}]
    write_csv(rows, tmp_path / "some.csv")
    with (tmp_path / "some.csv").open() as file:
        assert list(csv.DictReader(file)) == [
            {"name": 'a "quoted", one', "mean": "0.5", "low": ""},
            {"name": "two", "mean": "1", "low": "0.25"},
        ]
