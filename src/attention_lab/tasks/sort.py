"""sort: 3 1 2 1 -> 1 1 2 3."""

import numpy as np
from jaxtyping import Integer

from attention_lab.tasks.task import Task


class Sort(Task):
    """Say the symbols in order; equal ones stay as they were (a stable sort).

    Example:
        sort: 3 1 2 1 -> 1 1 2 3, alignment 1 3 2 0 (it depends on the symbols).
    """

    def alignment(self, sources: Integer[np.ndarray, "N S"]) -> Integer[np.ndarray, "N T"]:
        return sources.argsort(axis=1, kind="stable")
