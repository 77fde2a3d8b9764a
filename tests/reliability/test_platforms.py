"""Systems that could not be tried: what they lack is taken away here, and everything is imported and run without."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

WITHOUT = """
import os, runpy, signal, sys
# Windows has none of these.
for module in ("fcntl", "resource"):
    sys.modules[module] = None
for name in ("SIGCHLD", "pthread_sigmask"):
    delattr(signal, name)
del os.sysconf
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""

IMPORT_ALL = """
import importlib, pkgutil, attention_lab
for module in pkgutil.walk_packages(attention_lab.__path__, "attention_lab."):
    if not module.name.startswith("attention_lab.benchmark.peers"):
        importlib.import_module(module.name)
"""


def without(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    (folder / "without.py").write_text(WITHOUT)
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "without.py", *words]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False
    )


def test_everything_is_imported_without_what_only_unix_has(tmp_path):
    (tmp_path / "all.py").write_text(IMPORT_ALL)
    done = without(tmp_path, "all.py")
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_a_run_is_trained_and_evaluated_without_what_only_unix_has(tmp_path):
    small = ("experiment=smoke", "trainer=cpu", "trainer.max_steps=4", "hydra.run.dir=run")
    done = without(tmp_path, str(ROOT / "train.py"), *small)
    assert done.returncode == 0, done.stderr
    done = without(tmp_path, str(ROOT / "evaluate.py"), "checkpoint=run/checkpoints/best.ckpt", "num_figures=1")
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_several_processes_are_refused_in_one_line_where_they_cannot_be_started(tmp_path):
    done = without(tmp_path, str(ROOT / "train.py"), "experiment=smoke", "trainer=ddp", "trainer.accelerator=cpu")
    assert done.returncode == 2
    assert done.stderr.strip().splitlines()[-1].startswith("error: trainer.devices=2 needs several processes")
