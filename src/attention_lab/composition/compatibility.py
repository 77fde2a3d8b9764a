"""Which model, attention, position and task go together. What each needs and cannot do, it says itself; here they meet.

A combination that cannot work is refused before anything is trained. The parts go by the names under which they were
chosen, or by those of their classes where these are not known.
"""

import inspect
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import nn

from attention_lab.attention.multi_head import MultiHeadAttention
from attention_lab.attention.sliding_window import SlidingWindowAttention
from attention_lab.errors import SettingError
from attention_lab.models.decoder_only import DecoderOnly
from attention_lab.models.model import SequenceModel
from attention_lab.positions.none import NoPositionalEncoding
from attention_lab.positions.position import Position
from attention_lab.positions.sinusoidal import PositionalEncoding
from attention_lab.settings.checking import settings_of
from attention_lab.settings.schema import DataSettings, PositionSamplingSettings
from attention_lab.tasks.task import Task


def check_parts(
    model: type[SequenceModel[Any]],
    attention: type[MultiHeadAttention],
    position: type[Position],
    choices: Mapping[str, str],
) -> None:
    """Refuses parts that do not go together.

    A network that has no use for an attention or a position takes the default one, and no other.

    An attention that cannot lead from one sequence to another leaves that to full attention, as Longformer's
    encoder-decoder does; everything else that a model needs it must be able to be.

    Args:
        model: the network.
        attention: its attention.
        position: its position code.
        choices: their names, by group.

    Raises:
        SettingError: the attention cannot be causal, or cannot do what the position code asks for.
    """
    chosen = {"model": model.__name__, "attention": attention.__name__, "position": position.__name__, **choices}
    takes = inspect.signature(model).parameters
    with_model = f"does not go with model={chosen['model']}"
    if "attention" not in takes and attention is not MultiHeadAttention:
        reason = f"{with_model}, which has none to choose; leave it out"
        raise SettingError("attention", chosen["attention"], reason)
    if "position" not in takes and position not in (PositionalEncoding, NoPositionalEncoding):
        reason = f"{with_model}, for which the order of reading is the position; leave it out"
        raise SettingError("position", chosen["position"], reason)
    if "causal" in model.needs and "causal" in attention.unsupported:
        reason = f"cannot be causal, which model={chosen['model']} needs: {attention.unsupported['causal']}"
        raise SettingError("attention", chosen["attention"], f"{reason}; use model=encoder_only, or another attention")
    for required in position.requires:
        for group, part in (("attention", attention), ("model", model)):
            if required in part.unsupported:
                fitting = "rotary" if required == "frames" else "sinusoidal, learned or none"
                reason = (
                    f"does not go with {group}={chosen[group]}: {part.unsupported[required]}; use position={fitting}"
                )
                raise SettingError("position", chosen["position"], reason)


def check_sequences(
    network: SequenceModel[Any], task: Task, data: DataSettings, choices: Mapping[str, str] | None = None
) -> None:
    """Refuses sequences that the task cannot be done on, or that the network has no places for.

    Raises:
        SettingError: a source is too short for the task; a source or a target, EOS included, has more tokens than there
            are positions; or a target has more than its source where a network needs one for each.
    """
    if data.min_length < task.min_length:
        reason = f"is too short for task={task.name}; it takes {task.min_length} symbols or more"
        raise SettingError("data.min_length", data.min_length, reason)
    longest = data.max_length + 1
    if longest <= network.max_length:
        # Only now, since a task is asked by showing it a source of that length.
        with told_of_the_task(task):
            longest = task.longest(data.max_length) + 1
    if longest > network.max_length:
        shared = ", which source and target share," if isinstance(network, DecoderOnly) else ""
        reason = (
            f"makes sequences of {longest} tokens (EOS included), but {_scarcest(network)}{shared} holds no more than"
        )
        raise SettingError("data.max_length", data.max_length, f"{reason} {network.max_length}")
    if isinstance(network, DecoderOnly):
        windows = [part for part in network.modules() if isinstance(part, SlidingWindowAttention) and part.num_global]
        if windows:
            reason = (
                "does not go with model=decoder_only, whose shorter sources are padded where the first tokens of "
                "longer ones are; use attention.num_global=0"
            )
            raise SettingError("attention.num_global", windows[0].num_global, reason)
    if network.target_within_source and longest > data.max_length + 1:
        model = (choices or {}).get("model", type(network).__name__)
        reason = f"has targets of {longest - 1} symbols for sources of {data.max_length}, but model={model} says"
        hint = "one for each at most; use model=encoder_decoder or decoder_only"
        raise SettingError("task", task.name, f"{reason} {hint}")


def check_sampling(network: nn.Module, sampling: PositionSamplingSettings, task: Task, data: DataSettings) -> None:
    """Refuses to draw positions where there are none, too few, or more than a code has vectors for.

    Raises:
        SettingError: one of these.
    """
    if sampling.range is None:
        return
    codes = [module for module in network.modules() if isinstance(module, Position)]
    longest = task.longest(data.max_length) + 1 + (data.max_length + 1 if isinstance(network, DecoderOnly) else 0)
    if not codes or isinstance(codes[0], NoPositionalEncoding):
        reason = "does not go with a network that is told no positions; use null"
    elif sampling.range < longest:
        reason = f"is too few for sequences of {longest} tokens"
    elif sampling.range > codes[0].max_len:
        reason = f"is more than position.max_len={codes[0].max_len}; make that as large"
    else:
        return
    raise SettingError("position_sampling.range", sampling.range, reason)


@contextmanager
def told_of_the_task(task: Task) -> Generator[None]:
    """Gives what a task refuses the full name of the setting that is to blame.

    Raises:
        SettingError: the task refuses its settings, or the data's, or cannot be done for another reason.
    """
    try:
        yield
    except SettingError as error:
        sections = {"data": DataSettings.model_fields, "task": settings_of(type(task))}
        section = next((name for name, settings in sections.items() if error.setting in settings), "")
        raise error.inside(section) from error
    except ValueError as error:
        raise SettingError("task", task.name, f"cannot be done: {error}") from error


def _scarcest(network: SequenceModel[Any]) -> str:
    """Returns the setting that leaves a network the fewest places, and its value."""
    limits = [("position.max_len", module.max_len) for module in network.modules() if isinstance(module, Position)]
    limits += [
        ("attention.max_len", module.max_keys) for module in network.modules() if isinstance(module, MultiHeadAttention)
    ]
    name, value = min(limits, key=lambda limit: limit[1])
    return f"{name}={value}"
