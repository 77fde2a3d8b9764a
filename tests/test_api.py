"""What `import attention_lab` promises: light until it is used, safe, and in a task's own symbols."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

import attention_lab
from attention_lab.errors import SettingError
from tests.conftest import Training


def test_what_is_promised_is_there_and_nothing_heavy_comes_with_the_import():
    lines = "import sys, attention_lab; print(attention_lab.__all__, 'torch' in sys.modules, dir(attention_lab)[:3])"
    said = subprocess.run([sys.executable, "-c", lines], capture_output=True, text=True, check=True).stdout
    assert said == f"{attention_lab.__all__} False ['Answer', 'Checkpoint', 'EncoderDecoder']\n"
    assert all(hasattr(attention_lab, name) for name in attention_lab.__all__)
    with pytest.raises(AttributeError, match="no attribute 'lod'"):
        _ = attention_lab.lod


@pytest.mark.parametrize("kind", [str, Path])
def test_a_checkpoint_answers_from_python(trained: Training, kind):
    checkpoint = attention_lab.load(kind(trained("experiment=smoke", "trainer=cpu") / "checkpoints/best.ckpt"))
    assert (checkpoint.task.name, checkpoint.step, checkpoint.config["seed"]) == ("reverse", 20, 0)
    assert not checkpoint.network.training
    written, listed = checkpoint.answer("3 1 4"), checkpoint.answer([3, 1, 4])
    assert torch.equal(written.batch.labels, listed.batch.labels)
    assert written.expected == ["4", "1", "3", "<eos>"]
    assert len(checkpoint.data.rows("test")) > 0
    with pytest.raises(SettingError, match="is no symbol"):
        checkpoint.answer("three")


def test_what_is_no_checkpoint_is_refused(tmp_path):
    (tmp_path / "some.ckpt").write_text("no checkpoint")
    with pytest.raises(SettingError, match="checkpoint="):
        attention_lab.load(tmp_path / "some.ckpt")
    with pytest.raises(SettingError, match="does not exist"):
        attention_lab.load(tmp_path / "none.ckpt")
