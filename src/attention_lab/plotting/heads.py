"""What the heads do: how well each aligns, what is lost without it, and what is left without several."""

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from attention_lab.plotting.canvas import BLUE, GOLD, GREY, PALE_BLUE, new_figure, plain_axes

CUTS = {
    "intact": "intact",
    "without_heads": "these heads\nsilenced",
    "without_gold_edges": "only their\ngold edges cut",
    "without_random_edges": "as many random\nedges cut",
}


def draw_heads(
    heads: Sequence[dict[str, Any]], together: Sequence[dict[str, Any]], cuts: dict[str, Any], chance: float
) -> Figure:
    """Draws the evidence in three panels: heads one by one, more and more of them together, and single edges.

    Args:
        heads: the records of `ablate_heads`.
        together: the records of `ablate_together`.
        cuts: what `cut_edges` found.
        chance: mass of a head that looks everywhere alike.
    """
    one_by_one = max(4.0, 0.35 * len(heads))
    figure = new_figure(one_by_one + 7.0, 3.4)
    alone, joint, edges = figure.subplots(1, 3, width_ratios=(one_by_one, 3.3, 3.7))
    _draw_one_by_one(alone, heads, chance)
    counts = [record["silenced"] for record in together]
    joint.plot(counts, [record["exact_match"] for record in together], "o-", color=BLUE, label="exact match")
    joint.plot(counts, [record["token_accuracy"] for record in together], "^--", color=GREY, label="token accuracy")
    joint.set(xlabel="heads silenced, best aligned first", ylim=(-0.03, 1.05))
    joint.set_xticks(counts if len(counts) <= 12 else counts[:: len(counts) // 8])
    joint.set_title("More and more heads silenced together", fontsize=9)
    joint.legend(fontsize=7, frameon=False)
    plain_axes(joint)
    left = [cuts[name]["exact_match"] for name in CUTS]
    bars = edges.bar(range(len(left)), left, color=[GREY, BLUE, GOLD, PALE_BLUE])
    edges.bar_label(bars, fmt="%.3f", fontsize=7)
    edges.set_xticks(range(len(left)), CUTS.values(), fontsize=6.5)
    edges.set(ylim=(0, 1.12), ylabel="exact match")
    edges.set_title(f"Cutting {len(cuts['cut'])} {'aligned ' if cuts['aligned'] else ''}heads' edges", fontsize=9)
    plain_axes(edges)
    return figure


def _draw_one_by_one(axes: Axes, heads: Sequence[dict[str, Any]], chance: float) -> None:
    series = {
        "hit rate": (BLUE, [head["hit_rate"] for head in heads]),
        "mass": (PALE_BLUE, [head["mass"] for head in heads]),
        "exact match without it": (GREY, [head["exact_match_without"] for head in heads]),
    }
    width = 0.8 / len(series)
    for number, (name, (colour, values)) in enumerate(series.items()):
        places = [place + (number - 1) * width for place in range(len(heads))]
        axes.bar(places, values, width, color=colour, label=name)
    axes.axhline(chance, color=GOLD, linewidth=1, linestyle=":", label="mass by chance")
    axes.set_xticks(range(len(heads)), [f"{head['layer']}.{head['head']}" for head in heads], fontsize=7)
    axes.set(xlabel="layer.head", ylim=(0, 1.05))
    axes.set_title("Heads one by one", fontsize=9)
    axes.legend(fontsize=7, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=2)
    plain_axes(axes)
