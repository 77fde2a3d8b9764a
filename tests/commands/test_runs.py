"""Whole runs: train, look at what was left, evaluate, compare."""

import json
import re
import shutil
import time
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from attention_lab.runs.history import read_history
from tests.conftest import Command, Training

SMOKE = ("experiment=smoke", "trainer=cpu")
TEST_FIGURES = [
    "test/loss",
    "test/token_accuracy",
    "test/exact_match",
    "test/decoded_exact_match",
    "test/token_error_rate",
    "test/alignment_hit_rate",
    "test/alignment_mass",
]


def events(run: Path) -> EventAccumulator:
    everything = EventAccumulator(str(run / "tensorboard"), size_guidance={"images": 0, "scalars": 0, "tensors": 0})
    return everything.Reload()


def test_a_run_leaves_what_the_contract_says(command: Command, capsys):
    assert command("train.py", "experiment=smoke", "trainer=cpu", "seed=3", "hydra.run.dir=run") == 0
    said = capsys.readouterr()
    assert said.err == ""
    assert "python evaluate.py checkpoint=run/checkpoints/best.ckpt" in said.out
    assert "tensorboard --logdir_spec run:run " in said.out

    run = Path("run")
    assert yaml.safe_load((run / ".hydra/config.yaml").read_text())["seed"] == 3
    assert "test" in (run / "train.log").read_text()
    assert not [path for path in run.rglob("*") if "=" in path.name]
    metrics = json.loads((run / "metrics.json").read_text())
    assert list(metrics) == [*TEST_FIGURES, "train/steps", "train/seconds", "seed", "checkpoint"]
    assert (metrics["train/steps"], metrics["seed"]) == (20, 3)
    assert all(np.isfinite(metrics[name]) for name in TEST_FIGURES)
    for name in ("best", "last"):
        content = torch.load(run / f"checkpoints/{name}.ckpt", weights_only=True)
        assert content["attention_lab"]["config"]["seed"] == 3

    seen = events(run)
    tags = seen.Tags()
    assert tags["images"] == [
        "attention/encoder_self/layer_0",
        "attention/decoder_self/layer_0",
        "attention/decoder_cross/layer_0",
        "alignment/lock_on",
    ]
    assert [image.step for image in seen.Images("attention/decoder_cross/layer_0")] == [0, 10, 20]
    assert [image.step for image in seen.Images("alignment/lock_on")] == [20]
    history = read_history(run / "alignment.jsonl")
    assert [moment.step for moment in history] == [0, 10, 20]
    rates = [seen.Scalars(f"alignment_hit_rate/decoder_cross/layer_0/head_{head}")[0].value for head in range(4)]
    assert history[1].hit_rate is not None
    np.testing.assert_allclose(history[1].hit_rate[0], rates, atol=1e-4)
    assert history[1].exact_match == pytest.approx(seen.Scalars("val/exact_match")[0].value)
    assert [point.step for point in seen.Scalars("val/loss")] == [10, 20]
    for name in ("loss", "learning_rate"):
        assert [point.step for point in seen.Scalars(f"train/{name}")] == [1, 10, 20]
    assert {
        "train/loss",
        "train/learning_rate",
        "val/loss",
        "val/token_accuracy",
        "val/exact_match",
        "val/alignment_hit_rate",
        "val/alignment_mass",
        *TEST_FIGURES,
    } <= set(tags["scalars"])
    for head in range(4):
        for name in ("alignment_hit_rate", "alignment_mass"):
            points = seen.Scalars(f"{name}/decoder_cross/layer_0/head_{head}")
            assert [point.step for point in points] == [10, 20]
    # The best head's are among them.
    last = [seen.Scalars(f"alignment_hit_rate/decoder_cross/layer_0/head_{head}")[-1].value for head in range(4)]
    assert seen.Scalars("val/alignment_hit_rate")[-1].value == pytest.approx(max(last))
    assert "custom_scalars__config__" not in seen.summary_metadata
    assert "hp_metric" not in tags["scalars"]
    hyperparameters = seen.summary_metadata["_hparams_/session_start_info"].plugin_data.content
    assert b"encoder_decoder" in hyperparameters
    assert b"optimizer.learning_rate" in hyperparameters
    assert "samples/text_summary" in tags["tensors"]
    assert seen.Scalars("test/loss")[-1].value == pytest.approx(metrics["test/loss"], rel=1e-6)


