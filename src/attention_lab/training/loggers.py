"""What keeps a run's scalars: TensorBoard, with its settings beside what they led to, and tables."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from lightning.pytorch import Trainer
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger
from torch.utils.tensorboard.summary import hparams

from attention_lab.errors import as_written


class Table(CSVLogger):
    """Writes into a run's `csv/version_0/metrics.csv`; where the run goes on, into `csv/version_1/` and so on.

    Args:
        run_dir: the run's folder.
    """

    def __init__(self, run_dir: Path) -> None:
        super().__init__(run_dir, name="csv")


class TensorBoard(TensorBoardLogger):
    """Writes into a run's `tensorboard/`.

    Args:
        run_dir: the run's folder.
    """

    def __init__(self, run_dir: Path) -> None:
        super().__init__(run_dir, name=None, version="tensorboard", default_hp_metric=False)

    def log_metrics(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        """Logs scalars, but for Lightning's count of epochs: batches come without end, so that it would stay at 0."""
        super().log_metrics({name: value for name, value in metrics.items() if name != "epoch"}, step)

    def log_result(self, settings: Mapping[str, int | float | str], figures: Mapping[str, float], step: int) -> None:
        """Logs a run's final figures, and its settings for the HParams view.

        TensorBoard takes the columns of that view from one run's description of its experiment, whichever it comes upon
        first, and so has none for what that run lacks. Where no run has one, it collects them from all: so none is
        written, and every scalar can be chosen as a figure.

        Args:
            settings: from `hparam_columns`.
            figures: what it reached.
            step: when.
        """
        self.log_metrics(figures, step)
        _, start, end = hparams(dict(settings), dict(figures))
        writer = self.experiment._get_file_writer()  # pyright: ignore[reportPrivateUsage] - as Lightning's own loggers
        for summary in (start, end):
            writer.add_summary(summary, step)


def tensorboard_of(trainer: Trainer) -> TensorBoardLogger | None:
    """Returns the trainer's logger that is TensorBoard's; None where there is none."""
    return next((logger for logger in trainer.loggers if isinstance(logger, TensorBoardLogger)), None)


_ALWAYS = ("task", "model", "attention", "position", "seed", "data.max_length", "optimizer.learning_rate")
"""Settings that tell most runs apart, for the HParams view."""


def hparam_columns(settings: Mapping[str, object], asked_for: Collection[str]) -> dict[str, int | float | str]:
    """Returns the settings that the HParams view is to show: few that every run has, and those that were asked for.

    The view puts those first in which runs differ; with all of them the figures would be columns away. Those of one
    name must be of one type in all runs. Numbers stay numbers, and null is left out: TensorBoard knows a missing value,
    and sorts it last, but fails at the text "null" between numbers. Anything else is text, as it is written in a
    config; true and false, too, since they would be shown as 1 and 0.

    Args:
        settings: all settings of the run, under their full names.
        asked_for: the names of those that were typed.
    """
    shown = (name for name in settings if name in _ALWAYS or name in asked_for)
    return {name: _column(value) for name in shown if (value := settings[name]) is not None}


def _column(value: object) -> int | float | str:
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else as_written(value)
