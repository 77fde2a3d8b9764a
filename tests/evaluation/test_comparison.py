"""Runs are grouped by what differs in their configs, and summed up over seeds."""

from typing import Any

import pytest

from attention_lab.evaluation.comparison import Run, group_runs, over_seeds, without_copies
from attention_lab.report.tables import as_markdown, rows_of_groups, rows_of_runs, table_of_groups

FIGURES = (
    "test/loss",
    "test/token_accuracy",
    "test/decoded_exact_match",
    "test/alignment_hit_rate",
    "test/alignment_mass",
)


def run(seed: int = 0, figure: float = 0.5, **changed: Any) -> Run:
    config: dict[str, Any] = {
        "task": {"_target_": f"attention_lab.tasks.x.{changed.get('task', 'Copy')}"},
        "model": {"_target_": "attention_lab.models.x.Net", **changed.get("model", {"num_heads": 4})},
        "trainer": {"accelerator": changed.get("accelerator", "cpu"), "max_steps": 7},
        "callbacks": {"num_samples": changed.get("num_samples", 3)},
        "seed": seed,
    }
    curve = [{"length": length, "token_accuracy": figure / length} for length in (1, 2)]
    return Run(f"{seed}.ckpt", config, 7, dict.fromkeys(FIGURES, figure), curve)


def test_the_mean_its_interval_and_the_worst_seed_worked_by_hand():
    # Student's t for two degrees of freedom at 97.5 % is 4.3027; the deviation of 1, 2, 3 is 1.
    reach = 4.302652729749464 / 3**0.5
    expected = {"mean": 0.2, "worst": 0.1, "low": 0.2 - 0.1 * reach, "high": 0.2 + 0.1 * reach}
    assert over_seeds("test/token_accuracy", [0.2, 0.1, 0.3]) == pytest.approx({**expected, "low": 0.0})
    loss = over_seeds("test/loss", [2.0, 1.0, 3.0])
    assert loss == pytest.approx({"mean": 2.0, "worst": 3.0, "low": 0.0, "high": 2 + reach})


def test_a_rate_does_not_leave_its_range():
    summary = over_seeds("test/exact_match", [1.0, 0.5])
    assert summary["high"] == 1.0
    assert summary["low"] == 0.0
    assert over_seeds("test/exact_match", [1.0, 1.0, 1.0]) == dict.fromkeys(("mean", "worst", "low", "high"), 1.0)


def test_one_seed_has_no_interval():
    assert over_seeds("test/exact_match", [0.7]) == {"mean": 0.7, "worst": 0.7, "low": None, "high": None}


def test_runs_are_grouped_by_what_differs_but_for_the_seed_and_how_they_were_run():
    runs = [
        run(0, task="Copy"),
        run(0, task="Reverse", accelerator="gpu"),
        run(1, task="Copy", num_samples=5),
        run(1, task="Reverse"),
    ]
    groups = group_runs(runs)
    assert [group.settings for group in groups] == [{"task": "Copy"}, {"task": "Reverse"}]
    assert [[run.config["seed"] for run in group.runs] for group in groups] == [[0, 1], [0, 1]]
    assert groups[1].label == "task=Reverse"


def test_a_setting_that_only_some_have_differs():
    groups = group_runs([run(model={"num_heads": 4}), run(model={"hidden": 3})])
    assert [group.settings for group in groups] == [
        {"model.num_heads": 4, "model.hidden": None},
        {"model.num_heads": None, "model.hidden": 3},
    ]


def test_where_nothing_differs_there_is_one_group():
    (group,) = group_runs([run(0, 0.25), run(1, 0.75)])
    assert group.label == "all runs"
    assert group.figures["test/token_accuracy"]["mean"] == 0.5
    assert [record["length"] for record in group.length_curve] == [1, 2]
    assert group.length_curve[1]["token_accuracy"] == pytest.approx(over_seeds("token_accuracy", [0.125, 0.375]))


def test_of_copies_the_last_is_kept():
    first, other, again = run(0, 0.25), run(1, 0.5), run(0, 0.75)
    kept, copies = without_copies([first, other, again])
    assert kept == [other, again]
    assert copies == [first]


def test_tables_have_a_row_a_group_and_a_row_a_run():
    groups = group_runs([run(0, 0.25), run(1, 0.75), run(0, 1.0, task="Reverse", model={"dropout": 0.1})])
    head, rows = table_of_groups(groups)
    assert head[:4] == ["task", "model.num_heads", "model.dropout", "seeds"]
    assert rows[0][:4] == ["Copy", "4", "–", "2"]
    assert rows[0][4] == "0.5000 [0.0000, 1.0000], worst 0.2500"
    assert rows[1][2:5] == ["0.1", "1", "1.0000"]
    markdown = as_markdown(head, rows).splitlines()
    assert len(markdown) == 2 + 2
    assert {line.count("|") for line in markdown} == {len(head) + 1}
    flat = rows_of_groups(groups)
    assert flat[0]["test/loss worst"] == 0.75
    assert flat[1]["test/loss low"] is None
    assert [(row["seed"], row["test/loss"]) for row in rows_of_runs(groups)] == [(0, 0.25), (1, 0.75), (0, 1.0)]
    assert all(list(row) == list(flat[0]) for row in flat)
