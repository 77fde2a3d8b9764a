"""How the alignment formed: from a run's folder onto the page and into an animated picture."""

import base64
import json
import re
import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, features

from attention_lab.data.batches import Batch
from attention_lab.models.encoder_decoder import EncoderDecoder
from attention_lab.plotting.labels import map_view
from attention_lab.report.replay import Replay, animate, replay_json
from attention_lab.runs.folder import HISTORY
from attention_lab.runs.history import Moment, append_moment, read_history
from tests.conftest import Command, Training
from tests.report.test_page import EXAMPLE

LABELS = map_view("decoder_cross", 0, EncoderDecoder.axes["decoder_cross"], EXAMPLE).labels


def moments(number: int) -> list[Moment]:
    shape = (2, 2, 3, 3)
    return [
        Moment(step, step / number, np.full((2, 2), 0.5), np.full(shape, step % 256, dtype=np.uint8))
        for step in range(number)
    ]


def test_a_page_holds_some_moments_the_first_and_the_last_among_them():
    shown: Any = replay_json(Replay(EXAMPLE, LABELS, moments(1000)))
    assert (shown["steps"][0], shown["steps"][-1], len(shown["steps"])) == (0, 999, 80)
    assert max(np.diff(shown["steps"])) <= 13
    maps = np.frombuffer(base64.b64decode(shown["maps"]), dtype=np.uint8).reshape(80, *shown["shape"])
    assert (maps == (np.array(shown["steps"]) % 256)[:, None, None, None, None]).all()
    assert shown["gold"] == [1, 0, None]


def test_maps_as_large_as_can_be_stay_within_a_page():
    large = [Moment(step, 0.5, np.zeros((6, 8)), np.zeros((6, 8, 48, 48), dtype=np.uint8)) for step in range(99)]
    tokens = EXAMPLE.source[:, :1].expand(1, 48)
    example = Batch(tokens, tokens, tokens, tokens)
    shown: Any = replay_json(Replay(example, LABELS, large))
    assert 2 <= len(shown["steps"]) < 20
    assert len(shown["maps"]) < 2_100_000


@pytest.mark.skipif(not features.check("webp"), reason="this Pillow was built without WebP")
def test_the_animated_picture_shows_every_moment_and_goes_on_for_ever(tmp_path):
    animate(Replay(EXAMPLE, LABELS, [*moments(5)[:1], *moments(300)[60::60]]), 1, tmp_path / "replay.webp")
    with Image.open(tmp_path / "replay.webp") as picture:
        assert (picture.n_frames, picture.info["loop"]) == (5, 0)
        frames = []
        for number in range(5):
            picture.seek(number)
            frames.append(np.asarray(picture.convert("L")).mean())
        assert all(later < earlier for earlier, later in pairwise(frames))


def data_of(page: Path) -> Any:
    block = re.search(r'id="data">(.*?)</script>', page.read_text(), re.S)
    assert block is not None
    return json.loads(block[1])


@pytest.mark.slow
def test_a_run_is_replayed_and_a_lone_checkpoint_is_not(command: Command, trained: Training):
    shutil.copytree(trained("experiment=smoke", "trainer=cpu"), "run")
    quick = ("lengths=[]", "num_figures=1")
    assert command("evaluate.py", "checkpoint=run/checkpoints/best.ckpt", *quick, "hydra.run.dir=replayed") == 0
    replay = data_of(Path("replayed/report.html"))["replay"]
    history = read_history(Path("run", HISTORY))
    assert replay["steps"] == [moment.step for moment in history] == [0, 10, 20]
    assert replay["exact_match"] == [moment.exact_match for moment in history]
    assert Path("replayed/figures/replay.webp").exists()

    shutil.copy("run/checkpoints/best.ckpt", "alone.ckpt")
    assert command("evaluate.py", "checkpoint=alone.ckpt", *quick, "hydra.run.dir=alone") == 0
    assert data_of(Path("alone/report.html"))["replay"] is None
    assert not Path("alone/figures/replay.webp").exists()

    # Another network's history, and none at all.
    Path("run", HISTORY).unlink()
    append_moment(moments(1)[0], Path("run", HISTORY))
    assert command("evaluate.py", "checkpoint=run/checkpoints/best.ckpt", *quick, "hydra.run.dir=other") == 0
    assert data_of(Path("other/report.html"))["replay"] is None
    Path("run", HISTORY).write_text("\0 no history\n")
    assert command("evaluate.py", "checkpoint=run/checkpoints/best.ckpt", *quick, "hydra.run.dir=damaged") == 0
    assert data_of(Path("damaged/report.html"))["replay"] is None
