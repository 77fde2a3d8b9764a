"""Going on where a training stopped, as if it never had."""

from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor

from attention_lab.training.loggers import tensorboard_of


class ExactResume(Callback):
    """Keeps, in every checkpoint, what Lightning does not, and puts it back.

    That is the state of every process's random numbers, and which validation was the last. The data need nothing: what
    comes next is decided by the number of the step. All events that lead to a checkpoint are on disk before it is.

    Args:
        validate_every: steps between validations.
        max_steps: the last step, which is always validated.
    """

    def __init__(self, validate_every: int, max_steps: int) -> None:
        self.validate_every = validate_every
        self.max_steps = max_steps
        self.validated = 0
        self._random: list[dict[str, Any]] | None = None

    def state_dict(self) -> dict[str, Any]:
        return {"random": _random_states(), "validated": self.validated}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._random = state_dict["random"]
        self.validated = state_dict["validated"]

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        tensorboard = tensorboard_of(trainer)
        if tensorboard is not None and trainer.is_global_zero:
            tensorboard.experiment.flush()

    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        # A checkpoint that is written between a batch and its validation, or in the middle of that, says of the batch
        # that it is not completed, and of the validation that it has begun: Lightning would leave it out or go on in
        # its middle. As it is changed here it says that the batch is done; the validation is ours to see to.
        progress = checkpoint["loops"]["fit_loop"]
        for counted in ("total", "current"):
            batches = progress["epoch_loop.batch_progress"][counted]
            # Of a step that was not done, all batches come again.
            batches["processed"] -= batches["processed"] % trainer.accumulate_grad_batches
            batches["completed"] = batches["processed"]
            validations = progress["epoch_loop.val_loop.batch_progress"][counted]
            validations.update(dict.fromkeys(validations, 0))

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._random is not None and trainer.global_rank < len(self._random):
            _restore(self._random[trainer.global_rank])
        elif trainer.global_rank > 0:
            # Lightning has seeded all processes alike; what one drops, and where its sequences are, is its own.
            torch.manual_seed(torch.initial_seed() + trainer.global_rank)
        if self._random is None:
            return
        step = trainer.global_step
        due = step == self.max_steps or step % self.validate_every == 0
        if step and due and self.validated != step:
            # As Lightning's training loop does after the batch.
            trainer.validating = True
            trainer.fit_loop.epoch_loop.val_loop.run()
            trainer.training = True

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.validated = trainer.global_step


def _random_states() -> list[dict[str, Any]]:
    """Returns the state of every process's random numbers."""
    cuda = [torch.cuda.get_rng_state(device) for device in range(torch.cuda.device_count())]
    own = {"cpu": torch.get_rng_state(), "cuda": cuda}
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return [own]
    states: list[dict[str, Any]] = [own] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(states, own)
    return states


def _restore(state: dict[str, Any]) -> None:
    torch.set_rng_state(state["cpu"].cpu())
    devices: list[Tensor] = state["cuda"]
    for device, numbers in enumerate(devices[: torch.cuda.device_count()]):
        torch.cuda.set_rng_state(numbers.cpu(), device)
