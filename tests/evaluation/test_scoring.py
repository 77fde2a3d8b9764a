"""The final figures do not depend on batch size, and a network that knows the task gets full marks."""

import itertools
import math
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from attention_lab.attention.multi_head import MultiHeadAttention
from attention_lab.composition.build import build_network
from attention_lab.data.module import SequenceData
from attention_lab.data.sampling import SourceSpace
from attention_lab.errors import SettingError
from attention_lab.evaluation import scoring
from attention_lab.evaluation.edges import cut_edges
from attention_lab.evaluation.examples import map_examples
from attention_lab.evaluation.scoring import accuracy, head_scores, scores_of, whole_map_fits
from attention_lab.evaluation.scoring import test_scores as score
from attention_lab.metrics.alignment import Head
from attention_lab.metrics.sequence import token_loss
from attention_lab.models.decoder_only import DecoderOnly
from attention_lab.models.encoder_decoder import EncoderDecoder
from attention_lab.models.encoder_only import EncoderOnly
from attention_lab.models.inference import greedy_decode
from attention_lab.models.model import ModelOutput, SequenceModel
from attention_lab.positions.sinusoidal import PositionalEncoding
from attention_lab.runs.trained import Trained
from attention_lab.settings.schema import DataSettings
from attention_lab.tasks.copy import Copy
from attention_lab.tasks.reverse import Reverse
from attention_lab.tasks.vocabulary import PAD

CPU = torch.device("cpu")


def data(batch_size: int) -> SequenceData:
    sizes = {"train": 5, "validation": 31, "test": 43}
    return SequenceData(Reverse(), SourceSpace(1, 7, 5), sizes, batch_size, seed=3)


def test_batch_size_changes_no_figure():
    torch.manual_seed(0)
    network = EncoderDecoder(8, d_model=12, num_heads=3, d_ff=7)
    found = [score(network, data(batch_size), CPU) for batch_size in (1, 7, 100)]
    for other in found[1:]:
        assert other.figures == pytest.approx(found[0].figures, rel=1e-5)
        assert other.best_head == found[0].best_head


def test_decoding_is_right_where_teacher_forcing_is_row_by_row():
    # Half-learned, so that some rows are right and others wrong: in their first token or in a later one.
    torch.manual_seed(0)
    network = EncoderDecoder(8, d_model=16, num_heads=2, d_ff=16)
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-2)
    for batch in list(SequenceData(Copy(), SourceSpace(1, 3, 5), {"train": 100}, 20, seed=0).loader("train")) * 14:
        optimizer.zero_grad()
        token_loss(network(batch.source, batch.target).logits, batch.labels).backward()
        optimizer.step()
    network.eval()
    rows = SequenceData(Copy(), SourceSpace(3, 5, 5), {"test": 60}, 60, seed=0)
    [batch] = rows.loader("test")
    padding = batch.labels == PAD
    with torch.no_grad():
        forced = network(batch.source, batch.target).logits.argmax(dim=-1)
    said = greedy_decode(network, batch.source, batch.labels.size(1))
    said = torch.nn.functional.pad(said, (0, batch.labels.size(1) - said.size(1)), value=PAD)
    forced_right, decoded_right = (((each == batch.labels) | padding).all(dim=1) for each in (forced, said))
    assert torch.equal(forced_right, decoded_right)
    assert 0.1 < forced_right.double().mean() < 0.9
    decoded, trusted = (accuracy(network, [batch], CPU, decode=decode) for decode in (True, False))
    assert decoded == trusted


class Oracle(SequenceModel[tuple[Tensor, int]]):
    """Reverses by rule: head 1 of 2 looks where it should, head 0 at the first token."""

    max_length = 100
    alignment_attention = "decoder_cross"

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[int] = []

    def _places(self, source: Tensor, length: int) -> Tensor:
        real = (source != PAD).sum(dim=1, keepdim=True)
        return torch.where(torch.arange(length) < real - 1, real - 2 - torch.arange(length), real - 1)

    def _logits(self, source: Tensor, length: int) -> Tensor:
        said = source.gather(1, self._places(source, length).clamp(min=0))
        return 50.0 * torch.nn.functional.one_hot(said, 8).float()

    def forward(self, source: Tensor, target: Tensor, *, need_weights: bool = False, intervention=None) -> ModelOutput:
        places = self._places(source, target.size(1)).clamp(min=0)
        heads = [torch.nn.functional.one_hot(where, source.size(1)).float() for where in (0 * places, places)]
        maps = {"decoder_cross": (torch.stack(heads, dim=1),)} if need_weights else {}
        return ModelOutput(self._logits(source, target.size(1)), maps)

    @property
    def alignment_layers(self) -> list[MultiHeadAttention]:
        return [MultiHeadAttention(2, 2)]

    def begin(self, source: Tensor, num_targets: int = 0) -> tuple[Tensor, int]:
        return source, 0

    def step(
        self, tokens: Tensor, state: tuple[Tensor, int], *, need_weights: bool = False
    ) -> tuple[ModelOutput, tuple[Tensor, int]]:
        source, read = state
        self.steps.append(tokens.size(1))
        end = read + tokens.size(1)
        output = self(source, source.new_zeros(len(source), end), need_weights=need_weights)
        maps = {name: tuple(layer[:, :, read:] for layer in layers) for name, layers in output.attention.items()}
        return ModelOutput(output.logits[:, read:], maps), (source, end)