def test_evaluation_needs_nothing_but_the_file_and_repeats_the_figures(command: Command, trained: Training, capsys):
    shutil.copytree(trained(*SMOKE), "run")
    metrics = json.loads(Path("run/metrics.json").read_text())
    Path("elsewhere").mkdir()
    shutil.move("run/checkpoints/best.ckpt", "elsewhere/renamed.ckpt")
    shutil.rmtree("run")
    capsys.readouterr()

    arguments = (
        "checkpoint=elsewhere/renamed.ckpt",
        "batch_size=7",
        "num_figures=1",
        "lengths=[4,20]",
        "hydra.run.dir=results",
    )
    assert command("evaluate.py", *arguments) == 0
    said = capsys.readouterr()
    assert said.err == ""
    parts = [line.partition(" s   ")[2] for line in said.out.partition("\n\n")[0].splitlines()]
    assert parts == [
        "validation and test split",
        "length curve",
        "heads silenced one by one",
        "heads silenced together, and their edges cut",
        "patterns, patching, attribution",
        "figures and page",
    ]
    report = json.loads(Path("results/report.json").read_text())
    assert {name: report[name] for name in TEST_FIGURES} == pytest.approx(
        {name: metrics[name] for name in TEST_FIGURES}, rel=1e-6
    )
    assert report["config"]["task"]["_target_"].endswith("Reverse")
    assert [record["length"] for record in report["length_curve"]] == [4, 20]
    assert len(report["heads"]) == 4
    assert list(report["heads"][0]) == [
        *(
            "attention",
            "layer",
            "head",
            "frame",
            "hit_rate",
            "mass",
            "mass_p5",
            "mass_min",
            "alignment_error_rate",
            "entropy",
        ),
        *("confidence", "exact_match_without", "token_accuracy_without"),
        *("exact_match_with_mean", "token_accuracy_with_mean"),
    ]
    assert set(report["baselines"]) == {"untrained", "chance"}
    assert len(report["interventions"]["together"]) == 5
    assert report["tasks"] == []
    assert report["interventions"]["intact"]["exact_match"] == report["test/exact_match"]
    assert {file.name for file in Path("results/figures").iterdir()} == {
        *(f"example_0_{name}_layer_0.png" for name in ("encoder_self", "decoder_self", "decoder_cross")),
        "heads.png",
        "length_curve.png",
    }


@pytest.mark.slow
def test_a_mixture_is_scored_task_by_task(command: Command, capsys):
    smoke = ("experiment=smoke", "trainer=cpu", "task=mixture", "task.tasks=[copy,reverse,rotate]")
    assert command("train.py", *smoke, "hydra.run.dir=run") == 0
    arguments = ("checkpoint=run/checkpoints/best.ckpt", "num_figures=0", "lengths=[4]", "pdf=true")
    capsys.readouterr()
    assert command("evaluate.py", *arguments, "hydra.run.dir=results") == 0
    said = capsys.readouterr()
    # What embeds fonts in PDFs tells of each table that it cuts.
    assert said.err == ""
    assert "subset" not in said.out
    report = json.loads(Path("results/report.json").read_text())
    assert [task["task"] for task in report["tasks"]] == ["copy", "reverse", "rotate"]
    assert sum(task["sequences"] for task in report["tasks"]) == 64
    weighted = sum(task["sequences"] * task["exact_match"] for task in report["tasks"])
    assert weighted == pytest.approx(64 * report["test/exact_match"], abs=1e-5)
    assert all(len(task["heads"]) == 4 for task in report["tasks"])
    figures = {file.name for file in Path("results/figures").iterdir()}
    drawn = {f"{name}.{kind}" for name in ("heads", "length_curve") for kind in ("png", "pdf")}
    assert figures == {*drawn, "replay.webp"}


