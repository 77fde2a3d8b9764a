"""Every setting's range, and the line that a value outside it gets."""

import subprocess
import sys
from typing import Any

import pytest
from pydantic import ValidationError

from attention_lab.errors import SettingError
from attention_lab.settings.checking import build
from attention_lab.settings.schema import (
    CheckpointSettings,
    DataSettings,
    EarlyStoppingSettings,
    EvaluateSettings,
    OptimizerSettings,
    TrainerSettings,
    TrainSettings,
)

DATA = {
    "min_length": 3,
    "max_length": 7,
    "vocab_size": 11,
    "unique_symbols": False,
    "train_size": 101,
    "validation_size": 19,
    "test_size": 23,
    "batch_size": 13,
    "num_workers": 2,
}
OPTIMIZER = {
    "learning_rate": 0.005,
    "final_learning_rate": 0.0005,
    "warmup_steps": 5,
    "weight_decay": 0.01,
    "betas": [0.9, 0.98],
    "gradient_clip": 1.0,
}
TRAINER = {
    "accelerator": "auto",
    "precision": "auto",
    "max_steps": 17,
    "validate_every": 5,
    "deterministic": False,
}
CHECKPOINT = {"monitor": "val/loss", "mode": "min"}
EARLY_STOPPING = {"monitor": "val/exact_match", "mode": "max", "threshold": 0.99}
EVALUATE = {
    "checkpoint": "best.ckpt",
    "accelerator": "auto",
    "batch_size": 29,
    "num_figures": 2,
    "lengths": [3, 5],
    "num_per_length": 7,
    "decode_up_to": 1024,
    "pdf": False,
}

SECTIONS: dict[str, tuple[type, dict[str, Any]]] = {
    "data": (DataSettings, DATA),
    "optimizer": (OptimizerSettings, OPTIMIZER),
    "trainer": (TrainerSettings, TRAINER),
    "checkpoint": (CheckpointSettings, CHECKPOINT),
    "early_stopping": (EarlyStoppingSettings, EARLY_STOPPING),
}


def section(name: str, **changed: object) -> Any:
    kind, config = SECTIONS[name]
    return build(kind, {**config, **changed}, name)


def run_settings(**changed: object) -> TrainSettings:
    component = {"_target_": "attention_lab.tasks.copy.Copy"}
    components = dict.fromkeys(("task", "model", "attention", "position"), component)
    sections = {name: config for name, (_, config) in SECTIONS.items()}
    return build(TrainSettings, {**components, **sections, "callbacks": CALLBACKS, "seed": 0, **changed}, "")


CALLBACKS = {"attention_maps": True, "num_samples": 7}


@pytest.mark.parametrize("name", SECTIONS)
def test_good_settings_arrive_unchanged(name: str) -> None:
    made = section(name)
    assert {setting: getattr(made, setting) for setting in SECTIONS[name][1]} == SECTIONS[name][1]


@pytest.mark.parametrize("name", SECTIONS)
def test_every_setting_has_to_be_there(name: str) -> None:
    kind, config = SECTIONS[name]
    # What evaluates a checkpoint does not say how many workers there are; not every optimizer has betas.
    for left_out in config.keys() - {"num_workers", "betas"}:
        rest = {setting: value for setting, value in config.items() if setting != left_out}
        with pytest.raises(SettingError, match=rf"^{name}\.{left_out} is missing"):
            build(kind, rest, name)


