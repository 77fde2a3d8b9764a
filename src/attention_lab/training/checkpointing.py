"""Which steps of a training stay on disk: the best one and the last one."""

from pathlib import Path
from typing import Any, Literal

from lightning.fabric.plugins import TorchCheckpointIO
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Checkpoint
from torch import Tensor

from attention_lab.errors import SettingError
from attention_lab.runs.checkpoint import write_checkpoint
from attention_lab.runs.files import link_file


class WholeFiles(TorchCheckpointIO):
    """What Lightning writes checkpoints by, whole or not at all, and goes on from, which is nothing unchecked.

    Attributes:
        checked: the content of the checkpoint to go on from, in place of the file.
    """

    def __init__(self) -> None:
        super().__init__()
        self.checked: dict[str, object] = {}

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None) -> None:
        for name, state in checkpoint.get("callbacks", {}).items():
            _check_state(name, state)
        write_checkpoint(checkpoint, Path(path))

    def load_checkpoint(
        self, path: str | Path, map_location: Any = None, weights_only: bool | None = None
    ) -> dict[str, Any]:
        # Kept no longer than it is needed: it is as large as the network, three times.
        checked, self.checked = self.checked, {}
        return checked


def _check_state(name: str, state: object) -> None:
    """Refuses to write a callback's state that nobody could read: of a file only plain types and tensors are taken.

    Raises:
        SettingError: there is something else in it.
    """
    unseen = [state]
    while unseen:
        part = unseen.pop()
        if isinstance(part, dict):
            unseen += [*part, *part.values()]
        elif isinstance(part, list | tuple):
            unseen += part
        elif not (part is None or type(part) in (bool, int, float, str) or isinstance(part, Tensor)):
            kind = f"{type(part).__module__}.{type(part).__qualname__}"
            reason = (
                f"keeps a {kind} in its state; a checkpoint holds numbers, text, tensors, and lists and dicts of these"
            )
            raise SettingError("callbacks", name, reason)


class BestAndLast(Checkpoint):
    """Writes `last.ckpt` at the end of every validation, and `best.ckpt` where none before was better.

    Lightning's own callback remembers its files by absolute paths, so that a run which was moved could not go on, and
    writes what is both best and last twice.

    Args:
        folder: where to.
        monitor: the validation scalar that decides.
        mode: whether less (`min`) or more (`max`) of it is better.
    """

    def __init__(self, folder: Path, monitor: str, mode: Literal["min", "max"]) -> None:
        self.folder = folder
        self.monitor = monitor
        self.mode = mode
        self.best: float | None = None

    def state_dict(self) -> dict[str, Any]:
        return {"best": self.best}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.best = state_dict["best"]

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.sanity_checking:
            return
        score = float(trainer.callback_metrics[self.monitor])
        last = self.folder / "last.ckpt"
        if not self._is_best(score):
            trainer.save_checkpoint(last)
            return
        self.best = score
        best = self.folder / "best.ckpt"
        # In this order: who goes on from the last step finds the best one of all before it.
        trainer.save_checkpoint(best)
        if trainer.is_global_zero:
            link_file(best, last)

    def _is_best(self, score: float) -> bool:
        if self.best is None:
            return True
        return score < self.best if self.mode == "min" else score > self.best
