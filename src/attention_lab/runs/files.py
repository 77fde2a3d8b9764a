"""Results as files that other programs read."""

import csv
import io
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from attention_lab.escaping import csv_cell


def write_json(content: dict[str, Any], path: Path) -> None:
    """Writes JSON so that the file is there whole or not at all.

    Raises:
        ValueError: a figure is NaN or infinite, which JSON cannot say.
    """
    write_text(json.dumps(content, indent=2, allow_nan=False) + "\n", path)


def write_csv(rows: Sequence[Mapping[str, object]], path: Path) -> None:
    """Writes a table whose columns are the keys of the first row; no spreadsheet takes a text in it for a formula."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(csv_cell(name) for name in rows[0])
    table.writerows([csv_cell(row[name]) for name in rows[0]] for row in rows)
    write_text(text.getvalue(), path)


def write_text(text: str, path: Path) -> None:
    """Writes a file so that it is there whole or not at all.

    A path may hold bytes that are no text; they are written as escapes.
    """
    aside = path.with_name(path.name + ".partial")
    aside.write_text(text, encoding="utf-8", errors="backslashreplace")
    os.replace(aside, path)
