"""Files that are there whole or not at all: everything that a command leaves behind is written here."""

import csv
import io
import json
import os
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from attention_lab.escaping import csv_cell


@contextmanager
def whole_file(path: Path) -> Generator[BinaryIO]:
    """Opens a file to be written aside, and puts it in its place once it is on disk.

    Whatever happens in between (a killed process, a full disk, power that fails), under its name lies either the whole
    new file or the one that was there before.

    Raises:
        OSError: it cannot be written; nothing of it is left.
    """
    aside = _aside(path)
    try:
        with aside.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise


def write_text(text: str, path: Path) -> None:
    """Writes a text file, whole or not at all.

    A path may hold bytes that are no text; they are written as escapes.
    """
    with whole_file(path) as file:
        file.write(text.encode(errors="backslashreplace"))


def write_json(content: Mapping[str, object], path: Path) -> None:
    """Writes JSON, whole or not at all.

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


def link_file(source: Path, path: Path) -> None:
    """Gives a file that is never changed, only ever replaced, a second name, in place of what had that name before."""
    aside = _aside(path)
    aside.unlink(missing_ok=True)
    try:
        os.link(source, aside)
    except OSError:
        # Not every file system knows second names.
        with whole_file(path) as file:
            file.write(source.read_bytes())
        return
    aside.replace(path)


def remove_leftovers(folder: Path) -> None:
    """Removes what a killed process had begun to write aside, anywhere in a folder."""
    for path in folder.rglob(_aside(Path("*")).name):
        if path.is_file():
            path.unlink(missing_ok=True)


def _aside(path: Path) -> Path:
    return path.with_name(f".{path.name}.part")
