"""Checkpoint files: read without running anything that lies in them, whoever wrote them.

Lightning is not imported here, so that a file which is none is refused at once.
"""

import io
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import torch

from attention_lab.errors import SettingError
from attention_lab.runs.files import whole_file
from attention_lab.runs.structure import is_count, is_number
from attention_lab.settings.moved import moved_targets
from attention_lab.settings.plain import check_plain
from attention_lab.settings.schema import Config

CHECKPOINT_FORMAT = 3
"""Version of what this project adds to Lightning's checkpoints."""

FIRST_RESUMABLE = 2
"""The first version from which training can go on."""

_FIRST_WITH_EOS_LAST = 3
"""The first version in which EOS comes last from either end."""


class Solved(NamedTuple):
    """When a run first answered 99 % of the validation sequences right: after how many steps, and seconds."""

    step: int
    seconds: float


class CheckpointFile(NamedTuple):
    """What lies in a checkpoint of this project. Of all but the config's and the step's form, nothing is sure yet.

    Attributes:
        path: the file.
        format: its version.
        config: the config of the run that wrote it, as plain types, under the names that classes have now.
        step: optimiser steps behind it.
        solved: when its run had solved the task; None if it had not by then.
        weights: the network's weights by name.
        content: everything, as Lightning and the run wrote it.
    """

    path: Path
    format: int
    config: Config
    step: int
    solved: Solved | None
    weights: Mapping[str, object]
    content: Mapping[str, object]


def write_checkpoint(content: Mapping[str, object], path: Path) -> None:
    """Writes a checkpoint, whole or not at all.

    Raises:
        OSError: it cannot be written.
    """
    # Not into the file itself: PyTorch would turn a full disk into an error of its own.
    serialised = io.BytesIO()
    torch.save(content, serialised)
    with whole_file(path) as file:
        file.write(serialised.getbuffer())


def read_checkpoint(path: Path, setting: str = "checkpoint") -> CheckpointFile:
    """Returns what lies in a checkpoint that `train.py` wrote, of this version or an earlier one.

    Args:
        path: the file.
        setting: what a user calls it.

    Raises:
        SettingError: it is missing, broken or foreign, or its network would not be the one that was trained.
    """
    content = read_content(path, setting)
    ours, weights, step = content.get("attention_lab"), content.get("state_dict"), content.get("global_step")
    if isinstance(weights, dict) and ours is None:
        raise SettingError(
            setting,
            path,
            "was not written by attention_lab's train.py: it has no section attention_lab, which training with "
            "SequenceTraining(network, config=...) writes",
        )
    if not (isinstance(ours, dict) and isinstance(weights, dict) and is_count(step)):
        raise SettingError(setting, path, "was not written by attention_lab's train.py")
    config, version = ours.get("config"), ours.get("format")
    if not is_count(version) or not 1 <= version <= CHECKPOINT_FORMAT:
        shown = version if is_count(version) else None
        raise SettingError(setting, path, f"has format {shown}; this version reads formats 1 to {CHECKPOINT_FORMAT}")
    if not isinstance(config, dict):
        raise SettingError(setting, path, "was not written by attention_lab's train.py: it has no config")
    try:
        check_plain(config)
    except SettingError as error:
        raise SettingError(setting, path, f"holds a config that this version refuses: {error}") from error
    config = moved_targets({str(name): section for name, section in config.items()})
    position = config.get("position")
    two_ended = isinstance(position, dict) and str(position.get("_target_")).endswith(".TwoEndedRotary")
    if two_ended and version < _FIRST_WITH_EOS_LAST:
        reason = f"has format {version}, when position=two_ended_rotary counted otherwise; train it again"
        raise SettingError(setting, path, reason)
    prefix = "network."
    own = {str(name).removeprefix(prefix): each for name, each in weights.items() if str(name).startswith(prefix)}
    return CheckpointFile(path, version, config, step, _solved(ours.get("solved")), own, content)


def read_content(path: Path, setting: str = "checkpoint") -> dict[str, object]:
    """Reads a checkpoint, on the CPU, whoever wrote it: plain types and tensors, or nothing.

    Nothing is read but PyTorch's own archive, uncompressed as `torch.save` writes it: what a file claims to hold cannot
    be more than the file, and no name in it is called but the few that `weights_only` knows.

    Args:
        path: the file.
        setting: what a user calls it.

    Raises:
        SettingError: it is missing, broken, or no checkpoint.
    """
    try:
        if path.is_dir():
            inside = path / "checkpoints" / "best.ckpt"
            hint = f"; try {setting}={inside}" if inside.is_file() else ""
            raise SettingError(setting, path, f"is a folder, not a file{hint}")
        if not path.exists():
            raise SettingError(setting, path, f"does not exist (looked for it in {Path.cwd()})")
        if not path.is_file():
            raise SettingError(setting, path, "is not a regular file")
        _check_archive(path)
        with warnings.catch_warnings(action="ignore"):
            # What PyTorch has to say about a foreign file's format is no help to anybody.
            content = torch.load(path, map_location="cpu", weights_only=True)
    except SettingError:
        raise
    except Exception as error:
        # There is no end to what a foreign file can make an unpickler raise.
        raise SettingError(setting, path, "is broken, or is no checkpoint at all") from error
    return content if isinstance(content, dict) else {}


def _check_archive(path: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        entries = archive.infolist()
        if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries):
            raise ValueError("compressed")
        if sum(entry.file_size for entry in entries) > path.stat().st_size:
            raise ValueError("entries that share their bytes")
        if archive.testzip() is not None:
            raise ValueError("a checksum that is wrong")


def _solved(found: object) -> Solved | None:
    step, seconds = (found.get(name) for name in Solved._fields) if isinstance(found, dict) else (None, None)
    return Solved(step, float(seconds)) if is_count(step) and is_number(seconds) else None