def test_long_maps_are_taken_a_few_rows_at_a_time(monkeypatch):
    whole, pieces = Oracle(), Oracle()
    batches = list(data(7).loader("test"))
    expected = head_scores(whole, batches, CPU)
    # What is short is read at once.
    assert whole.steps == []
    # So little room that rows come one by one, and those with more than four tokens in pieces.
    monkeypatch.setattr(scoring, "MAX_CELLS", 17)
    found = head_scores(pieces, batches, CPU)
    lengths = [batch.source.size(1) for batch in batches for _ in batch.source]
    expected_steps: list[int] = []
    for length in lengths:
        fits = 17 // length
        if fits < length:
            full, rest = divmod(length, fits)
            expected_steps += [fits] * full + [rest] * bool(rest)
    assert pieces.steps == expected_steps
    assert max(lengths) > 4 == min(lengths)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)


def test_a_network_whose_sums_are_no_numbers_is_refused():
    class Overflowing(Oracle):
        def forward(self, *args: Any, **kwargs: Any) -> ModelOutput:
            output = super().forward(*args, **kwargs)
            return output._replace(logits=output.logits * math.nan)

    settings: Any = None
    trained = Trained({}, settings, 0, None, Reverse(), data(7), Overflowing())
    with pytest.raises(SettingError, match=r"checkpoint=some.ckpt holds weights that are too large: .* is nan"):
        scores_of(trained, Path("some.ckpt"), CPU)
    assert scores_of(trained._replace(network=Oracle()), Path("some.ckpt"), CPU).figures["test/exact_match"] == 1.0


def test_a_network_that_reverses_by_rule_gets_full_marks_and_its_aligned_head_is_found():
    found = score(Oracle(), data(7), CPU)
    assert found.figures == pytest.approx(
        {
            "test/loss": 0.0,
            "test/token_accuracy": 1.0,
            "test/exact_match": 1.0,
            "test/decoded_exact_match": 1.0,
            "test/token_error_rate": 0.0,
            "test/alignment_hit_rate": 1.0,
            "test/alignment_mass": 1.0,
        },
        abs=1e-6,
    )
    assert found.best_head == ("decoder_cross", 0, 1, "")
    assert found.heads.hit_rate[0, 0] < 0.5


CONFIGS = Path(__file__).parents[2] / "configs"


def cells() -> list[tuple[str, str, str]]:
    names = [sorted(path.stem for path in (CONFIGS / group).glob("*.yaml")) for group in ("attention", "position")]
    models = ("encoder_decoder", "decoder_only", "encoder_only", "lstm_attention")
    return list(itertools.product(models, *names))