@pytest.mark.parametrize(
    "model",
    [
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("rnn", "lstm", "decoder_only")),
        "lstm_attention",
        "encoder_only",
    ],
)
def test_every_architecture_runs_from_end_to_end(command: Command, capsys, model):
    smoke = ("experiment=smoke", "trainer=cpu", f"model={model}", "trainer.max_steps=3", "data.min_length=2")
    assert command("train.py", *smoke, "hydra.run.dir=run") == 0
    arguments = ("checkpoint=run/checkpoints/best.ckpt", "num_figures=1", "lengths=[4,20]", "num_per_length=5")
    assert command("evaluate.py", *arguments, "hydra.run.dir=results") == 0
    assert capsys.readouterr().err == ""
    metrics = json.loads(Path("run/metrics.json").read_text())
    report = json.loads(Path("results/report.json").read_text())
    assert {name: report[name] for name in TEST_FIGURES} == {name: metrics[name] for name in TEST_FIGURES}
    has_heads = model not in ("rnn", "lstm")
    assert (metrics["test/alignment_mass"] is not None) is has_heads
    assert bool(report["heads"]) is has_heads
    tags = set(events(Path("run")).Tags()["images"])
    expected = {"lstm_attention": "decoder_cross"}.get(model, "self")
    assert tags == ({f"attention/{expected}/layer_{layer}" for layer in range(len(tags))} if has_heads else set())
    assert bool(tags) is has_heads
    assert Path("results/report.html").stat().st_size > 1_000_000


def test_a_network_without_attention_cannot_wait_for_its_alignment(command: Command, capsys):
    arguments = ("experiment=smoke", "trainer=cpu", "model=lstm", "checkpoint.monitor=val/alignment_mass")
    assert command("train.py", *arguments, "hydra.run.dir=run") == 2
    assert "checkpoint.monitor=val/alignment_mass needs attention" in capsys.readouterr().err


@pytest.mark.slow
def test_a_sweep_is_compared_from_one_pattern(command: Command, capsys):
    smoke = ("experiment=smoke", "trainer=cpu", "trainer.max_steps=2", "callbacks.attention_maps=false")
    assert command("train.py", "-m", *smoke, "task=copy,reverse", "seed=0,1", "hydra.sweep.dir=sweep") == 0
    assert command("train.py", *smoke, "task=copy", "seed=1", "hydra.run.dir=sweep/again") == 0
    capsys.readouterr()
    pattern = "checkpoint=sweep/*/checkpoints/best.ckpt"
    assert command("evaluate.py", pattern, "lengths=[4,20]", "num_per_length=10", "hydra.run.dir=results") == 0
    said = capsys.readouterr()
    assert said.err == ""
    assert "is left out: a later one has its config and its seed" in said.out
    assert "| copy | 2 |" in said.out
    report = json.loads(Path("results/report.json").read_text())
    assert [group["settings"] for group in report["groups"]] == [{"task": "copy"}, {"task": "reverse"}]
    assert [[run["seed"] for run in group["runs"]] for group in report["groups"]] == [[0, 1], [0, 1]]
    assert len(Path("results/comparison.csv").read_text().splitlines()) == 1 + 2
    assert len(Path("results/runs.csv").read_text().splitlines()) == 1 + 4
    assert "| task | seeds | exact match | worst |" in said.out
    assert "| reverse | 2 |" in Path("results/comparison.md").read_text()
    links = re.findall(r'href="(reports/[^"]+)"', Path("results/report.html").read_text())
    assert len(links) == 4
    for link in links:
        page = Path("results", link).read_text()
        assert 'src="plotly.js"' in page
        assert '"together": [' in page
    assert Path("results/reports/plotly.js").stat().st_size > 10**6
    assert Path("results/figures/comparison.png").stat().st_size > 10_000
    assert "4 checkpoints compared" in Path("results/report.html").read_text()
    # A mistake is told before anything is scored, with the file that it is about.
    assert command("evaluate.py", pattern, "lengths=[4,6000]", "hydra.run.dir=refused") == 2
    refused = capsys.readouterr()
    assert "lengths=6000 needs more than the 5000 positions" in refused.err
    assert "checkpoint=sweep/0_copy_seed-0/checkpoints/best.ckpt" in refused.err
    assert "1 of 5" not in refused.out
    # Each run's figures are those that it gets alone.
    alone = ("checkpoint=[sweep/0_copy_seed-0/checkpoints/best.ckpt]", "lengths=[4]", "num_figures=0")
    assert command("evaluate.py", *alone, "hydra.run.dir=alone") == 0
    single, found = json.loads(Path("alone/report.json").read_text()), report["groups"][0]["runs"][0]
    assert {name: single[name] for name in TEST_FIGURES} == {name: found[name] for name in TEST_FIGURES}


