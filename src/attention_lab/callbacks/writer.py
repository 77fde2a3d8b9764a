"""Who may write to TensorBoard, and how an image gets there."""

import io

from lightning.pytorch import Trainer
from PIL.Image import Image

# Made by protobuf when it is imported, so that no checker sees it.
from tensorboard.compat.proto.summary_pb2 import Summary  # pyright: ignore[reportAttributeAccessIssue]
from torch.utils.tensorboard import SummaryWriter

from attention_lab.training.loggers import tensorboard_of


def writer_of(trainer: Trainer) -> SummaryWriter | None:
    """Returns the run's writer; None on every process but the first, in the sanity check, and without TensorBoard."""
    logger = tensorboard_of(trainer)
    return None if logger is None or not trainer.is_global_zero or trainer.sanity_checking else logger.experiment


def add_picture(writer: SummaryWriter, tag: str, picture: Image, step: int) -> None:
    """Adds a picture as it is: `SummaryWriter.add_image` would make it RGB first and take five times as long."""
    encoded = io.BytesIO()
    picture.save(encoded, "PNG")
    image = Summary.Image(
        height=picture.height, width=picture.width, colorspace=3, encoded_image_string=encoded.getvalue()
    )
    assert writer.file_writer is not None
    writer.file_writer.add_summary(Summary(value=[Summary.Value(tag=tag, image=image)]), step)