def in_pieces(cells: list[tuple[str, str, str]], monkeypatch: pytest.MonkeyPatch) -> None:
    """Scores each cell that can be built with whole maps and in pieces: the same figures, or none at all."""
    settings = DataSettings(
        min_length=2,
        max_length=5,
        vocab_size=5,
        unique_symbols=False,
        train_size=8,
        validation_size=8,
        test_size=4,
        batch_size=3,
    )
    batches = list(SequenceData(Copy(), SourceSpace(2, 5, 5), {"test": 4}, 3, seed=1).loader("test"))
    measured = 0
    for model, *parts in cells:
        torch.manual_seed(0)
        attention, position = (
            yaml.safe_load((CONFIGS / group / f"{name}.yaml").read_text())
            for group, name in zip(("attention", "position"), parts, strict=True)
        )
        shape = yaml.safe_load((CONFIGS / "model" / f"{model}.yaml").read_text()) | {"d_model": 24, "num_heads": 4}
        shape |= {"d_ff": 7} if "d_ff" in shape else {}
        try:
            network = build_network(shape, attention, position, settings).eval()
        except SettingError:
            continue
        expected = head_scores(network, batches, CPU)
        with monkeypatch.context() as patch:
            patch.setattr(scoring, "MAX_CELLS", 13)
            found = head_scores(network, batches, CPU)
            cuts = cut_edges(network, found, batches, CPU, seed=0)
        assert not expected.mass.isnan().any()
        for one, other in zip(found, expected, strict=True):
            assert one.shape == other.shape
            assert one.isnan().all() or torch.allclose(one, other, rtol=1e-4, atol=1e-5), (model, parts)
        assert cuts.without_gold_edges is None
        measured += not found.mass.isnan().any()
    # Not none everywhere.
    assert measured >= len(cells) // 4


@pytest.mark.parametrize("part", range(3))
def test_maps_in_pieces_are_the_whole_map_or_none(part, monkeypatch):
    """A third of the cells at a time: every pair of model and attention, with one position after another."""
    pairs = list(dict.fromkeys((model, attention) for model, attention, _ in cells()))
    positions = sorted({position for *_, position in cells()})
    chosen = [(*pair, positions[number % len(positions)]) for number, pair in enumerate(pairs)]
    in_pieces(chosen[part::3], monkeypatch)


@pytest.mark.slow
def test_maps_in_pieces_are_the_whole_map_or_none_in_every_cell(monkeypatch):
    in_pieces(cells(), monkeypatch)


class LargestTensor(TorchDispatchMode):
    """Keeps the number of elements of the largest tensor that is made."""

    largest = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for each in tree_leaves(out):
            if isinstance(each, Tensor):
                self.largest = max(self.largest, each.numel())
        return out


@pytest.mark.parametrize("network", [EncoderDecoder, DecoderOnly, EncoderOnly], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("length", [13, 61, 97])
def test_no_more_cells_of_maps_are_made_than_are_allowed(network, length, monkeypatch):
    most, heads = 97**2, 3
    monkeypatch.setattr(scoring, "MAX_CELLS", most)
    code = partial(PositionalEncoding, max_len=200)
    model = network(8, d_model=6, num_heads=heads, num_layers=1, d_ff=5, position=code).eval()
    rows = SequenceData(Copy(), SourceSpace(length, length, 5), {"test": 3, "validation": 3}, 3, seed=1)
    [batch] = rows.loader("test")
    with LargestTensor() as seen:
        scores = head_scores(model, [batch], CPU)
    # Whole maps are made of one row at least, and of several where they fit.
    side = model.map_side(length + 1, length + 1)
    fits = max(1, most // side**2) if side**2 <= most else 0
    whole = heads * min(3, fits) * side**2
    assert whole <= heads * most
    assert seen.largest <= max(heads * most, 3 * (length + 1) * 6 * 4)
    assert seen.largest >= whole
    assert whole_map_fits(model, batch) is (fits > 0)
    with LargestTensor() as seen:
        cut_edges(model, scores, [batch], CPU, seed=0)
        map_examples(model, rows.rows("test"), [0], CPU)
    assert seen.largest <= heads * most


def test_decoder_only_says_how_large_the_map_of_source_and_target_together_is():
    model = DecoderOnly(8, d_model=6, num_heads=3, num_layers=1, d_ff=5)
    source, target = torch.full((1, 7), 4), torch.full((1, 5), 4)
    for network in (model, EncoderDecoder(8, d_model=6, num_heads=3, num_layers=1, d_ff=5)):
        maps = network(source, target, need_weights=True).attention
        assert max(max(each[0].shape[2:]) for each in maps.values()) == network.map_side(7, 5)
    assert model.map_side(7, 5) == 12


def test_figures_are_none_where_some_sequence_has_no_map():
    """A mechanism without a map of long targets: no figure is of the short ones alone, and nothing warns."""

    class Forgetful(Oracle):
        def step(self, tokens, state, *, need_weights=False):
            output, state = super().step(tokens, state)
            return output, state

    network, rows = Forgetful(), data(7)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scoring, "MAX_CELLS", 6**2)
        found = score(network, rows, CPU)
        own = scoring.own_figures(found.heads, Head("decoder_cross", 0, 0))
    assert found.scores.exact_match == 1.0
    assert found.scores.alignment_mass is None
    assert set(own.values()) == {None}
