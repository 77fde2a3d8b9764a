"""How a run's alignment formed: what is written is read, and nothing else is."""

import base64
import json
import tracemalloc
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attention_lab.runs.folder import HISTORY
from attention_lab.runs.history import Moment, append_moment, keep_moments, read_history

MAPS = np.random.default_rng(0).integers(0, 256, (2, 3, 4, 5), dtype=np.uint8)
HIT_RATE = np.arange(6).reshape(2, 3) / 6


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / HISTORY


@pytest.fixture
def written(path: Path) -> Path:
    append_moment(Moment(0, None, None, MAPS), path)
    for step in (10, 20, 30):
        append_moment(Moment(step, step / 40, HIT_RATE / step, MAPS), path)
    return path


def test_what_is_written_is_read(written):
    moments = read_history(written)
    assert [moment.step for moment in moments] == [0, 10, 20, 30]
    assert [moment.exact_match for moment in moments] == [None, 0.25, 0.5, 0.75]
    assert moments[0].hit_rate is None
    for moment in moments:
        np.testing.assert_array_equal(moment.maps, MAPS)
    np.testing.assert_allclose(moments[2].hit_rate, HIT_RATE / 20, atol=5e-5)


def test_a_run_without_maps_has_a_history_as_well(path):
    append_moment(Moment(10, 0.5, HIT_RATE, None), path)
    (moment,) = read_history(path)
    assert moment.maps is None
    assert moment.step == 10


def test_what_comes_after_a_checkpoint_is_taken_out(written):
    keep_moments(written, 20)
    assert [moment.step for moment in read_history(written)] == [0, 10, 20]
    keep_moments(written, -1)
    assert written.read_bytes() == b""


def test_what_a_killed_process_left_torn_is_nobodys(written):
    whole = written.read_bytes()
    written.write_bytes(whole[:-7])
    assert [moment.step for moment in read_history(written)] == [0, 10, 20]
    keep_moments(written, 1000)
    append_moment(Moment(30, 0.75, HIT_RATE / 30, MAPS), written)
    assert written.read_bytes() == whole


def test_no_file_is_no_history(path):
    keep_moments(path, 3)
    assert read_history(path) == []
    assert not path.exists()


def line(**changed: Any) -> str:
    raw = base64.b64encode(zlib.compress(MAPS.tobytes())).decode()
    found = {"step": 40, "exact_match": 0.5, "hit_rate": HIT_RATE.tolist(), "shape": MAPS.shape, "maps": raw}
    return json.dumps({**found, **changed})


BOMB = base64.b64encode(zlib.compress(b"\0" * 10**7)).decode()


@pytest.mark.parametrize(
    "bad",
    [
        "[]",
        "{}",
        "no json",
        "\0\1\2",
        line(step=-1),
        line(step=30),
        line(step=4.5),
        line(exact_match=2),
        line(exact_match=float("nan")),
        line(hit_rate=[[0.1], [0.2, 0.3]]),
        line(hit_rate=[]),
        line(hit_rate=[[0.5, 0.5]]),
        line(hit_rate=[[float("inf")] * 3] * 2),
        line(shape=[2, 3, 4, 4]),
        line(shape=[2, 3, 5, 4]),
        line(shape=[0, 3, 4, 5]),
        line(shape=[-2, -3, 4, 5]),
        line(shape=[2**20, 2**20, 2**20, 2**20]),
        line(maps="=== no base 64"),
        line(maps=base64.b64encode(b"no zlib").decode()),
        line(maps=BOMB),
        line(command="rm"),
    ],
)
def test_a_file_of_anything_else_is_a_warning_and_no_history(written, caplog, bad):
    with written.open("a") as file:
        file.write(bad + "\n")
    assert read_history(written) == []
    (warning,) = caplog.records
    assert "cannot be read" in warning.message
    assert len(warning.message.splitlines()) == 1


def test_many_maps_of_few_bytes_each_do_not_fill_the_memory(path, caplog):
    blank = base64.b64encode(zlib.compress(bytes(2**24))).decode()
    large = {"hit_rate": [[0.5]], "shape": [1, 1, 2**12, 2**12], "maps": blank}
    path.write_text("".join(line(step=step, **large) + "\n" for step in range(17)))
    assert path.stat().st_size < 2**20
    tracemalloc.start()
    try:
        assert read_history(path) == []
        assert tracemalloc.get_traced_memory()[1] < 2**23
    finally:
        tracemalloc.stop()
    assert "too large" in caplog.text


def test_a_file_too_large_is_not_read(path, caplog):
    with path.open("wb") as file:
        file.truncate(2**28 + 1)
    assert read_history(path) == []
    assert "too large" in caplog.text