@pytest.mark.slow
def test_what_nobody_asked_for_is_left_out_and_what_some_can_do_is_compared(command: Command, capsys):
    smoke = ("experiment=smoke", "trainer=cpu", "trainer.max_steps=2", "callbacks.attention_maps=false")
    assert command("train.py", *smoke, "data.max_length=4", "hydra.run.dir=short") == 0
    few = ("position=learned", "position.max_len=20")
    assert command("train.py", *smoke, *few, "hydra.run.dir=few") == 0
    capsys.readouterr()
    short = "checkpoint=short/checkpoints/best.ckpt"
    # None of the ten sequences of one symbol, a quarter of the longest in training, is a test sequence.
    assert command("evaluate.py", short, "num_figures=0", "num_per_length=3", "hydra.run.dir=one") == 0
    report = json.loads(Path("one/report.json").read_text())
    assert [record["length"] for record in report["length_curve"]] == [2, 3, 4, 8, 16]
    assert command("evaluate.py", short, "lengths=[1,2]", "hydra.run.dir=refused") == 2
    assert "lengths=1 has no sequence in the test split; leave it out" in capsys.readouterr().err
    both = "checkpoint=[few/checkpoints/best.ckpt,short/checkpoints/best.ckpt]"
    assert command("evaluate.py", both, "num_per_length=3", "hydra.run.dir=default") == 0
    capsys.readouterr()
    assert command("evaluate.py", both, "lengths=[4,40]", "num_per_length=3", "hydra.run.dir=both") == 0
    warned = capsys.readouterr()
    assert "lengths=40 needs more than the 20 positions" in warned.out + warned.err
    groups = json.loads(Path("both/report.json").read_text())["groups"]
    found = {run["checkpoint"]: [each["length"] for each in run["length_curve"]] for g in groups for run in g["runs"]}
    assert found == {"few/checkpoints/best.ckpt": [4], "short/checkpoints/best.ckpt": [4, 40]}
    assert command("evaluate.py", both, "lengths=[4,6000]", "num_per_length=3", "hydra.run.dir=none") == 2
    assert "lengths=6000 needs more than the 20 positions" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("attention", ["sliding_window", "conv_mixed"])
def test_an_encoder_is_evaluated_at_lengths_of_which_no_map_fits(command: Command, capsys, attention):
    smoke = ("experiment=smoke", "trainer=cpu", "model=encoder_only", f"attention={attention}", "trainer.max_steps=2")
    assert command("train.py", *smoke, "callbacks.attention_maps=false", "hydra.run.dir=run") == 0
    capsys.readouterr()
    long = ("lengths=[2100]", "num_per_length=1", "num_figures=0", "hydra.run.dir=results")
    assert command("evaluate.py", "checkpoint=run/checkpoints/best.ckpt", *long) == 0
    assert capsys.readouterr().err == ""
    (record,) = json.loads(Path("results/report.json").read_text())["length_curve"]
    assert (record["length"], record["alignment_mass"]) == (2100, None)


@pytest.mark.slow
def test_the_last_step_is_validated_and_kept_when_it_falls_between_two_validations(command: Command):
    arguments = ("trainer.max_steps=7", "trainer.validate_every=5")
    assert command("train.py", "experiment=smoke", "trainer=cpu", "hydra.run.dir=run", *arguments) == 0
    assert [point.step for point in events(Path("run")).Scalars("val/loss")] == [5, 7]
    assert torch.load("run/checkpoints/last.ckpt", weights_only=True)["global_step"] == 7


def test_a_finished_run_is_not_overwritten(command: Command, trained: Training, capsys):
    arguments = ("experiment=smoke", "trainer=cpu", "hydra.run.dir=run")
    shutil.copytree(trained(*SMOKE), "run")
    before = Path("run/checkpoints/best.ckpt").read_bytes()
    assert command("train.py", *arguments) == 2
    assert "hydra.run.dir=" in capsys.readouterr().err
    assert Path("run/checkpoints/best.ckpt").read_bytes() == before


def test_the_same_seed_gives_the_same_run_and_another_seed_another(command: Command):
    found = []
    for number, seed in enumerate((1, 1, 2)):
        arguments = (f"seed={seed}", f"hydra.run.dir=run{number}", "trainer.max_steps=5", "model.dropout=0.1")
        assert command("train.py", "experiment=smoke", "trainer=cpu", *arguments) == 0
        found.append(json.loads(Path(f"run{number}/metrics.json").read_text())["test/loss"])
    assert found[0] == found[1] != found[2]


