"""Training a contender on the project's data."""

import itertools
from collections.abc import Iterator, Sequence

from attention_lab.benchmark.contenders import build_contender
from attention_lab.benchmark.machine import Machine
from attention_lab.benchmark.plain_loop import PlainLoop
from attention_lab.benchmark.settings import DeviceSettings, PeersSettings
from attention_lab.cli.composing import check_choice, choices, compose_settings
from attention_lab.composition.build import build_data, build_task
from attention_lab.data.batches import Batch
from attention_lab.data.module import SequenceData
from attention_lab.settings.schema import TrainSettings
from attention_lab.tasks.vocabulary import PAD


def compose(settings: PeersSettings, min_length: int) -> TrainSettings:
    """Returns the settings of `train.py` for sources of at least a length, with a learning rate that suits everybody.

    Raises:
        SettingError: there is no such task, or one of the settings cannot be used.
    """
    check_choice("task", settings.task, choices("task"))
    sections = {
        "model": ("d_model", "num_heads", "num_layers", "d_ff"),
        "data": ("vocab_size", "max_length", "train_size", "batch_size"),
    }
    sizes = [f"{section}.{name}={getattr(settings, name)}" for section, names in sections.items() for name in names]
    optimizer = ["optimizer.learning_rate=1e-3", "optimizer.final_learning_rate=1e-3", "optimizer.weight_decay=0.1"]
    overrides = [f"task={settings.task}", *sizes, *optimizer, f"data.min_length={min_length}"]
    longest_target = build_task(compose_settings(overrides).task).longest(settings.max_length)
    longest = max(longest_target, settings.max_length, settings.decode_length)
    return compose_settings([*overrides, f"position.max_len={longest + 2}"])


def training_data(settings: TrainSettings, parts: int, machine: Machine) -> SequenceData:
    """Returns what is learned, in batches of so many parts on a CPU and whole ones on a GPU.

    Raises:
        SettingError: there is no such data.
    """
    parts = 1 if machine.is_gpu else parts
    return build_data(build_task(settings.task), settings.data, settings.seed, splits=("train",), parts=parts)


def train(loop: PlainLoop, batches: Iterator[Sequence[Batch]], machine: Machine, steps: int) -> int:
    """Takes so many steps and returns how many real target tokens they saw."""
    tokens = 0
    for batch in itertools.islice(batches, steps):
        tokens += sum(int((part.labels != PAD).sum()) for part in batch)
        loop.step([Batch(*(column.to(machine.device) for column in part)) for part in batch])
    return tokens


def measure_memory(name: str, learned: TrainSettings, settings: DeviceSettings, steps: int) -> int:
    """Returns the peak bytes of a contender's training.

    A first step on one sequence brings about the gradients, the optimiser's moments and all that libraries set up.
    """
    machine = Machine(settings)
    contender = build_contender(name, learned)
    loop = PlainLoop(contender.network, contender.predict, learned, machine)
    data = training_data(learned, contender.batch_parts, machine)
    train(loop, iter([[data.rows("train")[0]]]), machine, 1)
    data.endless = True
    batches = iter(data.train_dataloader())
    return machine.peak_bytes(lambda: train(loop, batches, machine, steps))
