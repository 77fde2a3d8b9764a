"""What was typed, read once."""

from pathlib import Path

import pytest

from attention_lab.cli.arguments import read
from attention_lab.errors import SettingError


def test_flags_may_stand_anywhere():
    for words in (
        ["-m", "seed=0,1", "task=copy"],
        ["seed=0,1", "-m", "task=copy"],
        ["seed=0,1", "task=copy", "--multirun"],
    ):
        arguments = read(words, "resume")
        assert arguments.multirun
        assert arguments.overrides == ("seed=0,1", "task=copy")


def test_values_are_read_by_hydras_grammar():
    arguments = read(["resume='a b\\'c'", "+init_from=x", "seed=1,2"], "resume")
    assert arguments.value_of("resume") == "a b'c"
    assert arguments.value_of("init_from") == "x"
    assert arguments.value_of("seed") is None
    assert arguments.without("seed", "resume").overrides == ("+init_from=x",)
    with pytest.raises(SettingError, match="nope"):
        read(["resume=${nope}"], "resume").value_of("resume")


@pytest.mark.parametrize("name", ["ü [1] a,b#c=d%", "it's", "a${b}", "a\\", "{x:1}", "1e5", "null", "-x"])
def test_a_path_that_is_there_is_meant_literally(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path(name).mkdir()
    assert read([f"resume={name}"], "resume").value_of("resume") == name
    Path(name, "best.ckpt").touch()
    assert read([f"+checkpoint={name}/best.ckpt"], "checkpoint").value_of("checkpoint") == f"{name}/best.ckpt"
