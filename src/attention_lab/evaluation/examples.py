"""Examples to look at: which rows, the attention they call forth, and what is predicted for them."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Integer
from torch import Tensor

from attention_lab.data.batches import Batch, SequenceRows, readable_rows, spread_rows
from attention_lab.evaluation.attribution import AXES, NAME, attribute
from attention_lab.evaluation.scoring import whole_map_fits
from attention_lab.models.inference import evaluation_mode, greedy_decode
from attention_lab.models.model import AttentionMaps, Axis, SequenceModel
from attention_lab.plotting.labels import MapView, map_view
from attention_lab.tasks.mixture import Mixture
from attention_lab.tasks.task import Task

log = logging.getLogger(__name__)


class MappedExample(NamedTuple):
    """A batch of one, and the attention that it called forth, on the CPU.

    Attributes:
        example: the batch.
        maps: its attention.
        axes: what the rows and the columns of each attention are.
        frames: each head's frame, of an attention whose heads differ in that.
        symbols: what the symbols are called, if not numbers.
        attribution: what share source tokens have in predicted ones (`attribute`), (T, S), where that was asked.
    """

    example: Batch
    maps: AttentionMaps
    axes: Mapping[str, tuple[Axis, Axis]]
    frames: Mapping[str, tuple[str, ...]]
    symbols: Sequence[str] = ()
    attribution: Float[Tensor, "T S"] | None = None

    @property
    def shown(self) -> AttentionMaps:
        """The maps, and beside them the attribution, as if it were an attention of one head."""
        return self.maps if self.attribution is None else {**self.maps, NAME: (self.attribution[None, None],)}

    def view(self, attention: str, layer: int) -> MapView:
        """Returns what to draw of one layer's maps, and what stands on its axes."""
        frames = self.frames.get(attention, ())
        return map_view(attention, layer, self.axes[attention], self.example, frames, symbols=self.symbols)


def example_rows(task: Task, rows: SequenceRows, count: int) -> list[int]:
    """Chooses rows that are easy to read, and of a mixture some for each task in turn."""
    if not isinstance(task, Mixture):
        return readable_rows(rows, count)
    candidates = readable_rows(rows, 32 * count)
    if not candidates:
        return []
    asked = task.asked(rows.__getitems__(candidates).source.numpy()).tolist()
    # The first of every task, then the second of every task, and so on.
    turn = [asked[:place].count(number) for place, number in enumerate(asked)]
    return [row for _, _, row in sorted(zip(turn, asked, candidates, strict=True))][:count]


def map_examples(
    network: SequenceModel[Any],
    rows: SequenceRows,
    chosen: Sequence[int],
    device: torch.device,
    symbols: Sequence[str] = (),
) -> list[MappedExample]:
    """Returns the attention for some rows, without those whose maps would not fit (`whole_map_fits`)."""
    mapped: list[MappedExample] = []
    for row in chosen:
        example = rows[row]
        if not whole_map_fits(network, example):
            log.warning("No attention maps: even the shortest test sequence is too long to be mapped.")
            break
        mapped.append(explained_example(network, example, device, symbols))
    return mapped


def explained_example(
    network: SequenceModel[Any], example: Batch, device: torch.device, symbols: Sequence[str] = ()
) -> MappedExample:
    """Returns the attention that a batch of one calls forth, and the attribution beside it."""
    mapped = map_example(network, example, device)
    return mapped._replace(
        axes={**mapped.axes, NAME: AXES}, symbols=symbols, attribution=attribute(network, example, device)
    )


def map_example(network: SequenceModel[Any], example: Batch, device: torch.device) -> MappedExample:
    """Returns the attention that a batch of one calls forth."""
    with evaluation_mode(network.to(device)):
        output = network(example.source.to(device), example.target.to(device), need_weights=True)
    maps = {name: tuple(layer.float().cpu() for layer in layers) for name, layers in output.attention.items()}
    return MappedExample(example, maps, network.axes, {network.alignment_attention: network.frames})


def predict(
    network: SequenceModel[Any], rows: SequenceRows, count: int, device: torch.device
) -> tuple[Batch, Integer[Tensor, "B T"]]:
    """Returns rows of all lengths and what the network predicts for them when it reads its own output."""
    examples = rows.__getitems__(spread_rows(rows, count))
    with evaluation_mode(network.to(device)):
        return examples, greedy_decode(network, examples.source.to(device), examples.labels.size(1)).cpu()
