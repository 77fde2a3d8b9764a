"""What every benchmark leaves: its results as JSON, CSV and Markdown."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from attention_lab.benchmark.machine import Machine
from attention_lab.benchmark.settings import BenchmarkSettings
from attention_lab.runs.files import write_csv, write_json, write_text

Row = Mapping[str, object]
"""A row of a table by its columns."""


def log(text: object) -> None:
    """Shows how far a benchmark is."""
    print(text, file=sys.stderr, flush=True)


def write_results(
    file: Path, settings: BenchmarkSettings, machine: Machine, rows: Sequence[Row], tables: str, **more: object
) -> None:
    """Writes FILE.json, FILE.csv and FILE.md.

    Args:
        file: where to, without a suffix.
        settings: what was asked for, `options` in the JSON.
        machine: where it was measured.
        rows: the CSV; a list becomes one cell, without what is None.
        tables: the Markdown.
        more: the rest of the JSON.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    content = {"options": settings.model_dump(), "machine": machine.description(), **more}
    write_json(content, file.with_suffix(".json"))
    write_csv([{name: _cell(value) for name, value in row.items()} for row in rows], file.with_suffix(".csv"))
    write_text(tables, file.with_suffix(".md"))


def _cell(value: object) -> object:
    if not isinstance(value, list):
        return value
    return " ".join(f"{each:.0f}" if each >= 1000 else f"{each:.4g}" for each in value if each is not None)
