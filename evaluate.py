"""Evaluate a checkpoint: `python evaluate.py checkpoint=PATH`. Nothing but the file is needed."""

from pathlib import Path

from omegaconf import DictConfig

from attention_lab.cli.job import plain, run_dir, say_what_is_loaded
from attention_lab.cli.main import run
from attention_lab.settings.checking import build
from attention_lab.settings.schema import EvaluateSettings


def main(config: DictConfig) -> None:
    """Checks the config, and only then imports what takes seconds to import."""
    settings = build(EvaluateSettings, plain(config), "")

    say_what_is_loaded()
    from attention_lab.runs.checkpoint import read_checkpoint

    if isinstance(settings.checkpoint, str) and Path(settings.checkpoint).is_file():
        # What is no checkpoint is refused before all else is imported.
        read_checkpoint(Path(settings.checkpoint))

    from attention_lab.commands.evaluate import evaluate

    evaluate(settings, run_dir())


if __name__ == "__main__":
    run(main, Path(__file__).resolve().parent / "configs", "evaluate", path_setting="checkpoint")