@pytest.mark.parametrize(
    ("name", "setting", "value", "allowed"),
    [
        ("data", "min_length", 0, "at least 1"),
        ("data", "max_length", 2, "below min_length=3"),
        ("data", "vocab_size", 0, "at least 1"),
        ("data", "vocab_size", 10**6 + 1, "at most 1000000"),
        ("data", "train_size", 0, "at least 1"),
        ("data", "validation_size", -3, "at least 1"),
        ("data", "test_size", 0, "at least 1"),
        ("data", "batch_size", 0, "at least 1"),
        ("data", "num_workers", -1, "at least 0"),
        ("data", "unique_symbols", 1, "true or false"),
        ("optimizer", "learning_rate", 0.0, "above 0"),
        ("optimizer", "learning_rate", -0.1, "above 0"),
        ("optimizer", "final_learning_rate", -0.1, "between 0 and learning_rate=0.005"),
        ("optimizer", "final_learning_rate", 0.0051, "between 0 and learning_rate=0.005"),
        ("optimizer", "warmup_steps", -1, "at least 0"),
        ("optimizer", "weight_decay", -0.1, "at least 0"),
        ("optimizer", "gradient_clip", -0.1, "at least 0"),
        ("optimizer", "betas", [0.9], "two numbers, each at least 0 and below 1"),
        ("optimizer", "betas", [0.9, 0.95, 0.98], "two numbers, each at least 0 and below 1"),
        ("optimizer", "betas", [0.9, 1.0], "two numbers, each at least 0 and below 1"),
        ("optimizer", "betas", [-0.1, 0.98], "two numbers, each at least 0 and below 1"),
        ("trainer", "max_steps", 0, "at least 1"),
        ("trainer", "validate_every", 0, "at least 1"),
        ("trainer", "accelerator", "tpu", "one of auto, cpu, gpu"),
        ("trainer", "precision", "64-true", "one of auto, 32-true, bf16-mixed, 16-mixed"),
        ("trainer", "deterministic", "yes", "true or false"),
        ("checkpoint", "monitor", "val/los", "one of val/loss, val/token_accuracy, val/exact_match"),
        ("checkpoint", "mode", "least", "one of min, max"),
        ("early_stopping", "monitor", "train/loss", "one of val/loss, val/token_accuracy, val/exact_match"),
        ("early_stopping", "mode", "most", "one of min, max"),
        ("early_stopping", "threshold", "low", "a number or null"),
    ],
)
def test_a_value_out_of_range_is_told_with_what_is_allowed(
    name: str, setting: str, value: object, allowed: str
) -> None:
    with pytest.raises(SettingError) as refusal:
        section(name, **{setting: value})
    assert str(refusal.value).startswith(f"{name}.{setting}={value} ")
    assert allowed in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_unique_symbols_need_enough_symbols() -> None:
    with pytest.raises(SettingError) as refusal:
        section("data", unique_symbols=True, vocab_size=6)
    assert str(refusal.value).startswith("data.max_length=7 ")
    assert "at most vocab_size=6" in str(refusal.value)


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("data", {"min_length": 1, "max_length": 1}),
        ("data", {"vocab_size": 1}),
        ("data", {"vocab_size": 10**6}),
        ("data", {"train_size": 1, "validation_size": 1, "test_size": 1, "batch_size": 1, "num_workers": 0}),
        ("data", {"unique_symbols": True, "vocab_size": 7}),
        ("optimizer", {"final_learning_rate": 0.0}),
        ("optimizer", {"final_learning_rate": 0.005}),
        ("optimizer", {"warmup_steps": 0, "weight_decay": 0.0, "gradient_clip": 0.0}),
        ("optimizer", {"betas": [0.0, 0.999]}),
        ("trainer", {"max_steps": 1, "validate_every": 1}),
        ("trainer", {"accelerator": "gpu", "precision": "16-mixed", "deterministic": True}),
        ("early_stopping", {"threshold": None}),
    ],
)
def test_the_ends_of_a_range_are_inside(name: str, changed: dict[str, object]) -> None:
    made = section(name, **changed)
    assert {setting: getattr(made, setting) for setting in changed} == changed


@pytest.mark.parametrize("metric", ["loss", "token_accuracy", "exact_match", "alignment_hit_rate", "alignment_mass"])
def test_every_validation_scalar_can_be_watched(metric: str) -> None:
    assert section("checkpoint", monitor=f"val/{metric}").monitor == f"val/{metric}"
    assert section("early_stopping", monitor=f"val/{metric}").monitor == f"val/{metric}"


@pytest.mark.parametrize("num_samples", [0, 11])
def test_callbacks_may_show_no_samples(num_samples: int) -> None:
    assert run_settings(callbacks={**CALLBACKS, "num_samples": num_samples}).callbacks.num_samples == num_samples


def test_callbacks_show_no_negative_number_of_samples() -> None:
    with pytest.raises(SettingError, match=r"^callbacks\.num_samples=-1 must be at least 0$"):
        run_settings(callbacks={**CALLBACKS, "num_samples": -1})


@pytest.mark.parametrize("seed", [0, 7, 2**32 - 1])
def test_seeds_that_every_generator_takes(seed: int) -> None:
    assert run_settings(seed=seed).seed == seed


@pytest.mark.parametrize("seed", [-1, 2**32])
def test_seeds_that_some_generator_refuses(seed: int) -> None:
    with pytest.raises(SettingError, match=rf"^seed={seed} must lie between 0 and 4294967295$"):
        run_settings(seed=seed)


def test_a_fault_inside_a_run_is_named_in_full() -> None:
    with pytest.raises(SettingError, match=r"^data\.batch_size=0 must be at least 1$"):
        run_settings(data={**DATA, "batch_size": 0})
    with pytest.raises(SettingError, match=r"^trainer\.max_step=7 is not a setting; did you mean trainer\.max_steps"):
        run_settings(trainer={**TRAINER, "max_step": 7})


def test_components_keep_their_own_settings_for_later() -> None:
    task = {"_target_": "attention_lab.tasks.copy.Copy", "times": 3}
    assert run_settings(task=task).task == task


