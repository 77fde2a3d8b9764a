"""Activation patching and attribution: by hand on networks whose parts are known, and of every kind of network."""

from typing import Any

import pytest
import torch
from torch import nn

import attention_lab
from attention_lab.attention.multi_head import AlignmentLayer
from attention_lab.data.batches import NOWHERE, Batch
from attention_lab.errors import SettingError
from attention_lab.evaluation.attribution import attribute
from attention_lab.evaluation.patching import MOST_TOKENS, patch_heads
from attention_lab.models.embedding import Embedding
from attention_lab.models.encoder_decoder import EncoderDecoder
from attention_lab.models.inference import evaluation_mode
from attention_lab.models.model import ModelOutput, SequenceModel
from attention_lab.positions.none import NoPositionalEncoding
from attention_lab.tasks.vocabulary import BOS, EOS
from tests.conftest import Training

CPU = torch.device("cpu")
SIZE = 13


def reversing(*symbols: int) -> Batch:
    """A batch of one: what reverse asks for."""
    labels = torch.tensor([[*symbols[::-1], EOS]])
    target = torch.tensor([[BOS, *symbols[::-1]]])
    alignment = torch.tensor([[*range(len(symbols))[::-1], NOWHERE]])
    return Batch(torch.tensor([[*symbols, EOS]]), target, labels, alignment)


class Reversing(SequenceModel[Any]):
    """Two heads that both say the right token, with a weight each; the source counts by half a neighbour as well."""

    alignment_attention = "cross"

    def __init__(self, shares: tuple[float, float], neighbour: float = 0.0) -> None:
        super().__init__()
        self.embedding = Embedding(SIZE, SIZE, 0.0, NoPositionalEncoding(SIZE))
        self.embedding.tokens.weight.data = torch.eye(SIZE)
        layer = AlignmentLayer()
        layer.num_heads, layer.d_k, layer.w_o = 2, SIZE, nn.Linear(2 * SIZE, SIZE, bias=False)
        layer.w_o.weight.data = 10 * torch.cat([share * torch.eye(SIZE) for share in shares], dim=1)
        self.layer, self.neighbour = layer, neighbour

    @property
    def alignment_layers(self):
        return [self.layer]

    def forward(self, source, target, *, need_weights=False, intervention=None):
        symbols = self.embedding(source)
        there = torch.cat([symbols[:, :-1].flip(1), symbols[:, -1:]], dim=1)
        there = (there + self.neighbour * there.roll(1, dims=1))[:, : target.size(1)]
        return ModelOutput(self.layer.w_o(torch.cat([there, there], dim=2)), {})

    def begin(self, source, num_targets=0):
        raise NotImplementedError

    def step(self, tokens, state, *, need_weights=False):
        raise NotImplementedError


def test_each_head_brings_back_what_it_has_a_part_in():
    found = patch_heads(Reversing((0.75, 0.25)), reversing(3, 4, 5), reversing(6, 4, 8), CPU)
    assert found.restored[0] == [pytest.approx(0.75), None, pytest.approx(0.75), None]
    assert found.restored[1] == [pytest.approx(0.25), None, pytest.approx(0.25), None]
    assert found.together == [pytest.approx(1.0), None, pytest.approx(1.0), None]
    assert (found.clean, found.corrupted) == (["2", "1", "0", "<eos>"], ["5", "1", "3", "<eos>"])
    assert found.clean_source == ["0", "1", "2", "<eos>"]
    assert [(head.attention, head.layer, head.head) for head in found.heads] == [("cross", 0, 0), ("cross", 0, 1)]


def test_where_the_source_makes_no_difference_nothing_is_said():
    found = patch_heads(Reversing((0.001, 0.001)), reversing(3, 4, 5), reversing(6, 7, 8), CPU)
    assert found.restored == [[None] * 4] * 2
    assert found.together == [None] * 4


def test_sources_of_two_lengths_are_refused_and_long_ones_cut():
    with pytest.raises(ValueError, match="of 4 and of 3 tokens"):
        patch_heads(Reversing((1.0, 0.0)), reversing(3, 4, 5), reversing(6, 7), CPU)
    long = patch_heads(Reversing((1.0, 0.0)), reversing(*[3, 4] * 50), reversing(*[4, 3] * 50), CPU)
    assert len(long.clean) == len(long.together) == len(long.restored[0]) == MOST_TOKENS


