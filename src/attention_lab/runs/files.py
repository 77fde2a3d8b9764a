"""Results as files that other programs read."""

import csv
import io
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def write_json(content: dict[str, Any], path: Path) -> None:
    """Writes JSON so that the file is there whole or not at all.

    Raises:
        ValueError: a figure is NaN or infinite, which JSON cannot say.
    """
    write_text(json.dumps(content, indent=2, allow_nan=False) + "\n", path)


def write_csv(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Writes a table whose columns are the keys of the first row."""
    text = io.StringIO()
    table = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    write_text(text.getvalue(), path)


def write_text(text: str, path: Path) -> None:
    """Writes a file so that it is there whole or not at all."""
    aside = path.with_name(path.name + ".partial")
    aside.write_text(text, encoding="utf-8")
    os.replace(aside, path)
