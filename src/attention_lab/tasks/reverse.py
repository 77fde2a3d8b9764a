"""reverse: 3 1 2 -> 2 1 3."""

import numpy as np
from jaxtyping import Integer

from attention_lab.tasks.task import Task


class Reverse(Task):
    """Say the source backwards.

    Example:
        reverse: 3 1 2 -> 2 1 3, alignment 2 1 0 (the anti-diagonal).
    """

    def alignment(self, sources: Integer[np.ndarray, "N S"]) -> Integer[np.ndarray, "N T"]:
        return np.broadcast_to(np.arange(sources.shape[1])[::-1], sources.shape)
