"""A run's name: what was asked for, as a file name on any system."""

import re
from collections.abc import Collection, Sequence

LONGEST = 80
"""Characters of a name."""

_NO_PART_OF_IT = (
    r"task|resume|trust|init_from|trainer|trainer\.(accelerator|devices)|data\.num_workers|(callbacks|logger)(\..*)?"
)
"""Settings that say where a run runs, how it is watched or what it goes on from; the task comes first of all."""


def run_name(task: str, overrides: Sequence[str], besides: Collection[str] = ()) -> str:
    """Returns what a run is called: `reverse_position-rotary_seed-3`.

    There is no `=` in it, nothing that Windows or macOS refuses, and nothing that a shell takes for something else.

    Args:
        task: what the run learns, under the name that was typed.
        overrides: what was typed, in that order. A setting in a section goes by its own name alone.
        besides: settings to leave out: in a sweep, those that are the same for all.
    """
    given = [override.lstrip("+~").partition("=") for override in overrides]
    parts = [
        "-".join(filter(None, (plain_name(setting.rpartition(".")[2]), plain_name(value))))
        for setting, _, value in given
        if setting not in besides and not re.fullmatch(_NO_PART_OF_IT, setting)
    ]
    name = plain_name(task)
    for number, part in enumerate(parts):
        if len(name) + len(part) >= LONGEST:
            return f"{name}_and-{len(parts) - number}-more"
        name += f"_{part}"
    return name


def plain_name(text: str) -> str:
    """Returns a text as a file name on any system, without what a shell or an address takes for something else."""
    return re.sub(r"[^A-Za-z0-9.+_-]+", "-", text).strip("-.")
