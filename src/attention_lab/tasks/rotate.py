"""rotate: 3 1 2 -> 1 2 3."""

import numpy as np
from jaxtyping import Integer

from attention_lab.tasks.task import Task


class Rotate(Task):
    """Say the source from its second symbol on, then the first.

    Example:
        rotate: 3 1 2 -> 1 2 3, alignment 1 2 0 (a diagonal beside the main one).
    """

    def alignment(self, sources: Integer[np.ndarray, "N S"]) -> Integer[np.ndarray, "N T"]:
        return np.broadcast_to(np.roll(np.arange(sources.shape[1]), -1), sources.shape)
