"""mixture of copy and reverse: 4 3 1 2 -> 3 1 2, but 5 3 1 2 -> 2 1 3."""

from functools import cached_property

import numpy as np
from jaxtyping import Integer

from attention_lab.errors import SettingError
from attention_lab.tasks.task import Task
from attention_lab.tasks.vocabulary import FIRST_SYMBOL


class Mixture(Task):
    """Do what the first symbol says, on the rest: symbol s asks for task number s modulo the number of tasks.

    Example:
        copy and reverse: 4 3 1 2 -> 3 1 2, alignment 1 2 3 (4 is even: copy);
        5 3 1 2 -> 2 1 3, alignment 3 2 1 (5 is odd: reverse).

    Args:
        tasks: what may be asked for, in order; of sources of one length all must have targets of one length.

    Raises:
        SettingError: there are fewer than two.
    """

    def __init__(self, tasks: list[Task]) -> None:
        if len(tasks) < 2:
            raise SettingError("tasks", [task.name for task in tasks], "is no mixture; it takes at least two")
        self.tasks = tasks
        # One symbol more says which task.
        self.min_length = 1 + max(task.min_length for task in tasks)

    @cached_property
    def name(self) -> str:
        return f"mixture of {', '.join(task.name for task in self.tasks)}"

    def asked(self, sources: Integer[np.ndarray, "N S"]) -> Integer[np.ndarray, " N"]:
        """Returns the number of the task that each source asks for."""
        return (sources[:, 0].astype(np.int64) - FIRST_SYMBOL) % len(self.tasks)

    def alignment(self, sources: Integer[np.ndarray, "N S"]) -> Integer[np.ndarray, "N T"]:
        if sources.shape[1] < self.min_length:
            reason = f"is too short for a mixture; it takes {self.min_length} symbols or more: which task, and what"
            raise SettingError("min_length", sources.shape[1], reason)
        each = [task.alignment(sources[:, 1:]) + 1 for task in self.tasks]
        if len({alignment.shape[1] for alignment in each}) > 1:
            lengths = ", ".join(f"{task.name} {one.shape[1]}" for task, one in zip(self.tasks, each, strict=True))
            reason = f"must have targets of one length; of {sources.shape[1] - 1} symbols they have: {lengths}"
            raise SettingError("tasks", [task.name for task in self.tasks], reason)
        return np.stack(each)[self.asked(sources), np.arange(len(sources))]
