"""What a training goes on from is held against it: what does not fit is refused, before anybody else sees it."""

import copy
import functools
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hydra import compose, initialize_config_dir
from hypothesis import settings
from lightning.pytorch import Trainer
from omegaconf import OmegaConf

from attention_lab.composition.build import build_data, build_network, build_task
from attention_lab.errors import SettingError
from attention_lab.runs.checkpoint import read_checkpoint
from attention_lab.settings.checking import build
from attention_lab.settings.schema import TrainSettings
from attention_lab.training.checkpointing import WholeFiles
from attention_lab.training.module import SequenceTraining
from attention_lab.training.restoring import restore
from attention_lab.training.trainer import make_trainer

ROOT = Path(__file__).parents[2]
SMALL = ["experiment=smoke", "trainer=cpu", "model.d_model=8", "model.d_ff=8", "trainer.max_steps=4"]


def config_of(*overrides: str) -> dict[str, Any]:
    with initialize_config_dir(str(ROOT / "configs"), version_base="1.3"):
        config: Any = OmegaConf.to_container(compose("train", [*SMALL, *overrides]), resolve=True)
    return config


def training(config: dict[str, Any], run: Path) -> tuple[Trainer, SequenceTraining]:
    settings = build(TrainSettings, config, "")
    network = build_network(settings.model, settings.attention, settings.position, settings.data)
    optimizer = settings.optimizer
    module = SequenceTraining(
        network,
        learning_rate=optimizer.learning_rate,
        final_learning_rate=optimizer.final_learning_rate,
        warmup_steps=optimizer.warmup_steps,
        max_steps=settings.trainer.max_steps,
        weight_decay=optimizer.weight_decay,
        betas=(optimizer.betas[0], optimizer.betas[1]),
        config=config,
    )
    return make_trainer(settings, run, [], []), module


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    run, config = tmp_path_factory.mktemp("run"), config_of()
    (run / "checkpoints").mkdir()
    trainer, module = training(config, run)
    settings = build(TrainSettings, config, "")
    trainer.fit(module, build_data(build_task(settings.task), settings.data, settings.seed))
    return run


@pytest.fixture(scope="module")
def content(run) -> dict[str, Any]:
    return torch.load(run / "checkpoints/last.ckpt", weights_only=True)


@pytest.fixture(scope="module")
def again(run, tmp_path_factory) -> Path:
    """Returns the folder of a run that is to go on."""
    folder = tmp_path_factory.mktemp("again")
    (folder / "checkpoints").mkdir()
    shutil.copy(run / "checkpoints/best.ckpt", folder / "checkpoints/best.ckpt")
    return folder


