"""Several checkpoints side by side: what differs in their configs, and what it is worth over seeds."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import NamedTuple, cast

from attention_lab.errors import as_written
from attention_lab.evaluation.examples import MappedExample
from attention_lab.evaluation.records import LengthRecord, Scores
from attention_lab.metrics.alignment import Head
from attention_lab.runs.checkpoint import Solved

_SAME_BY_DESIGN = ("seed", "trainer.accelerator", "trainer.devices", "data.num_workers")
"""Settings that tell no kind of run from another."""

_QUANTILES = (12.706205, 4.302653, 3.182446, 2.776445, 2.570582, 2.446912, 2.364624, 2.306004, 2.262157, 2.228139)
"""The 97.5 % quantiles of Student's t for 1 to 10 degrees of freedom."""

_NOT_COMPARED = ("length", "sequences", "alignment_chance")
"""Fields of a `LengthRecord` that are no figures of the network's."""


@dataclass(frozen=True)
class Run:
    """One checkpoint, evaluated.

    Attributes:
        checkpoint: its path.
        settings: its config as a flat table.
        trained: shortest and longest source length of training, in symbols.
        step: the optimiser step it was written at.
        solved: when its run had solved the task; None if it had not by then.
        weights: how many numbers the network has learned.
        scores: its figures on the test split.
        length_curve: a record a length.
        best_head: the head that aligns best on the validation split; None without attention to the source.
        mapped: the attention for one of its test sequences; None where it is not mapped.
        page: where its own report is, from the comparison's folder.
    """

    checkpoint: str
    settings: Mapping[str, object]
    trained: tuple[int, int]
    step: int
    solved: Solved | None
    weights: int
    scores: Scores
    length_curve: Sequence[LengthRecord]
    best_head: Head | None = None
    mapped: MappedExample | None = None
    page: str = ""

    @property
    def seed(self) -> object:
        """The run's seed."""
        return self.settings.get("seed")


class Summary(NamedTuple):
    """A figure over seeds: its mean, its worst, and from low to high the 95 % interval of the mean."""

    mean: float | None
    worst: float | None
    low: float | None
    high: float | None


class LengthSummary(NamedTuple):
    """Each figure over the seeds at one source length, in symbols."""

    length: int
    figures: Mapping[str, Summary]


@dataclass(frozen=True)
class Group:
    """Runs that differ in nothing but the seed.

    Attributes:
        settings: all that this group and the others do not have in common.
        named_by: those of these settings that are enough to tell it from the others.
        runs: its members.
        figures: each test figure over the seeds.
        length_curve: a summary a length.
    """

    settings: Mapping[str, object]
    named_by: Sequence[str]
    runs: Sequence[Run]
    figures: Mapping[str, Summary]
    length_curve: Sequence[LengthSummary]

    @property
    def label(self) -> str:
        """The group in a few words."""
        return ", ".join(f"{name}={as_written(self.settings[name])}" for name in self.named_by) or "all runs"

    @property
    def exact_match(self) -> Summary:
        """How well the task is done: by it groups are ranked."""
        return self.figures["test/decoded_exact_match"]

    @property
    def worst_run(self) -> Run:
        """The run that has fewest sequences right."""
        return min(self.runs, key=lambda run: run.scores.decoded_exact_match)


def best_first(groups: Sequence[Group]) -> list[Group]:
    """Returns groups by exact match, among equals by that of the worst seed, then by how well the best heads align."""

    def merit(group: Group) -> tuple[float, ...]:
        figures = group.exact_match, group.figures["test/alignment_hit_rate"], group.figures["test/alignment_mass"]
        return tuple(value or 0.0 for figure in figures for value in (figure.mean, figure.worst))

    return sorted(groups, key=merit, reverse=True)


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
    members: dict[str, dict[object, int]] = {}
    copies: list[Run] = []
    for number, each in enumerate(settings):
        group = members.setdefault(_key([each.get(name) for name in varied]), {})
        earlier = group.pop(runs[number].seed, None)
        if earlier is not None:
            copies.append(runs[earlier])
        group[runs[number].seed] = number
    numbers = [list(group.values()) for group in members.values()]
    differing = [{name: settings[each[0]].get(name) for name in varied} for each in numbers]
    named_by = _enough(varied, differing)
    groups = [
        _summed_up(own, named_by, [runs[number] for number in sorted(each)])
        for own, each in zip(differing, numbers, strict=True)
    ]
    return sorted(groups, key=lambda group: [_rank(value) for value in group.settings.values()]), copies


def _enough(names: Sequence[str], groups: Sequence[Mapping[str, object]]) -> list[str]:
    """Returns few of the settings that tell all groups apart: one by one that which tells most of them apart."""

    def told_apart(chosen: Sequence[str]) -> int:
        return len({_key([group[name] for name in chosen]) for group in groups})

    chosen: list[str] = []
    while told_apart(chosen) < len(groups):
        chosen.append(max((name for name in names if name not in chosen), key=lambda name: told_apart([*chosen, name])))
    return [name for name in names if name in chosen]


def _follows(name: str, settings: Sequence[Mapping[str, object]]) -> bool:
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


def _told_apart(runs: Sequence[Run]) -> list[dict[str, object]]:
    """Returns what may tell runs apart: their settings, and the file's name where one run has left several."""
    settings = [{name: value for name, value in run.settings.items() if name not in _SAME_BY_DESIGN} for run in runs]
    files: dict[str, set[str]] = {}
    for run, each in zip(runs, settings, strict=True):
        files.setdefault(_key([each, run.seed]), set()).add(Path(run.checkpoint).stem)
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


def over_seeds(name: str, values: Sequence[float | None]) -> Summary:
    """Sums a figure up over seeds.

    The interval is Student's t: it takes the seeds for draws from a normal distribution, which rates near 1 are not
    quite; what would lie beyond 0 or 1 is cut off. One seed has no interval, and says so (None).

    Args:
        name: the figure's name. Every figure but a loss lies between 0 and 1; of a loss and an entropy less is better.
        values: one a seed; None where a network has no such figure, and then there is no summary either.
    """
    known = [value for value in values if value is not None]
    if not known:
        return Summary(None, None, None, None)
    centre = mean(known)
    is_loss = name.endswith("loss")
    worst = max(known) if is_loss or name.endswith("entropy") else min(known)
    if len(known) < 2:
        return Summary(centre, worst, None, None)
    reach = student_quantile(len(known) - 1) * stdev(known) / math.sqrt(len(known))
    return Summary(centre, worst, max(0.0, centre - reach), centre + reach if is_loss else min(1.0, centre + reach))


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


def _summed_up(settings: Mapping[str, object], named_by: Sequence[str], runs: Sequence[Run]) -> Group:
    scored = [run.scores.figures() for run in runs]
    figures = {name: over_seeds(name, [each[name] for each in scored]) for name in scored[0]}
    by_length: dict[int, list[dict[str, float | None]]] = {}
    for record in (record for run in runs for record in run.length_curve):
        compared = {name: value for name, value in vars(record).items() if name not in _NOT_COMPARED}
        by_length.setdefault(record.length, []).append(compared)
    curve = [
        LengthSummary(length, {name: over_seeds(name, [each[name] for each in records]) for name in records[0]})
        for length, records in by_length.items()
    ]
    return Group(settings, named_by, runs, figures, curve)
