"""What `python evaluate.py source=...` does: answer sequences of one's own, and show where the network looked."""

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from attention_lab.commands.checkpoint import draw_examples
from attention_lab.evaluation.answering import Answer, Look, answer, looks, read_source
from attention_lab.evaluation.scoring import head_scores
from attention_lab.metrics.alignment import Head
from attention_lab.report.page import write_answers_page
from attention_lab.runs.files import write_json
from attention_lab.runs.paths import shown
from attention_lab.runs.trained import Trained

log = logging.getLogger(__name__)

_SHOWN = 64
"""Of a long answer, so many tokens are listed."""


def answer_sources(
    trained: Trained, file: Path, sources: Sequence[str], run_dir: Path, device: torch.device, pdf: bool
) -> None:
    """Leaves `report.json`, `report.html` and the maps as `figures/sequence_<n>_<attention>_layer_<i>.png` in a folder.

    Args:
        trained: the checkpoint.
        file: where it lies.
        sources: each a text of symbols.
        run_dir: the folder.
        device: where to run.
        pdf: write each figure as PDF, too.

    Raises:
        SettingError: a source cannot be read, or not by this network.
    """
    # All of them before anything is written.
    answers = [answer(trained, read_source(trained, source), device) for source in sources]
    network = trained.network
    validated = head_scores(network, trained.data.loader("validation"), device)
    head = validated.best(network.alignment_attention, network.frames)
    found = [looks(each, trained, head) if head is not None else [] for each in answers]
    write_json(_as_json(trained, file, answers, found, head), run_dir / "report.json")
    draw_examples([each.mapped for each in answers], "sequence", run_dir / "figures", pdf)
    write_answers_page(trained.task.name, str(file), trained.step, answers, head, run_dir / "report.html")
    for each, seen in zip(answers, found, strict=True):
        for line in ("", *_in_words(each, seen, head)):
            log.info("%s", line)
    log.info("")
    log.info("Written to %s: report.html (open it in a browser), report.json and figures/.", shown(run_dir))


def _as_json(
    trained: Trained, file: Path, answers: Sequence[Answer], found: Sequence[Sequence[Look]], head: Head | None
) -> dict[str, object]:
    sequences = [
        {
            "source": each.source,
            "expected": each.expected,
            "predicted": each.predicted,
            "right": each.right,
            "alignment": [None if place < 0 else place for place in each.batch.alignment[0].tolist()],
            "looks": [look._asdict() for look in seen],
        }
        for each, seen in zip(answers, found, strict=True)
    ]
    best = None if head is None else head._asdict()
    return {"checkpoint": str(file), "step": trained.step, "best_head": best, "sequences": sequences}


def _in_words(answered: Answer, seen: Sequence[Look], head: Head | None) -> Iterator[str]:
    """Yields an answer for the terminal, token by token."""
    yield f"source      {_listed(answered.source)}"
    yield f"predicted   {_listed(answered.predicted)}"
    if answered.expected is not None:
        yield f"            {'right' if answered.right else f'wrong: the task asks for {_listed(answered.expected)}'}"
    if not seen or head is None:
        return
    yield ""
    yield f"  predicted   {head} looks at        it comes from"
    gold = answered.batch.alignment[0].tolist()
    for token, look, place in list(zip(answered.predicted, seen, gold, strict=True))[:_SHOWN]:
        at = f"{answered.source[look.place]} (place {look.place}, weight {look.weight:.3f})"
        comes = "–" if place < 0 else f"{answered.source[place]} (place {place})"
        yield f"  {token:<9}   {at:<{len(str(head)) + 15}}   {comes}"
    if len(seen) > _SHOWN:
        yield f"  ... and {len(seen) - _SHOWN} more"


def _listed(labels: Sequence[str]) -> str:
    more = f" ... and {len(labels) - _SHOWN} more" if len(labels) > _SHOWN else ""
    return " ".join(labels[:_SHOWN]) + more
