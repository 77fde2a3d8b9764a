"""What is read from a file, held against what it must be, before anything is built, started or deleted.

What it must be is told by a tree of the same form. Its leaves are tensors, whose shape, type and layout count,
functions that say whether a value will do, or the value itself.
"""

import math
from collections.abc import Callable, Mapping
from typing import TypeGuard, cast

import torch
from torch import Tensor

from attention_lab.errors import SettingError


class AtLeast(dict[str, object]):
    """Keys that have to be there; others beside them do not matter."""


def check_like(given: object, expected: object, where: str) -> None:
    """Refuses what is not as it is expected to be.

    Args:
        given: what was read.
        expected: a tree that says what it must be.
        where: what to call it.

    Raises:
        SettingError: it names the first part that is not.
    """
    if isinstance(expected, Mapping):
        _check_section(given, expected, where)
    elif isinstance(expected, (list, tuple)):
        if type(given) is not type(expected) or len(given) != len(expected):
            raise SettingError(where, reason=f"is not a {type(expected).__name__} of {len(expected)}")
        for number, (item, part) in enumerate(zip(given, expected, strict=True)):
            check_like(item, part, f"{where}.{number}")
    elif isinstance(expected, Tensor):
        if not is_alike(given, expected):
            raise SettingError(where, reason=f"is not a tensor of {tuple(expected.shape)} {expected.dtype} numbers")
        if not cast(Tensor, given).isfinite().all():
            raise SettingError(where, reason="holds what is no number")
    elif not (expected(given) if callable(expected) else type(given) is type(expected) and given == expected):
        raise SettingError(where, reason="is not what it must be")


def _check_section(given: object, expected: Mapping[object, object], where: str) -> None:
    if not isinstance(given, dict):
        raise SettingError(where, reason="is no section of its own")
    for key in given.keys() ^ expected.keys():
        if key in expected:
            raise SettingError(f"{where}.{key}", reason="is missing")
        if not isinstance(expected, AtLeast):
            raise SettingError(f"{where}.{str(key)[:100]}", reason="is one too many")
    for key, part in expected.items():
        check_like(given[key], part, f"{where}.{key}")


def like(example: object) -> object:
    """Returns what has to be expected of a value of the same kind: any count for a count, any number for a number."""
    if isinstance(example, Mapping):
        return {key: like(value) for key, value in example.items()}
    if isinstance(example, (list, tuple)):
        return type(example)(like(item) for item in cast(list[object], example))
    kinds: dict[type, Callable[[object], bool]] = {bool: is_flag, int: is_count, float: is_number}
    return kinds.get(type(example), example)


def is_alike(given: object, expected: Tensor) -> bool:
    """Says whether a value is a plain dense tensor on the CPU, of the same shape, type and order in memory.

    Others may repeat one number as often as they like, and take no space until they are looked at.
    """
    return (
        type(given) in (Tensor, torch.nn.Parameter)
        and isinstance(given, Tensor)
        # Of a nested tensor nothing else can be asked.
        and not given.is_nested
        and given.layout == expected.layout == torch.strided
        and given.device.type == "cpu"
        and not given.is_quantized
        and given.dtype == expected.dtype
        and given.shape == expected.shape
        and (given.is_contiguous() if expected.is_contiguous() else given.stride() == expected.stride())
    )


def is_flag(value: object) -> bool:
    """Says whether a value is true or false."""
    return isinstance(value, bool)


def is_count(value: object) -> TypeGuard[int]:
    """Says whether a value is a whole number that a training can count to."""
    return type(value) is int and 0 <= value < 2**53


def is_number(value: object) -> TypeGuard[float]:
    """Says whether a value is a finite number."""
    return is_count(value) or (isinstance(value, float) and math.isfinite(value))


def is_score(value: object) -> bool:
    """Says whether a value is a finite number, or None where there is none yet."""
    return value is None or is_number(value)
