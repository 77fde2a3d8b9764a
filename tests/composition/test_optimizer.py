"""The optimizer of a run: any class of PyTorch's or of one's own, refused in one line where it cannot be."""

from typing import Any

import pytest
import torch

from attention_lab.composition.training import build_optimizer
from attention_lab.errors import SettingError
from attention_lab.settings.checking import build
from attention_lab.settings.schema import OptimizerSettings

OWN: dict[str, Any] = {
    "learning_rate": 0.1,
    "final_learning_rate": 0.0,
    "warmup_steps": 3,
    "weight_decay": 0.25,
    "gradient_clip": 1.0,
}


def groups() -> list[dict[str, Any]]:
    return [
        {"params": [torch.nn.Parameter(torch.ones(2, 2))], "weight_decay": 0.25},
        {"params": [torch.nn.Parameter(torch.ones(2))], "weight_decay": 0.0},
    ]


def made(**settings: Any) -> torch.optim.Optimizer:
    return build_optimizer(build(OptimizerSettings, {**OWN, **settings}, "optimizer"))(groups(), 0.1, True)


def test_it_is_adamw_where_no_class_is_named():
    optimizer = made(betas=[0.5, 0.75])
    assert type(optimizer) is torch.optim.AdamW
    assert [(group["betas"], group["fused"], group["weight_decay"]) for group in optimizer.param_groups] == [
        ((0.5, 0.75), True, 0.25),
        ((0.5, 0.75), True, 0.0),
    ]


def test_another_class_has_its_own_arguments():
    optimizer = made(_target_="torch.optim.SGD", momentum=0.5, nesterov=True)
    assert type(optimizer) is torch.optim.SGD
    assert [(group["momentum"], group["nesterov"], group["lr"]) for group in optimizer.param_groups] == [
        (0.5, True, 0.1),
        (0.5, True, 0.1),
    ]


@pytest.mark.parametrize("name", ["Adam", "NAdam", "RAdam", "Adamax", "Adagrad", "RMSprop", "SGD", "Adadelta"])
def test_pytorchs_optimizers_learn(name):
    optimizer = made(_target_=f"torch.optim.{name}")
    weight = optimizer.param_groups[0]["params"][0]
    before = weight.detach().clone()
    (weight**2).sum().backward()
    optimizer.step()
    assert not torch.equal(weight, before)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"lerning_rate": 3}, "optimizer.lerning_rate=3 is not a setting; did you mean optimizer.learning_rate or"),
        ({"momentum": 0.9}, "optimizer.momentum=0.9 is not a setting"),
        ({"lr": 0.1}, "optimizer.lr=0.1 is not a setting; did you mean .*optimizer.learning_rate"),
        ({"_target_": "torch.optim.SGD", "betas": [0.9, 0.9]}, r"optimizer.betas=\[0.9, 0.9\] is nothing that torch"),
        ({"_target_": "torch.optim.Rprop"}, "optimizer.weight_decay=0.25 is nothing that torch.optim.Rprop takes"),
        ({"_target_": "torch.optim.LBFGS", "weight_decay": 0.0}, "cannot be built"),
        ({"_target_": "torch.optim.SGD", "momentum": -1.0}, "cannot be built: Invalid momentum value: -1.0"),
        ({"_target_": "torch.optim.SGD", "momentum": "much"}, "optimizer.momentum=much is not a number"),
        ({"_target_": "torch.optim.SGD", "nesterov": 1}, "optimizer.nesterov=1 is not true or false"),
        ({"_target_": "torch.optim.SGD", "nesterov": True}, "cannot be built: Nesterov momentum requires"),
        ({"_target_": "torch.optim.Missing"}, "is not a Optimizer"),
        ({"_target_": "torch.nn.Linear"}, "is not a Optimizer"),
        ({"_target_": 3}, "is not a Optimizer"),
        ({"betas": [0.9]}, "must be two numbers"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(settings, why):
    with pytest.raises(SettingError, match=why) as refused:
        made(**settings)
    assert len(str(refused.value).splitlines()) == 1


def test_a_file_may_name_pytorchs_and_no_others():
    settings = build(OptimizerSettings, {**OWN, "_target_": "torch.optim.SGD"}, "optimizer")
    build_optimizer(settings, trust=())
    other = build(OptimizerSettings, {**OWN, "_target_": "transformers.optimization.Adafactor"}, "optimizer")
    with pytest.raises(SettingError, match="if you trust the package transformers, say so"):
        build_optimizer(other, trust=())
    foreign = build(OptimizerSettings, {**OWN, "_target_": "torch.hub.load"}, "optimizer")
    with pytest.raises(SettingError, match="if you trust the package torch, say so"):
        build_optimizer(foreign, trust=())
