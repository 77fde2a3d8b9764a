"""How a run's alignment formed, validation by validation: what a report replays."""

import base64
import json
import logging
import math
import os
import zlib
from itertools import pairwise
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
from jaxtyping import Float, UInt8
from pydantic import BaseModel, ConfigDict, Field

from attention_lab.runs.files import whole_file

_LARGEST = 2**28
"""Bytes of a file, and cells of all its maps, that are read at most: nobody's file shall fill the memory."""

log = logging.getLogger(__name__)

_Share = Annotated[float, Field(ge=0, le=1)]


class Moment(NamedTuple):
    """A validation, or the moment before the first step, when nothing has been scored yet.

    Attributes:
        step: after how many steps.
        exact_match: of the validation split, teacher-forced; None before the first step.
        hit_rate: each head's, (layers, H); None before the first step.
        maps: each head's map of one validation example, in 255ths, (layers, H, L, S); None where it is not drawn.
    """

    step: int
    exact_match: float | None
    hit_rate: Float[np.ndarray, "layers H"] | None
    maps: UInt8[np.ndarray, "layers H L S"] | None


class _Line(BaseModel):
    """A moment as it stands in the file: its maps are compressed and in base 64."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    step: Annotated[int, Field(ge=0, strict=True)]
    exact_match: _Share | None
    hit_rate: list[list[_Share]] | None
    shape: tuple[int, int, int, int] | None
    maps: str | None


def append_moment(moment: Moment, path: Path) -> None:
    """Adds a line to a run's history, in one write: a killed process leaves a torn line at most, which nobody reads."""
    maps = None if moment.maps is None else base64.b64encode(zlib.compress(moment.maps.tobytes())).decode()
    line = {
        "step": moment.step,
        "exact_match": moment.exact_match,
        "hit_rate": None if moment.hit_rate is None else moment.hit_rate.round(4).tolist(),
        "shape": None if moment.maps is None else moment.maps.shape,
        "maps": maps,
    }
    with path.open("ab") as file:
        file.write(json.dumps(line, allow_nan=False).encode() + b"\n")


def keep_moments(path: Path, step: int) -> None:
    """Takes out of a run's history what belongs to later steps, and what a killed process left torn."""
    if not path.exists():
        return
    kept = [line for line in path.read_bytes().splitlines(keepends=True) if _step_of(line) <= step]
    with whole_file(path) as file:
        file.writelines(kept)


def _step_of(line: bytes) -> float:
    try:
        return float(json.loads(line)["step"]) if line.endswith(b"\n") else math.inf
    except (ValueError, KeyError, TypeError):
        return math.inf


def read_history(path: Path) -> list[Moment]:
    """Returns a run's history, in the order of its steps; nothing where there is no file, or one of anything else.

    A run can do without, so that a file that cannot be read is a warning, and no error.
    """
    if not path.is_file():
        return []
    try:
        return _read(path)
    except (OSError, ValueError, zlib.error) as error:
        log.warning("%s cannot be read (%s): there is no replay.", path, str(error).partition("\n")[0])
        return []


def _read(path: Path) -> list[Moment]:
    if os.path.getsize(path) > _LARGEST:
        raise ValueError("it is too large")
    lines = [line for line in path.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]
    read = [_Line.model_validate_json(line) for line in lines]
    # Few bytes can hold maps beyond any memory.
    if any(min(line.shape) < 1 for line in read if line.shape) or sum(map(_cells, read)) > _LARGEST:
        raise ValueError("its maps are too large")
    moments = [_moment(line) for line in read]
    if any(later.step <= earlier.step for earlier, later in pairwise(moments)):
        raise ValueError("its steps do not ascend")
    heads = {moment.hit_rate.shape for moment in moments if moment.hit_rate is not None}
    if len(heads) > 1 or len({moment.maps.shape for moment in moments if moment.maps is not None}) > 1:
        raise ValueError("its lines do not belong together")
    return moments


def _cells(line: _Line) -> int:
    return math.prod(line.shape or ())


def _moment(line: _Line) -> Moment:
    hit_rate = None if line.hit_rate is None else np.array(line.hit_rate, dtype=np.float64)
    if hit_rate is not None and hit_rate.ndim != 2:
        raise ValueError("no rows of heads")
    if line.maps is None or line.shape is None:
        return Moment(line.step, line.exact_match, hit_rate, None)
    raw = zlib.decompressobj().decompress(base64.b64decode(line.maps, validate=True), _cells(line) + 1)
    maps = np.frombuffer(raw, dtype=np.uint8).reshape(line.shape)
    if hit_rate is not None and hit_rate.shape != maps.shape[:2]:
        raise ValueError("maps of other heads")
    return Moment(line.step, line.exact_match, hit_rate, maps)
