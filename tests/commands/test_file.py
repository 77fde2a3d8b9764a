"""Pairs of one's own from the command line: learned, gone on with, evaluated, compared and answered."""

import copy
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import attention_lab
from tests.conftest import Command

SMALL = (
    "task=file",
    "experiment=smoke",
    "trainer=cpu",
    "task.source_tokens=words",
    "task.target_tokens=words",
    "data.path=pairs.csv",
    "trainer.max_steps=4",
    "trainer.validate_every=2",
    "hydra.run.dir=run",
)
WORDS = ("salt", "pepper", "<b>", "a|b", "sugar", "中文", "$x^", "_")


def write_pairs(path: str, aligned: bool, count: int = 150) -> None:
    """Writes sentences and the same backwards, in capitals."""
    numbers, lines = random.Random(0), ["source,target,alignment"]
    for _ in range(count):
        words = [numbers.choice(WORDS) for _ in range(numbers.randint(2, 5))]
        links = " ".join(f"{len(words) - 1 - place}-{place}" for place in range(len(words))) if aligned else ""
        lines.append(f"{' '.join(words)},{' '.join(reversed(words)).upper()},{links}")
    Path(path).write_text("\n".join(dict.fromkeys(lines)))


@pytest.mark.parametrize("aligned", [True, False])
def test_pairs_are_learned_and_their_checkpoint_needs_nothing_else(
    command: Command, capsys: pytest.CaptureFixture[str], aligned: bool
) -> None:
    write_pairs("pairs.csv", aligned)
    assert command("train.py", *SMALL) == 0
    assert ("alignment        hit rate" in capsys.readouterr().out) == aligned
    metrics = json.loads(Path("run/metrics.json").read_text())
    assert (metrics["test/alignment_hit_rate"] is not None) == aligned
    assert metrics["test/token_error_rate"] > 0
    Path("pairs.csv").unlink()
    best = "checkpoint=run/checkpoints/best.ckpt"
    assert command("evaluate.py", best, "hydra.run.dir=evaluated", "num_figures=1") == 0
    report = json.loads(Path("evaluated/report.json").read_text())
    assert report["test/loss"] == metrics["test/loss"]
    assert report["interventions"]["without_gold_edges"] is None or aligned
    page = Path("evaluated/report.html").read_text()
    assert "pepper" in page
    assert "<b> " not in page
    assert ("It is not known where target tokens come from" in page) != aligned
    assert command("evaluate.py", best, "hydra.run.dir=asked", "source=salt pepper sugar sugar salt salt") == 0
    (answered,) = json.loads(Path("asked/report.json").read_text())["sequences"]
    assert answered["source"] == ["salt", "pepper", "sugar", "sugar", "salt", "salt", "<eos>"]
    assert answered["right"] is answered["expected"] is None
    checkpoint = attention_lab.load("run/checkpoints/best.ckpt")
    # What it is tested on, it knows the answer to.
    row = checkpoint.data.rows("test")[0]
    asked = checkpoint.answer(" ".join(checkpoint.task.symbols[token - 3] for token in row.source[0, :-1].tolist()))
    assert asked.expected is not None
    assert [word.upper() for word in reversed(asked.source[:-1])] == asked.expected[:-1]
    assert asked.draw("decoder_cross").width > 0


@pytest.mark.slow
def test_it_is_learned_and_the_heads_align(command: Command) -> None:
    write_pairs("pairs.csv", aligned=True, count=3000)
    settings = [each for each in SMALL if not each.startswith(("experiment", "trainer.max", "trainer.val"))]
    assert command("train.py", *settings, "trainer.max_steps=300") == 0
    metrics = json.loads(Path("run/metrics.json").read_text())
    assert metrics["test/decoded_exact_match"] == 1.0
    assert metrics["test/token_error_rate"] == 0.0
    assert metrics["test/alignment_hit_rate"] > 0.95


