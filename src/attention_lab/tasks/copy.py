"""copy: 3 1 2 -> 3 1 2."""

import numpy as np
from jaxtyping import Integer

from attention_lab.tasks.task import Task


class Copy(Task):
    """Say the source again.

    Example:
        copy: 3 1 2 -> 3 1 2, alignment 0 1 2 (the diagonal).
    """

    def alignment(self, sources: Integer[np.ndarray, "N S"]) -> Integer[np.ndarray, "N T"]:
        return np.broadcast_to(np.arange(sources.shape[1]), sources.shape)
