"""TensorBoard's files of a run that goes on: what was written after its checkpoint is going to be written again."""

import os
from pathlib import Path

from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader

# Made by protobuf when it is imported, so that no checker sees it.
from tensorboard.compat.proto.event_pb2 import Event  # pyright: ignore[reportAttributeAccessIssue]
from tensorboard.summary.writer.record_writer import RecordWriter


def forget_after(folder: Path, step: int) -> None:
    """Takes out of a run's event files whatever belongs to later steps, and what a killed process left torn.

    Args:
        folder: the run's `tensorboard/`.
        step: the last step to keep.
    """
    for path in sorted(folder.glob("events.out.tfevents.*")):
        records = list(RawEventFileLoader(str(path)).Load())
        kept = [record for record in records if Event.FromString(record).step <= step]
        aside = path.with_name(f".{path.name}.part")
        with aside.open("wb") as file:
            writer = RecordWriter(file)
            for record in kept:
                writer.write(record)
            writer.flush()
            os.fsync(file.fileno())
        aside.replace(path)
