"""Who may write to TensorBoard, and when."""

from lightning.pytorch import Trainer
from lightning.pytorch.loggers import TensorBoardLogger
from torch.utils.tensorboard import SummaryWriter


def writer_of(trainer: Trainer) -> SummaryWriter | None:
    """Returns the run's writer; None on every process but the first, in the sanity check, and without TensorBoard."""
    if not trainer.is_global_zero or trainer.sanity_checking or not isinstance(trainer.logger, TensorBoardLogger):
        return None
    return trainer.logger.experiment
