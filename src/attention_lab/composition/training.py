"""Checked settings become what trains a network: its optimizer, loggers, a profiler, callbacks of the user's own."""

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch import Callback
from lightning.pytorch.loggers import Logger
from lightning.pytorch.profilers import AdvancedProfiler, Profiler, SimpleProfiler

from attention_lab.composition.classes import Trust, class_of, own_settings
from attention_lab.errors import SettingError
from attention_lab.settings.checking import build, factory, settings_of, unknown
from attention_lab.settings.schema import CallbackSettings, Component, LoggerSettings, OptimizerSettings

T = TypeVar("T")

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


def build_loggers(settings: LoggerSettings, run_dir: Path, trust: Trust = ()) -> list[Logger]:
    """Builds what keeps a run's scalars, in the order in which they were named.

    Those of this package write into the run's folder. Others do so, too, in a folder of their name, where they take a
    `save_dir` and are given none; and they call the run by its folder's name, where they have a name for runs.

    Raises:
        SettingError: one of them is no logger of Lightning's, is not trusted or not installed, or refuses its settings.
    """
    loggers: list[Logger] = []
    for name, component in settings.own.items():
        kind = class_of(component, Logger, f"logger.{name}", trust)
        takes = inspect.signature(kind).parameters
        known = {
            "run_dir": run_dir,
            "save_dir": str(run_dir / name),
            _NAMED_BY.get(kind.__name__, "run_name"): run_dir.name,
        }
        given = {setting: value for setting, value in known.items() if setting in takes}
        loggers.append(_call(kind, {**given, **own_settings(component)}, f"logger.{name}"))
    return loggers


_NAMED_BY = {"WandbLogger": "name"}
"""What loggers call a run's name, where that is not `run_name`; most of Lightning's mean a folder by `name`."""


def build_profiler(
    asked: Literal["simple", "advanced"] | Component | None, run_dir: Path, trust: Trust = ()
) -> Profiler | None:
    """Builds what measures a training; what it finds goes into `fit-profile.txt` in the run's folder.

    Raises:
        SettingError: it is no profiler of Lightning's, is not trusted, or refuses its settings.
    """
    if asked is None:
        return None
    kind, settings = SimpleProfiler if asked == "simple" else AdvancedProfiler, {}
    if not isinstance(asked, str):
        kind, settings = class_of(asked, Profiler, "trainer.profiler", trust), own_settings(asked)
    return _call(kind, {"dirpath": run_dir, "filename": "profile", **settings}, "trainer.profiler")


def _call(kind: type[T], arguments: Mapping[str, object], where: str) -> T:
    """Calls a class of somebody else's, whose signature may not say what it takes.

    Raises:
        SettingError: it refuses its arguments, or needs what is not installed.
    """
    try:
        return kind(**arguments)
    except (ImportError, TypeError, ValueError, MisconfigurationException) as error:
        raise SettingError(where, reason=f"cannot be built: {' '.join(str(error).split())}") from error


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
