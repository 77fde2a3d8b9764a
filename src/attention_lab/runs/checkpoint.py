"""Checkpoint files: written whole or not at all, and read without running anything that lies in them.

Lightning is not imported here, so that a file which is none is refused at once.
"""

import io
import os
import warnings
import zipfile
from pathlib import Path
from typing import Any

import torch

from attention_lab.errors import SettingError
from attention_lab.settings.plain import check_plain

CHECKPOINT_FORMAT = 3
"""Version of what this project adds to Lightning's checkpoints."""

FIRST_RESUMABLE = 2
"""The first version from which training can go on."""

_FIRST_WITH_EOS_LAST = 3
"""The first version in which EOS comes last from either end."""


def write_whole(content: dict[str, Any], path: Path) -> None:
    """Writes a checkpoint aside and then puts it in its place.

    Whatever happens in between (a killed process, a full disk, power that fails), under its name lies either the whole
    new file or the one that was there before.

    Raises:
        OSError: it cannot be written; nothing of it is left.
    """
    serialised = io.BytesIO()
    torch.save(content, serialised)
    path.parent.mkdir(parents=True, exist_ok=True)
    _write(serialised.getbuffer(), path)


def _write(content: bytes | memoryview, path: Path) -> None:
    aside = path.with_name(f".{path.name}.part")
    try:
        with aside.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise


def same_file(source: Path, path: Path) -> None:
    """Gives a file that is never changed, only ever replaced, a second name, in place of what had that name before."""
    aside = path.with_name(f".{path.name}.part")
    aside.unlink(missing_ok=True)
    try:
        os.link(source, aside)
    except OSError:
        # Not every file system knows second names.
        _write(source.read_bytes(), path)
        return
    aside.replace(path)


def read_ours(path: Path, setting: str = "checkpoint") -> dict[str, Any]:
    """Returns what lies in a checkpoint that `train.py` wrote, of this version or an earlier one.

    Args:
        path: the file.
        setting: what a user calls it.

    Raises:
        SettingError: it is missing, broken or foreign, or its network would not be the one that was trained.
    """
    content = read_checkpoint(path, setting)
    ours = content.get("attention_lab")
    if not (
        isinstance(ours, dict)
        and isinstance(ours.get("config"), dict)
        and _is_plain(ours["config"])
        and isinstance(content.get("state_dict"), dict)
        and isinstance(content.get("global_step"), int)
    ):
        raise SettingError(f"{setting}={path} was not written by attention_lab's train.py")
    version = ours["format"] if isinstance(ours.get("format"), int) else None
    if version is None or not 1 <= version <= CHECKPOINT_FORMAT:
        raise SettingError(
            f"{setting}={path} has format {version}; this version reads formats 1 to {CHECKPOINT_FORMAT}"
        )
    position = ours["config"].get("position")
    two_ended = isinstance(position, dict) and str(position.get("_target_")).endswith(".TwoEndedRotary")
    if two_ended and version < _FIRST_WITH_EOS_LAST:
        raise SettingError(
            f"{setting}={path} has format {version}, when position=two_ended_rotary counted otherwise; train it again"
        )
    return content


def _is_plain(config: object) -> bool:
    try:
        check_plain(config)
    except SettingError:
        return False
    return True


def read_checkpoint(path: Path, setting: str = "checkpoint") -> dict[str, Any]:
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
            raise SettingError(f"{setting}={path} is a folder, not a file{hint}")
        if not path.exists():
            raise SettingError(f"{setting}={path} does not exist (looked for it in {Path.cwd()})")
        if not path.is_file():
            raise SettingError(f"{setting}={path} is not a regular file")
        _check_archive(path)
        with warnings.catch_warnings(action="ignore"):
            # What PyTorch has to say about a foreign file's format is no help to anybody.
            content = torch.load(path, map_location="cpu", weights_only=True)
    except SettingError:
        raise
    except Exception as error:
        # There is no end to what a foreign file can make an unpickler raise.
        raise SettingError(f"{setting}={path} is broken, or is no checkpoint at all") from error
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
