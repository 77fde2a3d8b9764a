"""Runs are grouped by what differs in their configs, and summed up over seeds."""

from dataclasses import replace
from typing import Any

import pytest
from scipy.stats import t as student

from attention_lab.evaluation.comparison import Run, best_first, group_runs, over_seeds, student_quantile
from attention_lab.evaluation.records import LengthRecord, Scores
from attention_lab.report.tables import (
    as_markdown,
    rows_of_groups,
    rows_of_runs,
    short_table,
    table_of_groups,
    table_of_lengths,
)
from attention_lab.runs.checkpoint import Solved
from attention_lab.settings.flat import flat_settings


def run(seed: int = 0, figure: float = 0.5, checkpoint: str = "best.ckpt", **changed: Any) -> Run:
    config: dict[str, Any] = {
        "task": {"_target_": f"attention_lab.tasks.x.{changed.get('task', 'Copy')}"},
        "model": {"_target_": "attention_lab.models.x.Net", **changed.get("model", {"num_heads": 4})},
        "trainer": {"accelerator": changed.get("accelerator", "cpu"), "max_steps": 7},
        "callbacks": {"num_samples": changed.get("num_samples", 3)},
        "early_stopping": {"threshold": changed.get("threshold")},
        "seed": seed,
    }
    curve = [
        LengthRecord(length, 5, figure / length, figure, figure, figure, figure, figure, 0.1, figure, figure)
        for length in changed.get("lengths", (1, 2))
    ]
    return Run(
        checkpoint=f"runs/{checkpoint}",
        settings=flat_settings(config),
        trained=(1, 16),
        step=7,
        solved=changed.get("solved", Solved(20, 1.5)),
        weights=1001,
        scores=Scores(*[figure] * 7),
        length_curve=curve,
    )


def test_the_mean_its_interval_and_the_worst_seed_worked_by_hand():
    # Student's t for two degrees of freedom at 97.5 % is 4.3027; the deviation of 0.51, 0.5, 0.52 is 0.01.
    reach = 0.01 * 4.302652729749464 / 3**0.5
    expected = {"mean": 0.51, "worst": 0.5, "low": 0.51 - reach, "high": 0.51 + reach}
    assert over_seeds("test/token_accuracy", [0.51, 0.5, 0.52])._asdict() == pytest.approx(expected)
    loss = over_seeds("test/loss", [20.0, 20.1, 19.9])
    assert loss._asdict() == pytest.approx(
        {"mean": 20.0, "worst": 20.1, "low": 20 - 10 * reach, "high": 20 + 10 * reach}
    )


@pytest.mark.parametrize("freedom", [*range(1, 13), 20, 31, 200])
def test_the_quantile_of_students_t_is_scipys(freedom):
    assert student_quantile(freedom) == pytest.approx(student.ppf(0.975, freedom), abs=2e-4)


def test_of_an_entropy_less_is_better():
    assert over_seeds("alignment_entropy", [0.1, 0.9]).worst == 0.9


def test_a_rate_does_not_leave_its_range():
    summary = over_seeds("test/exact_match", [1.0, 0.5])
    assert summary.high == 1.0
    assert summary.low == 0.0
    assert over_seeds("test/exact_match", [1.0, 1.0, 1.0]) == (1.0, 1.0, 1.0, 1.0)


def test_one_seed_has_no_interval():
    assert over_seeds("test/exact_match", [0.7]) == (0.7, 0.7, None, None)


def test_runs_are_grouped_by_what_differs_but_for_the_seed_and_how_they_were_run():
    runs = [
        run(0, task="Copy"),
        run(0, task="Reverse", accelerator="gpu"),
        run(1, task="Copy", num_samples=5),
        run(1, task="Reverse"),
    ]
    groups, _ = group_runs(runs)
    assert [group.settings for group in groups] == [{"task": "Copy"}, {"task": "Reverse"}]
    assert [[run.seed for run in group.runs] for group in groups] == [[0, 1], [0, 1]]
    assert groups[1].label == "task=Reverse"


