"""What somebody adds is one module and one YAML file each, whatever they are called, and a file may name it if trusted.

Callbacks have no group of configs yet, so none is made here.
"""

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

MODULES = {
    "odd_one": """
import numpy as np
from attention_lab.tasks.task import Task

class Swap(Task):
    def __init__(self, *, shift: int = 1) -> None:
        self.shift = shift

    def alignment(self, sources):
        return np.broadcast_to(np.roll(np.arange(sources.shape[1]), self.shift), sources.shape)
""",
    "odd_two": """
from typing import Any
from attention_lab.attention.multi_head import MultiHeadAttention

class Louder(MultiHeadAttention):
    def __init__(self, *arguments: Any, loudness: float, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.loudness = loudness
""",
    "odd_three": """
from attention_lab.positions.sinusoidal import PositionalEncoding

class Fewer(PositionalEncoding):
    pass
""",
    "odd_four": """
from attention_lab.models.encoder_decoder import EncoderDecoder

class Twin(EncoderDecoder):
    pass
""",
}
YAML = {
    "task/exchange": "_target_: PACKAGE.odd_one.Swap\nshift: 2\n",
    "attention/shouting": "_target_: PACKAGE.odd_two.Louder\nloudness: 3\n",
    "position/short": "_target_: PACKAGE.odd_three.Fewer\nmax_len: 40\n",
    "model/double": "_target_: PACKAGE.odd_four.Twin\nd_model: 16\nnum_heads: 2\nd_ff: 16\n",
}
SMALL = (
    *("experiment=smoke", "trainer=cpu", "trainer.max_steps=2", "trainer.validate_every=2", "model.d_model=16"),
    *("data.train_size=64", "data.validation_size=16", "data.test_size=16", "callbacks.attention_maps=false"),
)
Command = Callable[..., int]


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Somebody's own package, which can be imported, and its configs in `tmp_path/own`."""
    name = "own_" + re.sub(r"\W", "_", tmp_path.name)
    for module, text in MODULES.items():
        file = tmp_path / "lib" / name / f"{module}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    for config, text in YAML.items():
        file = tmp_path / "own" / f"{config}.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text.replace("PACKAGE", name))
    monkeypatch.syspath_prepend(tmp_path / "lib")
    yield name
    forget(name)


def forget(package: str) -> None:
    for module in [module for module in sys.modules if module.partition(".")[0] == package]:
        del sys.modules[module]


def config_of(folder: str) -> dict[str, object]:
    return torch.load(f"{folder}/checkpoints/last.ckpt", weights_only=True)["attention_lab"]["config"]


def test_one_of_each_kind_is_trained_and_evaluated_where_it_is_trusted(
    package: str, command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    chosen = ("task=exchange", "attention=shouting", "position=short", "model=double")
    assert command("train.py", "--config-dir", "own", *SMALL, *chosen, "hydra.run.dir=run") == 0
    config = config_of("run")
    assert {group: config["choices"][group] for group in ("task", "attention", "position", "model")} == {
        "task": "exchange",
        "attention": "shouting",
        "position": "short",
        "model": "double",
    }
    evaluate = (
        "evaluate.py",
        "checkpoint=run/checkpoints/best.ckpt",
        "lengths=[3]",
        "num_per_length=4",
        "num_figures=0",
    )
    assert f"{package}.odd_one" in sys.modules
    forget(package)
    capsys.readouterr()
    for trust in ((), ("trust=another",), ("trust=[another,still_another]",)):
        assert command(*evaluate, *trust) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert f"task._target_={package}.odd_one.Swap is not a Task of attention_lab" in line
        assert f"trust={package}" in line
        assert not [module for module in sys.modules if module.startswith(package)]
    assert command(*evaluate, f"trust={package}", "hydra.run.dir=seen") == 0
    assert Path("seen/report.json").is_file()
    forget(package)
    # A run's folder is a file, too.
    assert command("train.py", "resume=run", "trainer.max_steps=3") == 2
    assert f"trust={package}" in capsys.readouterr().err
    assert not [module for module in sys.modules if module.startswith(package)]
    assert command("train.py", "resume=run", "trainer.max_steps=3", f"trust={package}") == 0


@pytest.mark.slow
def test_a_mixture_may_be_made_of_ones_own_task(package: str, command: Command) -> None:
    mixture = ("task=mixture", "task.tasks=[exchange,copy,exchange]")
    assert command("train.py", "--config-dir", "own", *SMALL, *mixture, "hydra.run.dir=run") == 0
    own = {"exchange": {"_target_": f"{package}.odd_one.Swap", "shift": 2}}
    assert config_of("run")["task"]["tasks"] == [own, {"copy": {"_target_": "attention_lab.tasks.copy.Copy"}}, own]
    evaluate = (
        "evaluate.py",
        "checkpoint=run/checkpoints/best.ckpt",
        "lengths=[3]",
        "num_per_length=4",
        "num_figures=0",
    )
    assert command(*evaluate) == 2
    assert command(*evaluate, f"trust={package}") == 0


@pytest.mark.parametrize(
    ("setting", "kind"),
    [
        ("task._target_=PACKAGE.odd_two.Louder", "Task"),
        ("attention._target_=PACKAGE.odd_one.Swap", "MultiHeadAttention"),
        ("position._target_=PACKAGE.odd_one.Swap", "Position"),
        ("model._target_=PACKAGE.odd_one.Swap", "SequenceModel"),
        ("model._target_=PACKAGE.odd_nine.Swap", "SequenceModel"),
        ("model._target_=os.system", "SequenceModel"),
    ],
)
def test_a_class_of_ones_own_has_to_be_of_the_right_kind(
    package: str, command: Command, capsys: pytest.CaptureFixture[str], setting: str, kind: str
) -> None:
    setting = setting.replace("PACKAGE", package)
    assert command("train.py", *SMALL, setting) == 2
    assert f"error: {setting} is not a {kind}" in capsys.readouterr().err
