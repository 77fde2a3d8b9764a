"""Results as files that other programs read."""

import json
import os
from pathlib import Path
from typing import Any


def write_json(content: dict[str, Any], path: Path) -> None:
    """Writes JSON so that the file is there whole or not at all.

    Raises:
        ValueError: a figure is NaN or infinite, which JSON cannot say.
    """
    aside = path.with_name(path.name + ".partial")
    aside.write_text(json.dumps(content, indent=2, allow_nan=False) + "\n")
    os.replace(aside, path)
