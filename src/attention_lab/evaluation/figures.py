"""Attention maps of test examples, as PNG files."""

from pathlib import Path
from typing import Any

import torch

from attention_lab.data.batches import Batch, SequenceRows, readable_rows
from attention_lab.models.inference import evaluation_mode
from attention_lab.models.model import SequenceModel
from attention_lab.plotting.attention import AttentionGrid
from attention_lab.plotting.labels import map_labels


def save_attention_maps(
    network: SequenceModel[Any], rows: SequenceRows, count: int, folder: Path, device: torch.device
) -> list[Path]:
    """Writes `example_<n>_<attention>_layer_<i>.png` for the rows that are easiest to read.

    Args:
        network: what to look at.
        rows: where to take examples from.
        count: how many examples at most; there are fewer if too few rows are short enough to be drawn.
        folder: where the files go; made if it is not there.
        device: where to run.

    Returns:
        The files, in order.
    """
    folder.mkdir(parents=True, exist_ok=True)
    files: list[Path] = []
    for number, row in enumerate(readable_rows(rows, count)):
        example = rows[row]
        with evaluation_mode(network):
            source, target = example.source.to(device), example.target.to(device)
            maps = network(source, target, need_weights=True).attention
        for attention, layers in maps.items():
            for layer, weights in enumerate(layers):
                file = folder / f"example_{number}_{attention}_layer_{layer}.png"
                _save(example, attention, layer, weights, file)
                files.append(file)
    return files


def _save(example: Batch, attention: str, layer: int, weights: torch.Tensor, file: Path) -> None:
    grid = AttentionGrid(map_labels(attention, layer, example), weights.size(1))
    grid.paint(weights[0].float().cpu().numpy()).save(file)
