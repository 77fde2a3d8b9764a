"""Text that leaves for another program, made harmless: whatever it says, it is shown and never run.

A checkpoint's config and path may be anybody's. Spreadsheets run a cell that begins like a formula, Markdown viewers
make markup of what looks like it, matplotlib makes formulas of it, and a terminal obeys control characters. Pages are
escaped by Jinja2 (see `report.page`).
"""

import re
import unicodedata

_FORMULA = ("=", "+", "-", "@", "＝", "＋", "－", "＠")
"""What a formula begins with in some spreadsheet (OWASP, CSV injection)."""
_NUMBER = re.compile(r"[-+]?\d+(\.\d*)?([eE][-+]?\d+)?")


def csv_cell(value: object) -> object:
    """Returns a value as a spreadsheet may have it: numbers as they are, formulas as text behind an apostrophe.

    Text is one line, since a carriage return would begin a row to some readers, and a formula may follow it.
    """
    if not isinstance(value, str) or _NUMBER.fullmatch(value):
        return value
    text = one_line(value)
    return f"'{text}" if text.lstrip().startswith(_FORMULA) else text


def markdown_cell(text: str) -> str:
    """Returns a text as a cell of a Markdown table, in TensorBoard as well: one line, and no markup."""
    for sign, shown in (("\\", "\\\\"), ("&", "&amp;"), ("<", "&lt;"), ("](", "]\\(")):
        text = text.replace(sign, shown)
    return one_line(re.sub(r"([|`*])", r"\\\1", text))


def figure_text(text: str) -> str:
    """Returns a text as matplotlib may have it: a dollar sign begins no formula."""
    return one_line(text.replace("$", r"\$"))


def one_line(text: str) -> str:
    """Returns a text without line breaks and other control characters, each of which becomes a space."""
    return "".join(" " if unicodedata.category(sign) in ("Cc", "Zl", "Zp") else sign for sign in text)
