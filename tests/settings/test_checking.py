"""A config is held against a signature: every mistake is told in one line that names the setting in full."""

import math
import re
from typing import Annotated, Any, Literal

import pytest
from pydantic import Field, model_validator

from attention_lab.errors import SettingError
from attention_lab.settings.checking import Section, build, factory, settings_of, suggestion


class Optimizer(Section):
    learning_rate: float
    warmup_steps: Annotated[int, Field(ge=0)] = 5
    betas: list[float] = Field(default=[0.9, 0.98])
    name: str = "adam"
    fused: bool = False
    mode: Literal["min", "max"] = "min"
    threshold: float | None = None
    extras: dict[str, Any] = Field(default={})

    @model_validator(mode="after")
    def _check(self) -> "Optimizer":
        if self.warmup_steps > 1000 * self.learning_rate:
            raise SettingError("warmup_steps", self.warmup_steps, f"is too much for learning_rate={self.learning_rate}")
        return self


class Run(Section):
    optimizer: Optimizer
    seed: int = 3


class Head:
    def __init__(self, d_model: int, num_heads: int, scale: float = 1.0) -> None:
        if d_model % num_heads:
            raise SettingError("num_heads", num_heads, f"does not divide d_model={d_model}")
        if scale <= 0:
            raise SettingError("scale", scale, "must be above 0")
        self.d_model, self.num_heads, self.scale = d_model, num_heads, scale


class NothingToSet:
    pass


def optimizer(**settings: object) -> Optimizer:
    return build(Optimizer, {"learning_rate": 0.1, **settings}, "optimizer")


def exactly(message: str) -> str:
    return f"^{re.escape(message)}$"


def test_settings_become_arguments() -> None:
    made = optimizer(warmup_steps=7, betas=[0.5, 0.7], name="sgd", fused=True, mode="max", threshold=0.3)
    assert made == Optimizer(
        learning_rate=0.1, warmup_steps=7, betas=[0.5, 0.7], name="sgd", fused=True, mode="max", threshold=0.3
    )


def test_what_is_not_set_keeps_its_default() -> None:
    assert optimizer() == Optimizer(learning_rate=0.1)


def test_a_nested_section_becomes_a_record() -> None:
    config = {"optimizer": {"learning_rate": 0.1, "warmup_steps": 11}, "seed": 7}
    assert build(Run, config, "") == Run(optimizer=Optimizer(learning_rate=0.1, warmup_steps=11), seed=7)


def test_classes_and_functions_are_built_as_well() -> None:
    def double(number: int) -> int:
        return 2 * number

    assert build(Head, {"d_model": 12, "num_heads": 3}, "attention").num_heads == 3
    assert build(double, {"number": 7}, "task") == 14
    assert isinstance(build(NothingToSet, {}, "task"), NothingToSet)


def test_a_whole_number_is_a_number() -> None:
    made = optimizer(learning_rate=1)
    assert made.learning_rate == 1.0
    assert type(made.learning_rate) is float


@pytest.mark.parametrize("threshold", [None, 0.5, 3])
def test_a_union_takes_each_of_its_kinds(threshold: float | None) -> None:
    assert optimizer(threshold=threshold).threshold == threshold


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("warmup_steps", True, "a whole number"),
        ("warmup_steps", "7", "a whole number"),
        ("warmup_steps", 7.0, "a whole number"),
        ("warmup_steps", None, "a whole number"),
        ("warmup_steps", [7], "a whole number"),
        ("learning_rate", False, "a number"),
        ("learning_rate", "0.1", "a number"),
        ("learning_rate", None, "a number"),
        ("learning_rate", math.nan, "a number"),
        ("learning_rate", math.inf, "a number"),
        ("learning_rate", -math.inf, "a number"),
        ("name", 7, "text"),
        ("name", None, "text"),
        ("fused", 1, "true or false"),
        ("fused", "true", "true or false"),
        ("betas", 0.9, "a list whose every item is a number"),
        ("betas", "0.9", "a list whose every item is a number"),
        ("betas", [0.9, "0.98"], "a list whose every item is a number"),
        ("betas", [True, 0.98], "a list whose every item is a number"),
        ("betas", [0.9, math.nan], "a list whose every item is a number"),
        ("mode", "median", "one of min, max"),
        ("mode", None, "one of min, max"),
        ("mode", ["min"], "one of min, max"),
        ("threshold", "low", "a number or null"),
        ("threshold", True, "a number or null"),
        ("threshold", math.inf, "a number or null"),
        ("extras", [3], "a section of settings"),
    ],
)
def test_a_wrong_type_is_refused(name: str, value: object, wanted: str) -> None:
    with pytest.raises(SettingError) as refusal:
        optimizer(**{name: value})
    assert str(refusal.value) == f"optimizer.{name}={as_in_a_config(value)} is not {wanted}"


