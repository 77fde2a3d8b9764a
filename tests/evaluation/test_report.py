"""Results are written whole or not at all."""

import json

import pytest

from attention_lab.evaluation.report import write_json


def test_what_is_written_reads_back(tmp_path):
    write_json({"test/loss": 0.5, "seed": 3}, tmp_path / "some.json")
    assert json.loads((tmp_path / "some.json").read_text()) == {"test/loss": 0.5, "seed": 3}
    assert [path.name for path in tmp_path.iterdir()] == ["some.json"]


def test_a_figure_that_is_none_is_not_written_over_one_that_is(tmp_path):
    write_json({"test/loss": 0.5}, tmp_path / "some.json")
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json({"test/loss": float("nan")}, tmp_path / "some.json")
    assert json.loads((tmp_path / "some.json").read_text()) == {"test/loss": 0.5}
