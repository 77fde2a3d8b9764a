"""Several checkpoints side by side: what differs in their configs, and what it is worth over seeds."""

import math
from collections.abc import Sequence
from statistics import mean, stdev
from typing import Any, NamedTuple

from scipy.stats import t as student

from attention_lab.configuration.flat import flat_settings

_SAME_BY_DESIGN = ("seed", "trainer.accelerator", "data.num_workers")
"""Settings that tell no kind of run from another."""


class Run(NamedTuple):
    """One checkpoint, evaluated.

    Attributes:
        checkpoint: its path.
        config: its whole config.
        step: the optimiser step it was written at.
        figures: `test/...`.
        length_curve: a record a length.
    """

    checkpoint: str
    config: dict[str, Any]
    step: int
    figures: dict[str, float]
    length_curve: list[dict[str, Any]]


class Group(NamedTuple):
    """Runs that differ in nothing but the seed.

    Attributes:
        settings: what tells this group from the others.
        runs: its members.
        figures: each test figure over the seeds, as `over_seeds` gives it.
        length_curve: a record a length: `length`, and each figure over the seeds.
    """

    settings: dict[str, Any]
    runs: list[Run]
    figures: dict[str, dict[str, float | None]]
    length_curve: list[dict[str, Any]]

    @property
    def label(self) -> str:
        """The group in a few words."""
        return ", ".join(f"{name}={value}" for name, value in self.settings.items()) or "all runs"


def without_copies(runs: Sequence[Run]) -> tuple[list[Run], list[Run]]:
    """Returns the runs, and apart from them those that repeat the config and seed of a later one."""
    kept = {str(sorted(flat_settings(run.config).items(), key=str)): run for run in runs}
    own = {id(run) for run in kept.values()}
    return [run for run in runs if id(run) in own], [run for run in runs if id(run) not in own]


def group_runs(runs: Sequence[Run]) -> list[Group]:
    """Sorts runs into groups by what differs in their configs, and sums each group up over its seeds."""
    settings = [flat_settings(run.config) for run in runs]
    names = list(dict.fromkeys(name for each in settings for name in each if name not in _SAME_BY_DESIGN))
    # A setting that only some runs have (another model has other ones) differs as well.
    varied = [name for name in names if len({repr(each.get(name)) for each in settings}) > 1]
    members: dict[str, list[int]] = {}
    for number, each in enumerate(settings):
        members.setdefault(repr([each.get(name) for name in varied]), []).append(number)
    return [
        _summed_up({name: settings[numbers[0]].get(name) for name in varied}, [runs[number] for number in numbers])
        for numbers in members.values()
    ]


def over_seeds(name: str, values: Sequence[float]) -> dict[str, float | None]:
    """Returns `mean`, `worst`, and from `low` to `high` the 95 % interval of the mean.

    Student's t interval: it takes the seeds for draws from a normal distribution, which rates near 1 are not quite;
    what would lie beyond 0 or 1 is cut off. One seed has no interval, and says so (None).

    Args:
        name: the figure's name; every figure but a loss is a rate, and the more the better.
        values: one a seed.
    """
    centre = mean(values)
    is_loss = name.endswith("loss")
    summary: dict[str, float | None] = {"mean": centre, "worst": max(values) if is_loss else min(values)}
    if len(values) < 2:
        return {**summary, "low": None, "high": None}
    reach = float(student.ppf(0.975, len(values) - 1)) * stdev(values) / math.sqrt(len(values))
    return {**summary, "low": max(0.0, centre - reach), "high": centre + reach if is_loss else min(1.0, centre + reach)}


def _summed_up(settings: dict[str, Any], runs: list[Run]) -> Group:
    figures = {name: over_seeds(name, [run.figures[name] for run in runs]) for name in runs[0].figures}
    curve: list[dict[str, Any]] = []
    for records in zip(*(run.length_curve for run in runs), strict=True):
        names = [name for name in records[0] if name != "length"]
        summed = {name: over_seeds(name, [record[name] for record in records]) for name in names}
        curve.append({"length": records[0]["length"], **summed})
    return Group(settings, runs, figures, curve)
