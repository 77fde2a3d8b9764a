"""How accuracy and alignment hold as sequences grow, inside and beyond the lengths of training."""

from typing import Any

import torch

from attention_lab.composition.build import build_data
from attention_lab.data.module import SequenceData
from attention_lab.errors import SettingError
from attention_lab.evaluation.records import LengthRecord
from attention_lab.evaluation.scoring import accuracy, alignment_figures, head_scores
from attention_lab.metrics.alignment import Head
from attention_lab.models.model import SequenceModel
from attention_lab.runs.trained import Trained
from attention_lab.settings.schema import MOST_SYMBOLS, DataSettings, EvaluateSettings
from attention_lab.tasks.pairs import Pairs
from attention_lab.tasks.task import Task

_MAX_TOKENS = 2**16
"""Source tokens that a batch may have, so that memory stays bounded as lengths grow; and that are scored at a length,
so that time does not grow as fast, but for `_FEWEST` sequences."""
_FEWEST = 4

_ALIGNMENT = ("hit_rate", "mass", "entropy", "chance", "oracle_head_hit_rate", "oracle_head_mass")
"""Which figures of alignment are recorded at each length."""

Refusals = dict[int, SettingError]
"""Why sequences of a length cannot be scored."""


def default_lengths(data: DataSettings) -> list[int]:
    """Returns quarters of the longest training length up to the whole, then its double and its fourfold."""
    longest = data.max_length
    quarters = {max(data.min_length, longest * quarter // 4) for quarter in range(1, 5)}
    return sorted(quarters | {2 * longest, 4 * longest})


def draw_lengths(trained: Trained, settings: EvaluateSettings) -> tuple[dict[int, SequenceData], Refusals]:
    """Draws the sequences of a checkpoint's length curve, before any is scored.

    Returns:
        The sequences of each length, and why there are none of the lengths that were asked for in vain. At default
        lengths, which nobody asked for, what is not possible is left out without a word.
    """
    own = trained.settings.data
    most = min(settings.num_per_length, MOST_SYMBOLS // own.max_length)
    data = own.changed(test_size=most, batch_size=trained.data.batch_size)
    drawn: dict[int, SequenceData] = {}
    refused: Refusals = {}
    for length in default_lengths(data) if settings.lengths is None else settings.lengths:
        try:
            drawn[length] = _of_a_file(trained, data, length) or draw_length(
                trained.network, trained.task, data, length, trained.settings.seed
            )
        except SettingError as error:
            refused[length] = error
    return drawn, {} if settings.lengths is None else refused


def _of_a_file(trained: Trained, data: DataSettings, length: int) -> SequenceData | None:
    """Returns the test pairs of one length; None where there are no pairs, but a rule by which more can be made.

    Raises:
        SettingError: the test split has none.
    """
    if not isinstance(trained.task, Pairs):
        return None
    rows = trained.data.rows("test").of_length(length)
    if not len(rows):
        raise SettingError("lengths", length, "is no source's in the test split; leave it out")
    return build_data(trained.task, data, trained.settings.seed, splits=(), rows={"test": rows})


def draw_length(network: SequenceModel[Any], task: Task, data: DataSettings, length: int, seed: int) -> SequenceData:
    """Draws sequences of one length from the test split's share, so that none of them can have been trained on.

    Args:
        network: what is to be scored.
        task: what it learned.
        data: how it was trained; `test_size` sequences are drawn, or as many as there are, but no more than have 65,536
            tokens together, or four if these are longer.
        length: source length in symbols.
        seed: decides the sequences.

    Raises:
        SettingError: there are no sequences of that length, or the network has no positions for them.
    """
    longest = _num_tokens(network, task, data, length)
    batch_size = max(1, min(data.batch_size, _MAX_TOKENS // longest))
    count = min(data.test_size, max(_FEWEST, _MAX_TOKENS // longest))
    # Of the other splits nothing is drawn, and what they hold in training would be too much at such a length.
    sizes = {"train_size": 1, "validation_size": 1, "test_size": count}
    this_long = data.changed(min_length=length, max_length=length, batch_size=batch_size, **sizes)
    try:
        return build_data(task, this_long, seed, splits=("test",))
    except SettingError as error:
        raise SettingError("lengths", length, "has no sequence in the test split; leave it out") from error


def length_curve(
    network: SequenceModel[Any],
    drawn: dict[int, SequenceData],
    decode_up_to: int,
    head: Head | None,
    device: torch.device,
) -> list[LengthRecord]:
    """Returns a record a length: teacher-forced and decoded accuracy, how one head aligns, and whether any does.

    Args:
        network: what to score.
        drawn: under each length its sequences.
        decode_up_to: the longest length that is decoded; beyond, teacher forcing answers for it (see `accuracy`).
        head: the head to follow; None where there is none.
        device: where to run.
    """
    records: list[LengthRecord] = []
    for length, data in drawn.items():
        batches = data.loader("test")
        figures = accuracy(network, batches, device, decode=length <= decode_up_to)
        aligned = alignment_figures(head_scores(network, batches, device), head, _ALIGNMENT)
        record = LengthRecord(
            length=length,
            sequences=len(data.rows("test")),
            token_accuracy=figures["token_accuracy"],
            exact_match=figures["exact_match"],
            decoded_exact_match=figures["decoded_exact_match"],
            **aligned,
        )
        records.append(record)
    return records


def refuse(refused: Refusals, where: str = "") -> None:
    """Raises the first refusal, if there is one; `where` says of which checkpoint."""
    for error in refused.values():
        raise SettingError(error.setting, error.value, f"{error.reason}{where}") from error


def _num_tokens(network: SequenceModel[Any], task: Task, data: DataSettings, length: int) -> int:
    """Returns how many tokens sources or targets have when sources have `length` symbols.

    Raises:
        SettingError: there are no such sequences, or the network has no positions for them.
    """
    try:
        longest = (task.longest(length) if length < network.max_length else length) + 1
    except ValueError as error:
        raise SettingError("lengths", length, f"does not go with the task: {error}") from error
    if longest > network.max_length:
        reason = f"needs more than the {network.max_length} positions that the network has"
        raise SettingError("lengths", length, reason)
    if _FEWEST * length > MOST_SYMBOLS:
        raise SettingError("lengths", length, f"is longer than fits into memory; use at most {MOST_SYMBOLS // _FEWEST}")
    if data.unique_symbols and length > data.vocab_size:
        raise SettingError("lengths", length, f"needs as many different symbols; there are {data.vocab_size}")
    return longest
