"""Lightning's own: arguments of its Trainer, its loggers, its profilers, from the command line."""

import csv
import json
import sys
from pathlib import Path
from typing import ClassVar

import pytest
import torch
import yaml
from lightning.pytorch.loggers import Logger

from tests.conftest import Command

SMALL = ("experiment=smoke", "trainer=cpu", "trainer.max_steps=4", "trainer.validate_every=2", "data.test_size=16")


def table(folder: str) -> list[dict[str, str]]:
    with open(folder, newline="") as file:
        return list(csv.DictReader(file))


def test_scalars_go_wherever_they_are_asked_to_go(command: Command) -> None:
    assert command("train.py", *SMALL, "logger=[tensorboard,csv]", "hydra.run.dir=run") == 0
    rows = table("run/csv/version_0/metrics.csv")
    seen = {name for row in rows for name, value in row.items() if value}
    metrics = json.loads(Path("run/metrics.json").read_text())
    assert {"train/loss", "val/loss", "val/exact_match", "alignment_mass/decoder_cross/layer_0/head_3"} <= seen
    assert float(rows[-1]["test/loss"]) == pytest.approx(metrics["test/loss"])
    assert yaml.safe_load(Path("run/csv/version_0/hparams.yaml").read_text())["task"] == "reverse"
    assert list(Path("run/tensorboard").glob("events*"))
    # A run that goes on keeps what it has written.
    before = Path("run/csv/version_0/metrics.csv").read_bytes()
    assert command("train.py", "resume=run", "trainer.max_steps=6") == 0
    assert Path("run/csv/version_0/metrics.csv").read_bytes() == before
    assert {row["step"] for row in table("run/csv/version_1/metrics.csv") if row["val/loss"]} == {"6"}


@pytest.mark.parametrize("loggers", ["logger=csv", "logger=none", pytest.param("logger=[]", marks=pytest.mark.slow)])
def test_tensorboard_may_be_left_out(command: Command, loggers: str) -> None:
    assert command("train.py", *SMALL, loggers, "hydra.run.dir=run") == 0
    assert not Path("run/tensorboard").exists()
    assert Path("run/csv").exists() == (loggers == "logger=csv")
    assert Path("run/checkpoints/best.ckpt").exists()


class Noted(Logger):
    """Keeps in memory what it is given."""

    seen: ClassVar[list[dict[str, float]]] = []

    def __init__(self, run_name: str, word: str = "") -> None:
        super().__init__()
        self.seen.append({run_name: 0.0, word: 0.0})

    @property
    def name(self) -> str:
        return "noted"

    @property
    def version(self) -> str:
        return "0"

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        self.seen.append(metrics)

    def log_hyperparams(self, params: dict[str, float], *_: object, **__: object) -> None:
        self.seen.append(params)


def test_a_logger_of_ones_own_knows_the_run_and_is_trusted_where_it_is_typed(
    command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    Noted.seen.clear()
    own = ("+logger.mine._target_=tests.commands.test_lightning.Noted", "+logger.mine.word=yes")
    assert command("train.py", *SMALL, *own, "hydra.run.dir=the_run") == 0
    assert {"the_run", "yes"} == set(Noted.seen[0])
    assert {"task", "train/loss", "val/loss", "test/exact_match"} <= {name for each in Noted.seen for name in each}
    # What it is comes out of a file now.
    assert command("train.py", "resume=the_run", "trainer.max_steps=6") == 2
    assert "logger.mine._target_=tests.commands.test_lightning.Noted is not a Logger" in capsys.readouterr().err
    assert command("train.py", "resume=the_run", "trainer.max_steps=6", "trust=tests") == 0


@pytest.mark.parametrize(
    ("typed", "why"),
    [
        ("logger=tb", "logger=tb is not a choice; use one of csv, mlflow, none, tensorboard, wandb"),
        ("logger=[csv,wnb]", "did you mean wandb?"),
        ("+logger.mine=3", "logger.mine=3 is not a setting"),
        ("+logger.mine._target_=collections.Counter", "collections.Counter is not a Logger"),
        ("+logger.mine={_target_: lightning.pytorch.loggers.CSVLogger, nam: x}", "logger.mine cannot be built:"),
        ("trainer.max_time=soon", "trainer.max_time=soon is refused by Lightning:"),
        ("trainer.gradient_clip_algorithm=hard", "trainer.gradient_clip_algorithm=hard is refused by Lightning:"),
        ("trainer.max_epochs=3", "use trainer.max_steps"),
        ("trainer.num_nodes=2", "needs torchrun or srun"),
    ],
)
def test_what_cannot_be_is_one_line(command: Command, capsys: pytest.CaptureFixture[str], typed: str, why: str) -> None:
    assert command("train.py", *SMALL, typed, "hydra.run.dir=run") == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error:")]
    assert why in line
    assert not list(Path("run").glob("checkpoints/*.ckpt"))


@pytest.mark.parametrize("name", ["wandb", "mlflow"])
def test_a_logger_that_is_not_installed_is_one_line(
    command: Command, capsys: pytest.CaptureFixture[str], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = sys.modules["lightning.pytorch.loggers"].__dict__[{"wandb": "WandbLogger", "mlflow": "MLFlowLogger"}[name]]
    monkeypatch.setitem(kind.__init__.__globals__, f"_{name.upper()}_AVAILABLE", False)
    assert command("train.py", *SMALL, f"logger={name}", "hydra.run.dir=run") == 2
    assert f"error: logger.{name} cannot be built" in capsys.readouterr().err


def test_a_development_run_goes_through_everything(command: Command) -> None:
    assert command("train.py", *SMALL, "trainer.fast_dev_run=2", "data.batch_size=8", "hydra.run.dir=run") == 0
    assert json.loads(Path("run/metrics.json").read_text())["train/steps"] == 2
    data = torch.load("run/checkpoints/best.ckpt")["attention_lab"]["config"]["data"]
    assert (data["validation_size"], data["test_size"]) == (16, 16)


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        (["trainer.profiler=simple"], "Profiler Report"),
        pytest.param(
            ["+trainer.profiler._target_=lightning.pytorch.profilers.AdvancedProfiler"],
            "function calls",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_profile_is_in_the_runs_folder(command: Command, typed: list[str], found: str) -> None:
    assert command("train.py", *SMALL, *typed, "hydra.run.dir=run") == 0
    profile = Path("run/fit-profile.txt").read_text()
    assert "training_step" in profile
    assert found in profile


def test_the_seconds_that_training_may_take_end_it_with_a_validation(command: Command) -> None:
    settings = [setting for setting in SMALL if "max_steps" not in setting]
    assert (
        command("train.py", *settings, "trainer.max_steps=100000", "trainer.max_time=00:00:00:01", "hydra.run.dir=run")
        == 0
    )
    steps = json.loads(Path("run/metrics.json").read_text())["train/steps"]
    assert steps < 100000
    assert torch.load("run/checkpoints/last.ckpt")["global_step"] == steps
    assert command("train.py", "resume=run", "trainer.max_time=null", f"trainer.max_steps={steps + 2}") == 0
