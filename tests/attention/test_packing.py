"""Several batches as one row: what goes in comes out, and nobody sees another batch."""

from functools import partial

import pytest
import torch
from torch import Tensor

from attention_lab.attention.conv_mixed import ConvMixedAttention
from attention_lab.attention.flash import FlashAttention
from attention_lab.attention.grouped_query import GroupedQueryAttention
from attention_lab.attention.key_values import KeyValues
from attention_lab.attention.linear import LinearAttention
from attention_lab.attention.linformer import LinformerAttention
from attention_lab.attention.mask import Mask
from attention_lab.attention.multi_head import MultiHeadAttention
from attention_lab.attention.packing import AttentionMetadata, Packing
from attention_lab.attention.sliding_window import SlidingWindowAttention
from attention_lab.positions.alibi import ALiBi
from attention_lab.positions.coordinates import from_start
from attention_lab.positions.none import NoPositionalEncoding
from attention_lab.positions.position import Position, QueryKeyPositions
from attention_lab.positions.relative_t5 import RelativeT5
from attention_lab.positions.rotary import RotaryPosition

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


def test_a_batch_of_one_part_is_its_own_row() -> None:
    batch = batches()[0]
    packing = Packing.of([batch])
    assert packing.pack([batch]) is batch
    assert packing.unpack(batch)[0] is batch
    # Coordinates that all rows share stay one row.
    shared = torch.arange(2)[None]
    assert packing.pack([shared]) is shared


def test_heads_are_unpacked_without_a_copy() -> None:
    packing = Packing.of(batches())
    heads = packing.pack(batches()).unflatten(-1, (3, 4)).transpose(1, 2)
    for unpacked, batch in zip(packing.unpack(heads, heads=True), batches(), strict=True):
        torch.testing.assert_close(unpacked, batch.unflatten(-1, (3, 4)).transpose(1, 2), rtol=0, atol=0)
        assert unpacked.untyped_storage().data_ptr() == heads.untyped_storage().data_ptr()


KINDS = {
    "full": (partial(MultiHeadAttention, 12, 3, 0.0), (False, True)),
    "scaled": (partial(MultiHeadAttention, 12, 3, 0.0, scalable_softmax=True, qk_norm=True), (False, True)),
    "grouped": (partial(GroupedQueryAttention, 12, 2, 0.0, num_kv_heads=1), (False, True)),
    "flash": (partial(FlashAttention, 12, 3, 0.0), (False, True)),
    "linear": (partial(LinearAttention, 12, 3, 0.0), (False, True)),
    "window": (partial(SlidingWindowAttention, 12, 3, 0.0, window=2, num_global=1), (False, True)),
    "linformer": (partial(LinformerAttention, 12, 3, 0.0, num_projected=2, max_len=7), (False,)),
    "mixed": (partial(ConvMixedAttention, 12, 2, 0.0, kernel_size=3), (False,)),
}
CODES = {"none": NoPositionalEncoding, "rotary": RotaryPosition, "alibi": ALiBi, "t5": RelativeT5}
CELLS = [(kind, causal, code) for kind, (_, forms) in KINDS.items() for causal in forms for code in CODES]


@pytest.mark.parametrize(("kind", "causal", "code"), CELLS)
def test_packed_attention_is_attention_batch_by_batch(kind: str, causal: bool, code: str) -> None:
    torch.manual_seed(1)
    attention = KINDS[kind][0]()
    position: Position = CODES[code](12, num_heads=attention.num_heads, causal=causal)
    lacking = set(position.requires) & set(attention.unsupported)
    if lacking:
        pytest.skip(f"{kind} with {code} is refused: {attention.unsupported[min(lacking)]}")
    packing = Packing(SHAPES)
    masks = [Mask(real, causal) for real in real_tokens()]
    places = [from_start(real) for real in real_tokens()]
    row, here = packing.pack(batches()), packing.pack(places)
    positions = QueryKeyPositions(position, here, here)
    memory = attention.project(row, row, packing, positions)
    packed = attention.attend(row, memory, AttentionMetadata(masks, packing, packing, positions), need_weights=False)
    assert packed.weights is None
    for output, batch, mask, place in zip(packing.unpack(packed.output), batches(), masks, places, strict=True):
        own = QueryKeyPositions(position, place, place)
        expected = attention(batch, batch, batch, mask, positions=own, need_weights=False).output
        torch.testing.assert_close(output, expected, rtol=1e-5, atol=1e-5)


def test_queries_and_keys_may_lie_in_rows_of_their_own() -> None:
    torch.manual_seed(1)
    attention = MultiHeadAttention(12, 3, 0.0)
    queries, keys = Packing(((3, 4), (1, 1), (4, 2))), Packing(SHAPES)
    asking = [torch.randn(*shape, 12) for shape in queries.shapes]
    memory = attention.project(keys.pack(batches()), keys.pack(batches()), keys)
    assert all(isinstance(part, KeyValues) for part in memory)
    masks = tuple(Mask(real) for real in real_tokens())
    packed = attention.attend(queries.pack(asking), memory, AttentionMetadata(masks, queries, keys)).output
    for output, q, kv, mask in zip(queries.unpack(packed), asking, batches(), masks, strict=True):
        torch.testing.assert_close(output, attention(q, kv, kv, mask).output)


def test_each_query_counts_the_keys_of_its_own_batch() -> None:
    packing = Packing(SHAPES)
    masks = (Mask(causal=True), Mask(real_tokens()[1]), Mask(real_tokens()[2]))
    visible = AttentionMetadata(masks, packing, packing).num_visible(torch.device("cpu"))
    assert visible.tolist() == [[[1, 2] * 3 + [3] * 5 + [7] * 7 + [3] * 7 + [1] * 7 + [7] * 7]]


def test_an_intervention_closes_edges_and_leaves_sharpness_as_it_was() -> None:
    torch.manual_seed(1)
    attention, batch = MultiHeadAttention(12, 3, 0.0, scalable_softmax=True), batches()[2]
    metadata = AttentionMetadata.of_batch(Mask(), batch, batch)
    assert metadata.with_intervention({("self", 0): torch.tensor(False)}, "self", 1) is metadata
    allowed = torch.rand(4, 3, 7, 7) < 0.7
    cut = metadata.with_intervention({("self", 1): allowed}, "self", 1)
    assert torch.equal(cut.num_visible(batch.device), metadata.num_visible(batch.device))
    memory = attention.project(batch, batch, metadata.keys)
    whole, left = (attention.attend(batch, memory, each).weights for each in (metadata, cut))
    assert whole is not None
    kept = whole * allowed
    torch.testing.assert_close(left, kept / kept.sum(dim=-1, keepdim=True).clamp(min=1e-9))
