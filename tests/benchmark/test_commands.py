"""The command line: light help, mistakes in a line, and a whole run of each benchmark."""

import csv
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from attention_lab.benchmark import cost, machine
from attention_lab.benchmark.__main__ import main

COST = "cost --lengths 128,64,64 --d-model 16 --num-heads 2 --repeats 1 --kinds conv_mixed --device cpu --pdf"
PEERS = (
    "peers --d-model 16 --num-heads 2 --d-ff 24 --max-length 5 --train-size 64 --batch-size 16 --steps 1 --rounds 2 "
    "--decode-length 6 --decode-batch 3 --device cpu"
)


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measures in this process: others take seconds to import everything, and have tests of their own."""

    def call(measure: Callable[[], object], *_: object, **__: object) -> object:
        return measure()

    monkeypatch.setattr(cost, "in_fresh_process", call)
    monkeypatch.setattr(machine, "in_fresh_process", call)


def test_help_needs_no_torch() -> None:
    code = (
        "import sys\n"
        "from attention_lab.benchmark.__main__ import main\n"
        "for arguments in (['--help'], *([name, '--help'] for name in ('cost', 'peers', 'loop'))):\n"
        "    try:\n"
        "        main(arguments)\n"
        "    except SystemExit as end:\n"
        "        assert end.code == 0\n"
        "sys.exit(3 if {'torch', 'numpy', 'matplotlib', 'omegaconf'} & set(sys.modules) else 0)\n"
    )
    start = time.monotonic()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("usage: python -m attention_lab.benchmark") == 4
    # In a second on an idle machine; tests have others beside them.
    assert time.monotonic() - start < 3


def test_every_setting_has_a_flag_with_its_default(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["cost", "--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert "--lengths LENGTHS sequence lengths, in tokens (default: 1024,2048,4096,8192,16384)" in text
    assert "--device {auto,cpu,gpu} auto takes a GPU if there is one (default: auto)" in text
    assert "--threads THREADS threads on a CPU; as many as PyTorch chooses if not given" in text


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ("cost --kinds fulll", "error: kinds=fulll is not a choice; did you mean full"),
        ("cost --lengths 64,0", "error: lengths=[64, 0] must be at least 1"),
        ("cost --lengths 64,many", "error: lengths=[64, 'many'] is not a list whose every item is a whole number"),
        ("cost --repeats 1.5", "error: repeats=1.5 is not a whole number"),
        ("cost --device tpu", "error: device=tpu is not one of auto, cpu, gpu"),
        ("peers --task revers", "error: task=revers is not a choice; did you mean reverse?"),
        ("peers --num-heads 3 --train-size 8", "error: model.num_heads=3 does not divide d_model=128"),
        ("loop --threads 0", "error: threads=0 must be at least 1"),
    ],
)
def test_mistakes_are_told_in_a_line(
    arguments: str, complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*arguments.split(), "--out", str(tmp_path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(complaint)


@pytest.mark.usefixtures("in_this_process")
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


def test_a_kind_that_refuses_its_settings_does_not_stop_the_others(tmp_path: Path) -> None:
    asked = "cost --kinds grouped_query --lengths 8 --d-model 9 --num-heads 3 --device cpu"
    assert main([*asked.split(), "--out", str(tmp_path)]) == 0
    (refused,) = json.loads((tmp_path / "cost.json").read_text())["costs"]
    assert refused["milliseconds"] is None
    assert "num_kv_heads=2" in refused["note"]


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


@pytest.mark.usefixtures("in_this_process")
# x-transformers decorates a function with it when it is imported.
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
def test_peers_leaves_tables_and_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
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