@pytest.fixture(scope="module")
def restored(again) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Restores a training from some content, and returns what Lightning would get."""
    trainer, module = training(config_of("trainer.max_steps=8"), again)

    def restore_from(content: dict[str, Any]) -> dict[str, Any]:
        path = again / "checkpoints/last.ckpt"
        torch.save(content, path)
        restore(read_checkpoint(path, "resume"), trainer, module, "run")
        files = trainer.strategy.checkpoint_io
        assert isinstance(files, WholeFiles)
        return files.load_checkpoint(path)

    return restore_from


def refusal(restored, content: dict[str, Any]) -> str:
    with pytest.raises(SettingError) as refused:
        restored(content)
    message = str(refused.value)
    assert "\n" not in message
    assert message.startswith("resume=")
    return message


def equal(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(equal(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(equal, a, b))
    return a == b


def test_what_fits_comes_through_as_it_was(restored, content):
    got = restored(content)
    for name in ("epoch", "global_step", "state_dict", "callbacks", "optimizer_states", "lr_schedulers"):
        assert equal(got[name], content[name]), name
    assert got["loops"]["fit_loop"] == content["loops"]["fit_loop"]
    assert got["attention_lab"] == {name: content["attention_lab"][name] for name in ("solved", "seconds")}


def test_what_the_settings_say_does_not_come_from_the_file(restored, content):
    changed = copy.deepcopy(content)
    for group in changed["optimizer_states"][0]["param_groups"]:
        group |= {"betas": (2.0, "x"), "eps": -1.0, "weight_decay": None, "fused": "yes", "initial_lr": 1e9}
    changed["lr_schedulers"][0]["base_lrs"] = [1e9, 1e9]
    changed["pytorch-lightning_version"] = "not a version"
    changed["SequenceData"] = changed["hyper_parameters"] = {"anything": 1}
    got, expected = restored(changed), restored(content)
    assert equal(got, expected)


def test_moments_that_lie_on_one_another_are_taken_apart(restored, content):
    changed = copy.deepcopy(content)
    for state in changed["optimizer_states"][0]["state"].values():
        state["exp_avg"] = state["exp_avg_sq"]
    for state in restored(changed)["optimizer_states"][0]["state"].values():
        assert state["exp_avg"].data_ptr() != state["exp_avg_sq"].data_ptr()


WRONG_TENSORS: dict[str, Callable[[torch.Tensor], Any]] = {
    "one number": lambda _: torch.zeros(1),
    "one row more": lambda given: torch.zeros((*given.shape, 1)),
    "turned": lambda given: given.reshape(-1),
    "repeated": lambda given: torch.zeros(1).expand(given.shape),
    "double": lambda given: given.double(),
    "half": lambda given: given.half(),
    "complex": lambda given: given.to(torch.complex64),
    "sparse": lambda given: given.to_sparse(),
    "nested": lambda given: torch.nested.nested_tensor([given, given]),
    "jagged": lambda given: torch.nested.nested_tensor([given, given], layout=torch.jagged),
    "quantized": lambda given: torch.quantize_per_tensor(given, 0.1, 0, torch.qint8),
    "meta": lambda given: given.to("meta"),
    "not a number": lambda given: torch.full_like(given, torch.nan),
    "infinite": lambda given: torch.full_like(given, torch.inf),
    "a list": lambda given: given.tolist(),
    "nothing": lambda _: None,
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", WRONG_TENSORS)
@pytest.mark.parametrize("where", ["weight", "exp_avg", "exp_avg_sq"])
def test_a_tensor_of_another_shape_or_kind_is_refused(restored, content, name, where):
    changed = copy.deepcopy(content)
    if where == "weight":
        weights = changed["state_dict"]
        key = "network.encoder.0.attn.w_q.weight"
    else:
        weights, key = changed["optimizer_states"][0]["state"][4], where
    weights[key] = WRONG_TENSORS[name](weights[key])
    assert key.rpartition(".")[2] in refusal(restored, changed) or name in ("nested", "jagged", "quantized")


def remove(*path: Any) -> Callable[[Any], None]:
    def change(content: Any) -> None:
        for name in path[:-1]:
            content = content[name]
        del content[path[-1]]

    return change


def put(value: Any, *path: Any) -> Callable[[Any], None]:
    def change(content: Any) -> None:
        for name in path[:-1]:
            content = content[name]
        content[path[-1]] = value

    return change


OPTIMIZER = ("optimizer_states", 0)
FIT = ("loops", "fit_loop")
RANDOM = ("callbacks", "ExactResume", "random")
DAMAGES: dict[str, Callable[[Any], None]] = {
    "no optimiser": remove("optimizer_states"),
    "two optimisers": lambda content: content["optimizer_states"].append(content["optimizer_states"][0]),
    "no loops": remove("loops"),
    "no fit loop": remove(*FIT),
    "no schedule": remove("lr_schedulers"),
    "no callbacks": remove("callbacks"),
    "no weight": remove("state_dict", "network.output.weight"),
    "a weight more": put(torch.zeros(2), "state_dict", "network.more"),
    "no moment": remove(*OPTIMIZER, "state", 3, "exp_avg"),
    "a moment more": put(torch.zeros(2), *OPTIMIZER, "state", 3, "max_exp_avg_sq"),
    "a state more": lambda content: content["optimizer_states"][0]["state"].update({999: {}}),
    "no state": put({}, *OPTIMIZER, "state"),
    "step is text": put("3", *OPTIMIZER, "state", 3, "step"),
    "step is a row": put(torch.zeros(3), *OPTIMIZER, "state", 3, "step"),
    "step is no number": put(torch.tensor(torch.nan), *OPTIMIZER, "state", 3, "step"),
    "step is below zero": put(torch.tensor(-1.0), *OPTIMIZER, "state", 3, "step"),
    "squares below zero": lambda content: content["optimizer_states"][0]["state"][3]["exp_avg_sq"].sub_(1),
    "no groups": remove(*OPTIMIZER, "param_groups"),
    "a group less": remove(*OPTIMIZER, "param_groups", 1),
    "other weights in a group": put([0], *OPTIMIZER, "param_groups", 0, "params"),
    "rate is text": put("fast", *OPTIMIZER, "param_groups", 0, "lr"),
    "rate is below zero": put(-0.1, *OPTIMIZER, "param_groups", 0, "lr"),
    "rate is enormous": put(1e30, *OPTIMIZER, "param_groups", 0, "lr"),
    "rates are enormous": put([1e30, 1e30], "lr_schedulers", 0, "_last_lr"),
    "schedule is at text": put("3", "lr_schedulers", 0, "last_epoch"),
    "schedule is below zero": put(-3, "lr_schedulers", 0, "last_epoch"),
    "epoch is text": put("1", "epoch"),
    "other steps in the loop": put(
        10**9, *FIT, "epoch_loop.automatic_optimization.optim_progress", "optimizer", "step", "total", "completed"
    ),
    "batches are text": put("3", *FIT, "epoch_loop.batch_progress", "current", "ready"),
    "batches are true": put(True, *FIT, "epoch_loop.batch_progress", "current", "ready"),
    "batches beyond 64 bits": put(10**30, *FIT, "epoch_loop.batch_progress", "current", "ready"),
    "no batches": remove(*FIT, "epoch_loop.batch_progress"),
    "a loop more": put({}, *FIT, "epoch_loop.more"),
    "last batch is 3": put(3, *FIT, "epoch_loop.batch_progress", "is_last_batch"),
    "no callback of ours": remove("callbacks", "BestAndLast"),
    "no random states": remove(*RANDOM),
    "random states are a number": put(3, *RANDOM),
    "random states are none": put([], *RANDOM),
    "random state is short": put(torch.zeros(5, dtype=torch.uint8), *RANDOM, 0, "cpu"),
    "random state is garbage": put(torch.full((5056,), 255, dtype=torch.uint8), *RANDOM, 0, "cpu"),
    "random state is float": put(torch.zeros(5056), *RANDOM, 0, "cpu"),
    "random state of a GPU is short": put([torch.zeros(3, dtype=torch.uint8)], *RANDOM, 0, "cuda"),
    "random state of a GPU is odd": put([torch.full((16,), 3, dtype=torch.uint8)], *RANDOM, 0, "cuda"),
    "validated is text": put("10", "callbacks", "ExactResume", "validated"),
    "best is text": put("low", "callbacks", "BestAndLast", "best"),
    "best is no number": put(float("nan"), "callbacks", "BestAndLast", "best"),
    "last is a list": put([1], "callbacks", "StopWhenSolved", "last"),
    "seconds are text": put("long", "attention_lab", "seconds"),
    "seconds are enormous": put(10**400, "attention_lab", "seconds"),
    "seconds are below zero": put(-3.0, "attention_lab", "seconds"),
    "no seconds": remove("attention_lab", "seconds"),
    "solved is text": put("soon", "attention_lab", "solved"),
    "solved is enormous": put({"step": 10, "seconds": 10**400}, "attention_lab", "solved"),
    "scaler is garbage": put({"scale": "x"}, "MixedPrecision"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_what_does_not_fit_is_refused(restored, content, name):
    changed = copy.deepcopy(content)
    DAMAGES[name](changed)
    assert "init_from=" in refusal(restored, changed)


NASTY: list[Any] = [
    None, True, 0, -1, 3, 10**400, 2.5, float("nan"), float("inf"), "", "text", [], [1], {}, {"a": 1}, (1, 2),
    torch.zeros(1), torch.zeros(0), torch.zeros(2, 3), torch.tensor(-1.0), torch.zeros(5056, dtype=torch.uint8),
    torch.zeros(1).expand(10**9), torch.zeros(3, dtype=torch.int64), torch.zeros(2, dtype=torch.complex64),
]  # fmt: skip


def places(part: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Returns the path of everything in a nested structure."""
    inner = part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ()
    return [place for key, value in inner for place in ((*path, key), *places(value, (*path, key)))]