def as_in_a_config(value: object) -> str:
    """Text that YAML would take for something else has quotes; the rest stands as it is written there."""
    for plain in (None, True, False):
        if value is plain:
            return {None: "null", True: "true", False: "false"}[plain]
    return f"'{value}'" if value in ("7", "0.1", "0.9", "true") else str(value)


def test_a_missing_setting_is_named_in_full() -> None:
    with pytest.raises(SettingError, match=exactly("optimizer.learning_rate is missing; it has no default")):
        build(Run, {"optimizer": {"name": "sgd"}}, "")


def test_a_missing_section_is_named() -> None:
    with pytest.raises(SettingError, match=exactly("optimizer is missing; it has no default")):
        build(Run, {"seed": 7}, "")


@pytest.mark.parametrize("value", [3, None, "adam", [0.1]])
def test_a_section_must_be_a_section(value: object) -> None:
    message = f"optimizer={as_in_a_config(value)} is not a section with settings of its own"
    with pytest.raises(SettingError, match=exactly(message)):
        build(Run, {"optimizer": value}, "")


def test_an_unknown_setting_gets_the_nearest_name() -> None:
    message = "optimizer.learnin_rate=0.3 is not a setting; did you mean optimizer.learning_rate?"
    with pytest.raises(SettingError, match=exactly(message)):
        optimizer(learnin_rate=0.3)


def test_an_unknown_setting_in_a_nested_section_is_named_in_full() -> None:
    message = "optimizer.warmup_step=7 is not a setting; did you mean optimizer.warmup_steps?"
    with pytest.raises(SettingError, match=exactly(message)):
        build(Run, {"optimizer": {"learning_rate": 0.1, "warmup_step": 7}}, "")


def test_with_no_name_near_all_are_listed() -> None:
    with pytest.raises(SettingError, match=r"^optimizer\.zzz=7 is not a setting; use one of ") as refusal:
        optimizer(zzz=7)
    assert all(f"optimizer.{name}" in str(refusal.value) for name in settings_of(Optimizer))


def test_an_unknown_setting_does_not_hide_behind_an_empty_signature() -> None:
    with pytest.raises(SettingError, match=r"^task\.steps=3 is not a setting"):
        build(NothingToSet, {"steps": 3}, "task")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("modle.num_heads", "; did you mean model.num_heads?"),
        ("num_heads", "; did you mean model.num_heads?"),
        ("data.num_heads", "; did you mean model.num_heads?"),
        ("zzz", "; use one of data.max_length, model.num_heads"),
    ],
)
def test_the_wrong_section_or_the_wrong_word_is_near_enough(given: str, expected: str) -> None:
    assert suggestion(given, ["model.num_heads", "data.max_length"]) == expected


@pytest.mark.parametrize("where", ["", "run"])
@pytest.mark.parametrize(("steps", "reason"), [(-7, "must be at least 0"), (900, "is too much for learning_rate=0.1")])
def test_what_a_section_refuses_is_named_in_full(where: str, steps: int, reason: str) -> None:
    full = "run.optimizer" if where else "optimizer"
    with pytest.raises(SettingError, match=exactly(f"{full}.warmup_steps={steps} {reason}")) as refusal:
        build(Run, {"optimizer": {"learning_rate": 0.1, "warmup_steps": steps}}, where)
    assert (refusal.value.setting, refusal.value.value) == (f"{full}.warmup_steps", steps)
    assert refusal.value.reason == reason


def test_a_section_with_other_values_is_checked_as_well() -> None:
    assert optimizer().changed(warmup_steps=11) == optimizer(warmup_steps=11)
    with pytest.raises(SettingError, match=exactly("warmup_steps=-7 must be at least 0")):
        optimizer().changed(warmup_steps=-7)


def test_a_misspelt_name_is_told_before_the_right_one_is_missed() -> None:
    message = "optimizer.learnin_rate=0.3 is not a setting; did you mean optimizer.learning_rate?"
    with pytest.raises(SettingError, match=exactly(message)):
        build(Run, {"optimizer": {"warmup_steps": -7, "learnin_rate": 0.3}}, "")