@pytest.mark.parametrize(
    ("setting", "value", "allowed"),
    [
        ("batch_size", 0, "at least 1"),
        ("num_figures", -1, "at least 0"),
        ("accelerator", "tpu", "one of auto, cpu, gpu"),
        ("checkpoint", 7, "text or a list whose every item is text"),
        ("checkpoint", ["a.ckpt", 7], "text"),
        ("checkpoint", [], "names no file"),
        ("checkpoint", "", "names no file"),
    ],
)
def test_what_evaluation_refuses(setting: str, value: object, allowed: str) -> None:
    with pytest.raises(SettingError) as refusal:
        build(EvaluateSettings, {**EVALUATE, setting: value}, "")
    assert str(refusal.value).startswith((f"{setting}={value} ", f"{setting}={value!r} "))
    assert allowed in str(refusal.value)


@pytest.mark.parametrize("lengths", [[0], [4, -1]])
def test_lengths_are_positive(lengths: list[int]) -> None:
    with pytest.raises(SettingError, match=r"^lengths=.* must be at least 1 each"):
        build(EvaluateSettings, {**EVALUATE, "lengths": lengths}, "")


def test_what_evaluation_takes() -> None:
    made = build(EvaluateSettings, {**EVALUATE, "batch_size": 1, "num_figures": 0, "trust": "mine"}, "")
    assert made.model_dump() == {**EVALUATE, "source": None, "batch_size": 1, "num_figures": 0, "trust": ["mine"]}


@pytest.mark.parametrize(
    ("typed", "sources"),
    [("3 1", ["3 1"]), (7, ["7"]), ([3, 1], ["3 1"]), (["3 1", 4], ["3 1", "4"]), ([[3, 1], [4]], ["3 1", "4"])],
)
def test_sources_are_texts_however_they_are_typed(typed: object, sources: list[str]) -> None:
    assert build(EvaluateSettings, {**EVALUATE, "source": typed}, "").source == sources


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({"trainer": {**TRAINER, "max_steps": 2**63}}, "trainer.max_steps=9223372036854775808 is too large"),
        ({"trainer": {**TRAINER, "validate_every": 2**70}}, "trainer.validate_every=1180591620717411303424 is too"),
        ({"optimizer": {**OPTIMIZER, "warmup_steps": 10**5000}}, "optimizer.warmup_steps=… is too large"),
        ({"position_sampling": {"range": 2**63}}, "position_sampling.range=9223372036854775808 is too large"),
        ({"position": {"_target_": "x", "max_distance": 2**63}}, "position.max_distance=9223372036854775808 is too"),
        ({"model": {"_target_": "x", "scale": float("inf")}}, "model.scale=inf is not a number"),
        ({"init_from": "x" * 1001}, "init_from=xxx"),
        ({"task": {"_target_": "x", "more": {"than": list(range(1000))}}}, "has too many parts"),
        ({"task": {"_target_": "x", "what": {3, 5}}}, "task.what is neither text nor a number, but a set"),
    ],
)
def test_what_no_checkpoint_may_hold_is_refused_before_training(changed: dict[str, Any], complaint: str) -> None:
    with pytest.raises(SettingError) as refusal:
        run_settings(**changed)
    assert complaint in str(refusal.value)
    assert len(str(refusal.value)) < 600


def test_the_largest_a_checkpoint_may_hold() -> None:
    made = run_settings(trainer={**TRAINER, "max_steps": 2**63 - 1}, init_from="x" * 1000)
    assert (made.trainer.max_steps, made.init_from) == (2**63 - 1, "x" * 1000)


def test_what_describes_a_run_makes_the_same_settings_again() -> None:
    made = run_settings(resume="somewhere", trust="mine", choices={"task": "copy"}, init_from="a.ckpt")
    plain = made.plain()
    assert not {"resume", "trust"} & plain.keys()
    assert plain["data"] == DATA
    assert plain["choices"] == {"task": "copy"}
    assert build(TrainSettings, plain, "") == made.changed(resume=None, trust=[])


def test_who_wrote_the_config_is_trusted() -> None:
    assert run_settings(trust="mine").trusted is None
    assert run_settings(trust=["mine", "yours"], resume="a run").trusted == ["mine", "yours"]


def test_settings_cannot_be_changed_afterwards() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        section("data").batch_size = 7


def test_checking_settings_imports_nothing_heavy() -> None:
    # `train.py --help` has to answer in under a second.
    script = (
        "import attention_lab.settings.checking, attention_lab.settings.schema, sys;"
        "print({'torch', 'lightning', 'datasets', 'matplotlib', 'torchmetrics'} & sys.modules.keys())"
    )
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert said.stdout == "set()\n"
