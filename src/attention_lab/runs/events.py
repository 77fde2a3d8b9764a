"""TensorBoard's files of a run that goes on: what was written after its checkpoint is going to be written again."""

import hashlib
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader

# Made by protobuf when it is imported, so that no checker sees it.
from tensorboard.compat.proto.event_pb2 import Event  # pyright: ignore[reportAttributeAccessIssue]
from tensorboard.summary.writer.record_writer import RecordWriter

from attention_lab.runs.files import whole_file

_NAMED = "events.out.tfevents."


def keep_events(folder: Path, step: int) -> None:
    """Takes out of a run's event files whatever belongs to later steps, and what a killed process left torn.

    What stays goes into one file, which TensorBoard, sorting by the seconds in a name, reads before any that is written
    from now on, whatever the clock said before.

    Args:
        folder: the run's `tensorboard/`.
        step: the last step to keep.
    """
    files = sorted(path for path in folder.glob(f"{_NAMED}*") if path.is_file())
    if not files:
        return
    seconds, _, rest = files[0].name.removeprefix(_NAMED).partition(".")
    begun = min(int(seconds) if seconds.isdecimal() else 0, int(time.time()) - 1)
    kept = folder / f"{_NAMED}{begun:010d}.{rest}"
    with whole_file(kept) as file:
        writer = RecordWriter(file)
        for record in _records(files, step):
            writer.write(record)
    for path in files:
        if path != kept:
            path.unlink()


def _records(files: Sequence[Path], step: int) -> Iterator[bytes]:
    """Yields what the files hold up to a step, each once: a process killed in the middle of this has doubled some."""
    seen: set[bytes] = set()
    for path in files:
        for record in RawEventFileLoader(str(path)).Load():
            digest = hashlib.sha256(record).digest()
            if digest not in seen and Event.FromString(record).step <= step:
                seen.add(digest)
                yield record
