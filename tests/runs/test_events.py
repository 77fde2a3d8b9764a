"""What a run's event files hold when it goes on: every record up to its checkpoint, once, before all that will come."""

from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
from torch.utils.tensorboard import SummaryWriter

from attention_lab.runs.events import keep_events


def steps(folder: Path) -> list[int]:
    files = sorted(folder.glob("events*"))
    return [event.step for path in files for event in EventFileLoader(str(path)).Load() if event.summary.value]


def write(folder: Path, *numbers: int) -> Path:
    before = set(folder.glob("events*"))
    with SummaryWriter(str(folder)) as writer:
        for number in numbers:
            writer.add_scalar("loss", 1 / (number + 1), number)
    (made,) = set(folder.glob("events*")) - before
    return made


def test_nothing_is_made_where_there_is_nothing(tmp_path):
    keep_events(tmp_path / "tensorboard", 3)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("seconds", [1, 9999999999])
def test_later_records_go_and_the_rest_comes_first(tmp_path, seconds):
    write(tmp_path, 1, 2, 3).rename(tmp_path / f"events.out.tfevents.{seconds:010d}.host.1.0")
    write(tmp_path, 4, 5, 6)
    keep_events(tmp_path, 5)
    assert sorted(steps(tmp_path)) == [1, 2, 3, 4, 5]
    assert len(list(tmp_path.iterdir())) == 1
    kept = steps(tmp_path)
    write(tmp_path, 6, 7)
    assert steps(tmp_path) == [*kept, 6, 7]


def test_records_that_a_kill_has_doubled_or_torn_are_there_once(tmp_path):
    path = write(tmp_path, 1, 2, 3)
    path.with_name("events.out.tfevents.0000000001.host.1.0").write_bytes(path.read_bytes())
    whole = path.read_bytes()
    path.write_bytes(whole + whole[-9:-3])
    (tmp_path / "events.out.tfevents.2").mkdir()
    keep_events(tmp_path, 3)
    (tmp_path / "events.out.tfevents.2").rmdir()
    assert steps(tmp_path) == [1, 2, 3]
