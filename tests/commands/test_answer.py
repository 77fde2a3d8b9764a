"""`evaluate.py source=...`: sequences of one's own, on the terminal, as files and as a page."""

import json
import shutil
from pathlib import Path

import pytest

from tests.browser import needs_chromium, opened
from tests.conftest import Command, Training

SMOKE = ("experiment=smoke", "trainer=cpu")


@pytest.fixture
def checkpoint(command: Command, trained: Training) -> str:
    """Puts a checkpoint into the empty folder that commands run in."""
    assert command
    shutil.copy(trained(*SMOKE) / "checkpoints/best.ckpt", "some.ckpt")
    return "checkpoint=some.ckpt"


@pytest.mark.parametrize(
    ("typed", "sources"),
    [
        ("source=3 1 4 1 5", ["3 1 4 1 5"]),
        ("source=[3 1 2,4 4]", ["3 1 2", "4 4"]),
        ("source=3, 1, 4", ["3 1 4"]),
        pytest.param("source=[3,1,4,1,5]", ["3 1 4 1 5"], marks=pytest.mark.slow),
        pytest.param("source='3, 1, 4'", ["3 1 4"], marks=pytest.mark.slow),
        pytest.param("source=[[3,1],[2]]", ["3 1", "2"], marks=pytest.mark.slow),
        pytest.param("source=7", ["7"], marks=pytest.mark.slow),
    ],
)
def test_a_sequence_is_answered_however_it_is_typed(command: Command, checkpoint, capsys, typed, sources):
    assert command("evaluate.py", checkpoint, typed, "hydra.run.dir=out") == 0
    report = json.loads(Path("out/report.json").read_text())
    assert (report["checkpoint"], report["step"], report["best_head"]["attention"]) == (
        "some.ckpt",
        20,
        "decoder_cross",
    )
    said = capsys.readouterr().out
    for each, source in zip(report["sequences"], sources, strict=True):
        assert each["source"] == [*source.split(), "<eos>"]
        assert each["expected"] == [*source.split()[::-1], "<eos>"]
        assert each["right"] == (each["predicted"] == each["expected"])
        assert len(each["looks"]) == len(each["predicted"]) == len(each["alignment"])
        assert f"source      {source} <eos>\n" in said
    assert Path("out/figures/sequence_0_decoder_cross_layer_0.png").exists()


@pytest.mark.parametrize(
    ("typed", "why"),
    [
        ("source=''", "is empty"),
        ("source=3 x", "holds x, which is no symbol"),
        ("source=3 11", "holds 11; this network knows the symbols 0 to 9"),
        ("source=[3 1,4 99]", "holds 99"),
        ("source=[]", "holds no sequence"),
        pytest.param("source=-1", "holds -1, which is no symbol", marks=pytest.mark.slow),
        pytest.param("source=true", "which is no symbol", marks=pytest.mark.slow),
        pytest.param("source={a: 1}", "no symbol", marks=pytest.mark.slow),
    ],
)
def test_a_bad_sequence_is_one_line_and_leaves_nothing(command: Command, checkpoint, capsys, typed, why):
    assert command("evaluate.py", checkpoint, typed, "hydra.run.dir=out") == 2
    said = capsys.readouterr()
    (line,) = [line for line in (said.out + said.err).splitlines() if line.startswith("error:")]
    assert line.startswith("error: source=")
    assert why in line
    assert not Path("out/report.json").exists()


@pytest.mark.usefixtures("checkpoint")
def test_one_checkpoint_answers(command: Command, capsys):
    shutil.copy("some.ckpt", "other.ckpt")
    assert command("evaluate.py", "checkpoint=[some.ckpt,other.ckpt]", "source=3 1") == 2
    assert "is answered by one checkpoint, and there are 2" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("model", ["lstm", "lstm_attention", "decoder_only", "encoder_only"])
def test_every_network_answers(command: Command, trained: Training, model):
    shutil.copy(trained(*SMOKE, f"model={model}") / "checkpoints/best.ckpt", "some.ckpt")
    assert command("evaluate.py", "checkpoint=some.ckpt", "source=3 1 4", "hydra.run.dir=out") == 0
    assert json.loads(Path("out/report.json").read_text())["sequences"][0]["expected"] == ["4", "1", "3", "<eos>"]
    assert "sequences of one" in Path("out/report.html").read_text()


@needs_chromium
@pytest.mark.slow
def test_the_page_shows_every_sequence(command: Command, checkpoint):
    assert command("evaluate.py", checkpoint, "source=[3 1 2,4 4]", "hydra.run.dir=out") == 0
    seen = opened(
        Path("out/report.html").absolute(),
        """
        const seen = [pick("example").options.length, document.querySelectorAll("#glance canvas").length];
        pick("example").value = 1;
        pick("example").dispatchEvent(new Event("change"));
        return [...seen, document.querySelector("#cells tr").cells.length];
        """,
        390,
    )
    assert seen == {"found": [2, 4, 4], "errors": []}
