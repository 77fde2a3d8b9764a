"""Settings and a file of pairs: what is to be learned stands in the file, and so does how long and how many it is."""

from pathlib import Path

import numpy as np

from attention_lab.composition.build import build_task
from attention_lab.data.pairs import NumberedPairs, PairFile, read_splits
from attention_lab.errors import SettingError
from attention_lab.settings.schema import TrainSettings
from attention_lab.tasks.pairs import Pairs


def with_pairs(settings: TrainSettings) -> tuple[TrainSettings, NumberedPairs | None]:
    """Reads the pairs that are to be learned, if they stand in a file, and completes the settings by what is in it.

    Raises:
        SettingError: the file cannot be used, or there is one and the task does not ask for it.
    """
    task, data = build_task(settings.task, settings.trusted, settings.choices.get("task")), settings.data
    if not isinstance(task, Pairs):
        if data.path is not None:
            raise SettingError("data.path", data.path, "goes with task=file alone")
        return settings, None
    if data.path is None:
        raise SettingError("data.path", reason="is missing; give it as data.path=pairs.csv")
    file = PairFile(
        Path(data.path),
        data.source_column,
        data.target_column,
        # What a run that goes on has found is the longest source; a target may be longer.
        max(data.max_length, task.longest_target),
        {"train": data.train_size, "validation": data.validation_size, "test": data.test_size},
    )
    pairs = read_splits(file, task, settings.seed)
    sources = np.concatenate([rows.source_lengths for rows in pairs.rows.values()])
    longest = max(int((rows.lengths - rows.source_lengths).max()) for rows in pairs.rows.values())
    found = {
        "vocab_size": len(pairs.symbols),
        "min_length": int(sources.min()),
        "max_length": int(sources.max()),
        "fingerprint": pairs.fingerprint,
    }
    learned = {**settings.task, "longest_target": longest}
    return settings.model_copy(update={"task": learned, "data": data.model_copy(update=found)}), pairs
