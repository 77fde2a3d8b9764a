"""Contenders take turns, so that whatever else the machine does slows all of them alike."""

import statistics
from collections.abc import Callable, Mapping, Sequence

from attention_lab.benchmark.machine import Machine

Rates = Mapping[str, Sequence[float]]
"""Tokens per second of each contender, round by round; the first one is the reference."""


def take_turns(
    contenders: Mapping[str, Callable[[int], int]], warm_up: int, work: int, rounds: int, machine: Machine
) -> Rates:
    """Lets contenders run by turns: A B C, A B C, ...

    Args:
        contenders: by name, what does an amount of work and returns how many tokens came of it.
        warm_up: amount of work before the clock runs.
        work: amount of work a round.
        rounds: how often each has its turn.
        machine: whose clock is used.
    """
    for run in contenders.values():
        run(warm_up)
    rates: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, run in contenders.items():
            tokens: list[int] = []
            seconds = machine.seconds(lambda run=run, tokens=tokens: tokens.append(run(work)))
            rates[name].append(tokens[0] / seconds)
    return rates


def median_ratios(rates: Rates) -> dict[str, float]:
    """Returns how many times as fast as each the reference was: the medians of the ratios within rounds."""
    reference = next(iter(rates.values()))
    return {
        name: statistics.median(ours / theirs for ours, theirs in zip(reference, own, strict=True))
        for name, own in rates.items()
    }
