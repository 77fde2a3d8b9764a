"""Every task says what its docstring shows, what a plain loop says, and never anything but `source[alignment]`."""

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from omegaconf import OmegaConf

from attention_lab.composition.build import build_task
from attention_lab.tasks.copy import Copy
from attention_lab.tasks.duplicate import Duplicate
from attention_lab.tasks.interleave import Interleave
from attention_lab.tasks.reverse import Reverse
from attention_lab.tasks.rotate import Rotate
from attention_lab.tasks.sort import Sort
from attention_lab.tasks.task import Task

# The pairs of a file have no rule that could be tested.
CONFIGS = sorted(
    path for path in (Path(__file__).parents[2] / "configs" / "task").glob("*.yaml") if path.stem != "file"
)


def sources_from(shortest: int) -> st.SearchStrategy[np.ndarray]:
    return st.tuples(st.integers(1, 5), st.integers(shortest, 11)).flatmap(
        lambda shape: arrays(np.int16, shape, elements=st.integers(3, 13))
    )


# The shortest that every task can be done on; a mixture needs two.
SOURCES = sources_from(2)


def copy_loop(source: list[int]) -> list[int]:
    said = []
    for symbol in source:
        said.append(symbol)  # noqa: PERF402 (a plain loop is the point)
    return said


def reverse_loop(source: list[int]) -> list[int]:
    said: list[int] = []
    for symbol in source:
        said.insert(0, symbol)
    return said


def duplicate_loop(source: list[int]) -> list[int]:
    return source + source


def rotate_loop(source: list[int]) -> list[int]:
    return source[1:] + source[:1]


def interleave_loop(source: list[int]) -> list[int]:
    first, second = source[: (len(source) + 1) // 2], source[(len(source) + 1) // 2 :]
    said: list[int] = []
    while first or second:
        said += first[:1] + second[:1]
        first, second = first[1:], second[1:]
    return said


KINDS = {
    Copy: copy_loop,
    Reverse: reverse_loop,
    Duplicate: duplicate_loop,
    Rotate: rotate_loop,
    Sort: sorted,
    Interleave: interleave_loop,
}

LOOPS = pytest.mark.parametrize(("task", "loop"), [(kind(), loop) for kind, loop in KINDS.items()])


@pytest.fixture(params=CONFIGS, ids=lambda path: path.stem, scope="module")
def task(request: pytest.FixtureRequest) -> Task:
    config = OmegaConf.to_container(OmegaConf.load(request.param))
    # A task that sets other things as well stands under its name.
    return build_task(config.get("task", config))


class Twice(Task):
    """The source twice in a row: a target that is longer than its source."""

    def alignment(self, sources: np.ndarray) -> np.ndarray:
        return np.tile(np.arange(sources.shape[1]), (len(sources), 2))


@pytest.mark.parametrize("kind", KINDS)
def test_the_docstrings_example_is_true(kind: type[Task]) -> None:
    example = re.search(r"Example:\s+\w+: ([\d ]+) -> ([\d ]+), alignment ([\d ]+\d)", kind.__doc__ or "")
    assert example is not None
    source, target, alignment = (np.array([part.split()], dtype=int) for part in example.groups())
    assert kind().alignment(source).tolist() == alignment.tolist()
    assert kind().targets(source, kind().alignment(source)).tolist() == target.tolist()


def test_copy_is_the_diagonal() -> None:
    assert Copy().alignment(np.array([[9, 4, 4, 7, 5]])).tolist() == [[0, 1, 2, 3, 4]]


def test_reverse_is_the_anti_diagonal() -> None:
    assert Reverse().alignment(np.array([[9, 4, 4, 7, 5]])).tolist() == [[4, 3, 2, 1, 0]]


def test_sorting_is_stable() -> None:
    assert Sort().alignment(np.array([[5, 4, 5, 4, 3]])).tolist() == [[4, 1, 3, 0, 2]]


def test_every_task_with_a_config_is_compared_with_a_loop() -> None:
    # The mixture has a test module of its own.
    assert {kind.__name__.lower() for kind in KINDS} == {path.stem for path in CONFIGS} - {"mixture"}


@LOOPS
@given(sources=sources_from(1))
@settings(max_examples=40, deadline=None)
def test_targets_equal_a_plain_loop(task: Task, loop: Callable[[list[int]], list[int]], sources: np.ndarray) -> None:
    targets = task.targets(sources, task.alignment(sources))
    assert targets.tolist() == [loop(source) for source in sources.tolist()]


def test_there_are_tasks_to_test() -> None:
    assert {"copy", "reverse"} <= {path.stem for path in CONFIGS}


@given(sources=SOURCES)
@settings(max_examples=40, deadline=None)
def test_targets_are_the_sources_at_the_alignment(task: Task, sources: np.ndarray) -> None:
    alignment = task.alignment(sources)
    targets = task.targets(sources, alignment)
    for source, places, target in zip(sources.tolist(), alignment.tolist(), targets.tolist(), strict=True):
        assert all(0 <= place < len(source) for place in places)
        assert target == [source[place] for place in places]


@given(sources=SOURCES)
@settings(max_examples=40, deadline=None)
def test_rows_do_not_see_each_other(task: Task, sources: np.ndarray) -> None:
    together = task.alignment(sources)
    alone = [task.alignment(sources[row : row + 1])[0] for row in range(len(sources))]
    assert together.tolist() == np.stack(alone).tolist()


@given(sources=SOURCES)
@settings(max_examples=40, deadline=None)
def test_the_targets_length_depends_on_the_sources_length_alone(task: Task, sources: np.ndarray) -> None:
    assert task.alignment(sources).shape[1] == task.alignment(np.zeros_like(sources)).shape[1]


@given(sources=SOURCES)
@settings(max_examples=40, deadline=None)
def test_sources_stay_as_they_are(task: Task, sources: np.ndarray) -> None:
    before = sources.copy()
    task.targets(sources, task.alignment(sources))
    assert sources.tolist() == before.tolist()


def test_longest_counts_the_longer_of_source_and_target() -> None:
    assert Reverse().longest(7) == 7
    assert Twice().longest(7) == 14


def test_a_task_needs_an_alignment() -> None:
    with pytest.raises(TypeError, match="alignment"):
        Task()
