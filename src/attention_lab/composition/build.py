"""Checked settings become objects. The only place where a config chooses a class."""

import importlib
import inspect
import os
import pkgutil
import re
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, TypeVar

import torch

from attention_lab import tasks
from attention_lab.attention.multi_head import MultiHeadAttention
from attention_lab.composition.compatibility import check_parts
from attention_lab.data.module import SequenceData
from attention_lab.data.sampling import SPLITS, Split
from attention_lab.errors import SettingError
from attention_lab.models.model import SequenceModel
from attention_lab.positions.position import Position
from attention_lab.positions.sampling import PositionSampling
from attention_lab.settings.checking import build, factory, settings_of
from attention_lab.settings.schema import COUNTED, Component, DataSettings, PositionSamplingSettings
from attention_lab.tasks.task import Task
from attention_lab.tasks.vocabulary import num_tokens

T = TypeVar("T")


def build_task(task: Component) -> Task:
    """Builds the task that a config describes; a task made of others has their names."""
    made, settings = _class(task, Task, "task"), _own_settings(task)
    for name, parameter in settings_of(made).items():
        if parameter.annotation == list[Task] and name in settings:
            where, names = f"task.{name}={settings[name]}", settings[name]
            if not isinstance(names, list):
                raise SettingError(f"{where} is not a list of tasks")
            settings[name] = [_named_task(part, where) for part in names]
    return build(made, settings, "task")


def _named_task(name: object, where: str) -> Task:
    """Builds a task from its name alone."""
    named = {
        module.name: f"{tasks.__name__}.{module.name}.{module.name.title().replace('_', '')}"
        for module in pkgutil.iter_modules(tasks.__path__)
    }
    try:
        return build_task({"_target_": named[str(name)]})
    except (KeyError, SettingError):
        raise SettingError(f"{where}: {name} is not the name of a task that needs no settings") from None


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
    module = SequenceData(task, data.space, sizes, data.batch_size, seed, data.num_workers, parts)
    try:
        for split in splits:
            module.rows(split)
    except ValueError as error:
        where = "data." if str(error).startswith("max_length") else "task: "
        raise SettingError(f"{where}{error}") from error
    return module


def build_network(
    model: Component,
    attention: Component,
    position: Component,
    data: DataSettings,
    position_sampling: PositionSamplingSettings = COUNTED,
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
        longest: how many tokens the longer of source and target has (`Task.longest`); positions that are spread evenly
            over a range need to know it.
        sketch: build it without its numbers, on the meta device: it then has shapes only, and takes no memory.

    Raises:
        SettingError: the parts do not go together, one of them refuses its settings, or there is not the memory.
    """
    model_class = _class(model, SequenceModel, "model")
    attention_class = _class(attention, MultiHeadAttention, "attention")
    position_class = _class(position, Position, "position")
    check_parts(model_class, attention_class, position_class)
    make_attention: Callable[..., MultiHeadAttention] = factory(
        attention_class, _own_settings(attention), "attention", given_later=("d_model", "num_heads", "dropout")
    )
    make_position: Callable[..., Position] = factory(
        position_class, _own_settings(position), "position", given_later=("d_model", "num_heads", "causal")
    )
    parts: dict[str, object] = {
        "attention": make_attention,
        "position": make_position,
        "sampling": _sampling(position_sampling, longest),
    }
    if "cross" in model_class.needs:
        parts["cross_attention"] = MultiHeadAttention if "cross" in attention_class.unsupported else make_attention
    taken = {name: part for name, part in parts.items() if name in settings_of(model_class)}
    make = partial(build, model_class, _own_settings(model), "model", num_tokens=num_tokens(data.vocab_size), **taken)
    with torch.device("meta"):
        sketched = make()
    if sketch:
        return sketched
    _check_memory(sketched)
    return make()


def _check_memory(sketched: SequenceModel[Any]) -> None:
    # To be trained, it takes the space of its weights four times: gradients and two moments have theirs.
    needed = 4 * sum(part.numel() * part.element_size() for part in sketched.state_dict().values())
    there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > there:
        raise SettingError(
            f"model: this network takes {needed / 2**30:.0f} GiB to be trained and the machine has "
            f"{there / 2**30:.0f} GiB; choose a smaller model.d_model, model.d_ff, model.num_layers or data.vocab_size"
        )


def _sampling(settings: PositionSamplingSettings, longest: Callable[[int], int] | None) -> PositionSampling | None:
    return None if settings.range is None else PositionSampling(settings.range, settings.distribution, longest)


def _class(component: Component, base: type[T], section: str) -> type[T]:
    """Returns the class that a component names, if it is one of ours and of the right kind.

    A checkpoint's config is foreign input, so nothing outside the package is ever imported or called, and no name is
    followed through a module that merely imports it.
    """
    target = component.get("_target_")
    kind = f"{section}._target_={target} is not a {base.__name__} of attention_lab"
    match = re.fullmatch(r"(attention_lab(?:\.[a-z_]\w*)+)\.([A-Za-z]\w*)", target) if isinstance(target, str) else None
    if match is None:
        raise SettingError(kind)
    try:
        found = getattr(importlib.import_module(match[1]), match[2], None)
    except ImportError:
        raise SettingError(f"{kind}: there is no module {match[1]}") from None
    if found is None:
        raise SettingError(f"{kind}: {match[1]} has no {match[2]}")
    if not (isinstance(found, type) and issubclass(found, base) and found.__module__ == match[1]):
        raise SettingError(kind)
    if inspect.isabstract(found):
        missing: frozenset[str] = getattr(found, "__abstractmethods__", frozenset())
        raise SettingError(f"{kind}: it does not define {', '.join(sorted(missing))}")
    return found


def _own_settings(component: Component) -> dict[str, Any]:
    return {name: value for name, value in component.items() if name != "_target_"}
