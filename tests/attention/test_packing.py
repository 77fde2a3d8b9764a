"""Several batches as one row: what goes in comes out, and nobody sees another batch."""

import pytest
import torch
from torch import Tensor

from attention_lab.attention.conv_mixed import ConvMixedAttention
from attention_lab.attention.flash import FlashAttention
from attention_lab.attention.grouped_query import GroupedQueryAttention
from attention_lab.attention.key_values import KeyValues
from attention_lab.attention.linear import LinearAttention
from attention_lab.attention.mask import Mask
from attention_lab.attention.multi_head import MultiHeadAttention
from attention_lab.attention.packing import PackedMask, Packing
from attention_lab.attention.sliding_window import SlidingWindowAttention
from attention_lab.positions.alibi import ALiBi
from attention_lab.positions.position import Placed

SHAPES = ((3, 2), (1, 5), (4, 7))


def batches(width: int = 12, seed: int = 0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(*shape, width, generator=generator) for shape in SHAPES]


def real_tokens() -> list[Tensor]:
    """Padding on the right and on the left, and none."""
    reals = [torch.ones(shape, dtype=torch.bool) for shape in SHAPES]
    reals[1][0, 3:] = False
    reals[2][1, :4] = False
    reals[2][2, 1:] = False
    return reals


def test_a_row_holds_the_batches_one_after_another() -> None:
    packing = Packing.of(batches())
    assert packing.shapes == SHAPES
    row = packing.pack(batches())
    assert row.shape == (1, 6 + 5 + 28, 12)
    torch.testing.assert_close(row[0, 6:11], batches()[1][0])
    torch.testing.assert_close(row[0, 13], batches()[2][0, 2])


def test_unpacked_batches_are_those_that_were_packed_without_a_copy() -> None:
    packing = Packing.of(batches())
    row = packing.pack(batches())
    for unpacked, batch in zip(packing.unpack(row), batches(), strict=True):
        torch.testing.assert_close(unpacked, batch, rtol=0, atol=0)
        assert unpacked.untyped_storage().data_ptr() == row.untyped_storage().data_ptr()


def test_one_row_stands_for_all_rows_of_a_batch() -> None:
    packing = Packing(SHAPES)
    row = packing.pack([torch.arange(length)[None] for _, length in SHAPES])
    assert row[0, :11].tolist() == [0, 1, 0, 1, 0, 1, 0, 1, 2, 3, 4]


def test_batches_of_other_shapes_are_refused() -> None:
    with pytest.raises(RuntimeError):
        Packing(SHAPES).pack([torch.zeros(2, 2), torch.zeros(1, 5), torch.zeros(4, 7)])
    with pytest.raises(ValueError, match="longer"):
        Packing(SHAPES).pack([torch.zeros(3, 2)])


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("extras", [{}, {"scalable_softmax": True, "qk_norm": True}], ids=["plain", "scaled"])
def test_packed_attention_is_attention_batch_by_batch(causal: bool, extras: dict[str, bool]) -> None:
    torch.manual_seed(1)
    attention = MultiHeadAttention(12, 3, 0.0, **extras)
    packing = Packing(SHAPES)
    masks = tuple(Mask(real, causal) for real in real_tokens())
    row = packing.pack(batches())
    packed = attention(row, row, row, PackedMask(packing, packing, masks))
    assert packed.weights is None
    for output, batch, mask in zip(packing.unpack(packed.output), batches(), masks, strict=True):
        torch.testing.assert_close(output, attention(batch, batch, batch, mask).output)


def test_queries_and_keys_may_lie_in_rows_of_their_own() -> None:
    torch.manual_seed(1)
    attention = MultiHeadAttention(12, 3, 0.0)
    queries, keys = Packing(((3, 4), (1, 1), (4, 2))), Packing(SHAPES)
    asking = [torch.randn(*shape, 12) for shape in queries.shapes]
    memory = attention.project(keys.pack(batches()), keys.pack(batches()))
    assert isinstance(memory, KeyValues)
    masks = tuple(Mask(real) for real in real_tokens())
    packed = attention.attend(queries.pack(asking), memory, PackedMask(queries, keys, masks)).output
    for output, q, kv, mask in zip(queries.unpack(packed), asking, batches(), masks, strict=True):
        torch.testing.assert_close(output, attention(q, kv, kv, mask).output)


def test_each_query_counts_the_keys_of_its_own_batch() -> None:
    packing = Packing(SHAPES)
    masks = (Mask(causal=True), Mask(real_tokens()[1]), Mask(real_tokens()[2]))
    visible = PackedMask(packing, packing, masks).num_visible(39, 39, torch.device("cpu"))
    assert visible.tolist() == [[1, 2] * 3 + [3] * 5 + [7] * 7 + [3] * 7 + [1] * 7 + [7] * 7]


def test_interventions_are_not_packed() -> None:
    mask = PackedMask(Packing(SHAPES), Packing(SHAPES), (Mask(),) * 3)
    assert mask.closing(None) is mask
    with pytest.raises(ValueError, match="batch by batch"):
        mask.closing(torch.ones(1, dtype=torch.bool))


def test_a_bias_which_belongs_to_pairs_is_not_packed() -> None:
    attention, packing = MultiHeadAttention(12, 3, 0.0), Packing(SHAPES)
    row, ranks = packing.pack(batches()), packing.pack([torch.arange(length)[None] for _, length in SHAPES])
    placed = Placed(ALiBi(12, num_heads=3), ranks, ranks)
    with pytest.raises(ValueError, match=r"ALiBi .*not packed"):
        attention(row, row, row, PackedMask(packing, packing, (Mask(),) * 3), placed=placed)


def test_a_kind_packs_only_where_it_says_so_itself() -> None:
    class Silent(GroupedQueryAttention):
        pass

    class Saying(Silent):
        packs = True

    kinds = (MultiHeadAttention, GroupedQueryAttention, FlashAttention, Saying)
    assert all(kind.packs for kind in kinds)
    assert not any(kind.packs for kind in (Silent, ConvMixedAttention, LinearAttention, SlidingWindowAttention))


def test_what_runs_from_token_to_token_refuses_to_be_packed() -> None:
    attention, packing = ConvMixedAttention(12, 2, 0.0, kernel_size=3), Packing(SHAPES)
    row = packing.pack(batches())
    with pytest.raises(ValueError, match="cannot be packed"):
        attention(row, row, row, PackedMask(packing, packing, (Mask(),) * 3))