def test_a_component_goes_by_the_name_that_was_typed():
    config = {"task": {"_target_": "attention_lab.tasks.copy.Copy"}, "choices": {"task": "again", "trainer": "cpu"}}
    assert flat_settings(config) == {"task": "again"}
    # Where another run does not say.
    assert flat_settings(config, named=()) == {"task": "Copy"}


def test_a_setting_that_only_some_have_differs():
    groups, _ = group_runs([run(model={"num_heads": 4}), run(model={"hidden": 3})])
    assert [group.settings for group in groups] == [
        {"model.num_heads": None, "model.hidden": 3},
        {"model.num_heads": 4, "model.hidden": None},
    ]


def test_what_follows_from_the_choice_of_a_component_is_left_out():
    def attending(kind: str, **settings: int) -> Run:
        attention = {"attention": kind, **{f"attention.{name}": value for name, value in settings.items()}}
        return replace(run(), settings={**run().settings, **attention})

    one, other = attending("Full"), attending("Window", window=8)
    groups, _ = group_runs([one, other])
    assert [group.settings for group in groups] == [{"attention": "Full"}, {"attention": "Window"}]
    groups, _ = group_runs([one, other, attending("Window", window=4)])
    assert [group.settings for group in groups] == [
        {"attention": "Full", "attention.window": None},
        {"attention": "Window", "attention.window": 4},
        {"attention": "Window", "attention.window": 8},
    ]


def test_groups_are_in_order_numbers_by_size():
    groups, _ = group_runs([run(model={"num_heads": heads}) for heads in (16, 2, 8)])
    assert [group.settings["model.num_heads"] for group in groups] == [2, 8, 16]


def test_where_nothing_differs_there_is_one_group():
    (group,), copies = group_runs([run(0, 0.25), run(1, 0.75)])
    assert copies == []
    assert group.label == "all runs"
    assert group.figures["test/token_accuracy"].mean == 0.5
    assert [record.length for record in group.length_curve] == [1, 2]
    assert "alignment_chance" not in group.length_curve[1].figures
    assert group.length_curve[1].figures["token_accuracy"] == pytest.approx(
        over_seeds("token_accuracy", [0.125, 0.375])
    )


def test_a_group_is_called_by_few_of_the_settings_that_differ_the_best_first():
    def named(number: int, **settings: object) -> Run:
        return replace(run(0, number / 8), settings=settings)

    groups, _ = group_runs(
        [
            named(2, task="copy", base=1, range=8, rate=0.1),
            named(5, task="copy", base=2, range=8, rate=0.2),
            named(3, task="sort", base=1, range=4, rate=0.1),
            named(7, task="sort", base=2, range=4, rate=0.2),
        ]
    )
    assert {group.label for group in groups} == {
        "task=copy, base=1",
        "task=copy, base=2",
        "task=sort, base=1",
        "task=sort, base=2",
    }
    assert all(set(group.settings) == {"task", "base", "range", "rate"} for group in groups)
    assert [group.exact_match.mean for group in best_first(groups)] == [7 / 8, 5 / 8, 3 / 8, 2 / 8]
    assert short_table(groups).head[:2] == ["task", "base"]


def test_of_copies_the_last_is_kept():
    first, other, again = run(0, 0.25), run(1, 0.5), run(0, 0.75, accelerator="gpu")
    (group,), copies = group_runs([first, other, again])
    assert group.runs == [other, again]
    assert copies == [first]


def test_two_checkpoints_of_one_run_are_two_kinds():
    runs = [run(seed, checkpoint=name) for seed in (0, 1) for name in ("best.ckpt", "last.ckpt")]
    groups, copies = group_runs(runs)
    assert copies == []
    assert [group.settings for group in groups] == [{"checkpoint": "best"}, {"checkpoint": "last"}]
    assert [len(group.runs) for group in groups] == [2, 2]


