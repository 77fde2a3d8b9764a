"""interleave: 3 1 2 4 5 -> 3 4 1 5 2."""

import numpy as np
from jaxtyping import Integer

from attention_lab.tasks.task import Task


class Interleave(Task):
    """Say the first symbol of each half, then the second, and so on; the first half may have one more.

    Example:
        interleave: 3 1 2 4 5 -> 3 4 1 5 2, alignment 0 3 1 4 2 (two diagonals, taking turns).
    """

    def alignment(self, sources: Integer[np.ndarray, "N S"]) -> Integer[np.ndarray, "N T"]:
        length = sources.shape[1]
        # Dealing positions out as 0, half, 1, half + 1, ... is reading a table with two columns row by row.
        half = (length + 1) // 2
        positions = np.stack([np.arange(half), np.arange(half) + half], axis=1).ravel()[:length]
        return np.broadcast_to(positions, sources.shape)
