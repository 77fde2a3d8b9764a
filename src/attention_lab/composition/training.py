"""Checked settings become what trains a network: its optimizer, and callbacks of the user's own."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from lightning.pytorch import Callback

from attention_lab.composition.classes import Trust, class_of, own_settings
from attention_lab.errors import SettingError
from attention_lab.settings.checking import build, factory, settings_of, unknown
from attention_lab.settings.schema import CallbackSettings, OptimizerSettings

WeightGroups = list[dict[str, Any]]
"""Weights as optimizers take them: in groups, each with settings of its own."""

OptimizerFactory = Callable[[WeightGroups, float, bool], torch.optim.Optimizer]
"""Makes an optimizer of groups of weights, a learning rate, and whether its kernels may be fused."""

_SET_ELSEWHERE = ("params", "lr", "weight_decay", "betas")
"""Arguments of optimizers that have settings of their own."""


def build_callbacks(settings: CallbackSettings, trust: Trust = ()) -> list[Callback]:
    """Builds the user's own callbacks, in the order in which they were named.

    Raises:
        SettingError: one of them is no callback of Lightning's, is not trusted, or refuses its settings.
    """
    return [
        build(class_of(component, Callback, f"callbacks.{name}", trust), own_settings(component), f"callbacks.{name}")
        for name, component in settings.own.items()
    ]


def build_optimizer(settings: OptimizerSettings, trust: Trust = ()) -> OptimizerFactory:
    """Returns what makes the optimizer that a config describes.

    Raises:
        SettingError: it is no optimizer of PyTorch's, is not trusted, or refuses its arguments.
    """
    component, arguments = settings.component, own_settings(settings.component)
    # PyTorch's own are there already, whoever names them.
    ours = trust is not None and str(component["_target_"]).startswith("torch.optim.")
    kind = class_of(component, torch.optim.Optimizer, "optimizer", (*(trust or ()), "torch") if ours else trust)
    takes = settings_of(kind)
    own = [name for name in takes if name not in _SET_ELSEWHERE]
    for name in arguments.keys() - set(own):
        known = [f"optimizer.{each}" for each in (*type(settings).model_fields, *own)]
        raise unknown(f"optimizer.{name}", arguments[name], known)
    given = {"lr": settings.learning_rate, "weight_decay": settings.weight_decay or None, "betas": settings.betas}
    for name, value in given.items():
        if value is not None and name not in takes:
            setting = "learning_rate" if name == "lr" else name
            raise SettingError(f"optimizer.{setting}", value, f"is nothing that {component['_target_']} takes")
    make = factory(kind, arguments, "optimizer", given_later=_SET_ELSEWHERE)
    if settings.betas is not None:
        make = partial(make, betas=(settings.betas[0], settings.betas[1]))

    def made(groups: WeightGroups, learning_rate: float, fused: bool) -> torch.optim.Optimizer:
        faster = {"fused": fused} if kind is torch.optim.AdamW and "fused" not in arguments else {}
        return make(groups, lr=learning_rate, **faster)

    # Refused now, and not once all the rest has been built.
    made([{"params": [torch.nn.Parameter(torch.zeros(1, 1))], "weight_decay": 0.0}], settings.learning_rate, False)
    return made
