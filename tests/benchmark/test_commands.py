"""The command line: light help, mistakes in a line, and a whole run of each benchmark."""

import csv
import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from attention_lab.benchmark import peers
from attention_lab.benchmark.__main__ import main
from attention_lab.benchmark.training_run import measure

COST = "cost --lengths 64,128 --d-model 16 --num-heads 2 --repeats 1 --kinds conv_mixed --device cpu --pdf"
PEERS = (
    "peers --d-model 16 --num-heads 2 --d-ff 24 --max-length 5 --train-size 64 --batch-size 16 --steps 1 --rounds 2 "
    "--decode-length 6 --decode-batch 3 --device cpu"
)


@pytest.mark.parametrize("arguments", ["--help", "cost --help", "peers --help", "loop --help"])
def test_help_needs_no_torch(arguments: str) -> None:
    code = (
        "import runpy, sys\n"
        f"sys.argv = ['benchmark', *{arguments.split()!r}]\n"
        "try:\n"
        "    runpy.run_module('attention_lab.benchmark', run_name='__main__')\n"
        "finally:\n"
        "    sys.exit(3 if {'torch', 'numpy', 'matplotlib', 'omegaconf'} & set(sys.modules) else 0)\n"
    )
    start = time.monotonic()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("usage: python -m attention_lab.benchmark")
    # In a second on an idle machine; tests have others beside them.
    assert time.monotonic() - start < 3


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ("cost --kinds fulll", "error: --kinds: fulll is not a kind of layer"),
        ("peers --task revers", "error: --task: revers is not a task"),
        ("peers --num-heads 3 --train-size 8", "error: num_heads=3 does not divide d_model=128"),
    ],
)
def test_mistakes_are_told_in_a_line(
    arguments: str, complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*arguments.split(), "--out", str(tmp_path)]) == 2
    told = capsys.readouterr().err.splitlines()
    assert told[-1].startswith(complaint)


def test_lengths_are_whole_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["cost", "--lengths", "64,0"])
    assert "0 is not a whole number of at least 1" in capsys.readouterr().err


def test_cost_leaves_tables_and_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*COST.split(), "--out", str(tmp_path)]) == 0
    assert {path.name for path in tmp_path.iterdir()} == {"cost.json", "cost.csv", "cost.md", "cost.png", "cost.pdf"}
    table = (tmp_path / "cost.md").read_text()
    assert table in capsys.readouterr().out
    report = json.loads((tmp_path / "cost.json").read_text())
    assert [(cost["kind"], cost["form"], cost["length"]) for cost in report["costs"]] == [
        ("conv_mixed", "bidirectional", 64),
        ("conv_mixed", "bidirectional", 128),
    ]
    assert all(cost["milliseconds"] > 0 and cost["mebibytes"] >= 0 for cost in report["costs"])
    assert report["machine"]["precision"] == "32-true"
    assert len(list(csv.DictReader((tmp_path / "cost.csv").read_text().splitlines()))) == 2


@pytest.mark.slow
def test_memory_of_matrices_grows_with_the_square_and_stops_at_the_limit(tmp_path: Path) -> None:
    asked = "cost --kinds full_explicit --lengths 256,512,1024 --d-model 8 --num-heads 4 --repeats 1 --device cpu"
    assert main([*asked.split(), "--memory-limit-gib", "0.05", "--out", str(tmp_path)]) == 0
    *measured, skipped = json.loads((tmp_path / "cost.json").read_text())["costs"]
    small, large = (cost["mebibytes"] for cost in measured)
    # Of 512 x 512 for 4 heads at 4 bytes, 4 MiB each, there are several.
    assert large > 3 * 4
    assert 3 < large / small < 5
    assert skipped["milliseconds"] is None
    assert skipped["note"] == "skipped: needs about 0.062 GiB, and --memory-limit-gib is 0.05"


# x-transformers decorates a function with it when it is imported.
@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
def test_peers_leaves_tables_and_figures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Ten processes that import everything take a minute; test_training_run.py has one of them.
    monkeypatch.setattr(peers, "run_alone", lambda _, question, **__: measure(question))
    assert main([*PEERS.split(), "--out", str(tmp_path)]) == 0
    assert {path.name for path in tmp_path.iterdir()} == {"peers.json", "peers.csv", "peers.md", "peers.png"}
    assert (tmp_path / "peers.md").read_text() in capsys.readouterr().out
    report = json.loads((tmp_path / "peers.json").read_text())
    named = [(row["race"], row["network"]) for row in report["contenders"]]
    assert ("training, lengths 1-5", "ours") in named
    assert ("training, length 5", "torch.nn.Transformer") in named
    assert ("decoding 6 tokens", "ours, uncached") in named
    assert len(report["not_installed"]) * 3 + len(named) == 5 + 5 + 5
    assert all(row["tokens_per_second"] > 0 and len(row["rates"]) == 2 for row in report["contenders"])
    memory = [row["training_mebibytes"] for row in report["contenders"] if row["race"].startswith("training")]
    assert None not in memory
