"""Checked settings become objects. The only place where a config chooses a class."""

import importlib
import inspect
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar, cast

import torch
from lightning.pytorch import Callback

from attention_lab.attention.multi_head import MultiHeadAttention
from attention_lab.composition.compatibility import check_parts, check_sampling, check_sequences, told_of_the_task
from attention_lab.data.module import SequenceData
from attention_lab.data.sampling import SPLITS, SourceSpace, Split
from attention_lab.errors import SettingError
from attention_lab.models.model import SequenceModel
from attention_lab.positions.position import Position
from attention_lab.positions.sampling import PositionSampling
from attention_lab.settings.checking import build, factory, settings_of, unknown
from attention_lab.settings.schema import (
    COUNTED,
    CallbackSettings,
    Component,
    Config,
    DataSettings,
    OptimizerSettings,
    PositionSamplingSettings,
    TrainedSettings,
)
from attention_lab.tasks.task import Task
from attention_lab.tasks.vocabulary import num_tokens

T = TypeVar("T")

_GIVEN_LATER = {
    "model": ("num_tokens", "attention", "position", "sampling", "cross_attention"),
    "attention": ("d_model", "num_heads", "dropout"),
    "position": ("d_model", "num_heads", "causal"),
}
"""Arguments of each component that do not come from its own section of a config."""

WeightGroups = list[dict[str, Any]]
"""Weights as optimizers take them: in groups, each with settings of its own."""

OptimizerFactory = Callable[[WeightGroups, float, bool], torch.optim.Optimizer]
"""Makes an optimizer of groups of weights, a learning rate, and whether its kernels may be fused."""

Trust = Sequence[str] | None
"""The packages, besides this one, whose classes a config may name; None where the user wrote it, who may name any.

A checkpoint's config is foreign input: of no other package anything is imported, let alone called.
"""

_TASKS = {
    "copy": "attention_lab.tasks.copy.Copy",
    "duplicate": "attention_lab.tasks.duplicate.Duplicate",
    "interleave": "attention_lab.tasks.interleave.Interleave",
    "reverse": "attention_lab.tasks.reverse.Reverse",
    "rotate": "attention_lab.tasks.rotate.Rotate",
    "sort": "attention_lab.tasks.sort.Sort",
}
"""Earlier checkpoints hold the names alone of a mixture's tasks."""


def build_run(settings: TrainedSettings, trust: Trust = (), *, sketch: bool = False) -> tuple[Task, SequenceModel[Any]]:
    """Builds what a run learns and the network that learns it, and makes sure that they go together.

    Args:
        settings: the run's.
        trust: whose classes may be built.
        sketch: build the network without its numbers, as `build_network` does.

    Raises:
        SettingError: the parts do not go together, one of them refuses its settings, or there is not the memory.
    """
    task = build_task(settings.task, trust, settings.choices.get("task"))
    network = build_network(
        settings.model,
        settings.attention,
        settings.position,
        settings.data,
        settings.position_sampling,
        settings.choices,
        trust,
        longest=task.longest,
        sketch=sketch,
    )
    check_sequences(network, task, settings.data, settings.choices)
    check_sampling(network, settings.position_sampling, task, settings.data)
    return task, network


def build_task(task: Component, trust: Trust = (), name: str | None = None) -> Task:
    """Builds the task that a config describes.

    Where its class takes other tasks, the config has a list of them: names, or the config of each under its name.

    Args:
        task: its config.
        trust: whose classes may be built.
        name: what it is called, if not as its class; a task made of others is called by theirs.
    """
    made, settings = _class(task, Task, "task", trust), _own_settings(task)
    lists = [setting for setting, parameter in settings_of(made).items() if parameter.annotation == list[Task]]
    for setting in lists:
        if setting in settings:
            settings[setting] = _tasks(settings[setting], f"task.{setting}", trust)
    built = build(made, settings, "task")
    if name is not None and not lists:
        built.name = name
    return built


def _tasks(listed: object, where: str, trust: Trust) -> list[Task]:
    """Builds the tasks that another is made of."""
    if not isinstance(listed, list):
        raise SettingError(where, listed, "is not a list of tasks")
    tasks: list[Task] = []
    for each in cast(list[object], listed):
        named: object = {each: {"_target_": _TASKS.get(each)}} if isinstance(each, str) and each in _TASKS else each
        if not isinstance(named, Mapping) or not all(isinstance(task, Mapping) for task in named.values()):
            raise SettingError(where, listed, f"holds {each}, which is not the name of a task that needs no settings")
        tasks += [build_task(task, trust, name) for name, task in cast(Mapping[str, Component], named).items()]
    return tasks


