"""What a config in a checkpoint may hold: plain values, and no more of them than a config has."""

import math
from collections.abc import Mapping
from typing import cast

from attention_lab.errors import SettingError

_MOST_PARTS = 1000
"""Names, numbers and texts that a config may be made of."""

_LONGEST_TEXT = 1000
"""Characters."""

_DEEPEST = 20
"""Sections inside one another."""

_LARGEST = 2**63
"""Whole numbers lie below."""


def check_plain(config: object) -> None:
    """Refuses a config that is not a plain tree of a reasonable size: few bytes can name a list beyond any memory.

    The reader of a checkpoint refuses what this refuses, and so does a training before it begins.

    Raises:
        SettingError: a value is too long, too large or not plain, or there are too many.
    """
    unseen, seen = [("", config, 0)], 0
    while unseen:
        name, part, depth = unseen.pop()
        seen += 1
        if isinstance(part, Mapping):
            section = cast(Mapping[object, object], part)
            unseen += [(name, key, depth) for key in section]
            unseen += [(f"{name}.{key}" if name else str(key), value, depth + 1) for key, value in section.items()]
        elif isinstance(part, list):
            unseen += [(name, item, depth + 1) for item in cast(list[object], part)]
        elif isinstance(part, str):
            if len(part) > _LONGEST_TEXT:
                raise SettingError(name[:100], f"{part[:60]}…", f"is too long; use at most {_LONGEST_TEXT} characters")
        elif isinstance(part, int):
            if abs(part) >= _LARGEST:
                raise SettingError(
                    name[:100], part if part.bit_length() < 200 else "…", "is too large; use less than 2**63"
                )
        elif isinstance(part, float):
            if not math.isfinite(part):
                raise SettingError(name[:100], part, "is not a number")
        elif part is not None:
            raise SettingError(name[:100], reason=f"is neither text nor a number, but a {type(part).__name__}")
        if seen + len(unseen) > _MOST_PARTS or depth > _DEEPEST:
            raise SettingError(
                name[:100] or "config", reason=f"has too many parts; {_MOST_PARTS} in all, {_DEEPEST} deep"
            )
