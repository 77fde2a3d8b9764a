"""What the heads do: how well each aligns, what is lost without it, and what is left without several."""

from collections.abc import Sequence
from math import nan

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from attention_lab.evaluation.records import Accuracy, HeadRecord, Interventions
from attention_lab.plotting.canvas import BLUE, GOLD, GREY, PALE_BLUE, new_figure, plain_axes


def cuts_of(interventions: Interventions) -> dict[str, Accuracy]:
    """Returns, under what stands below each bar, what is left of the accuracy; without what was not measured."""
    cuts = {
        "intact": interventions.intact,
        "these heads\nsilenced": interventions.without_heads,
        "only their\ngold edges cut": interventions.without_gold_edges,
        "as many random\nedges cut": interventions.without_random_edges,
    }
    return {name: left for name, left in cuts.items() if left is not None}


def draw_heads(heads: Sequence[HeadRecord], interventions: Interventions, chance: float | None) -> Figure:
    """Draws the evidence in three panels: heads one by one, more and more of them together, and single edges.

    Args:
        heads: a record a head.
        interventions: what is left without several of them, and without their edges.
        chance: mass of a head that looks everywhere alike; None where no map was measured.
    """
    one_by_one = max(4.0, 0.35 * len(heads))
    figure = new_figure(one_by_one + 7.0, 3.4)
    single, joint, edges = figure.subplots(1, 3, width_ratios=(one_by_one, 3.3, 3.7))
    _draw_one_by_one(single, heads, chance)
    together = interventions.together
    counts = [record.silenced for record in together]
    joint.plot(counts, [record.exact_match for record in together], "o-", color=BLUE, label="exact match")
    joint.plot(counts, [record.token_accuracy for record in together], "^--", color=GREY, label="token accuracy")
    joint.set(xlabel="heads silenced, best aligned first", ylim=(-0.03, 1.05))
    joint.set_xticks(counts if len(counts) <= 12 else counts[:: len(counts) // 8])
    joint.set_title("More and more heads silenced together", fontsize=9)
    joint.legend(fontsize=7, frameon=False)
    plain_axes(joint)
    cuts = cuts_of(interventions)
    colours = [GREY, BLUE, GOLD, PALE_BLUE][: len(cuts)]
    bars = edges.bar(range(len(cuts)), [left.exact_match for left in cuts.values()], color=colours)
    edges.bar_label(bars, fmt="%.3f", fontsize=7)
    edges.set_xticks(range(len(cuts)), list(cuts), fontsize=6.5)
    edges.set(ylim=(0, 1.12), ylabel="exact match")
    kind = "aligned " if interventions.aligned else ""
    edges.set_title(f"Cutting {len(interventions.cut)} {kind}heads' edges", fontsize=9)
    plain_axes(edges)
    return figure


def _draw_one_by_one(axes: Axes, heads: Sequence[HeadRecord], chance: float | None) -> None:
    series = {
        "hit rate": (BLUE, [head.hit_rate for head in heads]),
        "mass": (PALE_BLUE, [head.mass for head in heads]),
        "exact match without it": (GREY, [head.exact_match_without for head in heads]),
    }
    width = 0.8 / len(series)
    for number, (name, (colour, values)) in enumerate(series.items()):
        places = [place + (number - 1) * width for place in range(len(heads))]
        axes.bar(places, [nan if value is None else value for value in values], width, color=colour, label=name)
    if chance is not None:
        axes.axhline(chance, color=GOLD, linewidth=1, linestyle=":", label="mass by chance")
    axes.set_xticks(range(len(heads)), [f"{head.layer}.{head.head}" for head in heads], fontsize=7)
    axes.set(xlabel="layer.head", ylim=(0, 1.05))
    axes.set_title("Heads one by one", fontsize=9)
    axes.legend(fontsize=7, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=2)
    plain_axes(axes)
