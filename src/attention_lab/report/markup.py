"""Pieces of HTML. Everything that comes from a config, a path or a token is escaped here."""

import html
import json
from collections.abc import Sequence
from importlib.resources import files
from string import Template
from typing import Any

from plotly.offline import get_plotlyjs


def fill(template: str, data: Any, **parts: str) -> str:
    """Returns a page of this folder, filled in: one file that needs no network.

    Args:
        template: its file name.
        data: what its script reads.
        parts: markup to put in.
    """
    folder = files("attention_lab.report")
    return Template(folder.joinpath(template).read_text(encoding="utf-8")).substitute(
        style=folder.joinpath("style.css").read_text(encoding="utf-8"),
        plotly=get_plotlyjs(),
        # A tag in the data would end the script that holds it, or begin another.
        data=json.dumps(data, allow_nan=False).replace("<", "\\u003c"),
        **parts,
    )


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Returns a table; its first column names the rows."""
    cells = "".join(f"<th>{html.escape(name)}</th>" for name in head)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><tr>{cells}</tr>{body}</table>"
