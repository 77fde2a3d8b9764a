"""How accuracy and alignment hold as sequences grow, inside and beyond the lengths of training."""

from collections.abc import Sequence
from typing import Any

import torch

from attention_lab.composition.build import build_data
from attention_lab.data.module import SequenceData
from attention_lab.errors import SettingError
from attention_lab.evaluation.scoring import accuracy, alignment_figures, head_scores
from attention_lab.metrics.alignment import Head
from attention_lab.models.model import SequenceModel
from attention_lab.runs.trained import Trained
from attention_lab.settings.schema import MOST_SYMBOLS, DataSettings, EvaluateSettings
from attention_lab.tasks.task import Task

_MAX_TOKENS = 2**16
"""Source tokens that a batch may have, so that memory stays bounded as lengths grow; and that are scored at a length,
so that time does not grow as fast, but for `_FEWEST` sequences."""
_FEWEST = 4

_FOLLOWED = ("hit_rate", "mass", "entropy", "chance", "oracle_head_hit_rate", "oracle_head_mass")
"""Which figures of alignment are recorded at each length."""


def default_lengths(task: Task, data: DataSettings, max_length: int) -> list[int]:
    """Returns quarters of the longest training length up to the whole, then its double and its fourfold.

    Args:
        task: what was learned.
        data: the lengths of training.
        max_length: tokens that the network has positions for.
    """
    longest = data.max_length
    lengths = {max(data.min_length, longest * quarter // 4) for quarter in range(1, 5)} | {2 * longest, 4 * longest}
    drawable = [length for length in sorted(lengths) if not data.unique_symbols or length <= data.vocab_size]
    return [length for length in drawable if length < max_length and task.longest(length) < max_length]


def curve_of(
    trained: Trained, settings: EvaluateSettings, head: Head | None, device: torch.device
) -> list[dict[str, Any]]:
    """Returns a checkpoint's length curve as it is asked for, at the default lengths where none are given."""
    own = trained.settings.data
    most = min(settings.num_per_length, MOST_SYMBOLS // own.max_length)
    data = own.changed(test_size=most, batch_size=trained.data.batch_size)
    lengths = settings.lengths
    if lengths is None:
        lengths = default_lengths(trained.task, data, trained.network.max_length)
    seed, decode_up_to = trained.settings.seed, settings.decode_up_to
    return length_curve(trained.network, trained.task, data, lengths, decode_up_to, head, seed, device)


def length_curve(
    network: SequenceModel[Any],
    task: Task,
    data: DataSettings,
    lengths: Sequence[int],
    decode_up_to: int,
    head: Head | None,
    seed: int,
    device: torch.device,
) -> list[dict[str, Any]]:
    """Returns a record a length: teacher-forced and decoded accuracy, and how one head aligns, and whether any does.

    The sequences belong to the test split's share of all sequences, so none of them can have been trained on.

    Args:
        network: what to score.
        task: what it learned.
        data: how it was trained; `test_size` sequences are drawn at each length, or as many as there are, but no more
            than have 65,536 tokens together, or four if these are longer.
        lengths: source lengths in symbols.
        decode_up_to: the longest length that is decoded; beyond, teacher forcing answers for it (see `accuracy`).
        head: the head to follow; None where there is none.
        seed: decides the sequences.
        device: where to run.

    Raises:
        SettingError: there are no sequences of a length, or the network has no positions for them.
    """
    for length in lengths:
        # Before any is scored: the last one's mistake should not cost the minutes of the others.
        check_length(network, task, data, length)
    records: list[dict[str, Any]] = []
    for length in lengths:
        split = _batches(network, task, data, length, seed)
        batches = split.loader("test")
        figures = accuracy(network, batches, device, decode=length <= decode_up_to)
        del figures["loss"]
        aligned = alignment_figures(head_scores(network, batches, device), head, _FOLLOWED)
        records.append({"length": length, "sequences": len(split.rows("test")), **figures, **aligned})
    return records


def check_length(network: SequenceModel[Any], task: Task, data: DataSettings, length: int) -> int:
    """Returns how many tokens sources or targets have when sources have `length` symbols.

    Raises:
        SettingError: there are no such sequences, or the network has no positions for them.
    """
    if length < task.min_length:
        reason = f"is too short for task={task.name}; it takes {task.min_length} symbols or more"
        raise SettingError("lengths", length, reason)
    try:
        longest = (task.longest(length) if length < network.max_length else length) + 1
    except ValueError as error:
        raise SettingError(f"lengths={length}: {error}") from error
    if longest > network.max_length:
        raise SettingError(f"lengths={length} needs more than the {network.max_length} positions that the network has")
    if _FEWEST * length > MOST_SYMBOLS:
        raise SettingError(f"lengths={length} is longer than fits into memory; use at most {MOST_SYMBOLS // _FEWEST}")
    if data.unique_symbols and length > data.vocab_size:
        raise SettingError(f"lengths={length} needs as many different symbols; there are {data.vocab_size}")
    return longest


def _batches(network: SequenceModel[Any], task: Task, data: DataSettings, length: int, seed: int) -> SequenceData:
    longest = check_length(network, task, data, length)
    batch_size = max(1, min(data.batch_size, _MAX_TOKENS // longest))
    count = min(data.test_size, max(_FEWEST, _MAX_TOKENS // longest))
    # Of the other splits nothing is drawn, and what they hold in training would be too much at such a length.
    sizes = {"train_size": 1, "validation_size": 1, "test_size": count}
    this_long = data.changed(min_length=length, max_length=length, batch_size=batch_size, **sizes)
    try:
        return build_data(task, this_long, seed, splits=("test",))
    except SettingError as error:
        raise SettingError(f"lengths={length} has no sequence in the test split; leave it out") from error
