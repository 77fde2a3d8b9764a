"""How training ends: at its last step with a validation, or at a signal with a checkpoint."""

import signal
import threading
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any, Literal

import torch
from lightning.pytorch import Callback, LightningModule, Trainer

from attention_lab.errors import Interrupted
from attention_lab.training.module import DivergedError, SequenceTraining


class StopOnSignal(Callback):
    """Finishes the batch at hand on Ctrl-C or SIGTERM, logs it, writes `last.ckpt` and raises `Interrupted`.

    A signal that comes in the middle of an optimiser step must not leave half of it in the checkpoint, so the handler
    only takes note. Lightning itself would exit with status 0 on SIGTERM and with 1 on Ctrl-C.

    Args:
        checkpoint: where to save.
    """

    def __init__(self, checkpoint: Path) -> None:
        self.checkpoint = checkpoint
        self._received: int | None = None

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        # Lightning has put its own handlers in place by now and takes these away with them when it is done.
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self._take_note)
            signal.signal(signal.SIGINT, self._take_note)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        # Not in the middle of a step of several batches: what they have summed so far is in no checkpoint.
        if (batch_idx + 1) % trainer.accumulate_grad_batches == 0:
            self._stop_if_told(trainer)

    def on_validation_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        # Several processes may have validation batches of different number.
        if trainer.world_size == 1:
            self._stop_if_told(trainer)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._stop_if_told(trainer)

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._stop_if_told(trainer)

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        if self._received is not None and not isinstance(exception, Interrupted):
            # The signal went to the whole process group and ended the data workers as well; the batch that the loader
            # then misses is no error. Several processes may be anywhere: what they wrote last has to do.
            if trainer.world_size > 1:
                raise Interrupted(self._received) from exception
            self._stop_if_told(trainer)

    def _take_note(self, signum: int, frame: FrameType | None) -> None:
        self._received = signum
        # PyTorch raises an error, wherever the process may be, as soon as a data worker is gone.
        if hasattr(signal, "SIGCHLD"):
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)

    def _stop_if_told(self, trainer: Trainer) -> None:
        received = self._agreed(trainer)
        if received is None:
            return
        module = trainer.lightning_module
        if isinstance(module, SequenceTraining):
            with suppress(DivergedError):
                module.log_step()
        # Who has diverged without having noticed yet must not lose what was still good.
        if all(bool(weights.isfinite().all()) for weights in module.state_dict().values()):
            trainer.save_checkpoint(self.checkpoint)
        raise Interrupted(received)

    def _agreed(self, trainer: Trainer) -> int | None:
        """Returns the signal that any of the processes received: all stop at the same step, or none does."""
        if trainer.world_size == 1:
            return self._received
        numbers = torch.tensor(self._received or 0, device=trainer.strategy.root_device)
        torch.distributed.all_reduce(numbers, torch.distributed.ReduceOp.MAX)
        return int(numbers) or None


class StopAtTheEnd(Callback):
    """Stops training after its last step, which is validated whether or not the validation interval divides it.

    Lightning's own `max_steps` would leave that validation out, so that the weights of the last steps could never
    become the best checkpoint, and a run shorter than the interval would have none at all.

    Args:
        max_steps: the last step.
    """

    def __init__(self, max_steps: int) -> None:
        self.max_steps = max_steps

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        # Going on with what is done already.
        self._stop_if_done(trainer)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self._stop_if_done(trainer)

    def _stop_if_done(self, trainer: Trainer) -> None:
        if trainer.global_step >= self.max_steps:
            # Lightning validates before it stops early.
            trainer.should_stop = True


class StopWhenSolved(Callback):
    """Stops training at the first validation that reaches a threshold.

    It remembers the last one, so that a training that goes on from there goes no further than it would have.

    Args:
        monitor: the validation scalar to watch.
        mode: whether it must fall (`min`) or rise (`max`) to the threshold.
        threshold: where to; None never stops.
    """

    def __init__(self, monitor: str, mode: Literal["min", "max"], threshold: float | None) -> None:
        self.monitor = monitor
        self.mode = mode
        self.threshold = threshold
        self.last: float | None = None

    def state_dict(self) -> dict[str, Any]:
        return {"last": self.last}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.last = state_dict["last"]

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._stop_if_solved(trainer)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.last = float(trainer.callback_metrics[self.monitor])
        self._stop_if_solved(trainer)

    def _stop_if_solved(self, trainer: Trainer) -> None:
        if self.last is not None and self.threshold is not None:
            solved = self.last <= self.threshold if self.mode == "min" else self.last >= self.threshold
            trainer.should_stop = trainer.should_stop or solved
