"""Checked settings become a task, its data and a network."""

import inspect
import os
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, TypeVar, cast

import torch

from attention_lab.attention.multi_head import MultiHeadAttention
from attention_lab.composition.classes import Trust, class_of, own_settings
from attention_lab.composition.compatibility import check_parts, check_sampling, check_sequences, told_of_the_task
from attention_lab.data.batches import SequenceRows
from attention_lab.data.module import SequenceData
from attention_lab.data.sampling import SPLITS, SourceSpace, Split
from attention_lab.errors import SettingError
from attention_lab.models.model import SequenceModel
from attention_lab.positions.position import Position
from attention_lab.positions.sampling import PositionSampling
from attention_lab.settings.checking import build, factory, settings_of
from attention_lab.settings.schema import (
    COUNTED,
    Component,
    DataSettings,
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
    made, settings = class_of(task, Task, "task", trust), own_settings(task)
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
    task: Task,
    data: DataSettings,
    seed: int,
    splits: Iterable[Split] = SPLITS,
    parts: int = 1,
    rows: Mapping[Split, SequenceRows] | None = None,
) -> SequenceData:
    """Builds the data module and draws the splits that will be needed.

    Args:
        task: what to learn.
        data: which sequences, how many, and in which batches.
        seed: decides the sequences and their order.
        splits: the splits to draw now.
        parts: parts of like lengths that a training batch is cut into, at most.
        rows: splits that are there already, as those of a file are.

    Raises:
        SettingError: not a single sequence belongs to one of them, or the task is not an alignment.
    """
    sizes: dict[Split, int] = {"train": data.train_size, "validation": data.validation_size, "test": data.test_size}
    space = SourceSpace(data.min_length, data.max_length, data.vocab_size, data.unique_symbols)
    module = SequenceData(task, space, sizes, data.batch_size, seed, data.num_workers, parts, rows=rows)
    with told_of_the_task(task):
        for split in splits:
            module.rows(split)
    return module


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
    model_class = class_of(model, SequenceModel, "model", trust)
    attention_class = class_of(attention, MultiHeadAttention, "attention", trust)
    position_class = class_of(position, Position, "position", trust)
    check_parts(model_class, attention_class, position_class, choices or {})
    make_attention = factory(attention_class, own_settings(attention), "attention", _GIVEN_LATER["attention"])
    parts: dict[str, object] = {
        "attention": make_attention,
        "position": factory(position_class, own_settings(position), "position", _GIVEN_LATER["position"]),
        "sampling": _sampling(position_sampling, longest),
    }
    if "cross" in model_class.needs:
        parts["cross_attention"] = MultiHeadAttention if "cross" in attention_class.unsupported else make_attention
    taken = {name: part for name, part in parts.items() if name in settings_of(model_class)}
    make = partial(build, model_class, own_settings(model), "model", num_tokens=num_tokens(data.vocab_size), **taken)
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
    known = settings_of(class_of(component, bases[section], section, trust), _GIVEN_LATER[section])
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
