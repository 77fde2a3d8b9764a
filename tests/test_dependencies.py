"""pyproject.toml names everything that is imported, and an oldest release of each."""

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Collection
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]


def canonical(name: str) -> str:
    """Returns a distribution's name as registries compare them."""
    return re.sub(r"[-_.]+", "-", name).lower()


def names(requirements: list[str]) -> set[str]:
    return {canonical(re.match(r"[\w.-]+", requirement)[0]) for requirement in requirements}


def imported(paths: Collection[Path]) -> dict[str, Path]:
    """Returns every package that is imported anywhere in these files, also within functions, and where."""
    found: dict[str, Path] = {}
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text())):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                modules = [node.module]
            found |= {module.partition(".")[0]: path for module in modules}
    return {name: path for name, path in found.items() if name not in sys.stdlib_module_names}


def undeclared(paths: Collection[Path], requirements: list[str]) -> dict[str, Path]:
    """Returns the packages that these files import and no requirement brings, and where."""
    declared, distributions = names(requirements), packages_distributions()
    return {
        name: path
        for name, path in imported(paths).items()
        if name not in ("attention_lab", "tests")
        and not declared & {canonical(distribution) for distribution in distributions.get(name, [])}
    }


def test_what_the_package_imports_is_declared():
    # What the benchmark compares with comes with an extra.
    benchmark = list((ROOT / "src/attention_lab/benchmark").rglob("*.py"))
    assert not undeclared(benchmark, [*PROJECT["dependencies"], *EXTRAS["dev"]])
    paths = {*(ROOT / "src").rglob("*.py"), ROOT / "train.py", ROOT / "evaluate.py"} - set(benchmark)
    assert {"torch", "lightning", "hydra", "numpy", "yaml"} <= set(imported(paths))
    assert not undeclared(paths, PROJECT["dependencies"])
    # It would be seen.
    assert "numpy" in undeclared(paths, [name for name in PROJECT["dependencies"] if not name.startswith("numpy")])


def test_what_the_tests_import_is_declared():
    paths = list((ROOT / "tests").rglob("*.py"))
    assert {"pytest", "hypothesis"} <= set(imported(paths))
    assert not undeclared(paths, [*PROJECT["dependencies"], *(name for extra in EXTRAS.values() for name in extra)])


@pytest.mark.parametrize("left_out", [(), ("torch", "numpy")], ids=str)
def test_the_oldest_release_of_everything_is_printed(left_out):
    command = [sys.executable, str(ROOT / ".ci/lowest"), *(("--but", *left_out) if left_out else ())]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert names(lines) == names([*PROJECT["dependencies"], *EXTRAS["dev"]]) - set(left_out)
    assert all(re.fullmatch(r"[\w.-]+==[\d.]+", line) for line in lines)
    assert "lightning==2.6.6" in lines
