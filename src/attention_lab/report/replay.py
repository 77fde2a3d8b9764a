"""How the alignment formed: as the data of a page, and as an animated picture."""

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import UInt8
from PIL import Image, features

from attention_lab.data.batches import Batch
from attention_lab.plotting.attention_grid import AttentionGrid, MapLabels
from attention_lab.runs.files import whole_file
from attention_lab.runs.history import Moment
from attention_lab.tasks.vocabulary import token_labels

_MOST, _LARGEST = 80, 1_500_000
"""Moments, and bytes of maps, that a page holds at most."""

_MILLISECONDS, _HELD = 150, 2500
"""How long the animated picture shows a moment, and the last one."""


class Replay(NamedTuple):
    """How the maps of one validation example came to be.

    Attributes:
        example: a batch of one.
        labels: what stands around its maps.
        moments: the validations, each with maps.
        symbols: what the symbols are called, if not numbers.
    """

    example: Batch
    labels: MapLabels
    moments: Sequence[Moment]
    symbols: Sequence[str] = ()


def replay_json(replay: Replay) -> dict[str, object]:
    """Returns what a page replays: some moments at even distances, the first and the last among them."""
    moments = _spread(replay.moments)
    maps = np.stack([_maps_of(moment) for moment in moments])
    return {
        "example": " ".join(token_labels(replay.example.source[0].tolist(), replay.symbols)),
        "steps": [moment.step for moment in moments],
        "exact_match": [moment.exact_match for moment in moments],
        "hit_rate": [None if moment.hit_rate is None else moment.hit_rate.ravel().tolist() for moment in moments],
        "shape": maps.shape[1:],
        "maps": base64.b64encode(maps.tobytes()).decode(),
        "gold": replay.labels.gold,
    }


def animate(replay: Replay, layer: int, path: Path) -> None:
    """Writes the maps of one layer's heads as an animated WebP that runs for ever, and holds at its end.

    Without loss it takes a fifteenth of what a GIF does. A Pillow that was built without WebP leaves the picture out.

    Args:
        replay: what to show.
        layer: whose heads.
        path: where to.
    """
    if not features.check("webp"):
        return
    moments = _spread(replay.moments)
    attention, _, _ = replay.labels.title.partition(", layer")
    labels = replay.labels._replace(title=f"{attention}, layer {layer}")
    grid = AttentionGrid(labels, _maps_of(moments[0]).shape[1])
    pictures: list[Image.Image] = []
    for moment in moments:
        solved = "before training" if moment.exact_match is None else f"exact match {moment.exact_match:.2f}"
        picture = grid.paint(_maps_of(moment)[layer] / 255, f"step {moment.step}, {solved}")
        pictures.append(picture.convert("RGB"))
    durations = [_MILLISECONDS] * (len(pictures) - 1) + [_HELD]
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as file:
        rest = {"append_images": pictures[1:], "duration": durations, "loop": 0}
        pictures[0].save(file, "WEBP", save_all=True, lossless=True, method=2, **rest)


def _spread(moments: Sequence[Moment]) -> list[Moment]:
    count = max(2, min(_MOST, len(moments), _LARGEST // _maps_of(moments[0]).nbytes))
    return [moments[place] for place in sorted({round(each) for each in np.linspace(0, len(moments) - 1, count)})]


def _maps_of(moment: Moment) -> UInt8[np.ndarray, "layers H L S"]:
    assert moment.maps is not None
    return moment.maps
