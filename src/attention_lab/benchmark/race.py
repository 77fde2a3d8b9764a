"""Contenders take turns, so that whatever else the machine does slows all of them alike."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from attention_lab.benchmark.machine import Machine


class Runner(NamedTuple):
    """Somebody who makes tokens.

    Attributes:
        run: takes an amount of work and returns how many tokens came of it.
        warm_up: amount of work before the clock runs.
        work: amount of work a round.
    """

    run: Callable[[int], int]
    warm_up: int
    work: int


class Result(NamedTuple):
    """How fast one contender was.

    Attributes:
        rates: tokens per second, round by round.
        advantage: how many times as fast the reference was: the median of the rounds' ratios.
    """

    rates: list[float]
    advantage: float

    @property
    def median(self) -> float:
        """Tokens per second, the median of the rounds."""
        return statistics.median(self.rates)


def race(runners: Mapping[str, Runner], rounds: int, machine: Machine, reference: str) -> dict[str, Result]:
    """Lets contenders run by turns: A B C, A B C, ...

    Args:
        runners: the contenders by name.
        rounds: how often each has its turn.
        machine: whose clock is used.
        reference: the one that all are compared with, within each round.

    Returns:
        The results by name.
    """
    for runner in runners.values():
        runner.run(runner.warm_up)
    rates: dict[str, list[float]] = {name: [] for name in runners}
    for _ in range(rounds):
        for name, runner in runners.items():
            rates[name].append(_rate(runner, machine))
    return {name: Result(own, advantage(rates[reference], own)) for name, own in rates.items()}


def advantage(reference: Sequence[float], other: Sequence[float]) -> float:
    """Returns how many times as fast the reference was, from rates of the same rounds."""
    return statistics.median(ours / theirs for ours, theirs in zip(reference, other, strict=True))


def _rate(runner: Runner, machine: Machine) -> float:
    tokens: list[int] = []
    seconds = machine.seconds(lambda: tokens.append(runner.run(runner.work)))
    return tokens[0] / seconds
