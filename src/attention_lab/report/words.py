"""What a report says in words: on the page, and on the terminal."""

from collections.abc import Iterator, Sequence
from textwrap import wrap

from attention_lab.evaluation.comparison import Group
from attention_lab.evaluation.records import Interventions, Report, TaskRecord
from attention_lab.metrics.alignment import Head
from attention_lab.report.tables import figure

_LEARNED = 0.5
"""Below this share of right sequences a task does not count as learned."""

_HOLDS = 0.99
"""At a length with at least this share of right sequences it holds."""

_NAMED = 6
"""So many heads are called by their names."""

_NEEDED = 0.05
"""Without a needed head more than this share of sequences is lost."""


def verdict(report: Report, longest: int) -> str:
    """Returns in a few sentences whether the task was learned, by which heads, and how far it holds.

    Args:
        report: what was found.
        longest: the longest source of training, in symbols.
    """
    right = report.scores.decoded_exact_match
    if right < _LEARNED:
        return f"The task is not learned: {_share(right)} of the test sequences are right."
    done = "Every test sequence is" if right == 1 else f"{_share(right)} of the test sequences are"
    return " ".join(
        filter(None, (f"{done} right, to the last token.", _who_does_it(report), _how_far(report, longest)))
    )


def comparison_verdict(groups: Sequence[Group]) -> str:
    """Returns in a few sentences which kinds of run do the task, the best one and the worst one first and last.

    Args:
        groups: what is compared, the best first.
    """
    solved = [group for group in groups if (group.exact_match.worst or 0.0) >= _HOLDS]
    best, worst = groups[0], groups[-1]
    if len(groups) == 1:
        return f"{best.label}: {_share(best.exact_match.mean or 0.0)} of the test sequences are right{_worst_of(best)}."
    who = "All" if len(solved) == len(groups) else str(len(solved)) if solved else "None"
    first = f"{who} of {len(groups)} kinds of run answer at least 99 % of the test sequences rightly, with every seed."
    if len(solved) == len(groups):
        return first
    return (
        f"{first} Best is {best.label}: {_share(best.exact_match.mean or 0.0)}{_worst_of(best)}. "
        f"Last is {worst.label}: {_share(worst.exact_match.mean or 0.0)}{_worst_of(worst)}."
    )


def _worst_of(group: Group) -> str:
    if len(group.runs) == 1:
        return ""
    return f", {_share(group.exact_match.worst or 0.0)} with the worst of {len(group.runs)} seeds"


def _who_does_it(report: Report) -> str:
    if not report.heads:
        return "There is no attention from target to source."
    cuts, one = report.interventions, len(report.interventions.cut) == 1
    if report.heads[0].hit_rate is None and report.best_head is None:
        all_heads = "the only head" if one else "all heads"
        left = _share(cuts.without_heads.exact_match)
        return f"Where tokens come from is not known. Silencing {all_heads} from target to source leaves {left} right."
    if cuts.aligned:
        named = "" if len(cuts.aligned) == len(report.heads) else f" ({_named(report, cuts.aligned)})"
        looks = "looks" if one else "look"
        who = f"{len(cuts.aligned)} of {len(report.heads)} heads{named} {looks} where the tokens come from"
        whom = "it" if one else "them"
    else:
        best = report.scores.alignment_hit_rate
        of_best = "" if best is None else f" (the best looks there for {_share(best)})"
        who = f"No head looks where nine tokens in ten come from{of_best}: heads share the work"
        whom = "the only one" if one else "all of them"
    left = f"Silencing {whom} leaves {_share(cuts.without_heads.exact_match)} right"
    if cuts.without_heads.exact_match > _LEARNED and len(cuts.cut) < len(report.heads):
        left += f" (others stand in for {whom})"
    if cuts.without_gold_edges is None or cuts.without_random_edges is None:
        return f"{who}. {left}."
    whose = "its" if one else "their"
    return (
        f"{who}. {left}, cutting only {whose} edges to the right tokens {_share(cuts.without_gold_edges.exact_match)}, "
        f"cutting as many other edges {_share(cuts.without_random_edges.exact_match)}."
    )


def _named(report: Report, aligned: Sequence[Head]) -> str:
    """Returns which heads are meant, as the page calls them: 0.1 is head 1 of layer 0; a whole layer by its number."""
    names: list[str] = []
    for layer in sorted({head.layer for head in aligned}):
        own = [f"{layer}.{head.head}" for head in aligned if head.layer == layer]
        every = sum(head.layer == layer for head in report.heads)
        names += [f"all of layer {layer}"] if len(own) == every > 1 else own
    return ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")


def _how_far(report: Report, longest: int) -> str:
    curve = sorted(report.length_curve, key=lambda record: record.length)
    failed = next((record.length for record in curve if record.decoded_exact_match < _HOLDS), None)
    held = [record.length for record in curve if failed is None or record.length < failed]
    if not held or (failed is None and held[-1] <= longest):
        return ""
    far = f"It holds up to {held[-1]:,} symbols"
    if held[-1] > longest:
        far += f", {held[-1] / longest:g} times the longest of training"
    elif held[-1] == longest and failed is not None:
        far += ", the longest of training"
    return f"{far}{'' if failed is None else f', but not at {failed:,}'}."


