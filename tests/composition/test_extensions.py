"""What somebody adds is one module and one YAML file each, whatever they are called; a file may name it if trusted."""

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
    "odd_five": """
from lightning.pytorch import Callback

class Counter(Callback):
    def __init__(self, say: str, every: int = 1) -> None:
        self.say, self.every, self.steps = say, every, 0

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        self.steps += self.every
        print(self.say, self.steps)

    def state_dict(self):
        return {"steps": self.steps}

    def load_state_dict(self, state_dict):
        self.steps = state_dict["steps"]

class Unkept(Callback):
    def state_dict(self):
        return {"inside": [{"lock": object()}]}
""",
}
YAML = {
    "task/exchange": "_target_: PACKAGE.odd_one.Swap\nshift: 2\n",
    "attention/shouting": "_target_: PACKAGE.odd_two.Louder\nloudness: 3\n",
    "position/short": "_target_: PACKAGE.odd_three.Fewer\nmax_len: 40\n",
    "callbacks/counting": "defaults: [default]\ncounter:\n  _target_: PACKAGE.odd_five.Counter\n  say: counted\n",
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


def test_ones_own_callback_runs_beside_the_others_and_goes_on(
    package: str, command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    typed = (f"+callbacks.mine._target_={package}.odd_five.Counter", "+callbacks.mine.say=counted")
    assert command("train.py", *SMALL, *typed, "+callbacks.mine.every=10", "hydra.run.dir=run") == 0
    assert "counted 10\ncounted 20\n" in capsys.readouterr().out
    assert config_of("run")["callbacks"] == {
        "attention_maps": False,
        "num_samples": 8,
        "mine": {"_target_": f"{package}.odd_five.Counter", "say": "counted", "every": 10},
    }
    # The config of a run that goes on comes out of a file.
    forget(package)
    assert command("train.py", "resume=run", "trainer.max_steps=4") == 2
    assert f"callbacks.mine._target_={package}.odd_five.Counter is not a Callback" in capsys.readouterr().err
    assert not [module for module in sys.modules if module.startswith(package)]
    assert command("train.py", "resume=run", "trainer.max_steps=4", f"trust={package}") == 0
    assert "counted 30\ncounted 40\n" in capsys.readouterr().out
    # Whoever evaluates has no use for it.
    forget(package)
    assert command("evaluate.py", "checkpoint=run/checkpoints/best.ckpt", "lengths=[]", "num_figures=0") == 0
    assert not [module for module in sys.modules if module.startswith(package)]


@pytest.mark.slow
def test_callbacks_may_be_a_file_of_configs_and_lightnings_own(
    package: str, command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command("train.py", "--config-dir", "own", *SMALL, "callbacks=counting", "hydra.run.dir=run") == 0
    assert "counted 1\ncounted 2\n" in capsys.readouterr().out
    assert package in str(config_of("run")["callbacks"])
    own = "+callbacks.rate._target_=lightning.pytorch.callbacks.LearningRateMonitor"
    assert command("train.py", *SMALL, own, "+callbacks.rate.logging_interval=step", "hydra.run.dir=rate") == 0
    assert command("train.py", *SMALL[:-1], "callbacks=none", "hydra.run.dir=bare") == 0


@pytest.mark.parametrize(
    ("typed", "why"),
    [
        ("+callbacks.mine._target_=PACKAGE.odd_five.Missing", "is not a Callback: PACKAGE.odd_five has no Missing"),
        (
            "+callbacks.mine._target_=PACKAGE.odd_one.Swap",
            "callbacks.mine._target_=PACKAGE.odd_one.Swap is not a Callback",
        ),
        ("+callbacks.mine._target_=nowhere.Mine", "is not a Callback: there is no module nowhere"),
        ("+callbacks.mine={_target_: PACKAGE.odd_five.Counter}", "callbacks.mine.say is missing"),
        (
            "+callbacks.mine={_target_: PACKAGE.odd_five.Counter, say: a, evry: 3}",
            "did you mean callbacks.mine.every or",
        ),
        ("+callbacks.mine={_target_: PACKAGE.odd_five.Counter, say: 3}", "callbacks.mine.say=3 is not text"),
        pytest.param("+callbacks.mine=3", "callbacks.mine=3 is not a setting", marks=pytest.mark.slow),
        ("+callbacks.num_sampels=3", "did you mean callbacks.num_samples?"),
        ("+callbacks.mine.say=3", "callbacks.mine.say=3 is not a setting"),
        ("+callbacks.mine._target_=PACKAGE.odd_five.Unkept", "keeps a builtins.object in its state"),
    ],
)
def test_a_callback_that_cannot_be_is_one_line(
    package: str, command: Command, capsys: pytest.CaptureFixture[str], typed: str, why: str
) -> None:
    assert command("train.py", *SMALL, typed.replace("PACKAGE", package), "hydra.run.dir=run") == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error:")]
    assert why.replace("PACKAGE", package) in line
    assert not list(Path("run").glob("checkpoints/*.ckpt"))


@pytest.mark.slow
def test_another_optimizer_trains_goes_on_and_is_compared(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    assert command("train.py", *SMALL, "optimizer=sgd", "optimizer.momentum=0.5", "hydra.run.dir=runs/sgd") == 0
    assert config_of("runs/sgd")["optimizer"]["_target_"] == "torch.optim.SGD"
    assert command("train.py", "resume=runs/sgd", "trainer.max_steps=4") == 0
    kept = torch.load("runs/sgd/checkpoints/last.ckpt", weights_only=True)["optimizer_states"][0]
    assert {group["momentum"] for group in kept["param_groups"]} == {0.5}
    assert all(list(state) == ["momentum_buffer"] for state in kept["state"].values())
    assert command("train.py", "resume=runs/sgd", "trainer.max_steps=6", "optimizer.momentum=0.9") == 2
    assert "optimizer.momentum=0.9 cannot change when a run goes on (it was 0.5)" in capsys.readouterr().err
    small = [setting for setting in SMALL if not setting.startswith("trainer.max_steps")]
    assert command("train.py", *small, "trainer.max_steps=4", "hydra.run.dir=runs/adamw") == 0
    # One of before there was a choice.
    old = torch.load("runs/adamw/checkpoints/best.ckpt", weights_only=True)
    del old["attention_lab"]["config"]["optimizer"]["_target_"]
    for group in ("optimizer", "callbacks"):
        del old["attention_lab"]["config"]["choices"][group]
    Path("runs/old/checkpoints").mkdir(parents=True)
    torch.save(old, "runs/old/checkpoints/best.ckpt")
    pattern = "checkpoint=runs/*/checkpoints/best.ckpt"
    assert command("evaluate.py", pattern, "lengths=[]", "num_figures=0", "hydra.run.dir=seen") == 0
    said = capsys.readouterr().out
    assert "runs/adamw/checkpoints/best.ckpt is left out: a later one has its config" in said
    assert command("train.py", *SMALL, "optimizer=sgd", "+optimizer.momentun=0.5", "hydra.run.dir=no") == 2
    assert "did you mean optimizer.momentum" in capsys.readouterr().err
