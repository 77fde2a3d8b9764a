"""The Python that stands in the README runs as it stands there."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attention_lab.tasks.task import Task
from tests.conftest import Command

README = (Path(__file__).parents[1] / "README.md").read_text()


def block(containing: str) -> str:
    (found,) = [each for each in re.findall(r"```python\n(.*?)```", README, re.DOTALL) if containing in each]
    return found


def test_a_checkpoint_answers(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    assert command("train.py", "experiment=smoke", "trainer=cpu", "hydra.run.dir=outputs/train/RUN") == 0
    capsys.readouterr()
    exec(block("attention_lab.load"), {})
    said = capsys.readouterr().out
    assert said.startswith("['")
    assert "torch.Size([1, 4, " in said


def test_a_block_is_that_of_the_articles(capsys: pytest.CaptureFixture[str]) -> None:
    exec(block("TransformerBlock"), {})
    assert capsys.readouterr().out == "torch.Size([2, 10, 512]) torch.Size([2, 8, 10, 10])\n"


def test_a_task_is_its_alignment() -> None:
    names: dict[str, Any] = {"np": np, "Task": Task}
    exec(block("class Swap"), names)
    assert names["Swap"]().alignment(np.array([[5, 3, 4]])).tolist() == [[2, 1, 0]]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*num_workers.*:", "ignore:.*TensorBoard.*:", "ignore:Checkpoint directory:")
def test_a_trainer_of_ones_own_learns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(block("Trainer(max_epochs=2)"), names)
    assert names["trainer"].global_step == 320
    assert names["trainer"].callback_metrics["test/decoded_exact_match"] > 0.95
