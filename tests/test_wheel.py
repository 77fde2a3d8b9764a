"""The wheel holds what the API needs, and what it does not hold says where to get it."""

import json
import os
import shutil
import subprocess
import sys

import pytest

from tests.conftest import ROOT, Training

pytestmark = pytest.mark.slow

USES = """
import json, sys
import attention_lab

checkpoint = attention_lab.load(sys.argv[1])
answer = checkpoint.answer("3 1 4")
answer.draw("decoder_cross")
print(json.dumps([attention_lab.__file__, answer.expected]))
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory):
    """Installs what `pip install .` would, into a folder, and returns it."""
    # The build needs it, and there is no network to get it from.
    pytest.importorskip("setuptools", minversion="77")
    folder = tmp_path_factory.mktemp("wheel")
    # Setuptools leaves a folder where it builds.
    shutil.copytree(ROOT / "src", folder / "clone/src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder / "clone")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", folder, folder / "clone"], check=True)
    (wheel,) = folder.glob("*.whl")
    subprocess.run([*pip, "install", "--no-deps", "--no-index", "--target", folder / "site", wheel], check=True)
    return folder / "site"


def python(installed, folder, *arguments) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(installed), "MPLBACKEND": "agg"}
    return subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def test_the_api_works_from_the_wheel(installed, trained: Training, tmp_path):
    checkpoint = trained("experiment=smoke", "trainer=cpu") / "checkpoints/best.ckpt"
    ran = python(installed, tmp_path, "-c", USES, checkpoint)
    assert ran.returncode == 0, ran.stderr
    place, expected = json.loads(ran.stdout)
    assert place.startswith(str(installed))
    assert expected == ["4", "1", "3", "<eos>"]


def test_nothing_of_the_package_is_left_out(installed):
    def files(folder):
        return {file.relative_to(folder) for file in folder.rglob("*") if file.is_file() and file.suffix != ".pyc"}

    assert files(installed / "attention_lab") == {
        file for file in files(ROOT / "src/attention_lab") if file.name != "README.md"
    }


@pytest.mark.parametrize("arguments", [["cost"], ["peers"], ["loop"]], ids=lambda arguments: arguments[0])
def test_what_needs_the_clone_says_so(installed, tmp_path, arguments):
    ran = python(installed, tmp_path, "-m", "attention_lab.benchmark", *arguments)
    assert ran.returncode == 2, ran.stderr
    assert "Traceback" not in ran.stderr
    assert "no wheel holds; clone the repository" in ran.stderr.splitlines()[-1]