def build_data(
    task: Task, data: DataSettings, seed: int, splits: Iterable[Split] = SPLITS, parts: int = 1
) -> SequenceData:
    """Builds the data module and draws the splits that will be needed.

    Args:
        task: what to learn.
        data: which sequences, how many, and in which batches.
        seed: decides the sequences and their order.
        splits: the splits to draw now.
        parts: parts of like lengths that a training batch is cut into, at most.

    Raises:
        SettingError: not a single sequence belongs to one of them, or the task is not an alignment.
    """
    sizes: dict[Split, int] = {"train": data.train_size, "validation": data.validation_size, "test": data.test_size}
    space = SourceSpace(data.min_length, data.max_length, data.vocab_size, data.unique_symbols)
    module = SequenceData(task, space, sizes, data.batch_size, seed, data.num_workers, parts)
    with told_of_the_task(task):
        for split in splits:
            module.rows(split)
    return module


def build_callbacks(settings: CallbackSettings, trust: Trust = ()) -> list[Callback]:
    """Builds the user's own callbacks, in the order in which they were named.

    Raises:
        SettingError: one of them is no callback of Lightning's, is not trusted, or refuses its settings.
    """
    return [
        build(_class(component, Callback, f"callbacks.{name}", trust), _own_settings(component), f"callbacks.{name}")
        for name, component in settings.own.items()
    ]


_SET_ELSEWHERE = ("params", "lr", "weight_decay", "betas")
"""Arguments of optimizers that have settings of their own."""


def build_optimizer(settings: OptimizerSettings, trust: Trust = ()) -> OptimizerFactory:
    """Returns what makes the optimizer that a config describes, of groups of weights.

    Raises:
        SettingError: it is no optimizer of PyTorch's, is not trusted, or refuses its arguments.
    """
    component = settings.component
    target = str(component["_target_"])
    # PyTorch's own are there already, whoever names them.
    known = trust if trust is None or not target.startswith("torch.optim.") else (*trust, "torch")
    make = _class(component, torch.optim.Optimizer, "optimizer", known)
    takes = inspect.signature(make).parameters
    arguments = _own_settings(component)
    for name, value in arguments.items():
        if name not in takes or name in _SET_ELSEWHERE:
            names = [*type(settings).model_fields, *(each for each in takes if each not in _SET_ELSEWHERE)]
            raise unknown(f"optimizer.{name}", value, [f"optimizer.{each}" for each in names])
    if settings.betas is not None:
        arguments["betas"] = (settings.betas[0], settings.betas[1])
    for name, value in (("betas", settings.betas), ("weight_decay", settings.weight_decay or None)):
        if value is not None and name not in takes:
            raise SettingError(f"optimizer.{name}", value, f"is nothing that {target} has; leave it out")

    def made(groups: WeightGroups, learning_rate: float, fused: bool) -> torch.optim.Optimizer:
        faster = {"fused": fused} if make is torch.optim.AdamW and "fused" not in arguments else {}
        try:
            return cast(Any, make)(groups, lr=learning_rate, **arguments, **faster)
        except (TypeError, ValueError) as error:
            raise SettingError("optimizer._target_", target, f"cannot be built: {_first_line(error)}") from error

    # Refused now, and not after a network has been built for it.
    made([{"params": [torch.nn.Parameter(torch.zeros(1, 1))], "weight_decay": 0.0}], settings.learning_rate, False)
    return made


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def build_network(
    model: Component,
    attention: Component,
    position: Component,
    data: DataSettings,
    position_sampling: PositionSamplingSettings = COUNTED,
    choices: Mapping[str, str] | None = None,
    trust: Trust = (),
    *,
    longest: Callable[[int], int] | None = None,
    sketch: bool = False,
) -> SequenceModel[Any]:
    """Builds the network that a config describes, with freshly drawn weights.

    A network whose constructor takes no `attention` or no `position` has no use for the one that was chosen.

    Args:
        model: the network.
        attention: its attention.
        position: its position code.
        data: how many symbols there are.
        position_sampling: how positions are drawn in training.
        choices: what the parts are called, by group; by their classes where that is not known.
        trust: whose classes may be built.
        longest: how many tokens the longer of source and target has (`Task.longest`); positions that are spread evenly
            over a range need to know it.
        sketch: build it without its numbers, on the meta device: it then has shapes only, and takes no memory.

    Raises:
        SettingError: the parts do not go together, one of them refuses its settings, or there is not the memory.
    """
    model_class = _class(model, SequenceModel, "model", trust)
    attention_class = _class(attention, MultiHeadAttention, "attention", trust)
    position_class = _class(position, Position, "position", trust)
    check_parts(model_class, attention_class, position_class, choices or {})
    make_attention = factory(attention_class, _own_settings(attention), "attention", _GIVEN_LATER["attention"])
    parts: dict[str, object] = {
        "attention": make_attention,
        "position": factory(position_class, _own_settings(position), "position", _GIVEN_LATER["position"]),
        "sampling": _sampling(position_sampling, longest),
    }
    if "cross" in model_class.needs:
        parts["cross_attention"] = MultiHeadAttention if "cross" in attention_class.unsupported else make_attention
    taken = {name: part for name, part in parts.items() if name in settings_of(model_class)}
    make = partial(build, model_class, _own_settings(model), "model", num_tokens=num_tokens(data.vocab_size), **taken)
    sketched = _sketched(make, model=model, attention=attention, position=position)
    if sketch:
        return sketched
    _check_memory(sketched)
    return make()


