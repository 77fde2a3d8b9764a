"""Train a small Transformer on a task whose correct attention is known. `python train.py --help` says how."""

from pathlib import Path

from omegaconf import DictConfig

from attention_lab.cli.choices import with_names
from attention_lab.cli.job import plain, record, run_dir, say_what_is_loaded
from attention_lab.cli.main import run
from attention_lab.settings.checking import build
from attention_lab.settings.moved import moved_targets
from attention_lab.settings.schema import TrainSettings


def main(config: DictConfig) -> None:
    """Checks the config, and only then imports what takes seconds to import."""
    settings = build(TrainSettings, with_names(moved_targets(plain(config))), "")

    say_what_is_loaded()
    from attention_lab.commands.train import train

    train(settings, run_dir(), record(config))


if __name__ == "__main__":
    run(main, Path(__file__).resolve().parent / "configs", "train", path_setting="resume", resumable=True)
