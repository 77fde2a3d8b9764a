"""Every argument of Lightning's Trainer is a setting of ours, is passed on, or is refused with a reason."""

import inspect

import pytest
from lightning.pytorch import Trainer

from attention_lab.errors import SettingError
from attention_lab.settings.checking import build
from attention_lab.settings.lightning import PASSED_ON, REFUSED
from attention_lab.settings.schema import TrainerSettings
from tests.settings.test_schema import TRAINER

OURS = {name for name in TrainerSettings.model_fields if name != "validate_every"}


def test_every_argument_is_known_and_none_that_lightning_does_not_have():
    assert {*PASSED_ON, *REFUSED, *OURS} == set(inspect.signature(Trainer).parameters)
    assert len(PASSED_ON) + len(REFUSED) + len(OURS) == len({*PASSED_ON, *REFUSED, *OURS})


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_break_a_promise_says_which(name):
    with pytest.raises(SettingError) as refused:
        build(TrainerSettings, {**TRAINER, name: 1}, "trainer")
    assert str(refused.value) == f"trainer.{name}=1 {REFUSED[name]}"


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("benchmark", 5, "is not true or false or null"),
        ("gradient_clip_val", "much", "is not a number or null"),
        ("accumulate", 5, "is not a setting"),
        ("acumulate_grad_batches", 5, "did you mean trainer.accumulate_grad_batches?"),
        ("accumulate_grad_batches", 0, "must be at least 1"),
        ("limit_val_batches", 0, "must be 1 batch or more"),
        ("limit_train_batches", 1.5, "a share above 0.0 and up to 1.0"),
        ("strategy", "fsdp", "is not one of auto, ddp"),
        ("profiler", "fast", "is not one of simple, advanced"),
        ("fast_dev_run", -1, "must be true, false or a number"),
    ],
)
def test_a_wrong_value_is_named(name, value, why):
    with pytest.raises(SettingError) as refused:
        build(TrainerSettings, {**TRAINER, name: value}, "trainer")
    assert f"trainer.{name}={value}" in str(refused.value)
    assert why in str(refused.value)


def test_what_is_not_given_is_lightnings_default():
    assert build(TrainerSettings, {**TRAINER, "benchmark": None, "max_time": "00:01:00:00"}, "").lightnings == {
        "max_time": "00:01:00:00"
    }
