"""Sequences of one's own: what a network answers, whether that is right, and where it looked meanwhile."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Integer
from PIL.Image import Image
from torch import Tensor

from attention_lab.data.batches import NOWHERE, Batch
from attention_lab.errors import SettingError
from attention_lab.evaluation.examples import MappedExample, explained_example
from attention_lab.evaluation.scoring import whole_map_fits
from attention_lab.metrics.alignment import Head
from attention_lab.models.inference import evaluation_mode, greedy_decode
from attention_lab.models.model import AttentionMaps
from attention_lab.plotting.attention_grid import AttentionGrid
from attention_lab.runs.trained import Trained
from attention_lab.tasks.pairs import Pairs, tokens_of
from attention_lab.tasks.vocabulary import BOS, EOS, FIRST_SYMBOL, token_labels

_MORE = 8
"""So many tokens beyond the right answer are decoded, for one that does not end in time."""


class Answer(NamedTuple):
    """What a network says to one source.

    Attributes:
        batch: the source, what was predicted (as labels, and as the target that was read), and where each predicted
            token should come from; a batch of one, on the CPU.
        expected: the labels of what the task asks for, EOS included; None where nobody knows: no file says it.
        mapped: the attention while it was decoded; None where a map would not fit into memory.
        symbols: what the symbols are called, if not numbers.
    """

    batch: Batch
    expected: list[str] | None
    mapped: MappedExample | None
    symbols: Sequence[str] = ()

    @property
    def source(self) -> list[str]:
        """The labels of the source, EOS included."""
        return token_labels(self.batch.source[0].tolist(), self.symbols)

    @property
    def predicted(self) -> list[str]:
        """The labels of what the network said, EOS included if it came to an end."""
        return token_labels(self.batch.labels[0].tolist(), self.symbols)

    @property
    def maps(self) -> AttentionMaps:
        """The attention under its address: `maps[attention][layer][0, head]` has shape (queries, keys)."""
        return {} if self.mapped is None else self.mapped.maps

    @property
    def attribution(self) -> Float[Tensor, "T S"] | None:
        """What share each source token has in each predicted one: gradient × input, each row adding up to 1."""
        return None if self.mapped is None else self.mapped.attribution

    def draw(self, attention: str, layer: int = 0) -> Image:
        """Returns a picture of all heads of a layer, with tokens on both axes; a notebook shows it as it is.

        Args:
            attention: which, as in `maps`; or `gradient_x_input`, the attribution.
            layer: from 0.

        Raises:
            KeyError: there is no map of that attention.
        """
        there = {} if self.mapped is None else self.mapped.shown
        if self.mapped is None or attention not in there:
            raise KeyError(f"no map of {attention!r}; there are {', '.join(there) or 'none'}")
        view = self.mapped.view(attention, layer)
        shown = view.of(there[attention][layer][0])
        return AttentionGrid(view.labels, len(shown)).paint(shown)

    @property
    def right(self) -> bool | None:
        """Whether that is what the task asks for, to the last token; None where nobody knows."""
        return None if self.expected is None else self.predicted == self.expected


class Look(NamedTuple):
    """Where a head looked when a token was predicted: at which source token (from 0), and with which weight."""

    place: int
    weight: float


def answer(trained: Trained, symbols: Sequence[int], device: torch.device) -> Answer:
    """Lets a network answer one source.

    Args:
        trained: the checkpoint.
        symbols: the source, as symbols from 0.
        device: where to run.

    Raises:
        SettingError: the source is empty, longer than the network has positions for, too short for the task, or holds
            what is no symbol.
    """
    network, task = trained.network.to(device), trained.task
    _check(trained, symbols)
    tokens = torch.tensor([[symbol + FIRST_SYMBOL for symbol in symbols]])
    labels_due, alignment = _due(trained, tokens)
    source = torch.cat([tokens, torch.tensor([[EOS]])], dim=1)
    most = min((task.longest(len(symbols)) + 1 if labels_due is None else len(labels_due)) + _MORE, network.max_length)
    if network.target_within_source:
        most = min(most, source.size(1))
    with evaluation_mode(network):
        labels = greedy_decode(network, source.to(device), most).cpu()
    # What decoding has read: its own tokens, one place later.
    target = torch.cat([torch.tensor([[BOS]]), labels[:, :-1]], dim=1)
    gold = torch.full_like(labels, NOWHERE)
    known = min(labels.size(1), len(alignment))
    gold[0, :known] = alignment[:known]
    batch = Batch(source, target, labels, gold)
    mapped = explained_example(network, batch, device, task.symbols) if whole_map_fits(network, batch) else None
    expected = None if labels_due is None else token_labels(labels_due, task.symbols)
    return Answer(batch, expected, mapped, task.symbols)


def _due(trained: Trained, tokens: Integer[Tensor, "1 L"]) -> tuple[list[int] | None, Integer[Tensor, " T"]]:
    """Returns the labels that are right and where each comes from; None and nothing where neither is known."""
    if isinstance(trained.task, Pairs):
        for split in ("validation", "test"):
            rows = trained.data.rows(split).of_length(tokens.size(1))
            for row in rows:
                if row.source[0, :-1].equal(tokens[0]):
                    return row.labels[0].tolist(), row.alignment[0]
        return None, torch.zeros(0, dtype=torch.long)
    alignment = torch.from_numpy(trained.task.alignment(tokens.numpy()).copy())[0]
    return [*tokens[0][alignment].tolist(), EOS], alignment


def looks(answered: Answer, trained: Trained, head: Head) -> list[Look]:
    """Returns where one head looked most for each predicted token; nothing where there is no map."""
    if answered.mapped is None or head.attention not in answered.mapped.maps:
        return []
    targets, sources = answered.batch.labels.size(1), answered.batch.source.size(1)
    maps = trained.network.alignment_maps(answered.mapped.maps, targets, sources)
    weights, places = maps[head.layer][0, head.head].max(dim=-1)
    return [Look(int(place), float(weight)) for place, weight in zip(places, weights, strict=True)]


def read_source(trained: Trained, text: str) -> list[int]:
    """Returns the symbols of a source: of a text like those of a file, or of numbers between spaces or commas.

    Raises:
        SettingError: something in it is no symbol, or there is nothing in it.
    """
    task = trained.task
    if isinstance(task, Pairs):
        try:
            words = tokens_of(text, task.source_tokens)
        except ValueError as error:
            raise SettingError("source", text, str(error)) from error
        strange = [word for word in words if word not in task.symbols]
        if strange:
            raise SettingError("source", text, f"holds {strange[0]!r}, which was not among the training sequences")
        return [task.symbols.index(word) for word in words]
    return read_symbols(text)


def read_symbols(text: str) -> list[int]:
    """Returns the symbols of a source that is written as numbers between spaces or commas.

    Raises:
        SettingError: something in it is no number.
    """
    words = text.replace(",", " ").split()
    for word in words:
        if not (word.isascii() and word.isdigit()) or len(word) > 9:
            raise SettingError("source", text, f"holds {word}, which is no symbol; write numbers, as in '3 1 4'")
    return [int(word) for word in words]


def _check(trained: Trained, symbols: Sequence[int]) -> None:
    written, data = " ".join(map(str, symbols)), trained.settings.data
    if not symbols:
        raise SettingError("source", written, "is empty; write the symbols with spaces between, as in '3 1 4'")
    unknown = [symbol for symbol in symbols if not 0 <= symbol < data.vocab_size]
    if unknown:
        reason = f"holds {unknown[0]}; this network knows the symbols 0 to {data.vocab_size - 1}"
        raise SettingError("source", written, reason)
    short = f"{written[:40]} ..." if len(written) > 44 else written
    if len(symbols) < trained.task.min_length:
        reason = f"is too short for {trained.task.name}, which takes at least {trained.task.min_length} symbols"
        raise SettingError("source", short, reason)
    longest = trained.task.longest(len(symbols)) + 1 if len(symbols) < trained.network.max_length else len(symbols) + 1
    if longest > trained.network.max_length:
        reason = f"needs {longest} positions, its end among them; this network has {trained.network.max_length}"
        raise SettingError("source", short, reason)
