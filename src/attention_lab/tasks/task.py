"""The one idea the project hangs on: a task is an alignment."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property

import numpy as np
from jaxtyping import Integer


class Task(ABC):
    """A sequence task, defined by where each target token comes from.

    Source and target never hold special tokens here; the data module adds those. To add a task, write the one
    method `alignment`: targets, gold attention, scores and reports all follow from it.
    """

    min_length = 1
    """The shortest source, in symbols, that it can be done on."""

    symbols: Sequence[str] = ()
    """What its symbols are called; empty where they are numbers."""

    @cached_property
    def name(self) -> str:
        """What the task is called: its class's name, unless it is given the one that was asked for."""
        return type(self).__name__.lower()

    @abstractmethod
    def alignment(self, sources: Integer[np.ndarray, "N S"]) -> Integer[np.ndarray, "N T"]:
        """Returns the source position (from 0) that each target token is copied from.

        Args:
            sources: N sources of one common length S, as token ids.

        Returns:
            N rows of T positions in [0, S). T may differ from S but depends on S alone.
        """

    def targets(
        self, sources: Integer[np.ndarray, "N S"], alignment: Integer[np.ndarray, "N T"]
    ) -> Integer[np.ndarray, "N T"]:
        """Returns `sources[alignment]`, row by row: the only way a target ever comes about."""
        return np.take_along_axis(sources, alignment, axis=1)

    def longest(self, max_length: int) -> int:
        """Returns how many tokens the longest of source and target has when sources have up to `max_length`."""
        return max(max_length, self.alignment(np.zeros((1, max_length), dtype=np.int64)).shape[1])
