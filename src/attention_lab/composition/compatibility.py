"""Which model, attention, position and task go together. What each needs and cannot do, it says itself; here they meet.

A combination that cannot work is refused before anything is trained.
"""

import inspect
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
from attention_lab.settings.schema import DataSettings, PositionSamplingSettings
from attention_lab.tasks.task import Task

_OTHER_NAMES = {
    "multi_head": "full",
    "grouped_query": "grouped_query or multi_query",
    "recurrent": "rnn or lstm",
    "recurrent_attention": "lstm_attention",
}
"""What the command line calls a class, where that is not the name of its module."""


def check_parts(model: type[SequenceModel[Any]], attention: type[MultiHeadAttention], position: type[Position]) -> None:
    """Refuses parts that do not go together.

    A network that has no use for an attention or a position takes the default one, and no other.

    An attention that cannot lead from one sequence to another leaves that to full attention, as Longformer's
    encoder-decoder does; everything else that a model needs it must be able to be.

    Raises:
        SettingError: the attention cannot be causal, or cannot do what the position code asks for.
    """
    kind, code = _choice(attention), _choice(position)
    takes = inspect.signature(model).parameters
    if "attention" not in takes and attention is not MultiHeadAttention:
        raise SettingError(
            f"attention={kind} does not go with model={_choice(model)}, which has none to choose; leave it out"
        )
    if "position" not in takes and position not in (PositionalEncoding, NoPositionalEncoding):
        raise SettingError(
            f"position={code} does not go with model={_choice(model)}, for which the order of reading is the position; "
            "leave it out"
        )
    if "causal" in model.needs and "causal" in attention.unsupported:
        raise SettingError(
            f"attention={kind} cannot be causal, which model={_choice(model)} needs: "
            f"{attention.unsupported['causal']}; use model=encoder_only, or another attention"
        )
    for required in position.requires:
        for part, unsupported in (
            (f"attention={kind}", attention.unsupported),
            (f"model={_choice(model)}", model.unsupported),
        ):
            if required in unsupported:
                fitting = "rotary" if required == "frames" else "sinusoidal, learned or none"
                raise SettingError(
                    f"position={code} does not go with {part}: {unsupported[required]}; use position={fitting}"
                )


def check_sequences(network: SequenceModel[Any], task: Task, data: DataSettings) -> None:
    """Refuses sequences that the network has no places for.

    Raises:
        SettingError: a source or a target, EOS included, has more tokens than there are positions, or a target more
            than its source where a network needs one for each, or the task cannot be done at that length.
    """
    longest = data.max_length + 1
    if longest <= network.max_length:
        # Only now, since a task is asked by showing it a source of that length.
        try:
            longest = task.longest(data.max_length) + 1
        except ValueError as error:
            raise SettingError(f"task: {error}") from error
    if longest > network.max_length:
        shared = ", which source and target share," if isinstance(network, DecoderOnly) else ""
        raise SettingError(
            f"data.max_length={data.max_length} makes sequences of {longest} tokens (EOS included), but "
            f"{_scarcest(network)}{shared} holds no more than {network.max_length}"
        )
    if isinstance(network, DecoderOnly):
        windows = [part for part in network.modules() if isinstance(part, SlidingWindowAttention) and part.num_global]
        if windows:
            raise SettingError(
                f"attention.num_global={windows[0].num_global} does not go with model=decoder_only, whose shorter "
                "sources are padded where the first tokens of longer ones are; use attention.num_global=0"
            )
    if network.target_within_source and longest > data.max_length + 1:
        raise SettingError(
            f"task={task.name} says {longest - 1} symbols for {data.max_length}, but model={_choice(type(network))} "
            "says one for each at most; use model=encoder_decoder or decoder_only"
        )


def check_sampling(network: nn.Module, sampling: PositionSamplingSettings, task: Task, data: DataSettings) -> None:
    """Refuses to draw positions where there are none, too few, or more than a code has vectors for.

    Raises:
        SettingError: one of these.
    """
    if sampling.range is None:
        return
    where = f"position_sampling.range={sampling.range}"
    codes = [module for module in network.modules() if isinstance(module, Position)]
    if not codes or isinstance(codes[0], NoPositionalEncoding):
        raise SettingError(f"{where} does not go with a network that is told no positions; use null")
    longest = task.longest(data.max_length) + 1 + (data.max_length + 1 if isinstance(network, DecoderOnly) else 0)
    if sampling.range < longest:
        raise SettingError(f"{where} is too few for sequences of {longest} tokens")
    if sampling.range > codes[0].max_len:
        raise SettingError(f"{where} is more than position.max_len={codes[0].max_len}; make that as large")


def _scarcest(network: SequenceModel[Any]) -> str:
    """Returns the setting that leaves a network the fewest places, and its value."""
    limits = [("position.max_len", module.max_len) for module in network.modules() if isinstance(module, Position)]
    limits += [
        ("attention.max_len", module.max_keys) for module in network.modules() if isinstance(module, MultiHeadAttention)
    ]
    name, value = min(limits, key=lambda limit: limit[1])
    return f"{name}={value}"


def _choice(part: type) -> str:
    """Returns the name under which the command line knows a class: its module's."""
    name = part.__module__.rpartition(".")[2]
    return _OTHER_NAMES.get(name, name)