@pytest.mark.parametrize("num_layers", [1, 3])
def test_all_that_is_known_of_a_source_comes_through_the_heads_of_its_attention(num_layers):
    torch.manual_seed(0)
    network = EncoderDecoder(num_tokens=SIZE, d_model=16, num_heads=4, num_layers=num_layers, d_ff=32)
    # An untrained network knows little of its source: let it speak up.
    network.output.weight.data *= 1000
    clean, corrupted = reversing(3, 4, 5, 6, 7), reversing(8, 9, 10, 11, 12)
    with evaluation_mode(network):
        before = network(clean.source, clean.target).logits
        found = patch_heads(network, clean, corrupted, CPU)
        assert torch.equal(network(clean.source, clean.target).logits, before)
    first = [share for share in found.together[:1] if share is not None]
    # What later tokens know also comes from the earlier ones that they read; of a single layer only the target does.
    alone = [share for share in found.together if share is not None] if num_layers == 1 else first
    assert alone == pytest.approx([1.0] * len(alone), abs=1e-4)
    assert not any(module._forward_pre_hooks or module._forward_hooks for module in network.modules())
    assert any(share is not None for share in found.together)
    assert all(len(row) == 6 for row in found.restored)


def test_attribution_is_shared_among_the_tokens_that_had_a_part():
    example = reversing(3, 4, 5)
    assert attribute(Reversing((0.5, 0.5)), example, CPU).tolist() == [
        [0, 0, 1, 0],
        [0, 1, 0, 0],
        [1, 0, 0, 0],
        [0, 0, 0, 1],
    ]
    # A neighbour that says the same takes a third of what is said; one that says something else has no part in it.
    shares = attribute(Reversing((0.5, 0.5), neighbour=0.5), reversing(3, 3, 5), CPU)
    torch.testing.assert_close(shares[2], torch.tensor([2 / 3, 1 / 3, 0, 0]))
    torch.testing.assert_close(shares[1], torch.tensor([0.0, 1, 0, 0]))


def test_maps_that_do_not_fit_together_are_made_some_rows_at_a_time(monkeypatch):
    torch.manual_seed(0)
    network = EncoderDecoder(num_tokens=SIZE, d_model=16, num_heads=4, num_layers=1, d_ff=32)
    clean, corrupted = reversing(3, 4, 5, 6, 7), reversing(8, 9, 10, 11, 12)
    whole = attribute(network, clean, CPU)
    monkeypatch.setattr("attention_lab.evaluation.scoring.MAX_CELLS", 2 * 36)
    monkeypatch.setattr("attention_lab.evaluation.patching.MAX_CELLS", 2 * 36)
    torch.testing.assert_close(attribute(network, clean, CPU), whole)
    assert len(patch_heads(network, clean, corrupted, CPU).clean) == 2
    monkeypatch.setattr("attention_lab.evaluation.patching.MAX_CELLS", 35)
    with pytest.raises(ValueError, match="of 6 tokens, whose maps do not fit"):
        patch_heads(network, clean, corrupted, CPU)


def test_attribution_leaves_a_network_as_it_was_and_knows_its_limits():
    network = Reversing((0.5, 0.5)).train()
    assert attribute(network, reversing(*[3] * 300), CPU) is None
    attribute(network, reversing(3, 4), CPU)
    assert network.training
    assert all(parameter.grad is None for parameter in network.parameters())
    assert not any(module._forward_hooks for module in network.modules())


MODELS = ["encoder_decoder", *(pytest.param(name, marks=pytest.mark.slow) for name in ("decoder_only", "encoder_only"))]
RECURRENT = [pytest.param(name, marks=pytest.mark.slow) for name in ("lstm", "rnn", "lstm_attention")]


@pytest.mark.parametrize("model", [*MODELS, *RECURRENT])
def test_a_checkpoint_of_any_network_is_explained(trained: Training, model):
    own = () if model == "encoder_decoder" else (f"model={model}",)
    checkpoint = attention_lab.load(trained("experiment=smoke", "trainer=cpu", *own) / "checkpoints/best.ckpt")
    answer = checkpoint.answer("3 1 4")
    assert answer.attribution.shape == (len(answer.predicted), 4)
    assert sorted(answer.draw("gradient_x_input").size)[0] > 50
    rows = answer.attribution.sum(dim=1)
    assert all(row == pytest.approx(1, abs=1e-5) or row == 0 for row in rows.tolist())
    found = checkpoint.patch("3 1 4", [5, 6, 7])
    assert (
        len(found.restored) == len(found.heads) == sum(each.num_heads for each in checkpoint.network.alignment_layers)
    )
    with pytest.raises(SettingError, match="has 2 symbols, and the clean source 3"):
        checkpoint.patch("3 1 4", "5 6")
