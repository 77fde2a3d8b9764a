"""The numbers of a trained network: the same ones after training and from a checkpoint."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from math import isfinite, isnan
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from attention_lab.composition.classes import Trust
from attention_lab.data.batches import Batch
from attention_lab.data.module import SequenceData
from attention_lab.errors import SettingError
from attention_lab.evaluation.records import Baselines, HeadAlignment, Scores
from attention_lab.metrics.alignment import AlignmentScores, Head, HeadScores
from attention_lab.metrics.sequence import DecodedExactMatch, TeacherForcedScores, TokenErrorRate
from attention_lab.models.inference import evaluation_mode, greedy_decode
from attention_lab.models.model import MAX_CELLS, Intervention, SequenceModel
from attention_lab.runs.trained import Trained, untrained_network


class TestScores(NamedTuple):
    """How a network does on the test split.

    Attributes:
        scores: its figures.
        best_head: the head that aligns best on the *validation* split; None where there is no attention.
        heads: every head's alignment on the test split.
        validated: every head's alignment on the validation split; whatever is chosen among heads is chosen by it.
    """

    scores: Scores
    best_head: Head | None
    heads: HeadScores
    validated: HeadScores

    @property
    def figures(self) -> dict[str, float | None]:
        """The scores as `metrics.json` names them."""
        return self.scores.figures()


def test_scores(network: SequenceModel[Any], data: SequenceData, device: torch.device) -> TestScores:
    """Scores a network, in single precision, on all of the test split.

    The best of many heads is a winner, and winners look better than they are; hence it is chosen on one split and
    scored on another.
    """
    validated, heads = (head_scores(network, data.loader(split), device) for split in ("validation", "test"))
    best_head = validated.best(network.alignment_attention, network.frames)
    errors = TokenErrorRate().to(device)
    figures = accuracy(network, data.loader("test"), device, errors=errors)
    scores = Scores(
        loss=figures["loss"],
        token_accuracy=figures["token_accuracy"],
        exact_match=figures["exact_match"],
        decoded_exact_match=figures["decoded_exact_match"],
        token_error_rate=float(errors.compute()),
        **alignment_figures(heads, best_head, ("hit_rate", "mass")),
    )
    return TestScores(scores, best_head, heads, validated)


def scores_of(trained: Trained, path: Path, device: torch.device) -> TestScores:
    """Returns the test scores of a checkpoint's network.

    Raises:
        SettingError: its loss is no number: the weights are finite, and what is computed from them is not.
    """
    found = test_scores(trained.network, trained.data, device)
    if not isfinite(found.scores.loss):
        reason = f"holds weights that are too large: its loss on the test split is {found.scores.loss}"
        raise SettingError("checkpoint", path, reason)
    return found


def baselines(trained: Trained, device: torch.device, trust: Trust = ()) -> Baselines:
    """Returns how well the best head aligned before training, and one that looks everywhere alike."""
    before = untrained_network(trained.settings, trust)
    validated, heads = (head_scores(before, trained.data.loader(split), device) for split in ("validation", "test"))
    best = validated.best(before.alignment_attention, before.frames)
    if best is None:
        return Baselines(None, None)
    return Baselines(head_alignment(heads, best), alignment_figures(heads, best, ("chance",))["alignment_chance"])


def head_alignment(scores: HeadScores, head: Head) -> HeadAlignment:
    """Returns one head's record; its figures are None where no map was measured."""
    return HeadAlignment(*head, **own_figures(scores, head))


def own_figures(scores: HeadScores, head: Head) -> dict[str, float | None]:
    """Returns a head's figures, but for those that all heads share; None each where no map was measured."""
    shared = ("chance", "oracle_head_hit_rate", "oracle_head_mass")
    return {name: None if isnan(value) else value for name, value in scores.of(head).items() if name not in shared}


def alignment_figures(scores: HeadScores, head: Head | None, names: Sequence[str]) -> dict[str, float | None]:
    """Returns some of a head's figures as `alignment_...`; None each where there is no head, or no map of it."""
    figures = {} if head is None else {name: value for name, value in scores.of(head).items() if not isnan(value)}
    return {f"alignment_{name}": figures.get(name) for name in names}


def head_scores(network: SequenceModel[Any], batches: Iterable[Batch], device: torch.device) -> HeadScores:
    """Returns how well each head of the attention from target to source aligns; of no heads where there is none.

    Figures are NaN where a mechanism has no map of some sequence: they would be of the other sequences only.
    """
    network.to(device)
    layers = network.alignment_layers
    shape = (len(layers), layers[0].num_heads) if layers else (0, 0)
    if not layers:
        return HeadScores(*torch.zeros(len(HeadScores._fields), *shape))
    scores = AlignmentScores(*shape).to(device)
    with evaluation_mode(network):
        for batch in few_rows(network, batches):
            source, target, _, alignment = (part.to(device) for part in batch)
            for weights, rows in _maps(network, source, target):
                if not weights:
                    return HeadScores(*torch.full((len(HeadScores._fields), *shape), torch.nan))
                scores.update(weights, alignment[:, rows], source)
    return scores.heads()


