"""Attention maps in TensorBoard: the same example at every logged step, so that the slider shows heads align."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from lightning.pytorch import Callback, LightningModule, Trainer

from attention_lab.callbacks.writer import add_picture, writer_of
from attention_lab.data.batches import Batch
from attention_lab.models.inference import evaluation_mode
from attention_lab.models.model import SequenceModel
from attention_lab.plotting.attention_grid import AttentionGrid
from attention_lab.plotting.labels import MapView, map_view


class AttentionMaps(Callback):
    """Logs an image `attention/<name>/layer_<i>` for each layer of each attention, before training and at validations.

    Args:
        example: a batch of one.
        symbols: what its symbols are called, if not numbers.

    Attributes:
        aligned: the maps from target to source that were drawn last, one (H, L, S) a layer, as far as they are shown.
    """

    def __init__(self, example: Batch, symbols: Sequence[str] = ()) -> None:
        self.example = example
        self.symbols = symbols
        self.aligned: list[Float[np.ndarray, "H L S"]] = []
        self._grids: dict[str, tuple[MapView, AttentionGrid]] = {}

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.global_step == 0:
            self._draw(trainer, pl_module)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._draw(trainer, pl_module)

    def _draw(self, trainer: Trainer, pl_module: LightningModule) -> None:
        writer = writer_of(trainer)
        if writer is None:
            return
        network = pl_module.network
        assert isinstance(network, SequenceModel)
        example = Batch(*(part.to(pl_module.device) for part in self.example))
        with evaluation_mode(network):
            maps = network(example.source, example.target, need_weights=True).attention
        self.aligned = []
        for name, layers in maps.items():
            for index, weights in enumerate(layers):
                tag = f"attention/{name}/layer_{index}"
                if tag not in self._grids:
                    frames = network.frames if name == network.alignment_attention else ()
                    view = map_view(name, index, network.axes[name], self.example, frames, symbols=self.symbols)
                    self._grids[tag] = view, AttentionGrid(view.labels, weights.size(1))
                view, grid = self._grids[tag]
                shown = view.of(weights[0]).float().cpu().numpy()
                add_picture(writer, tag, grid.paint(shown), trainer.global_step)
                if name == network.alignment_attention:
                    self.aligned.append(shown)
