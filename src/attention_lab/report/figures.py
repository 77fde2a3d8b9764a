"""Attention maps of test examples, for PNG files and for the report's viewer."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from attention_lab.data.batches import Batch, SequenceRows
from attention_lab.models.inference import evaluation_mode
from attention_lab.models.model import AttentionMaps, Axis, SequenceModel
from attention_lab.plotting.attention_figure import draw_attention
from attention_lab.plotting.canvas import save
from attention_lab.plotting.labels import map_view


class MappedExample(NamedTuple):
    """A batch of one, and the attention that it called forth, on the CPU.

    Attributes:
        example: the batch.
        maps: its attention.
        axes: what the rows and the columns of each attention are.
        frames: each head's frame, of an attention whose heads differ in that.
    """

    example: Batch
    maps: AttentionMaps
    axes: Mapping[str, tuple[Axis, Axis]]
    frames: Mapping[str, tuple[str, ...]]


def map_examples(
    network: SequenceModel[Any], rows: SequenceRows, chosen: Sequence[int], device: torch.device
) -> list[MappedExample]:
    """Returns the attention for some rows."""
    mapped: list[MappedExample] = []
    for row in chosen:
        example = rows[row]
        with evaluation_mode(network):
            output = network(example.source.to(device), example.target.to(device), need_weights=True)
        maps = {name: tuple(layer.float().cpu() for layer in layers) for name, layers in output.attention.items()}
        mapped.append(MappedExample(example, maps, network.axes, {network.alignment_attention: network.frames}))
    return mapped


def save_attention_maps(mapped: Sequence[MappedExample], folder: Path, pdf: bool = False) -> None:
    """Writes `example_<n>_<attention>_layer_<i>.png` into a folder, and PDFs beside them if asked to."""
    for number, (example, maps, axes, frames) in enumerate(mapped):
        for attention, layers in maps.items():
            for layer, weights in enumerate(layers):
                view = map_view(attention, layer, axes[attention], example, frames.get(attention, ()))
                figure = draw_attention(view.labels, view.of(weights[0]))
                save(figure, folder / f"example_{number}_{attention}_layer_{layer}", pdf)