def teacher_forced(
    network: SequenceModel[Any],
    batches: Iterable[Batch],
    device: torch.device,
    intervene: Callable[[Batch], Intervention] | None = None,
) -> dict[str, float]:
    """Returns `loss`, `exact_match` and `token_accuracy` when every token is predicted from the true ones before it.

    Args:
        network: what to score.
        batches: the sequences.
        device: where to run.
        intervene: says, for a few rows, which edges of attention are to be closed; none are where not given.
    """
    network.to(device)
    scores = TeacherForcedScores().to(device)
    with evaluation_mode(network):
        # Edges are closed by matrices as large as maps.
        for batch in batches if intervene is None else few_rows(network, batches):
            source, target, labels, _ = (part.to(device) for part in batch)
            closed = {} if intervene is None else intervene(batch)
            intervention = {place: allowed.to(device) for place, allowed in closed.items()}
            scores.update(network(source, target, intervention=intervention).logits, labels)
    return {name: float(value) for name, value in scores.compute().items()}


def accuracy(
    network: SequenceModel[Any],
    batches: Iterable[Batch],
    device: torch.device,
    decode: bool = True,
    errors: TokenErrorRate | None = None,
) -> dict[str, float]:
    """Returns the teacher-forced figures and `decoded_exact_match`.

    Args:
        network: what to score.
        batches: the sequences.
        device: where to run.
        decode: whether to decode. Where not, teacher forcing answers for it: as long as every token was right, greedy
            decoding has read what teacher forcing reads, so the first wrong token is the same one, and a sequence is
            right in both or in neither (but for near ties that rounding decides).
        errors: takes in what is decoded, if it is.
    """
    network.to(device)
    if not decode:
        figures = teacher_forced(network, batches, device)
        return {**figures, "decoded_exact_match": figures["exact_match"]}
    decoded = DecodedExactMatch().to(device)
    with evaluation_mode(network):
        for batch in batches:
            source, labels = batch.source.to(device), batch.labels.to(device)
            # A token beyond the length of the labels comes too late to be right.
            said = greedy_decode(network, source, labels.size(1))
            decoded.update(said, labels)
            if errors is not None:
                errors.update(said, labels)
    return {**teacher_forced(network, batches, device), "decoded_exact_match": float(decoded.compute())}


def whole_map_fits(network: SequenceModel[Any], batch: Batch) -> bool:
    """Says whether the largest map that the network makes of one of the rows has at most `MAX_CELLS` cells."""
    return network.map_side(batch.source.size(1), batch.target.size(1)) ** 2 <= MAX_CELLS


def few_rows(network: SequenceModel[Any], batches: Iterable[Batch]) -> Iterator[Batch]:
    """Yields the same rows in the same order, so few at a time that a map of them has at most `MAX_CELLS` cells.

    A row whose map alone has more comes by itself.
    """
    for batch in batches:
        rows = max(1, MAX_CELLS // network.map_side(batch.source.size(1), batch.target.size(1)) ** 2)
        for begin in range(0, len(batch.source), rows):
            yield Batch(*(part[begin : begin + rows] for part in batch))


def _maps(network: SequenceModel[Any], source: Tensor, target: Tensor) -> Iterator[tuple[tuple[Tensor, ...], slice]]:
    """Yields the maps of the attention from target to source, as many target tokens at a time as memory has room for.

    A very long target is read in pieces, as in decoding, so that no map of all of it ever exists. A mechanism that
    keeps no keys to look back on has no maps of pieces: then one empty tuple is all there is.
    """
    side = network.map_side(source.size(1), target.size(1))
    if len(source) * side**2 <= MAX_CELLS:
        attention = network(source, target, need_weights=True).attention
        yield network.alignment_maps(attention, target.size(1), source.size(1)), slice(None)
        return
    rows_at_a_time = max(1, MAX_CELLS // (len(source) * side))
    state = network.begin(source, target.size(1))
    for begin in range(0, target.size(1), rows_at_a_time):
        rows = slice(begin, begin + rows_at_a_time)
        output, state = network.step(target[:, rows], state, need_weights=True)
        if network.alignment_attention not in output.attention:
            yield (), rows
            return
        yield network.alignment_maps(output.attention, output.logits.size(1), source.size(1)), rows
