"""Whatever is typed: exit status 2 and one line that names it, or nothing that is wrong. Never a traceback."""

from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

ROOT = Path(__file__).parents[2]


def names() -> list[str]:
    """Returns the full name of every setting of `train.py`, but for where a run lands."""

    def leaves(config: dict, prefix: str = "") -> list[str]:
        found = []
        for name, value in config.items():
            found += leaves(value, f"{prefix}{name}.") if isinstance(value, dict) else [f"{prefix}{name}"]
        return found

    with initialize_config_dir(str(ROOT / "configs"), version_base="1.3"):
        return leaves(OmegaConf.to_container(compose("train")))


SETTINGS = names()
GROUPS = sorted(path.name for path in (ROOT / "configs").iterdir() if path.is_dir() and path.name != "hydra")

WRONG_VALUES = st.one_of(
    st.sampled_from(
        ["", "nan", "inf", "-inf", "[1,2", "{a:1}", "[[]]", "${nope}", "${seed", "1e999", "'", '"', "\\", "?"]
    ),
    st.sampled_from(["null", "true", "text", "[]", "{}", "-1", "-1.5", "1000000000000000000000", "???", "a,b", "a b"]),
    st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=12),
)


@st.composite
def misspelt(draw: st.DrawFn, chosen: st.SearchStrategy[str]) -> str:
    name = draw(chosen)
    place = draw(st.integers(0, len(name)))
    letter = draw(st.sampled_from("abcxyz_.0+~@:/ =-"))
    return draw(st.sampled_from([name[:place] + letter + name[place:], name[:place] + name[place + 1 :]]))


OVERRIDES = {
    "a setting that exists, with a value of another kind or out of all bounds": st.tuples(
        st.sampled_from([*SETTINGS, *GROUPS]), WRONG_VALUES
    ).map("=".join),
    "a setting that does not exist": st.tuples(
        misspelt(st.sampled_from([*SETTINGS, *GROUPS])), st.sampled_from(["1", "copy", "0.5", "null"])
    ).map("=".join),
    "Hydra's signs": st.tuples(
        st.sampled_from(["+", "++", "~", "~~", "+++"]), st.sampled_from([*SETTINGS, *GROUPS]), WRONG_VALUES
    ).map(lambda parts: f"{parts[0]}{parts[1]}={parts[2]}"),
    "no setting at all": st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1, max_size=12),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", OVERRIDES)
@settings(
    max_examples=settings().max_examples // 2,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_no_override_gives_a_traceback(command, capsys, monkeypatch, kind, data):
    def stop(*_: object, **__: object) -> None:
        raise SystemExit(0)

    override = data.draw(OVERRIDES[kind])
    # What is right trains; here it is enough to know that it would.
    monkeypatch.setattr("attention_lab.commands.train.make_trainer", stop)
    capsys.readouterr()
    status = command("train.py", "experiment=smoke", "hydra.run.dir=run", override)
    complaints = capsys.readouterr().err.splitlines()
    assert status in (0, 2)
    assert "Traceback" not in "\n".join(complaints)
    if status == 2:
        assert len(complaints) == 1, complaints
        assert complaints[0].startswith("error: ")
        assert len(complaints[0]) < 3000
    else:
        assert not complaints
