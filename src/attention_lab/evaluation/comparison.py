"""Several checkpoints side by side: what differs in their configs, and what it is worth over seeds."""

import math
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any, NamedTuple, cast

from attention_lab.runs.checkpoint import Solved
from attention_lab.settings.flat import flat_settings

_SAME_BY_DESIGN = ("seed", "trainer.accelerator", "trainer.devices", "data.num_workers")
"""Settings that tell no kind of run from another."""


_QUANTILES = (12.706205, 4.302653, 3.182446, 2.776445, 2.570582, 2.446912, 2.364624, 2.306004, 2.262157, 2.228139)
"""The 97.5 % quantiles of Student's t for 1 to 10 degrees of freedom."""


class Run(NamedTuple):
    """One checkpoint, evaluated.

    Attributes:
        checkpoint: its path.
        config: its whole config.
        step: the optimiser step it was written at.
        solved: when its run had solved the task; None if it had not by then.
        weights: how many numbers the network has learned.
        figures: `test/...`.
        length_curve: a record a length.
    """

    checkpoint: str
    config: dict[str, Any]
    step: int
    solved: Solved | None
    weights: int
    figures: dict[str, float | None]
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


def group_runs(runs: Sequence[Run]) -> tuple[list[Group], list[Run]]:
    """Sorts runs into groups by what differs in their configs, and sums each group up over its seeds.

    Returns:
        The groups, and the runs left out because a later one has their seed in the same group.
    """
    settings = _told_apart(runs)
    names = list(dict.fromkeys(name for each in settings for name in each))
    # A setting that only some runs have (another model has other ones) differs as well.
    varied = [name for name in names if len({_key(each.get(name)) for each in settings}) > 1]
    varied = [name for name in varied if not _follows(name, settings)]
    members: dict[str, dict[Any, int]] = {}
    copies: list[Run] = []
    for number, each in enumerate(settings):
        group = members.setdefault(_key([each.get(name) for name in varied]), {})
        earlier = group.pop(runs[number].config.get("seed"), None)
        if earlier is not None:
            copies.append(runs[earlier])
        group[runs[number].config.get("seed")] = number
    groups = [
        _summed_up(
            {name: settings[numbers[0]].get(name) for name in varied}, [runs[number] for number in sorted(numbers)]
        )
        for numbers in (list(group.values()) for group in members.values())
    ]
    return sorted(groups, key=lambda group: [_rank(value) for value in group.settings.values()]), copies


def _follows(name: str, settings: Sequence[dict[str, Any]]) -> bool:
    """Says whether a component's setting has one value for each choice of the component, and so tells nothing more."""
    component, _, inner = name.partition(".")
    values: dict[str, set[str]] = {}
    for each in settings:
        values.setdefault(_key(each.get(component)), set()).add(_key(each.get(name)))
    return bool(inner) and len(values) > 1 and all(len(each) == 1 for each in values.values())


def _rank(value: object) -> tuple[int, float, str]:
    """Returns what sorts numbers by size, before everything else by name; what is missing comes first."""
    if isinstance(value, (int, float)):
        return 1, float(value), ""
    return (0, 0.0, "") if value is None else (2, 0.0, str(value))


def _told_apart(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Returns what may tell runs apart: their settings, and the file's name where one run has left several."""
    # A name is compared with names only: earlier checkpoints know their classes alone.
    named = set.intersection(*(set(run.config.get("choices", {})) for run in runs))
    settings = [
        {name: value for name, value in flat_settings(run.config, named).items() if name not in _SAME_BY_DESIGN}
        for run in runs
    ]
    files: dict[str, set[str]] = {}
    for run, each in zip(runs, settings, strict=True):
        files.setdefault(_key([each, run.config.get("seed")]), set()).add(Path(run.checkpoint).stem)
    if any(len(names) > 1 for names in files.values()):
        return [{**each, "checkpoint": Path(run.checkpoint).stem} for run, each in zip(runs, settings, strict=True)]
    return settings


def _key(value: object) -> str:
    """Returns a text that is the same for equal values: 0 and 0.0 are, 0 and false are not."""
    if isinstance(value, float) and value.is_integer():
        return repr(int(value))
    if isinstance(value, list):
        return repr([_key(item) for item in cast(list[object], value)])
    if isinstance(value, dict):
        return repr({name: _key(item) for name, item in cast(dict[str, object], value).items()})
    return repr(value)


def over_seeds(name: str, values: Sequence[float | None]) -> dict[str, float | None]:
    """Returns `mean`, `worst`, and from `low` to `high` the 95 % interval of the mean.

    Student's t interval: it takes the seeds for draws from a normal distribution, which rates near 1 are not quite;
    what would lie beyond 0 or 1 is cut off. One seed has no interval, and says so (None).

    Args:
        name: the figure's name. Every figure but a loss lies between 0 and 1; of a loss and an entropy less is better.
        values: one a seed; None where a network has no such figure, and then there is no summary either.
    """
    known = [value for value in values if value is not None]
    if not known:
        return dict.fromkeys(("mean", "worst", "low", "high"))
    centre = mean(known)
    is_loss = name.endswith("loss")
    worst = max(known) if is_loss or name.endswith("entropy") else min(known)
    summary: dict[str, float | None] = {"mean": centre, "worst": worst}
    if len(known) < 2:
        return {**summary, "low": None, "high": None}
    reach = student_quantile(len(known) - 1) * stdev(known) / math.sqrt(len(known))
    return {**summary, "low": max(0.0, centre - reach), "high": centre + reach if is_loss else min(1.0, centre + reach)}


def student_quantile(freedom: int) -> float:
    """Returns the 97.5 % quantile of Student's t, to 0.0002.

    SciPy has it exactly, but torchmetrics imports all of SciPy where it finds it, which would cost every run a second.
    Beyond the table this is the expansion about the normal quantile (Abramowitz and Stegun 1964, 26.7.5).
    """
    if freedom <= len(_QUANTILES):
        return _QUANTILES[freedom - 1]
    z = 1.959964
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / freedom + second / freedom**2 + third / freedom**3


def _summed_up(settings: dict[str, Any], runs: list[Run]) -> Group:
    figures = {name: over_seeds(name, [run.figures[name] for run in runs]) for name in runs[0].figures}
    curve: list[dict[str, Any]] = []
    for records in zip(*(run.length_curve for run in runs), strict=True):
        names = [name for name in records[0] if name not in ("length", "sequences", "alignment_chance")]
        summed = {name: over_seeds(name, [record[name] for record in records]) for name in names}
        curve.append({"length": records[0]["length"], **summed})
    return Group(settings, runs, figures, curve)