def test_a_run_goes_on_with_the_same_pairs_alone(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    write_pairs("pairs.csv", aligned=True)
    assert command("train.py", *SMALL) == 0
    Path("pairs.csv").rename("moved.csv")
    assert command("train.py", "resume=run", "trainer.max_steps=6") == 2
    assert "error: data.path=pairs.csv is no file" in capsys.readouterr().err
    assert command("train.py", "resume=run", "trainer.max_steps=6", "data.path=moved.csv") == 0
    write_pairs("moved.csv", aligned=False)
    assert command("train.py", "resume=run", "trainer.max_steps=8") == 2
    assert "data.fingerprint=" in capsys.readouterr().err


def test_a_run_goes_on_with_all_of_them_where_targets_are_longer_than_sources(command: Command) -> None:
    lines = [f"w{number},{' '.join('ab' * (1 + number % 3))}" for number in range(80)]
    Path("pairs.csv").write_text("\n".join(["source,target", *lines]))
    assert command("train.py", *SMALL) == 0
    before = torch.load("run/checkpoints/last.ckpt")["attention_lab"]
    assert (before["config"]["data"]["max_length"], before["config"]["task"]["longest_target"]) == (1, 6)
    assert command("train.py", "resume=run", "trainer.max_steps=6") == 0
    after = torch.load("run/checkpoints/last.ckpt")["attention_lab"]
    assert after["examples"].pop("symbols") == before["examples"].pop("symbols")
    torch.testing.assert_close(after["examples"], before["examples"])
    assert after["config"]["data"] == before["config"]["data"]


@pytest.mark.slow
def test_letters_become_phonemes_by_the_experiments_settings(command: Command) -> None:
    rows = [{"source": "abc"[: 1 + number % 3] + str(number), "target": ["AH", "B"]} for number in range(80)]
    Path("cmudict.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    small = ("trainer.max_steps=2", "trainer.validate_every=2", "trainer=cpu", "hydra.run.dir=run")
    assert command("train.py", "experiment=cmudict", *small) == 0
    assert "AH" in torch.load("run/checkpoints/best.ckpt")["attention_lab"]["examples"]["symbols"]


@pytest.mark.slow
@pytest.mark.parametrize("model", ["decoder_only", "encoder_only", "lstm", "lstm_attention"])
def test_every_network_learns_pairs(command: Command, model: str) -> None:
    write_pairs("pairs.csv", aligned=False)
    assert command("train.py", *SMALL, f"model={model}") == 0
    assert command("evaluate.py", "checkpoint=run/checkpoints/best.ckpt", "num_figures=1") == 0
    assert command("evaluate.py", "checkpoint=run/checkpoints/best.ckpt", "source=[salt pepper,sugar]") == 0


@pytest.mark.slow
def test_runs_on_pairs_are_compared(command: Command) -> None:
    write_pairs("pairs.csv", aligned=False)
    for seed in (0, 1):
        assert command("train.py", *SMALL[:-1], f"seed={seed}", f"hydra.run.dir=runs/{seed}") == 0
    assert command("evaluate.py", "checkpoint=runs/*/checkpoints/best.ckpt", "hydra.run.dir=compared") == 0
    assert len(json.loads(Path("compared/report.json").read_text())["groups"]) == 1


@pytest.mark.parametrize(
    ("typed", "why"),
    [
        (["task=file"], "data.path is missing; give it as data.path="),
        (["task=file", "data.path=none.csv"], "data.path=none.csv is no file"),
        (["task=reverse", "data.path=pairs.csv"], "data.path=pairs.csv is not a setting"),
        ([*SMALL, "checkpoint.monitor=val/alignment_mass"], "needs pairs with an alignment; use val/loss"),
        ([*SMALL, "data.max_length=3"], "leaves no pair for"),
    ],
)
def test_what_cannot_be_is_one_line(
    command: Command, capsys: pytest.CaptureFixture[str], typed: list[str], why: str
) -> None:
    Path("pairs.csv").write_text("source,target\n" + "a b,c d\n" * 3 if "max_length=3" in str(typed) else "")
    if "monitor" in str(typed):
        write_pairs("pairs.csv", aligned=False)
    assert command("train.py", *typed) == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error:")]
    assert why in line
    assert not list(Path().rglob("*.ckpt"))


def _set(*path: object, to: object) -> Callable[[Any], None]:
    def change(content: Any) -> None:
        for name in path[:-1]:
            content = content[name]
        content[path[-1]] = to

    return change


FOREIGN = {
    "no examples": lambda ours: ours.pop("examples"),
    "another number of names": lambda ours: ours["examples"]["symbols"].pop(),
    "names that are none": _set("examples", "symbols", 1, to=7),
    "a name without end": _set("examples", "symbols", 1, to="x" * 2000),
    "no test split": lambda ours: ours["examples"].pop("test"),
    "a column too few": lambda ours: ours["examples"]["test"].pop("alignment"),
    "fractions": _set("examples", "test", "source", to=torch.ones(4)),
    "a matrix": _set("examples", "test", "source", to=torch.ones(2, 2, dtype=torch.int32)),
    "one number for all": _set("examples", "test", "source", to=torch.ones(1, dtype=torch.int32).expand(4)),
    "a token beyond all": _set("examples", "test", "source", 0, to=10**6),
    "a special token": _set("examples", "test", "target", 0, to=1),
    "a place beyond all": _set("examples", "test", "alignment", 0, to=99),
    "offsets that run back": _set("examples", "validation", "source_offsets", 1, to=-5),
    "no offsets": _set("examples", "validation", "target_offsets", to=torch.zeros(0, dtype=torch.int32)),
}


@pytest.fixture
def ours(command: Command) -> dict[str, Any]:
    write_pairs("pairs.csv", aligned=True)
    assert command("train.py", *SMALL) == 0
    return torch.load("run/checkpoints/best.ckpt", weights_only=True)


def test_foreign_examples_are_refused_in_one_line(
    ours: dict[str, Any], command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    for case, change in FOREIGN.items():
        content = copy.deepcopy(ours)
        change(content["attention_lab"])
        torch.save(content, "foreign.ckpt")
        assert command("evaluate.py", "checkpoint=foreign.ckpt") == 2, case
        said = capsys.readouterr().err.strip().splitlines()
        assert said[-1].startswith("error: checkpoint=foreign.ckpt cannot be tested: its section examples"), case


def test_no_path_in_a_file_is_read(ours: dict[str, Any], command: Command) -> None:
    Path("secret.csv").write_text("source,target\nsecret,secret\n")
    ours["attention_lab"]["config"]["data"]["path"] = "secret.csv"
    torch.save(ours, "foreign.ckpt")
    assert command("evaluate.py", "checkpoint=foreign.ckpt", "num_figures=0", "hydra.run.dir=evaluated") == 0
    page = Path("evaluated/report.html").read_text()
    assert "pepper" in page
    assert "secret secret" not in page