def test_any_other_value_error_of_a_constructor_is_told_of_its_section() -> None:
    def picky(number: int) -> int:
        raise ValueError(f"{number} is unlucky")

    with pytest.raises(SettingError, match=exactly("task cannot be built: 7 is unlucky")):
        build(picky, {"number": 7}, "task")


class Wide(Head):
    def __init__(self, *arguments: Any, copy: int, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.copy = copy


def test_what_a_class_hands_on_to_its_base_can_be_set() -> None:
    made = build(Wide, {"copy": 3, "scale": 0.5, "num_heads": 5}, "attention", d_model=15)
    assert (made.copy, made.scale, made.num_heads, made.d_model) == (3, 0.5, 5, 15)
    with pytest.raises(SettingError, match=exactly("attention.copy is missing; it has no default")):
        build(Wide, {"num_heads": 3}, "attention", d_model=15)


def test_other_exceptions_of_a_constructor_are_no_settings_fault() -> None:
    def broken(number: int) -> int:
        raise KeyError(number)

    with pytest.raises(KeyError):
        build(broken, {"number": 7}, "task")


def test_the_config_stays_as_it_is() -> None:
    config = {"learning_rate": 1, "betas": [0.9, 0.98]}
    build(Optimizer, config, "optimizer")
    assert config == {"learning_rate": 1, "betas": [0.9, 0.98]}
    assert type(config["learning_rate"]) is int


def test_arguments_given_in_code_are_no_settings() -> None:
    assert build(Head, {"num_heads": 3}, "model", d_model=12).d_model == 12
    with pytest.raises(SettingError, match=r"^model\.d_model=12 is not a setting"):
        build(Head, {"num_heads": 3, "d_model": 12}, "model", d_model=12)


def test_a_factory_takes_the_rest_by_place_or_by_name() -> None:
    make = factory(Head, {"scale": 0.7}, "attention", given_later=("d_model", "num_heads"))
    for head in (make(12, 3), make(d_model=12, num_heads=3), make(12, num_heads=3)):
        assert (head.d_model, head.num_heads, head.scale) == (12, 3, 0.7)


def test_a_factory_makes_a_new_object_each_time() -> None:
    make = factory(Head, {}, "attention", given_later=("d_model", "num_heads"))
    assert make(12, 3) is not make(12, 3)


def test_a_factory_checks_its_section_before_it_is_called() -> None:
    with pytest.raises(SettingError, match=exactly("attention.scale=wide is not a number")):
        factory(Head, {"scale": "wide"}, "attention", given_later=("d_model", "num_heads"))
    with pytest.raises(SettingError, match=exactly("attention.num_heads is missing; it has no default")):
        factory(Head, {}, "attention", given_later=("d_model",))
    with pytest.raises(SettingError, match=r"^attention\.num_heads=3 is not a setting"):
        factory(Head, {"num_heads": 3}, "attention", given_later=("d_model", "num_heads"))


def test_a_factory_blames_its_section_for_its_own_settings_only() -> None:
    make = factory(Head, {"scale": -0.7}, "attention", given_later=("d_model", "num_heads"))
    with pytest.raises(SettingError, match=exactly("attention.scale=-0.7 must be above 0")):
        make(12, 3)
    with pytest.raises(SettingError, match=exactly("num_heads=5 does not divide d_model=12")):
        make(12, 5)


def test_what_a_factory_was_given_is_blamed_on_the_section_that_gave_it() -> None:
    def network(num_heads: int, attention: Any) -> Head:
        return attention(12, num_heads)

    attention = factory(Head, {}, "attention", given_later=("d_model", "num_heads"))
    with pytest.raises(SettingError, match=exactly("model.num_heads=5 does not divide d_model=12")):
        build(network, {"num_heads": 5}, "model", attention=attention)


def test_settings_are_the_parameters_of_a_constructor() -> None:
    known = settings_of(Head, besides=("d_model",))
    assert {name: parameter.annotation for name, parameter in known.items()} == {"num_heads": int, "scale": float}
    assert settings_of(NothingToSet) == {}


@pytest.mark.parametrize("betas", [[0, 0.5], [0, 0], [1, 2]])
def test_whole_numbers_become_floats_wherever_floats_are_wanted(betas: list[int]) -> None:
    made = build(Optimizer, {"learning_rate": 1, "betas": betas}, "optimizer")
    assert {type(value) for value in (made.learning_rate, *made.betas)} == {float}


def test_a_number_too_large_for_a_float_is_refused() -> None:
    with pytest.raises(SettingError, match=r"^optimizer\.learning_rate=1000"):
        build(Optimizer, {"learning_rate": 10**400}, "optimizer")
