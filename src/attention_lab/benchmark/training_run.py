"""Training a contender on the project's data. As a process of its own it measures the memory that this takes."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import torch

from attention_lab.benchmark.alone import answer
from attention_lab.benchmark.choices import read_choices
from attention_lab.benchmark.contenders import CONTENDERS, Contender, NetworkShape
from attention_lab.benchmark.machine import Machine
from attention_lab.benchmark.options import BenchmarkError, PeersOptions
from attention_lab.composition.build import build_data, build_task
from attention_lab.data.batches import Batch
from attention_lab.data.module import SequenceData
from attention_lab.errors import SettingError
from attention_lab.settings.schema import DataSettings
from attention_lab.tasks.task import Task
from attention_lab.tasks.vocabulary import PAD, num_tokens
from attention_lab.training.module import batch_loss

MEMORY_STEPS = 3
"""Training steps whose peak memory is measured."""


class TrainingRun:
    """Steps of AdamW on batches of a task, with clipped gradients, as in `train.py` but without its trainer.

    Args:
        contender: the network to train.
        data: gives the batches; the same ones to every contender.
        machine: where to run.
    """

    def __init__(self, contender: Contender, data: SequenceData, machine: Machine) -> None:
        self._contender = contender.to(machine.device).train()
        self._machine = machine
        self._optimizer = torch.optim.AdamW(contender.parameters(), lr=1e-3, weight_decay=0.1, fused=True)
        self._batches = iter(data.train_dataloader())

    def __call__(self, steps: int) -> int:
        """Takes so many steps and returns how many real target tokens they saw."""
        return sum(self.step(next(self._batches)) for _ in range(steps))

    def step(self, batch: Sequence[Batch]) -> int:
        """Learns from one batch, given as parts, and returns how many real target tokens it has."""
        tokens = sum(int((part.labels != PAD).sum()) for part in batch)
        there = [Batch(*(column.to(self._machine.device) for column in part)) for part in batch]
        with self._machine.computing():
            loss = batch_loss(self._contender, there)
        self._optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self._contender.parameters(), 1.0)
        self._optimizer.step()
        return tokens


def chosen_task(options: PeersOptions) -> Task:
    """Builds the task.

    Raises:
        BenchmarkError: there is none of that name.
    """
    tasks = read_choices("task")
    if options.task not in tasks:
        raise BenchmarkError(f"--task: {options.task} is not a task; use one of {', '.join(tasks)}")
    return build_task(tasks[options.task])


def training_data(options: PeersOptions, contender: type[Contender], machine: Machine, fixed: bool) -> SequenceData:
    """Returns the data on which a contender is trained.

    Args:
        options: what is learned, and how much of it.
        contender: who is trained; ours gets its batches in as many parts as `train.py` cuts them into.
        machine: where.
        fixed: whether all sources are as long as the longest.

    Raises:
        BenchmarkError: there is no such data.
    """
    parts = 1 if machine.is_gpu else contender.batch_parts
    settings = DataSettings(
        min_length=options.max_length if fixed else 1,
        max_length=options.max_length,
        vocab_size=options.vocab_size,
        unique_symbols=False,
        train_size=options.train_size,
        validation_size=1,
        test_size=1,
        batch_size=options.batch_size,
        num_workers=0,
    )
    try:
        return build_data(chosen_task(options), settings, seed=0, splits=("train",), parts=parts)
    except SettingError as error:
        raise BenchmarkError(str(error)) from error


def network_shape(options: PeersOptions) -> NetworkShape:
    """Returns the shape of all contenders, with room for what is trained and what is decoded."""
    longest = max(chosen_task(options).longest(options.max_length), options.max_length, options.decode_length)
    return NetworkShape(
        num_tokens(options.vocab_size),
        options.d_model,
        options.num_heads,
        options.num_layers,
        options.d_ff,
        max_tokens=longest + 2,
    )


def built(name: str, shape: NetworkShape) -> Contender:
    """Builds a contender.

    Raises:
        BenchmarkError: the network refuses the shape.
    """
    torch.manual_seed(0)
    try:
        return CONTENDERS[name](shape)
    except ValueError as error:
        raise BenchmarkError(str(error)) from error


def memory_question(name: str, options: PeersOptions, steps: int) -> dict[str, Any]:
    """Returns what `measure` is to be asked: a contender and how many steps to take after the warm-up."""
    return {"name": name, "steps": steps, "options": asdict(options)}


def measure(question: dict[str, Any]) -> dict[str, Any]:
    """Trains a contender on sources of all lengths.

    A first step on one sequence brings about the gradients, the optimiser's moments and all that libraries set up.

    Returns:
        `peak_bytes` as `Machine.peak_bytes` gives it, and `on_gpu`.
    """
    options = PeersOptions(**question["options"])
    machine = Machine(options.device, options.precision, options.threads)
    made = CONTENDERS[question["name"]]
    run = TrainingRun(
        built(question["name"], network_shape(options)),
        training_data(options, made, machine, fixed=False),
        machine,
    )
    small = training_data(options, made, machine, fixed=True).rows("train")[0]
    run.step([small])
    return {"peak_bytes": machine.peak_bytes(lambda: run(question["steps"])), "on_gpu": machine.is_gpu}


if __name__ == "__main__":
    answer(measure)
