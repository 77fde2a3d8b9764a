"""Keeps how the alignment forms, for TensorBoard as one picture and for the report to replay."""

from pathlib import Path

import numpy as np
from lightning.pytorch import Callback, LightningModule, Trainer

from attention_lab.callbacks.alignment import AlignmentMonitor
from attention_lab.callbacks.attention_maps import AttentionMaps
from attention_lab.callbacks.writer import add_picture, writer_of
from attention_lab.plotting.lock_on import draw_lock_on
from attention_lab.runs.folder import HISTORY
from attention_lab.runs.history import Moment, append_moment, read_history


class AlignmentHistory(Callback):
    """Writes a line a validation to the run's `alignment.jsonl`, and logs the image `alignment/lock_on`.

    The picture is drawn after 2, 4, 8, ... validations and at the end, so that it costs next to nothing.

    Args:
        run_dir: the run's folder.
        monitor: knows how well every head aligns; comes before this among the callbacks.
        maps: has the maps of an example, and comes before this; None where they are not drawn.
    """

    def __init__(self, run_dir: Path, monitor: AlignmentMonitor, maps: AttentionMaps | None) -> None:
        self.path = run_dir / HISTORY
        self.monitor = monitor
        self.maps = maps
        self._scored: list[Moment] = []
        self._drawn = 0

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if not trainer.is_global_zero:
            return
        # What a run that goes on has written before.
        written = read_history(self.path)
        self._scored = [each._replace(maps=None) for each in written if each.hit_rate is not None]
        if trainer.global_step == 0 and self.maps is not None and not written:
            append_moment(Moment(0, None, None, self._maps()), self.path)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.sanity_checking or not trainer.is_global_zero:
            return
        exact_match = float(trainer.callback_metrics["val/exact_match"])
        hit_rate = self.monitor.hit_rate.double().numpy()
        moment = Moment(trainer.global_step, exact_match, hit_rate, None)
        append_moment(moment._replace(maps=self._maps()), self.path)
        self._scored.append(moment)
        if len(self._scored).bit_count() == 1:
            self._draw(trainer)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._draw(trainer)

    def _maps(self) -> np.ndarray | None:
        """Returns the example's maps, (layers, H, L, S), in 255ths."""
        if self.maps is None or not self.maps.aligned:
            return None
        return np.stack([(layer.clip(0, 1) * 255).round().astype(np.uint8) for layer in self.maps.aligned])

    def _draw(self, trainer: Trainer) -> None:
        writer = writer_of(trainer)
        # Not twice of the same validations.
        if writer is None or len(self._scored) < 2 or len(self._scored) == self._drawn:
            return
        self._drawn = len(self._scored)
        steps = [moment.step for moment in self._scored]
        solved = [moment.exact_match or 0.0 for moment in self._scored]
        hit_rate = np.stack([moment.hit_rate for moment in self._scored if moment.hit_rate is not None])
        add_picture(writer, "alignment/lock_on", draw_lock_on(steps, solved, hit_rate), trainer.global_step)
