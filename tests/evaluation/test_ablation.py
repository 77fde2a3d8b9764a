"""Interventions: closing what carries the task breaks it, closing anything else does not."""

import pytest
import torch
from torch import Tensor

from attention_lab.data.batches import Batch
from attention_lab.data.module import SequenceData
from attention_lab.data.sampling import SourceSpace
from attention_lab.evaluation.ablation import ablate_heads, cut_aligned_heads
from attention_lab.evaluation.scoring import head_scores
from attention_lab.models.model import Intervention, ModelOutput, SequenceModel
from attention_lab.tasks.reverse import Reverse
from attention_lab.tasks.vocabulary import EOS, PAD

CPU = torch.device("cpu")


class Reader(SequenceModel[None]):
    """Reverses by reading where head 1 looks (at the right token); head 0 looks at the first token and is not heard."""

    max_length = 100
    alignment_attention = "decoder_cross"

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
        places = torch.stack([0 * step + 0 * end, torch.where(step < end, end - 1 - step, end)], dim=1)
        weights = torch.nn.functional.one_hot(places, source.size(1)).float()
        allowed = (intervention or {}).get(("decoder_cross", 0))
        heard = weights if allowed is None else weights * allowed
        logits = heard[:, 1] @ torch.nn.functional.one_hot(source, 8).float()
        return ModelOutput(50 * logits, {"decoder_cross": (weights,)} if need_weights else {})

    def begin(self, source: Tensor) -> None:
        raise NotImplementedError

    def step(self, tokens: Tensor, state: None) -> tuple[Tensor, None]:
        raise NotImplementedError


@pytest.fixture(scope="module")
def batches() -> list[Batch]:
    sizes = {"train": 1, "validation": 1, "test": 43}
    return list(SequenceData(Reverse(), SourceSpace(3, 7, 5), sizes, batch_size=11, seed=3).loader("test"))


def test_the_head_that_carries_the_task_is_found_by_taking_it_away(batches):
    unheard, heard = ablate_heads(Reader(), head_scores(Reader(), batches, CPU), batches, CPU)
    assert (unheard["head"], heard["head"]) == (0, 1)
    assert unheard["exact_match_without"] == 1.0
    assert heard["exact_match_without"] == 0.0
    assert heard["hit_rate"] == heard["mass"] == 1.0


def test_gold_edges_carry_the_task_and_random_edges_do_not(batches):
    cuts = cut_aligned_heads(Reader(), head_scores(Reader(), batches, CPU), batches, CPU, seed=5)
    assert cuts["aligned"] == [{"attention": "decoder_cross", "layer": 0, "head": 1}]
    left = {name: cuts[name]["exact_match"] for name in cuts if name != "aligned"}
    assert left == {"intact": 1.0, "without_heads": 0.0, "without_gold_edges": 0.0, "without_random_edges": 1.0}
    # Only EOS, which is aligned to nothing, is still said.
    eos = sum(int((batch.labels == EOS).sum()) for batch in batches)
    tokens = sum(int((batch.labels != PAD).sum()) for batch in batches)
    assert cuts["without_gold_edges"]["token_accuracy"] == pytest.approx(eos / tokens)
