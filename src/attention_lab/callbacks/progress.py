"""Progress on the terminal: a bar over all steps, and a line at every validation."""

import logging
import threading
import time
from typing import TYPE_CHECKING, Any

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import ProgressBar
from tqdm import tqdm

from attention_lab.training.module import SequenceTraining

if TYPE_CHECKING:
    Bar = tqdm[Any]
else:
    # It takes no argument when a program runs.
    Bar = tqdm

log = logging.getLogger(__name__)


def bar(total: int, unit: str, initial: int = 0, enabled: bool = True) -> Bar:
    """Returns a bar that is drawn only on a terminal, and gone once it is closed."""
    # One process draws; the lock between processes, which tqdm makes otherwise, would outlive one that is killed.
    tqdm.set_lock(threading.RLock())
    # None is tqdm's word for: only on a terminal.
    off = None if enabled else True
    return tqdm(total=total, initial=initial, unit=unit, leave=False, dynamic_ncols=True, disable=off)


class TrainingProgress(ProgressBar):
    """One bar of tqdm from the first step to the last (Lightning's own starts anew each epoch) and a line a validation.

    The bar is drawn only on a terminal; the lines go to the log, so that a redirected run reads well, too.

    Args:
        max_steps: the last step.
    """

    def __init__(self, max_steps: int) -> None:
        super().__init__()
        self.max_steps = max_steps
        self._enabled = True
        self._started = time.monotonic()
        self._bar = bar(max_steps, "step", enabled=False)

    def enable(self) -> None:
        self._enabled = True

    def disable(self) -> None:
        self._enabled = False

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._started = time.monotonic()
        self._bar = bar(self.max_steps, "step", trainer.global_step, self._enabled)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self._bar.update(trainer.global_step - self._bar.n)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.sanity_checking or not self._enabled:
            return
        assert isinstance(pl_module, SequenceTraining)
        loss = pl_module.training_loss
        scalars = {name: float(value) for name, value in trainer.callback_metrics.items()}
        self._bar.clear()
        aligned = scalars.get("val/alignment_hit_rate")
        log.info(
            "step %5d %5.1f s   loss %s   validation: loss %.4f   tokens %.4f   exact %.4f%s",
            trainer.global_step,
            time.monotonic() - self._started,
            # What goes on in the middle of a validation has not had a step yet.
            "–" if loss is None else f"{loss:.4f}",
            scalars["val/loss"],
            scalars["val/token_accuracy"],
            scalars["val/exact_match"],
            "" if aligned is None else f"   aligned {aligned:.3f}",
        )

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._bar.close()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        self._bar.close()