def _share(value: float) -> str:
    """Returns a share in per cent; what is not all, or not nothing, does not look like it."""
    if value in (0, 1):
        return f"{value:.0%}".replace("%", " %")
    return f"{min(max(100 * value, 0.1), 99.9):.1f} %"


def evidence(report: Report) -> str:
    """Returns what the interventions show of which heads carry the task."""
    if not report.heads:
        return "There is no attention from target to source to intervene on."
    cuts = report.interventions
    if report.heads[0].hit_rate is None and report.best_head is None:
        return (
            "It is not known where target tokens come from, so all heads are taken together. Exact match is "
            f"{cuts.intact.exact_match:.3f} with them and {cuts.without_heads.exact_match:.3f} without. "
            f"{_who_is_needed(report)}"
        )
    who = (
        f"{len(cuts.aligned)} of {len(report.heads)} heads put their largest weight on the gold token for at least "
        "nine target tokens in ten (on the validation split); they are taken together."
        if cuts.aligned
        else "No head hits nine gold tokens in ten by itself, so all heads are taken together."
    )
    left = (
        f"Exact match is {cuts.intact.exact_match:.3f} with all edges in place, {cuts.without_heads.exact_match:.3f} "
        f"when {'these heads are' if len(cuts.cut) > 1 else 'this head is'} silenced"
    )
    if cuts.without_gold_edges is None or cuts.without_random_edges is None:
        edges = "; sequences are too long for single edges to be cut."
    else:
        edges = (
            f", {cuts.without_gold_edges.exact_match:.3f} when only the edges to the gold tokens are cut, and "
            f"{cuts.without_random_edges.exact_match:.3f} when as many edges to other tokens are."
        )
    return f"{who} {left}{edges} {_who_is_needed(report)}"


def task_in_words(task: TaskRecord) -> str:
    """Returns how well one task of a mixture is done, and by which head."""
    done = f"{task.task}: exact match {task.decoded_exact_match:.4f} decoded on {task.sequences} sequences"
    if task.best_head is None:
        return done
    hit_rate, mass = figure(task.alignment_hit_rate), figure(task.alignment_mass)
    return f"{done}; best aligned is {task.best_head}, hit rate {hit_rate}, mass {mass}."


def terminal_summary(report: Report, longest: int) -> Iterator[str]:
    """Yields the lines that sum a report up on the terminal; `longest` is the longest source of training."""
    yield from wrap(verdict(report, longest), 100)
    yield ""
    yield f"{report.checkpoint}, step {report.step}, on the test split:"
    for name, value in report.scores.figures().items():
        yield f"  {name:<26} {figure(value)}"
    if report.best_head is not None:
        yield f"  best head on validation    {report.best_head}"
        if (untrained := report.baselines.untrained) is not None:
            yield (
                f"  before training            hit rate {figure(untrained.hit_rate)}, mass {figure(untrained.mass)} "
                f"(chance {figure(report.baselines.chance)})"
            )
        yield ""
        yield from _interventions(report.interventions)
    if report.tasks:
        yield ""
        yield "  task           exact match, decoded   hit rate   mass     best aligned head"
    for task in report.tasks:
        hit_rate, mass = figure(task.alignment_hit_rate), figure(task.alignment_mass)
        best = "–" if task.best_head is None else task.best_head
        yield f"  {task.task:<12}   {figure(task.decoded_exact_match):>20}   {hit_rate:>8}   {mass:>6}   {best}"
    if report.length_curve:
        yield ""
        yield "  length   exact match, decoded   token accuracy   mass on gold"
    for record in report.length_curve:
        decoded, tokens = figure(record.decoded_exact_match), figure(record.token_accuracy)
        yield f"  {record.length:>6}   {decoded:>20}   {tokens:>14}   {figure(record.alignment_mass):>12}"


def _interventions(cuts: Interventions) -> Iterator[str]:
    kind = "aligned head" if cuts.aligned else "head (none is aligned)"
    count = len(cuts.cut)
    who = f"the {kind} loses" if count == 1 else f"the {count} {kind.replace('head', 'heads')} lose"
    yield f"Exact match when {who} ..."
    for what, left in (
        ("everything", cuts.without_heads),
        ("their gold edges", cuts.without_gold_edges),
        ("random edges", cuts.without_random_edges),
    ):
        yield f"  {what:<26} {figure(left and left.exact_match)}"


def _who_is_needed(report: Report) -> str:
    heads, intact = report.heads, report.interventions.intact.exact_match
    if intact < _NEEDED:
        return "Next to nothing is answered right, so no head can be missed."
    lost = {head.address: intact - head.exact_match_with_mean for head in heads}
    needed = [f"{head} (by {loss:.3f})" for head, loss in lost.items() if loss > _NEEDED]
    if needed:
        return f"Exact match falls when the output of a single head is always its mean: {'; '.join(needed)}."
    if len(heads) == 1:
        return "There is but one head, and it is not needed."
    return (
        f"No single head is needed: with any one of them at its mean exact match falls by {max(lost.values()):.3f} at "
        "most, since the others stand in for it."
    )
