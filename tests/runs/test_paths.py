"""What is printed can be pasted: a shell and Hydra read from it what was meant."""

import shlex
from pathlib import Path

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import example, given
from hypothesis import strategies as st
from omegaconf import OmegaConf

from attention_lab.runs.paths import here, shown, typed, typed_in

TEXTS = st.one_of(
    st.text(st.characters(codec="utf-8", exclude_characters="\x00\n\r"), min_size=1, max_size=20),
    st.text(st.sampled_from("\\'\"${}x ,=[](1e5-_.#%:~*"), min_size=1, max_size=12),
)


def read(command: str) -> object:
    """Returns the value of `setting=value` that a shell and then Hydra find in a command."""
    (word,) = shlex.split(command)
    value = OverridesParser.create().parse_override(word).value()
    return OmegaConf.to_container(OmegaConf.create({"value": value}), resolve=True)["value"]


@given(TEXTS)
@example("ü [1] a,b#c=d%")
@example("it's")
@example("a${b}")
@example("\\${b}\\")
@example("a\\'")
@example("1_000")
@example("1e5")
@example("-inf")
@example("null")
def test_a_value_is_read_as_it_was_meant(text):
    assert read(typed("checkpoint", text)) == text
    assert read(typed("checkpoint", [Path(text)])) == [read(typed("checkpoint", Path(text)))]


def test_what_needs_no_quotes_has_none():
    assert typed("checkpoint", "sweep/*/best.ckpt") == "'checkpoint=sweep/*/best.ckpt'"
    assert typed("resume", "outputs/train/2026-12-01_12-00-00_copy") == "resume=outputs/train/2026-12-01_12-00-00_copy"


@pytest.mark.parametrize(("name", "text"), [("a b", "'a b'"), ("-rf", "./-rf"), ("run", "run")])
def test_a_path_is_short_and_no_flag(name, text):
    assert shown(Path.cwd() / name) == text


def test_a_path_is_told_from_where_the_user_is(tmp_path):
    with typed_in(tmp_path):
        assert here() == tmp_path
        assert shown(tmp_path / "run") == "run"
    assert here() == Path.cwd()
    assert shown(tmp_path) == str(tmp_path)
