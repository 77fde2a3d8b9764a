"""What TensorBoard itself answers about runs whose settings differ."""

import shlex
import warnings
from pathlib import Path
from typing import Any

import pytest
from werkzeug.test import Client

from attention_lab.runs.paths import look_at
from attention_lab.training.loggers import TensorBoard, hparam_columns

with warnings.catch_warnings(action="ignore"):
    # A parser that TensorBoard brings along warns of itself.
    from tensorboard import default, program
    from tensorboard.backend.application import TensorBoardWSGIApp
    from tensorboard.backend.event_processing.data_ingester import LocalDataIngester

BASE = {"task": "reverse", "seed": 0, "trainer.deterministic": True, "optimizer.betas": [0.9, 0.98]}
RUNS: list[dict[str, object]] = [
    {**BASE, "model": "encoder_decoder", "position_sampling.range": None, "init_from": None, "position.base": 10000},
    {**BASE, "model": "encoder_decoder", "position_sampling.range": 16384, "init_from": "a.ckpt", "position.base": 1e6},
    {**BASE, "model": "recurrent", "position_sampling.range": 64, "init_from": None, "model.cell": "lstm"},
]


def log(run: Path, settings: dict[str, object], loss: float) -> None:
    logger = TensorBoard(run)
    logger.log_result(hparam_columns(settings, settings), {"test/loss": loss}, 20)
    logger.finalize("success")


def client(*options: str) -> Client:
    """Returns somebody who asks a real TensorBoard, started with these options, as a browser does."""
    board = program.TensorBoard()
    board.configure(["", *options, "--reload_task", "blocking", "--reload_interval", "0"])
    ingester = LocalDataIngester(board.flags)
    ingester.start()
    return Client(
        TensorBoardWSGIApp(
            board.flags, default.get_plugins(), ingester.data_provider, None, ingester.deprecated_multiplexer
        )
    )


@pytest.fixture
def hparams(tmp_path):
    """Returns what the HParams view gets when it asks."""
    for number, settings in enumerate(RUNS):
        log(tmp_path / str(number), settings, 0.5 - 0.1 * number)
    asking = client("--logdir", str(tmp_path))

    def ask(route: str, **request: object) -> Any:
        answer = asking.post(f"/data/plugin/hparams/{route}", json=request)
        assert answer.status_code == 200, answer.text
        return answer.json

    return ask


def test_every_setting_of_every_run_has_a_column_of_one_type(hparams):
    columns = {each["name"]: each["type"] for each in hparams("experiment", experimentName="")["hparamInfos"]}
    number, text = "DATA_TYPE_FLOAT64", "DATA_TYPE_STRING"
    assert columns == {
        "task": text,
        "seed": number,
        "trainer.deterministic": text,
        "optimizer.betas": text,
        "model": text,
        "model.cell": text,
        "position.base": number,
        "position_sampling.range": number,
        "init_from": text,
    }


@pytest.mark.parametrize("order", ["ORDER_ASC", "ORDER_DESC"])
def test_runs_can_be_sorted_by_every_column(hparams, order):
    for column in sorted({name for settings in RUNS for name in settings}):
        request = {"allowedStatuses": ["STATUS_SUCCESS"], "colParams": [{"hparam": column, "order": order}]}
        found = hparams("session_groups", startIndex=0, sliceSize=9, **request)["sessionGroups"]
        values = [group["hparams"].get(column) for group in found]
        assert len(values) == 3
        there = [value for value in values if value is not None]
        assert there == sorted(there, reverse=order == "ORDER_DESC")


def test_figures_stand_beside_the_settings(hparams):
    figure = {"metric": {"tag": "test/loss", "group": "tensorboard"}, "order": "ORDER_ASC"}
    request = {"allowedStatuses": ["STATUS_SUCCESS"], "colParams": [figure]}
    groups = hparams("session_groups", startIndex=0, sliceSize=9, **request)["sessionGroups"]
    assert len(groups) == 3


def test_a_value_is_a_number_or_text_and_null_is_nothing():
    settings = {"a": 1, "b": 0.5, "c": True, "d": None, "e": "x", "f": [1, None]}
    assert hparam_columns(settings, settings) == {"a": 1, "b": 0.5, "c": "true", "e": "x", "f": "[1, None]"}


def test_few_settings_have_a_column_those_of_every_run_and_those_asked_for():
    settings = {"task": "copy", "model.d_ff": 7, "optimizer.weight_decay": 0.1, "seed": 3, "data.max_length": 9}
    assert list(hparam_columns(settings, ["model.d_ff", "experiment"])) == [
        "task",
        "model.d_ff",
        "seed",
        "data.max_length",
    ]


@pytest.mark.parametrize(
    ("name", "shown"), [("a run, of mine", "tensorboard"), ("copy_seed-0", "copy_seed-0/tensorboard")]
)
def test_a_single_run_has_its_own_name_wherever_that_can_be_given(tmp_path, name, shown):
    log(tmp_path / name, RUNS[0], 0.5)
    _, *options = shlex.split(look_at(tmp_path / name))
    assert client(*options).get("/data/runs").json == [shown]


@pytest.mark.slow
def test_several_runs_are_called_by_their_folders(tmp_path):
    for name in ("0_copy", "1_copy"):
        log(tmp_path / name, RUNS[0], 0.5)
    _, *options = shlex.split(look_at(tmp_path))
    assert sorted(client(*options).get("/data/runs").json) == ["0_copy/tensorboard", "1_copy/tensorboard"]