def test_a_files_name_makes_no_difference_between_runs():
    (group,), _ = group_runs([run(0, checkpoint="a.ckpt"), run(1, checkpoint="b.ckpt")])
    assert len(group.runs) == 2


def test_when_training_stops_makes_a_difference():
    groups, copies = group_runs([run(0), run(0, threshold=0.01)])
    assert copies == []
    assert [group.settings for group in groups] == [
        {"early_stopping.threshold": None},
        {"early_stopping.threshold": 0.01},
    ]


def test_equal_numbers_are_equal_however_they_are_written():
    (group,), _ = group_runs([run(0, model={"dropout": 0}), run(1, model={"dropout": 0.0})])
    assert len(group.runs) == 2
    groups, _ = group_runs([run(0, model={"dropout": 0}), run(1, model={"dropout": False})])
    assert len(groups) == 2


def test_a_kind_of_which_not_every_seed_is_solved_says_how_many_are():
    groups, _ = group_runs([run(0), run(1, solved=None), run(2, solved=Solved(40, 3.0))])
    assert table_of_groups(groups)[1][0][-3:-1] == ["2 of 3", "–"]
    groups, _ = group_runs([run(0), run(2, solved=Solved(40, 3.0))])
    assert table_of_groups(groups)[1][0][-3:-1] == ["30", "2.2"]


def test_tables_have_a_row_a_group_and_a_row_a_run():
    groups, _ = group_runs([run(0, 0.25), run(1, 0.75), run(0, 1.0, task="Reverse", model={"dropout": 0.1})])
    head, rows = table_of_groups(groups)
    assert head[:4] == ["task", "model.num_heads", "model.dropout", "seeds"]
    assert rows[0][:4] == ["Copy", "4", "–", "2"]
    assert rows[0][4] == "0.5000 [0.0000, 1.0000], worst 0.2500"
    assert rows[1][2:5] == ["0.1", "1", "1.0000"]
    markdown = as_markdown(head, rows).splitlines()
    assert len(markdown) == 2 + 2
    assert {line.count("|") for line in markdown} == {len(head) + 1}
    assert rows[0][-3:] == ["20", "1.5", "1001"]
    flat = rows_of_groups(groups)
    assert flat[0]["test/loss worst"] == 0.75
    assert flat[1]["test/loss low"] is None
    assert [(row["seed"], row["test/loss"]) for row in rows_of_runs(groups)] == [(0, 0.25), (1, 0.75), (0, 1.0)]
    assert all(list(row) == list(flat[0]) for row in flat)


def test_the_table_of_lengths_has_the_worst_seed_and_the_mean_and_at_last_those_of_all_lengths():
    # What cannot read a length has nothing there.
    groups, _ = group_runs([run(0, 0.25), run(1, 0.75), run(0, 1.0, task="Reverse", lengths=(1,))])
    head, rows = table_of_lengths(groups, "token_accuracy")
    assert head == ["task", "seeds", "1", "2", "mean of all"]
    # A token accuracy of figure / length: of the first seed 0.25 and 0.125, of the second 0.75 and 0.375.
    assert rows[0] == ["Copy", "2", "0.2500 (0.5000)", "0.1250 (0.2500)", "0.1875 (0.3750)"]
    assert rows[1] == ["Reverse", "1", "1.0000 (1.0000)", "–", "1.0000 (1.0000)"]


def test_seeds_with_different_lengths_are_summed_up_where_they_have_them():
    (group,), _ = group_runs([run(0, 0.5, lengths=(1, 2)), run(1, 1.0, lengths=(2,))])
    found = {record.length: record.figures["exact_match"] for record in group.length_curve}
    assert found == {1: over_seeds("exact_match", [0.5]), 2: over_seeds("exact_match", [0.5, 1.0])}
