"""mixture of copy and reverse: 4 3 1 2 -> 3 1 2, but 5 3 1 2 -> 2 1 3."""

import numpy as np
from jaxtyping import Integer

from attention_lab.tasks.task import Task
from attention_lab.tasks.vocabulary import FIRST_SYMBOL


class Mixture(Task):
    """Do what the first symbol says, on the rest: symbol s asks for task number s modulo the number of tasks.

    Example:
        copy and reverse: 4 3 1 2 -> 3 1 2, alignment 1 2 3 (4 is even: copy);
        5 3 1 2 -> 2 1 3, alignment 3 2 1 (5 is odd: reverse).

    Args:
        tasks: what may be asked for, in order; all must say equally much about sources of one length.

    Raises:
        ValueError: there are fewer than two.
    """

    def __init__(self, tasks: list[Task]) -> None:
        if len(tasks) < 2:
            raise ValueError(f"tasks={[task.name for task in tasks]} is no mixture; it takes at least two")
        self.tasks = tasks

    @property
    def name(self) -> str:
        return f"mixture of {', '.join(task.name for task in self.tasks)}"

    def asked(self, sources: Integer[np.ndarray, "N S"]) -> Integer[np.ndarray, " N"]:
        """Returns the number of the task that each source asks for."""
        return (sources[:, 0].astype(np.int64) - FIRST_SYMBOL) % len(self.tasks)

    def alignment(self, sources: Integer[np.ndarray, "N S"]) -> Integer[np.ndarray, "N T"]:
        rest = sources[:, 1:]
        if not rest.shape[1]:
            raise ValueError("a mixture needs sources of two symbols or more (data.min_length=2): which task, and what")
        each = [task.alignment(rest) + 1 for task in self.tasks]
        lengths = {task.name: alignment.shape[1] for task, alignment in zip(self.tasks, each, strict=True)}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"the tasks of a mixture must say equally much; of {rest.shape[1]} symbols: {lengths}")
        return np.stack(each)[self.asked(sources), np.arange(len(sources))]