def component_defaults(section: str, component: object, trust: Trust = ()) -> object:
    """Returns the config of a network, an attention or a position code with the defaults of what it leaves out.

    Args:
        section: where it stands; those that hold something else are returned as they are.
        component: its config, of whatever kind.
        trust: whose classes it may name.
    """
    bases: dict[str, type] = {"model": SequenceModel, "attention": MultiHeadAttention, "position": Position}
    if section not in bases or not isinstance(component, dict):
        return component
    known = settings_of(_class(component, bases[section], section, trust), _GIVEN_LATER[section])
    missing = {name: parameter.default for name, parameter in known.items() if name not in component}
    return {**component, **{name: value for name, value in missing.items() if value is not inspect.Parameter.empty}}


def _sketched(make: Callable[[], SequenceModel[Any]], **sections: Component) -> SequenceModel[Any]:
    """Builds a network without its numbers, or names the largest of its sizes."""
    try:
        with torch.device("meta"):
            return make()
    except (RuntimeError, OverflowError) as error:
        # Sizes whose product has more than 64 bits: even without its numbers such a tensor cannot be.
        sizes = {
            f"{section}.{name}": value
            for section, settings in sections.items()
            for name, value in settings.items()
            if isinstance(value, int)
        }
        largest = max(sizes, key=lambda name: sizes[name])
        raise SettingError(largest, sizes[largest], "is more than any machine can hold; use less") from error


def _check_memory(sketched: SequenceModel[Any]) -> None:
    # To be trained, it takes the space of its weights four times: gradients and two moments have theirs.
    needed = 4 * sum(part.numel() * part.element_size() for part in sketched.state_dict().values())
    try:
        there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        # Not every system tells, Windows for one.
        return
    if needed > there:
        reason = f"takes {needed / 2**30:.0f} GiB to be trained and the machine has {there / 2**30:.0f} GiB"
        smaller = "choose a smaller model.d_model, model.d_ff, model.num_layers or data.vocab_size"
        raise SettingError("model", reason=f"{reason}; {smaller}")


def _sampling(settings: PositionSamplingSettings, longest: Callable[[int], int] | None) -> PositionSampling | None:
    return None if settings.range is None else PositionSampling(settings.range, settings.distribution, longest)


_LONGEST_NAME = 300
"""Characters of a class's full name."""

# At most ten names: whoever imports a module imports every package around it, one inside the other.
_CLASS = re.compile(r"((?!__)[A-Za-z_]\w*)((?:\.(?!__)[A-Za-z_]\w*){0,8})\.(?!__)[A-Za-z_]\w*", re.ASCII)


def _class(component: Component, base: type[T], section: str, trust: Trust) -> type[T]:
    """Returns the class that a component names, if it is of the right kind and of a package that may be named.

    Raises:
        SettingError: it is not, or there is none of that name.
    """
    target = component.get("_target_")
    of_whom = "" if trust is None else " of attention_lab"

    def wrong(more: str = "") -> SettingError:
        return SettingError(f"{section}._target_", target, f"is not a {base.__name__}{of_whom}{more}")

    match = _CLASS.fullmatch(target) if isinstance(target, str) and len(target) <= _LONGEST_NAME else None
    if match is None:
        raise wrong()
    if trust is not None and match[1] not in ("attention_lab", *trust):
        raise wrong(f"; if you trust the package {match[1]}, say so: trust={match[1]}")
    module, _, name = match[0].rpartition(".")
    try:
        found = getattr(importlib.import_module(module), name, None)
    except ImportError as error:
        # Of the module itself, or of something that it needs?
        there = error.name is not None and not f"{module}.".startswith(f"{error.name}.")
        raise wrong(f": {error}" if there else f": there is no module {module}") from None
    if found is None:
        raise wrong(f": {module} has no {name}")
    if not (isinstance(found, type) and issubclass(found, base)):
        raise wrong()
    if inspect.isabstract(found):
        missing: frozenset[str] = getattr(found, "__abstractmethods__", frozenset())
        raise wrong(f": it does not define {', '.join(sorted(missing))}")
    return found


def _own_settings(component: Component) -> Config:
    return {name: value for name, value in component.items() if name != "_target_"}
