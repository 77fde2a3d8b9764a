"""The final figures do not depend on batch size, and a network that knows the task gets full marks."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from attention_lab.attention.multi_head import MultiHeadAttention
from attention_lab.data.module import SequenceData
from attention_lab.data.sampling import SourceSpace
from attention_lab.errors import SettingError
from attention_lab.evaluation import scoring
from attention_lab.evaluation.checkpoint import Trained
from attention_lab.evaluation.scoring import accuracy, head_scores, scores_of
from attention_lab.evaluation.scoring import test_scores as score
from attention_lab.metrics.sequence import token_loss
from attention_lab.models.encoder_decoder import EncoderDecoder
from attention_lab.models.inference import greedy_decode
from attention_lab.models.model import ModelOutput, SequenceModel
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
        output = self(source, torch.zeros(len(source), end), need_weights=need_weights)
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
            "test/alignment_hit_rate": 1.0,
            "test/alignment_mass": 1.0,
        },
        abs=1e-6,
    )
    assert found.best_head == ("decoder_cross", 0, 1, "")
    assert found.heads.hit_rate[0, 0] < 0.5
