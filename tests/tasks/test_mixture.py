"""A mixture does what the first symbol says, on the rest."""

import re

import numpy as np
import pytest

from attention_lab.composition.build import build_task
from attention_lab.errors import SettingError
from attention_lab.tasks.copy import Copy
from attention_lab.tasks.duplicate import Duplicate
from attention_lab.tasks.interleave import Interleave
from attention_lab.tasks.mixture import Mixture
from attention_lab.tasks.reverse import Reverse
from attention_lab.tasks.rotate import Rotate
from attention_lab.tasks.vocabulary import FIRST_SYMBOL

TARGET = "attention_lab.tasks.mixture.Mixture"


def test_the_docstrings_examples_are_true() -> None:
    examples = re.findall(r"([\d ]+) -> ([\d ]+), alignment ([\d ]+\d)", Mixture.__doc__ or "")
    assert len(examples) == 2
    mixture = Mixture([Copy(), Reverse()])
    for example in examples:
        source, target, alignment = (np.array([part.split()], dtype=int) for part in example)
        tokens = source + FIRST_SYMBOL
        assert mixture.alignment(tokens).tolist() == alignment.tolist()
        assert (mixture.targets(tokens, mixture.alignment(tokens)) - FIRST_SYMBOL).tolist() == target.tolist()


def test_three_tasks_take_turns_and_each_row_gets_its_own() -> None:
    tasks = [Copy(), Reverse(), Rotate()]
    sources = np.array([[first + FIRST_SYMBOL, 7, 9, 8] for first in range(7)], dtype=np.int8)
    mixture = Mixture(tasks)
    assert mixture.asked(sources).tolist() == [0, 1, 2, 0, 1, 2, 0]
    targets = mixture.targets(sources, mixture.alignment(sources)).tolist()
    copied, reversed_, rotated = [7, 9, 8], [8, 9, 7], [9, 8, 7]
    assert targets == [copied, reversed_, rotated, copied, reversed_, rotated, copied]


def test_it_says_what_it_is_made_of() -> None:
    assert Mixture([Copy(), Reverse()]).name == "mixture of copy, reverse"


def test_one_task_is_no_mixture() -> None:
    with pytest.raises(ValueError, match=r"tasks=\['copy'\] is no mixture"):
        Mixture([Copy()])


def test_tasks_must_have_targets_of_one_length() -> None:
    with pytest.raises(ValueError, match=r"of 3 symbols they have: copy 3, duplicate 6$"):
        Mixture([Copy(), Duplicate()]).alignment(np.array([[3, 4, 5, 6]]))


def test_a_symbol_alone_asks_for_nothing() -> None:
    with pytest.raises(ValueError, match=r"^min_length=1 is too short for a mixture; it takes 2 symbols or more"):
        Mixture([Copy(), Reverse()]).alignment(np.array([[3]]))


def test_a_config_names_the_tasks() -> None:
    mixture = build_task({"_target_": TARGET, "tasks": ["interleave", "rotate"]})
    assert isinstance(mixture, Mixture)
    assert [type(task) for task in mixture.tasks] == [Interleave, Rotate]


def test_a_config_may_hold_the_tasks_under_names_of_their_own() -> None:
    twice = {"first": {"_target_": "attention_lab.tasks.copy.Copy"}}
    mixture = build_task({"_target_": TARGET, "tasks": [twice, "rotate", twice]}, name="ignored")
    assert isinstance(mixture, Mixture)
    assert [type(task) for task in mixture.tasks] == [Copy, Rotate, Copy]
    assert mixture.name == "mixture of first, rotate, first"


def test_a_task_is_called_what_it_was_asked_for() -> None:
    component = {"_target_": "attention_lab.tasks.copy.Copy"}
    assert (build_task(component).name, build_task(component, name="again").name) == ("copy", "again")


def test_a_mixture_of_mixtures_needs_a_symbol_for_each() -> None:
    inner = {"inner": {"_target_": TARGET, "tasks": ["copy", "reverse"]}}
    mixture = build_task({"_target_": TARGET, "tasks": [inner, "copy"]})
    assert mixture.min_length == 3
    with pytest.raises(SettingError, match=r"^min_length=2 is too short for a mixture; it takes 3"):
        mixture.alignment(np.array([[3, 4]]))


def test_the_config_of_a_part_may_name_no_foreign_class() -> None:
    with pytest.raises(SettingError, match=r"^task\._target_=os\.system is not a Task of attention_lab"):
        build_task({"_target_": TARGET, "tasks": ["copy", {"mine": {"_target_": "os.system"}}]})


@pytest.mark.parametrize(
    "name", ["nonsense", "mixture", "task", "vocabulary", "copy.Copy", "../copy", 7, {"_target_": "os.system"}, None]
)
def test_nothing_but_tasks_can_be_mixed(name: object) -> None:
    with pytest.raises(SettingError, match=r"^task\.tasks=.* is not the name of a task that needs no settings$"):
        build_task({"_target_": TARGET, "tasks": ["copy", name]})


@pytest.mark.parametrize(
    ("tasks", "complaint"), [("copy", "task.tasks=copy is not a list of tasks$"), ([], "is no mixture")]
)
def test_a_mixture_is_a_list_of_two_or_more(tasks: object, complaint: str) -> None:
    with pytest.raises(SettingError, match=complaint):
        build_task({"_target_": TARGET, "tasks": tasks})