@pytest.mark.slow
def test_a_small_copy_task_is_solved_and_training_stops_by_itself(command: Command):
    arguments = [
        "task=copy",
        "trainer=cpu",
        "hydra.run.dir=run",
        "data.max_length=5",
        "data.train_size=4096",
        "data.test_size=200",
        "data.validation_size=200",
        "model.d_model=64",
        "trainer.max_steps=600",
        "early_stopping.threshold=1e-4",
        "callbacks.attention_maps=false",
    ]
    assert command("train.py", *arguments) == 0
    metrics = json.loads(Path("run/metrics.json").read_text())
    assert metrics["test/decoded_exact_match"] == 1.0
    assert metrics["test/alignment_hit_rate"] > 0.9
    assert metrics["train/steps"] < 600


@pytest.mark.slow
def test_what_was_learned_on_16_symbols_holds_at_1024(command: Command):
    """The far recipe, cut short: a claim that no change may take away unnoticed."""
    recipe = ("experiment=length_generalization", "task=reverse", "callbacks.attention_maps=false")
    short = (
        "trainer.max_steps=150",
        "trainer.validate_every=150",
        "data.batch_size=64",
        "data.validation_size=100",
        "data.test_size=100",
    )
    assert command("train.py", *recipe, *short, "trainer=cpu", "hydra.run.dir=run") == 0
    lengths = ("lengths=[16,1024]", "num_per_length=4", "num_figures=0", "hydra.run.dir=evaluation")
    assert command("evaluate.py", "checkpoint=run/checkpoints/last.ckpt", *lengths) == 0
    report = json.loads(Path("evaluation/report.json").read_text())
    near, far = report["length_curve"]
    assert (near["length"], far["length"]) == (16, 1024)
    for record in (near, far):
        assert record["decoded_exact_match"] == 1.0
        assert record["alignment_hit_rate"] == 1.0
    assert far["alignment_mass"] > 0.99
    assert [head["frame"] for head in report["heads"] if head["hit_rate"] == 1.0] == ["end"]


@pytest.mark.slow
# One core is no fault of the loader's, and Python 3.12 warns of every fork of a process with threads.
@pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_workers_and_validations_change_nothing_even_with_dropout(command: Command):
    found = set()
    for number, more in enumerate(["data.num_workers=0", "data.num_workers=2", "trainer.validate_every=2"]):
        arguments = ("model.dropout=0.1", "trainer.max_steps=4", f"hydra.run.dir=run{number}", more)
        assert command("train.py", "experiment=smoke", "trainer=cpu", *arguments) == 0
        metrics = json.loads(Path(f"run{number}/metrics.json").read_text())
        found.add(metrics["test/loss"])
    assert len(found) == 1


@pytest.mark.slow
def test_mixed_precision_trains_and_is_scored_in_single_precision(command: Command):
    arguments = ("trainer.precision=bf16-mixed", "trainer.max_steps=5", "hydra.run.dir=run")
    assert command("train.py", "experiment=smoke", "trainer=cpu", *arguments) == 0
    assert command("evaluate.py", "checkpoint=run/checkpoints/best.ckpt", "lengths=[4]", "hydra.run.dir=results") == 0
    metrics, report = (json.loads(Path(name).read_text()) for name in ("run/metrics.json", "results/report.json"))
    # To the last digit, since the batches are the same.
    assert {name: report[name] for name in TEST_FIGURES} == {name: metrics[name] for name in TEST_FIGURES}


@pytest.mark.slow
def test_members_of_a_sweep_leave_nothing_to_one_another(command):
    arguments = ("experiment=smoke", "trainer=cpu", "model.dropout=0.1", "callbacks.num_samples=0")
    assert command("train.py", "-m", *arguments, "seed=1,2,1", "hydra.sweep.dir=sweep") == 0
    first, other, again = (json.loads(path.read_text()) for path in sorted(Path("sweep").glob("*/metrics.json")))
    for metrics in (first, other, again):
        del metrics["train/seconds"], metrics["checkpoint"]
    assert first == again != other


@pytest.mark.slow
def test_the_seconds_of_training_are_not_those_of_scoring(command, monkeypatch):
    from attention_lab.evaluation.scoring import test_scores as score

    def slowly(*arguments: object) -> object:
        time.sleep(1)
        return score(*arguments)

    monkeypatch.setattr("attention_lab.commands.train.test_scores", slowly)
    began = time.monotonic()
    assert command("train.py", "experiment=smoke", "trainer=cpu", "hydra.run.dir=run") == 0
    assert 0 < json.loads(Path("run/metrics.json").read_text())["train/seconds"] < time.monotonic() - began - 1