def test_whatever_stands_anywhere_is_refused_or_does_no_harm(restored, content, again):
    chance = random.Random(0)
    everywhere = places(content)
    _, module = training(config_of("trainer.max_steps=8"), again)
    # What is accepted is loaded by an optimiser that writes wherever it is told to.
    module.trainer = Trainer(accelerator="cpu", logger=False, enable_checkpointing=False, barebones=True)
    complaints: list[str] = []
    accepted = 0
    count = 4 * settings().max_examples
    for _ in range(count):
        changed = copy.deepcopy(content)
        *path, last = chance.choice(everywhere)
        part = functools.reduce(lambda inner, key: inner[key], path, changed)
        if chance.random() < 0.2:
            del part[last]
        else:
            part[last] = chance.choice(NASTY)
        try:
            got = restored(changed)
        except SettingError as error:
            complaints.append(str(error))
            continue
        accepted += 1
        made: Any = module.configure_optimizers()
        module.load_state_dict(got["state_dict"])
        made["optimizer"].load_state_dict(got["optimizer_states"][0])
        made["lr_scheduler"]["scheduler"].load_state_dict(got["lr_schedulers"][0])
        for weight in module.parameters():
            weight.grad = torch.ones_like(weight)
        made["optimizer"].step()
        made["lr_scheduler"]["scheduler"].step()
    assert not [complaint for complaint in complaints if len(complaint) > 1000 or "\n" in complaint]
    assert len(complaints) > 0.6 * count
    assert accepted > count / 40


def test_a_best_checkpoint_that_is_lost_or_broken_is_noticed_now(restored, content, again):
    best = again / "checkpoints/best.ckpt"
    whole = best.read_bytes()
    best.write_bytes(whole[:1000])
    assert "broken" in refusal(restored, content)
    best.unlink()
    assert "best.ckpt is missing" in refusal(restored, content)
    # Stopped before its first validation, a run has none.
    changed = copy.deepcopy(content)
    changed["callbacks"]["BestAndLast"]["best"] = None
    restored(changed)
    best.write_bytes(whole)


def test_a_weight_that_no_gradient_has_reached_has_no_state(restored, content):
    changed = copy.deepcopy(content)
    del changed["optimizer_states"][0]["state"][3]
    assert 3 not in restored(changed)["optimizer_states"][0]["state"]
