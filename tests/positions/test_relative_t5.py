"""T5's relative positions: the buckets and the whole attention of Hugging Face's T5."""

import math

import pytest
import torch
from transformers import T5Config
from transformers.models.t5.modeling_t5 import T5Attention

from attention_lab.attention.mask import Mask
from attention_lab.attention.multi_head import MultiHeadAttention
from attention_lab.positions.position import QueryKeyPositions
from attention_lab.positions.relative_t5 import RelativeT5

B, H, K, L = 2, 3, 5, 41
D = H * K


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(("buckets", "distance"), [(32, 128), (8, 20), (4, 3)])
def test_buckets_are_t5s(causal, buckets, distance):
    offsets = torch.arange(-300, 301)
    ours = RelativeT5(D, buckets, distance, num_heads=H, causal=causal).bucket(offsets)
    theirs = T5Attention._relative_position_bucket(offsets, not causal, buckets, distance)
    assert torch.equal(ours, theirs)
    assert ours.max() == buckets - 1 if not causal else ours.max() <= buckets - 1


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("need_weights", [True, False], ids=["explicit", "fused"])
def test_attention_with_it_is_t5s_on_shared_weights(causal, need_weights):
    torch.manual_seed(0)
    config = T5Config(d_model=D, d_kv=K, num_heads=H, dropout_rate=0.0, is_decoder=causal, attn_implementation="eager")
    theirs = T5Attention(config, has_relative_attention_bias=True, layer_idx=0).eval()
    ours = MultiHeadAttention(D, H, dropout=0.0)
    position = RelativeT5(D, num_heads=H, causal=causal)
    with torch.no_grad():
        theirs.relative_attention_bias.weight.normal_()
        for own, other in ((ours.w_q, theirs.q), (ours.w_k, theirs.k), (ours.w_v, theirs.v), (ours.w_o, theirs.o)):
            own.bias.zero_()
            other.weight.normal_(std=D**-0.5)
            own.weight.copy_(other.weight)
        # T5 does not divide scores by the root of K.
        ours.w_q.weight.mul_(math.sqrt(K))
        position.table.weight.copy_(theirs.relative_attention_bias.weight)
        x, places = torch.randn(B, L, D), torch.arange(L)[None]
        future = torch.full((L, L), torch.finfo(torch.float32).min).triu(1)[None, None] if causal else None
        expected = theirs(x, mask=future)[0]
        placed = QueryKeyPositions(position, places, places)
        found = ours(x, x, x, Mask(causal=causal), positions=placed, need_weights=need_weights).output
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_only_the_distance_counts():
    position = RelativeT5(D, num_heads=H)
    places = torch.tensor([[0, 3, 9, 200]])
    torch.testing.assert_close(position.bias(places, places), position.bias(places + 57, places + 57))


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"num_buckets": 2}, "num_buckets=2"),
        ({"num_buckets": 7}, "num_buckets=7"),
        ({"max_distance": 16}, "max_distance=16"),
    ],
)
def test_what_cannot_be_is_refused(settings, complaint):
    with pytest.raises(ValueError, match=f"^{complaint}"):
        RelativeT5(D, **settings)
