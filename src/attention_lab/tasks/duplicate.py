"""duplicate: 3 1 2 -> 3 1 2 3 1 2."""

import numpy as np
from jaxtyping import Integer

from attention_lab.tasks.task import Task


class Duplicate(Task):
    """Say the source twice.

    Example:
        duplicate: 3 1 2 -> 3 1 2 3 1 2, alignment 0 1 2 0 1 2 (two diagonals).
    """

    def alignment(self, sources: Integer[np.ndarray, "N S"]) -> Integer[np.ndarray, "N T"]:
        return np.tile(np.arange(sources.shape[1]), (len(sources), 2))
