"""Rotary positions: the pairs and angles of Llama, products that know distances alone."""

import pytest
import torch
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

from attention_lab.positions.rotary import RotaryPosition

B, H, L, K = 2, 3, 7, 10


@pytest.mark.parametrize("base", [10000.0, 500.0])
def test_queries_and_keys_are_turned_as_llama_does(base):
    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=H * K, num_attention_heads=H, rope_parameters={"rope_type": "default", "rope_theta": base}
    )
    places = torch.randint(0, 5000, (B, L))
    q, k = torch.randn(2, B, H, L, K)
    cosine, sine = LlamaRotaryEmbedding(config)(q, places)
    expected = apply_rotary_pos_emb(q, k, cosine, sine)
    code = RotaryPosition(H * K, base, num_heads=H)
    for given, turned in zip((q, k), expected, strict=True):
        torch.testing.assert_close(code.turn(given, places), turned, rtol=1e-4, atol=1e-4)


def test_a_product_depends_on_the_distance_alone():
    torch.manual_seed(0)
    code = RotaryPosition(H * K, num_heads=H)
    q, k = torch.randn(2, 1, H, L, K)
    places = torch.arange(L)[None]
    products = [code.turn(q, places + shift) @ code.turn(k, places + shift).transpose(-1, -2) for shift in (0, 97)]
    torch.testing.assert_close(*products, rtol=1e-4, atol=1e-4)
    # ... and keeps lengths.
    torch.testing.assert_close(code.turn(q, places).norm(dim=-1), q.norm(dim=-1))


def test_what_cannot_be_is_refused():
    with pytest.raises(ValueError, match=r"^num_heads=2 makes heads 5 wide"):
        RotaryPosition(10, num_heads=2)
    with pytest.raises(ValueError, match=r"^base=1.0 must be above 1"):
        RotaryPosition(10, 1.0)
