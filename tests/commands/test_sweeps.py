"""A sweep: every run runs, what failed is told at the end, and it goes on after a break."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml

ROOT = Path(__file__).parents[2]
SMOKE = ("experiment=smoke", "trainer=cpu", "trainer.max_steps=5", "callbacks.attention_maps=false")


def steps(folder: str) -> dict[str, int]:
    found = sorted(Path(folder).glob("*/metrics.json"))
    return {path.parent.name: json.loads(path.read_text())["train/steps"] for path in found}


def test_every_run_runs_and_the_sweep_goes_on(command, capsys):
    sweep = ("-m", *SMOKE, "model.num_heads=4,7,2", "hydra.sweep.dir=sweep")
    assert command("train.py", *sweep) == 2
    said = capsys.readouterr()
    assert steps("sweep") == {"0_reverse_num_heads-4": 5, "2_reverse_num_heads-2": 5}
    assert not Path("sweep/1_reverse_num_heads-7").exists()
    (line,) = said.err.splitlines()
    assert line.startswith("error: model.num_heads=7 ")
    assert line.endswith("(1_reverse_num_heads-7: model.num_heads=7)")
    assert "2 of 3 runs are done" in said.out
    assert "train.py resume=sweep" in said.out

    # The same command is no accident that overwrites the first.
    assert command("train.py", *sweep) == 2
    assert "hydra.sweep.dir=sweep holds a sweep already" in capsys.readouterr().err

    # Ended runs are left alone, a begun one goes on, a missing one begins.
    before = Path("sweep/0_reverse_num_heads-4/metrics.json").stat().st_mtime_ns
    Path("sweep/2_reverse_num_heads-2/metrics.json").unlink()
    assert command("train.py", "resume=sweep") == 2
    assert Path("sweep/0_reverse_num_heads-4/metrics.json").stat().st_mtime_ns == before
    assert steps("sweep") == {"0_reverse_num_heads-4": 5, "2_reverse_num_heads-2": 5}
    assert "going on from sweep/2_reverse_num_heads-2/checkpoints/last.ckpt" in capsys.readouterr().out

    # And further than it was to go, under another name, too.
    assert command("train.py", *sweep[:3], "trainer.max_steps=7", *sweep[4:], "resume=auto") == 2
    assert steps("sweep") == {"0_reverse_num_heads-4": 7, "2_reverse_num_heads-2": 7}
    Path("sweep").rename("a${b} sweep")
    assert command("train.py", "resume=a${b} sweep", "trainer.max_steps=8") == 2
    assert steps("a${b} sweep") == {"0_reverse_num_heads-4": 8, "2_reverse_num_heads-2": 8}


def test_a_single_run_goes_on_if_there_is_one_and_begins_else(command, capsys):
    arguments = (*SMOKE, "hydra.run.dir=run", "resume=auto")
    assert command("train.py", *arguments) == 0
    assert "resume=auto" not in yaml.safe_load(Path("run/.hydra/overrides.yaml").read_text())
    capsys.readouterr()
    assert command("train.py", *arguments) == 0
    assert "Training" not in capsys.readouterr().out
    Path("run/metrics.json").unlink()
    assert command("train.py", *arguments) == 0
    assert "going on from run/checkpoints/last.ckpt" in capsys.readouterr().out


def test_ctrl_c_ends_all_of_a_sweep(command, capsys, monkeypatch):
    def interrupted(*_: object, **__: object) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        raise AssertionError("the signal was not heard")

    monkeypatch.setattr("attention_lab.commands.train.make_trainer", interrupted)
    assert command("train.py", "-m", *SMOKE, "seed=0,1", "hydra.sweep.dir=sweep") == 130
    said = capsys.readouterr()
    assert said.err == ""
    assert "train.py resume=sweep" in said.out
    assert not Path("sweep/1_reverse_seed1").exists()


@pytest.mark.slow
def test_evaluations_end_one_by_one_as_well(command, capsys):
    assert command("train.py", *SMOKE, "hydra.run.dir=run") == 0
    capsys.readouterr()
    best = "run/checkpoints/best.ckpt"
    arguments = ("lengths=[4]", "num_figures=0", "hydra.sweep.dir=reports")
    assert command("evaluate.py", "-m", f"checkpoint=nowhere.ckpt,{best}", *arguments) == 2
    assert Path("reports/1/report.json").exists()
    (line,) = capsys.readouterr().err.splitlines()
    assert "checkpoint=nowhere.ckpt" in line


@pytest.mark.slow
def test_what_is_typed_and_told_is_meant_from_where_it_is_typed(command, capsys):
    chdir = ("hydra.job.chdir=true",)
    assert command("train.py", *SMOKE, *chdir, "hydra.run.dir=ü [1] a") == 2
    assert command("train.py", *SMOKE, *chdir, "hydra.run.dir='ü [1] a'") == 0
    assert "Everything is in 'ü [1] a'." in capsys.readouterr().out
    first = "ü [1] a/checkpoints/best.ckpt"
    assert command("train.py", *SMOKE, *chdir, f"init_from={first}", "hydra.run.dir=second") == 0
    assert command("evaluate.py", *chdir, f"checkpoint={first}", "lengths=[4]", "num_figures=0") == 0
    assert command("train.py", "resume=second", *chdir, "trainer.max_steps=7") == 0
    assert json.loads(Path("second/metrics.json").read_text())["train/steps"] == 7


@pytest.mark.slow
@pytest.mark.parametrize(("signum", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("to_all", [True, False], ids=["group", "process"])
def test_a_signal_ends_runs_in_other_processes_with_whole_checkpoints(signum, status, to_all, tmp_path):
    pytest.importorskip("hydra_plugins.hydra_joblib_launcher", reason="needs the extra `parallel`")
    endless = ("trainer.max_steps=1000000", "trainer.validate_every=5", "seed=0,1,2", "hydra.sweep.dir=sweep")
    joblib = ("hydra/launcher=joblib", "hydra.launcher.n_jobs=2")
    words = [sys.executable, str(ROOT / "train.py"), "-m", *SMOKE[:2], *endless, *joblib]
    with subprocess.Popen(
        words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        while len(list(tmp_path.glob("sweep/*/checkpoints/last.ckpt"))) < 2:
            assert process.stdout.readline()
        (os.killpg if to_all else os.kill)(process.pid, signum)
        said, complaints = process.communicate(timeout=60)
    assert (process.returncode, complaints) == (status, "")
    assert "train.py resume=sweep" in said
    assert not Path(tmp_path, "sweep/2_reverse_seed2").exists()
    for path in tmp_path.glob("sweep/*/checkpoints/last.ckpt"):
        assert torch.load(path, weights_only=True)["global_step"] >= 5
