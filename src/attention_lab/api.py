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
from attention_lab.errors import SettingError
from attention_lab.evaluation.answering import Answer, answer, read_source
from attention_lab.evaluation.patching import patch_heads, patched_tokens
from attention_lab.evaluation.patterns import find_patterns
from attention_lab.evaluation.records import Patching, PatternRecord
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

    def patch(self, clean: str | Sequence[int], corrupted: str | Sequence[int]) -> Patching:
        """Returns which head, at which token, brings the answer to one source back when another one is read.

        Args:
            clean: the source whose answer is to come back, as for `answer`.
            corrupted: another one of as many symbols, which is read instead.

        Raises:
            SettingError: a source cannot be answered, or they are not of one length.
        """
        first, second = (self.answer(source) for source in (clean, corrupted))
        if len(first.source) != len(second.source):
            reason = f"has {len(second.source) - 1} symbols, and the clean source {len(first.source) - 1}"
            raise SettingError("corrupted", corrupted, reason)
        if not patched_tokens(self.network, first.batch):
            raise SettingError("clean", clean, "is too long for its maps to fit")
        device = next(self.network.parameters()).device
        return patch_heads(self.network, first.batch, second.batch, device, self.task.symbols)


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
