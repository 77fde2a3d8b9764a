"""The package from Python: load a checkpoint, ask it, look at where it looked; or train with a Trainer of one's own.

All of this is in the wheel. The commands and their configs are not: these need a clone.
"""

from collections.abc import Sequence
from os import PathLike
from pathlib import Path

import torch

from attention_lab.composition.classes import Trust
from attention_lab.data.module import SequenceData
from attention_lab.data.sampling import SourceSpace
from attention_lab.evaluation.answering import Answer, answer, read_source
from attention_lab.evaluation.patterns import find_patterns
from attention_lab.evaluation.records import PatternRecord
from attention_lab.models.encoder_decoder import EncoderDecoder
from attention_lab.runs.trained import Trained, load_trained
from attention_lab.tasks.reverse import Reverse
from attention_lab.tasks.task import Task
from attention_lab.training.module import SequenceTraining

__all__ = [
    "Answer",
    "Checkpoint",
    "EncoderDecoder",
    "Reverse",
    "SequenceData",
    "SequenceTraining",
    "SourceSpace",
    "Task",
    "load",
]


class Checkpoint(Trained):
    """A trained network and what it learned: `network`, `task`, `data`, `config` and `step` among others."""

    def answer(self, source: str | Sequence[int]) -> Answer:
        """Lets the network answer one source.

        Args:
            source: symbols, from 0: `"3 1 4"` or `[3, 1, 4]`; or a text of which a file's pairs were.

        Raises:
            SettingError: it is empty, too long, or holds what is no symbol of the task's.
        """
        symbols = read_source(self, source) if isinstance(source, str) else source
        return answer(self, symbols, next(self.network.parameters()).device)

    def patterns(self) -> list[PatternRecord]:
        """Returns what each head of self-attention does: how much it looks at the token before, the first one, ..."""
        return find_patterns(self.network, self.data.rows("test"), next(self.network.parameters()).device)


def load(path: str | PathLike[str], device: str | torch.device = "cpu", trust: Trust = ()) -> Checkpoint:
    """Loads a checkpoint that `train.py` wrote. It may be anybody's: nothing in it is run.

    Args:
        path: the file.
        device: where the network goes.
        trust: packages besides this one whose classes the file may name.

    Raises:
        SettingError: it is missing, broken, foreign, or does not fit its own config.
    """
    trained = load_trained(Path(path), trust=trust)
    trained.network.to(device)
    return Checkpoint(*trained)
