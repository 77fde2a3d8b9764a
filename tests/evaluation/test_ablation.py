"""Interventions: silencing what carries the task breaks it, silencing anything else does not."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from attention_lab.attention.multi_head import MultiHeadAttention
from attention_lab.data.batches import Batch
from attention_lab.data.module import SequenceData
from attention_lab.data.sampling import SourceSpace
from attention_lab.evaluation import scoring
from attention_lab.evaluation.ablation import (
    Silenced,
    ablate_heads,
    ablate_together,
    accuracies_left,
    all_heads,
    head_means,
    silencing,
)
from attention_lab.evaluation.edges import _other_places as other_places
from attention_lab.evaluation.edges import cut_edges
from attention_lab.evaluation.scoring import head_scores, teacher_forced
from attention_lab.metrics.alignment import Head
from attention_lab.models.encoder_decoder import EncoderDecoder
from attention_lab.models.model import Intervention, ModelOutput, SequenceModel
from attention_lab.tasks.reverse import Reverse
from attention_lab.tasks.vocabulary import EOS, PAD

CPU = torch.device("cpu")
VOCAB = 8


class Reader(SequenceModel[Tensor]):
    """Reverses by reading where some heads look (at the right token); the others look at the first and are not heard.

    Args:
        heard: which heads look where they should, and are heard.
    """

    max_length = 100
    alignment_attention = "decoder_cross"

    def __init__(self, heard: Sequence[bool] = (False, True)) -> None:
        super().__init__()
        self.heard = torch.tensor(heard)
        self.attention = MultiHeadAttention(VOCAB * len(heard), len(heard))
        columns = [torch.eye(VOCAB) * loud for loud in heard]
        with torch.no_grad():
            self.attention.w_o.weight.zero_()
            self.attention.w_o.weight[:VOCAB] = torch.cat(columns, dim=1)
            self.attention.w_o.bias.zero_()

    @property
    def alignment_layers(self) -> list[MultiHeadAttention]:
        return [self.attention]

    def forward(
        self,
        source: Tensor,
        target: Tensor,
        *,
        need_weights: bool = False,
        intervention: Intervention | None = None,
    ) -> ModelOutput:
        end = (source != PAD).sum(dim=1, keepdim=True) - 1
        step = torch.arange(target.size(1))
        right = torch.where(step < end, end - 1 - step, end).clamp(min=0)
        places = torch.where(self.heard[:, None], right[:, None], 0)
        weights = functional.one_hot(places, source.size(1)).float()
        allowed = (intervention or {}).get(("decoder_cross", 0))
        read = (weights if allowed is None else weights * allowed) @ functional.one_hot(source, VOCAB).float()[:, None]
        logits = self.attention.w_o(read.transpose(1, 2).flatten(2))[..., :VOCAB]
        return ModelOutput(50 * logits, {"decoder_cross": (weights,)} if need_weights else {})

    def begin(self, source: Tensor, num_targets: int = 0) -> Tensor:
        return source

    def step(self, tokens: Tensor, state: Tensor, *, need_weights: bool = False) -> tuple[ModelOutput, Tensor]:
        return self(state, tokens, need_weights=need_weights), state


@pytest.fixture(scope="module")
def batches() -> list[Batch]:
    sizes = {"train": 1, "validation": 1, "test": 43}
    return list(SequenceData(Reverse(), SourceSpace(3, 7, 5), sizes, batch_size=11, seed=3).loader("test"))


def records(network: Reader, batches: list[Batch]):
    means = head_means(network, batches, CPU)
    return ablate_heads(network, head_scores(network, batches, CPU), means, batches, CPU)


def test_the_head_that_carries_the_task_is_found_by_taking_it_away(batches):
    unheard, heard = records(Reader(), batches)
    assert (unheard.head, heard.head) == (0, 1)
    assert unheard.exact_match_without == unheard.exact_match_with_mean == 1.0
    assert heard.exact_match_without == heard.exact_match_with_mean == 0.0
    assert heard.hit_rate == heard.mass == heard.mass_min == 1.0


def test_heads_that_share_the_work_are_missed_only_together(batches):
    network = Reader((True, False, True))
    assert [record.exact_match_without for record in records(network, batches)] == [1.0, 1.0, 1.0]
    together = ablate_together(network, head_scores(network, batches, CPU), batches, CPU)
    assert [record.silenced for record in together] == [0, 1, 2, 3]
    assert [record.exact_match for record in together] == [1.0, 1.0, 0.0, 0.0]


def test_the_mean_is_taken_over_real_tokens_only(batches):
    network = Reader()
    counts = torch.zeros(VOCAB)
    for batch in batches:
        counts += functional.one_hot(batch.labels[batch.labels != PAD], VOCAB).sum(dim=0)
    firsts = torch.zeros(VOCAB)
    for batch in batches:
        lengths = (batch.labels != PAD).sum(dim=1)
        firsts += functional.one_hot(batch.source[:, 0], VOCAB).mul(lengths[:, None]).sum(dim=0)
    means = head_means(network, batches, CPU)
    assert means.shape == (1, 2, VOCAB)
    torch.testing.assert_close(means[0, 1].float(), counts / counts.sum())
    torch.testing.assert_close(means[0, 0].float(), firsts / counts.sum())


def test_silencing_a_real_network_is_closing_all_edges_of_the_head():
    torch.manual_seed(0)
    network = EncoderDecoder(VOCAB, d_model=15, num_heads=3, num_layers=2, d_ff=7).eval()
    source, target = torch.tensor([[3, 4, 5, EOS], [6, EOS, PAD, PAD]]), torch.tensor([[1, 5, 4], [1, 6, PAD]])
    heads = [Head("decoder_cross", 0, 2), Head("decoder_cross", 1, 0)]
    closed: dict[tuple[str, int], Tensor] = {
        ("decoder_cross", layer): torch.arange(3)[None, :, None, None] != head for _, layer, head, _ in heads
    }
    with torch.no_grad():
        before = network(source, target).logits
        expected = network(source, target, intervention=closed).logits
        with silencing(network, Silenced(heads)):
            torch.testing.assert_close(network(source, target).logits, expected)
        # The network itself stays as it was.
        assert torch.equal(network(source, target).logits, before)
    assert not torch.allclose(before, expected)


def test_a_head_that_always_says_the_same_is_its_own_mean():
    torch.manual_seed(0)
    network = EncoderDecoder(VOCAB, d_model=15, num_heads=3, d_ff=7).eval()
    with torch.no_grad():
        network.alignment_layers[0].w_v.weight.zero_()
        network.alignment_layers[0].w_v.bias.normal_()
    batch = Batch(*(torch.tensor([[3, 4, EOS]]) for _ in range(4)))
    means = head_means(network, [batch], CPU)
    before = network(batch.source, batch.target).logits
    with silencing(network, Silenced(all_heads(network), means)):
        torch.testing.assert_close(network(batch.source, batch.target).logits, before, rtol=1e-4, atol=1e-5)
    assert len(all_heads(network)) == 3


def test_gold_edges_carry_the_task_and_random_edges_do_not(batches):
    cuts = cut_edges(Reader(), head_scores(Reader(), batches, CPU), batches, CPU, seed=5)
    assert cuts.aligned == cuts.cut == [Head("decoder_cross", 0, 1)]
    assert cuts.without_gold_edges is not None
    assert cuts.without_random_edges is not None
    left = [cuts.intact, cuts.without_heads, cuts.without_gold_edges, cuts.without_random_edges]
    assert [accuracy.exact_match for accuracy in left] == [1.0, 0.0, 0.0, 1.0]
    # Only EOS, which is aligned to nothing, is still said.
    eos = sum(int((batch.labels == EOS).sum()) for batch in batches)
    tokens = sum(int((batch.labels != PAD).sum()) for batch in batches)
    assert cuts.without_gold_edges.token_accuracy == pytest.approx(eos / tokens)


def rebatched(batches: list[Batch], size: int) -> list[Batch]:
    parts = []
    for batch in batches:
        parts += [Batch(*(part[begin : begin + size] for part in batch)) for begin in range(0, len(batch.source), size)]
    return parts


@pytest.mark.parametrize("most", [8**2, 2**22], ids=["row by row", "whole batches"])
def test_what_is_cut_does_not_depend_on_batches(batches, monkeypatch, most):
    torch.manual_seed(0)
    network = EncoderDecoder(VOCAB, d_model=15, num_heads=3, d_ff=7).eval()
    validated = head_scores(network, batches, CPU)
    expected = cut_edges(network, validated, batches, CPU, seed=5)
    monkeypatch.setattr(scoring, "MAX_CELLS", most)
    assert cut_edges(network, validated, rebatched(batches, 3), CPU, seed=5) == expected


def test_a_random_edge_leads_to_another_real_token(batches):
    generator = np.random.default_rng(3)
    seen = set()
    for batch in batches * 20:
        places = other_places(batch, generator)
        known = batch.alignment >= 0
        assert (places[~known] < 0).all()
        assert (places[known] != batch.alignment[known]).all()
        assert (batch.source.gather(1, places.clamp(min=0))[known] != PAD).all()
        seen |= set(zip(batch.alignment[known].tolist(), places[known].tolist(), strict=True))
    # Sources have up to seven symbols and EOS: whatever is not gold can be drawn.
    assert seen == {(gold, place) for gold in range(7) for place in range(8) if place != gold}


def test_where_no_head_aligns_all_are_cut(batches):
    network = Reader((False, False))
    cuts = cut_edges(network, head_scores(network, batches, CPU), batches, CPU, seed=5)
    assert cuts.aligned == []
    assert [head.head for head in cuts.cut] == [0, 1]


def test_where_a_matrix_of_edges_does_not_fit_no_edges_are_cut(batches, monkeypatch):
    network = Reader()
    validated = head_scores(network, batches, CPU)
    expected = cut_edges(network, validated, batches, CPU, seed=5)
    monkeypatch.setattr(scoring, "MAX_CELLS", 8**2 - 1)
    cuts = cut_edges(network, validated, batches, CPU, seed=5)
    assert cuts == replace(expected, without_gold_edges=None, without_random_edges=None)


def test_what_is_left_is_what_the_whole_network_says_while_heads_are_silenced(batches):
    torch.manual_seed(0)
    network = EncoderDecoder(VOCAB, d_model=12, num_heads=3, num_layers=2, d_ff=7).eval()
    heads, means = all_heads(network), head_means(network, batches, CPU)
    variants = [Silenced([]), Silenced(heads[:2]), Silenced(heads[3:5], means), Silenced(heads, means), Silenced(heads)]
    found = accuracies_left(network, variants, batches, CPU)
    for variant, left in zip(variants, found, strict=True):
        with silencing(network, variant):
            figures = teacher_forced(network, batches, CPU)
        assert (left.exact_match, left.token_accuracy) == (figures["exact_match"], figures["token_accuracy"])
    assert len({left.token_accuracy for left in found}) > 2
