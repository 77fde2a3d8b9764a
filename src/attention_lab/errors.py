"""What can go wrong by the user's hand or wish: a setting that cannot be used, and being told to stop."""

import json
import re


class _NotGiven:
    """The value of a setting that has none."""


NOT_GIVEN = _NotGiven()

_LONGEST = 400
"""Characters that are shown of a value."""


class SettingError(ValueError):
    """A setting, or an argument, that cannot be used.

    Its text is one line that names the setting, its value and what is allowed; whoever handles it reads the fields and
    never the text.

    Args:
        setting: its name; in full, such as `model.num_heads`, wherever that is known.
        value: what it was to be; left out where it is the lack of a value that is wrong.
        reason: the rest of the sentence: what is wrong with it, and what would be right.
    """

    def __init__(self, setting: str, value: object = NOT_GIVEN, reason: str = "") -> None:
        super().__init__(setting, value, reason)
        self.setting = setting
        self.value = value
        self.reason = reason

    def __str__(self) -> str:
        given = "" if isinstance(self.value, _NotGiven) else f"={as_written(self.value)}"
        return f"{self.setting}{given} {self.reason}".rstrip()

    def inside(self, section: str) -> "SettingError":
        """Returns the same about the setting of that name in a section."""
        return type(self)(f"{section}.{self.setting}" if section else self.setting, self.value, self.reason)


class Interrupted(BaseException):
    """A signal asked the process to stop.

    Not an Exception, so that nobody who handles errors takes it for one.
    """

    def __init__(self, signum: int) -> None:
        super().__init__(signum)
        self.signum = signum


def as_written(value: object) -> str:
    """Returns a value as it stands in a config: null and true, and quotes around text that looks like a number."""
    try:
        if isinstance(value, str):
            text = repr(value) if re.fullmatch(r"[\d.eE+-]+|true|false|null|", value) else value
        else:
            text = json.dumps(value) if value is None or isinstance(value, bool) else str(value)
    except ValueError:
        # Python writes out no whole number of more than 4,300 digits.
        return "…"
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
