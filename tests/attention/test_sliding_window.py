"""Sliding-window attention: what full attention gives under the same mask, without its n x n matrix."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import LongformerConfig
from transformers.models.longformer.modeling_longformer import LongformerSelfAttention

from attention_lab.attention.key_values import KeyValueCache, KeyValues
from attention_lab.attention.mask import Mask
from attention_lab.attention.multi_head import MultiHeadAttention
from attention_lab.attention.packing import AttentionMetadata, Packing
from attention_lab.attention.sliding_window import SMALLEST, SlidingWindowAttention
from attention_lab.attention.window_cache import WindowCache, WindowKeyValues
from attention_lab.positions.alibi import ALiBi
from attention_lab.positions.coordinates import from_start
from attention_lab.positions.none import NoPositionalEncoding
from attention_lab.positions.position import Position, QueryKeyPositions
from attention_lab.positions.relative_t5 import RelativeT5
from attention_lab.positions.rotary import RotaryPosition
from tests.pairwise import matrix

B, H, K = 3, 3, 6
D = H * K

LENGTHS = [1, 5, 37, 97]
WINDOWS = [1, 11, 41, 101]
PADDINGS = ["none", "right", "left", "both", "holes", "all"]
POSITIONS = [None, NoPositionalEncoding, ALiBi, RelativeT5, RotaryPosition]


def project(attention, k, v, positions=None):
    """Keys and values of one padded batch."""
    return attention.project(k, v, Packing.of([k]), positions)[0]


def attend(attention, q, memory, mask, num_keys=None, positions=None, need_weights=True):
    """What one padded batch attends to."""
    num_keys = num_keys or memory.keys.size(2)
    metadata = AttentionMetadata((mask,), Packing.of([q]), Packing(((len(q), num_keys),)), positions)
    return attention.attend(q, [memory], metadata, need_weights=need_weights)


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def pair(window: int, num_global: int, dropout: float = 0.0) -> tuple[SlidingWindowAttention, MultiHeadAttention]:
    """A window and full attention with the same weights."""
    ours = SlidingWindowAttention(D, H, dropout, window=window, num_global=num_global)
    full = MultiHeadAttention(D, H, dropout)
    full.load_state_dict(ours.state_dict(), strict=True)
    return ours, full


def real_tokens(padding: str, length: int) -> Tensor | None:
    """Row 0 is always whole; row 2 has but one real token (none where padding is "all"), fewer than are global."""
    if padding == "none":
        return None
    real = torch.ones(B, length, dtype=torch.bool)
    if padding in ("right", "both"):
        real[1, length // 2 + 1 :] = False
    if padding in ("left", "both"):
        real[1, : length // 3] = False
    if padding == "holes":
        real[1] = torch.rand(length) < 0.5
    only = {"right": 0, "left": length - 1, "both": length // 2, "holes": length // 3}
    real[2] = torch.arange(length) == only.get(padding, -1)
    return real


def equivalent(length: int, window: int, num_global: int, real: Tensor | None, causal: bool) -> Tensor:
    """The mask that full attention needs, pair by pair: (B, 1, length, length)."""
    matrix = torch.zeros(B, 1, length, length, dtype=torch.bool)
    real = torch.ones(B, length, dtype=torch.bool) if real is None else real
    for row in range(B):
        everywhere = set(real[row].nonzero().flatten().tolist()[:num_global])
        matrix[row, 0] = torch.tensor(
            [
                [abs(query - key) <= window or query in everywhere or key in everywhere for key in range(length)]
                for query in range(length)
            ]
        )
    matrix &= real[:, None, None, :]
    return matrix.tril() if causal else matrix


def placed_at(position: Position | None, real: Tensor | None, length: int) -> QueryKeyPositions | None:
    if position is None:
        return None
    here = torch.arange(length)[None] if real is None else from_start(real)
    return QueryKeyPositions(position, here, here)


def code(kind: type[Position] | None, causal: bool) -> Position | None:
    if kind is None:
        return None
    made = kind(D, num_heads=H, causal=causal)
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter)
    return made


def compare(length, window, num_global, padding, causal, kind):
    """Compares outputs and all gradients with those of full attention under the equivalent mask."""
    ours, full = pair(window, num_global)
    real, position = real_tokens(padding, length), code(kind, causal)
    placed = placed_at(position, real, length)
    matrix = equivalent(length, window, num_global, real, causal)
    wanted = torch.randn(B, length, D)
    x = torch.randn(B, length, D, requires_grad=True)
    learned = [] if position is None else list(position.parameters())
    results = []
    for attention, mask in ((ours, Mask(real, causal)), (full, matrix)):
        output = attention(x, x, x, mask, need_weights=False, positions=placed).output
        loss = (output - wanted).square().mean()
        inputs = [x, *attention.parameters(), *learned]
        results.append((output, torch.autograd.grad(loss, inputs, materialize_grads=True)))
    (output, gradients), (expected, expected_gradients) = results
    torch.testing.assert_close(output, expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(gradients, expected_gradients, rtol=1e-4, atol=1e-5)
    assert all(gradient.isfinite().all() for gradient in gradients)


@pytest.mark.parametrize("causal", [False, True], ids=["both sides", "causal"])
@pytest.mark.parametrize("num_global", [0, 5])
@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("length", LENGTHS)
def test_equals_full_attention_under_the_same_mask(length, window, num_global, causal):
    compare(length, window, num_global, "both", causal, None)


@pytest.mark.parametrize("causal", [False, True], ids=["both sides", "causal"])
@pytest.mark.parametrize("num_global", [0, 5])
@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize("kind", POSITIONS, ids=lambda kind: kind.__name__ if kind else "None")
def test_equals_full_attention_with_every_padding_and_position(kind, padding, num_global, causal):
    compare(83, 7, num_global, padding, causal, kind)


@settings(deadline=None, max_examples=50)
@given(
    length=st.integers(1, 2 * SMALLEST + 3),
    window=st.integers(1, 2 * SMALLEST + 3),
    num_global=st.integers(0, 7),
    padding=st.sampled_from(PADDINGS),
    causal=st.booleans(),
    kind=st.sampled_from(POSITIONS),
)
def test_equals_full_attention_at_any_size(length, window, num_global, padding, causal, kind):
    compare(length, window, num_global, padding, causal, kind)


def test_known_answer():
    # Every projection the identity; queries and keys are 0, so that a query averages the values that it sees.
    attention = SlidingWindowAttention(2, 1, 0.0, window=1, num_global=1)
    for projection in (attention.w_q, attention.w_k, attention.w_v, attention.w_o):
        torch.nn.init.eye_(projection.weight)
        torch.nn.init.zeros_(projection.bias)
    zeros = torch.zeros(1, 5, 2)
    values = torch.tensor([1.0, 2.0, 4.0, 8.0, 16.0])[None, :, None].expand(1, 5, 2)

    def averages(mask: Mask | None) -> list[float]:
        return attention(zeros, zeros, values, mask, need_weights=False).output[0, :, 0].tolist()

    # Token 0 sees all; 1 sees 0 1 2; 2 sees 0 and 1 2 3; 3 sees 0 and 2 3 4; 4 sees 0 and 3 4.
    assert averages(None) == pytest.approx([31 / 5, 7 / 3, 15 / 4, 29 / 4, 25 / 3])
    # Looking back only: 0; 0 1; 0 1 2; 0 2 3; 0 3 4.
    assert averages(Mask(causal=True)) == pytest.approx([1, 3 / 2, 7 / 3, 13 / 3, 25 / 3])


@pytest.mark.parametrize("causal", [False, True], ids=["both sides", "causal"])
@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize("kind", POSITIONS, ids=lambda kind: kind.__name__ if kind else "None")
def test_weights_are_the_map_behind_the_same_output(kind, padding, causal):
    length, window, num_global = 41, 5, 2
    ours, full = pair(window, num_global)
    real = real_tokens(padding, length)
    placed = placed_at(code(kind, causal), real, length)
    x = torch.randn(B, length, D)
    mask = Mask(real, causal)
    output, weights = ours(x, x, x, mask, positions=placed)
    expected = full(x, x, x, equivalent(length, window, num_global, real, causal), positions=placed)
    torch.testing.assert_close((output, weights), tuple(expected), rtol=1e-5, atol=1e-5)
    mixed = weights @ project(ours, x, x, placed).values
    torch.testing.assert_close(ours.w_o(mixed.transpose(1, 2).flatten(2)), output)
    fast = ours(x, x, x, mask, need_weights=False, positions=placed)
    assert fast.weights is None
    torch.testing.assert_close(fast.output, output, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("need_weights", [True, False], ids=["explicit", "fused"])
@pytest.mark.parametrize("form", ["allowed", "plain matrix"])
def test_a_matrix_closes_more_of_what_the_window_leaves_open(form, need_weights):
    length, window, num_global = 23, 3, 2
    ours, full = pair(window, num_global)
    matrix = torch.rand(B, H, length, length) < 0.6
    x = torch.randn(B, length, D)
    causal = form == "allowed"
    mask = Mask(causal=True, allowed=matrix) if causal else matrix
    output = ours(x, x, x, mask, need_weights=need_weights).output
    expected = full(x, x, x, matrix & equivalent(length, window, num_global, None, causal)).output
    torch.testing.assert_close(output, expected, rtol=1e-5, atol=1e-5)


def test_equals_full_attention_once_the_window_reaches_everywhere():
    ours, full = pair(46, 0)
    x = torch.randn(B, 47, D)
    for mask in (None, Mask(causal=True)):
        output = ours(x, x, x, mask, need_weights=False).output
        torch.testing.assert_close(output, full(x, x, x, mask).output, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("num_global", [0, 3])
@pytest.mark.parametrize("causal", [False, True], ids=["both sides", "causal"])
def test_a_change_reaches_exactly_those_who_see_it(num_global, causal):
    length, window = 71, 5
    ours, _ = pair(window, num_global)
    sees = equivalent(length, window, num_global, None, causal)[0, 0]
    x = torch.randn(1, length, D)
    mask = Mask(causal=causal)
    before = ours(x, x, x, mask, need_weights=False).output
    for token in (0, 1, 2, 3, 31, 32, 37, 69, 70):
        other = x.clone()
        other[:, token] += 1
        moved = (ours(x, other, other, mask, need_weights=False).output - before).abs().amax(-1)[0] > 1e-6
        assert torch.equal(moved, sees[:, token])


@pytest.mark.parametrize("num_global", [0, 3])
def test_no_gradient_comes_from_the_future_or_from_beyond_the_window(num_global):
    length, window = 71, 5
    ours, _ = pair(window, num_global)
    sees = equivalent(length, window, num_global, None, causal=True)[0, 0]
    x = torch.randn(1, length, D, requires_grad=True)
    output = ours(x, x, x, Mask(causal=True), need_weights=False).output
    for token in (0, 2, 3, 31, 32, 37, 70):
        (gradient,) = torch.autograd.grad(output[0, token].sum(), x, retain_graph=True)
        assert torch.equal(gradient[0].any(-1), sees[token])


def pieces(attention, x, lengths, cache, real=None, position=None, need_weights=False):
    """Attends piece by piece, as decoding does, and returns the outputs and maps of all pieces."""
    outputs, maps, end = [], [], 0
    coordinates = from_start(torch.ones(B, x.size(1), dtype=torch.bool) if real is None else real)
    for new in x.split(lengths, dim=1):
        start, end = end, end + new.size(1)
        here, so_far = coordinates[:, start:end], coordinates[:, :end]
        projected = project(attention, new, new, position and QueryKeyPositions(position, here, here))
        memory = cache.append(projected)
        mask = Mask(None if real is None else real[:, :end], causal=True)
        placed = position and QueryKeyPositions(position, here, so_far)
        output, weights = attend(attention, new, memory, mask, end, positions=placed, need_weights=need_weights)
        outputs.append(output)
        if weights is not None:
            assert weights.shape == (B, H, new.size(1), end)
            maps.append(torch.nn.functional.pad(weights, (0, x.size(1) - end)))
    return torch.cat(outputs, dim=1), torch.cat(maps, dim=2) if maps else None


SPLITS = {
    "token by token": [1] * 43,
    "a prompt, then tokens": [31, *[1] * 12],
    "pieces of all sizes": [2, 3, 1, 17, 1, 1, 13, 5],
    "more than the window at once": [19, 24],
    "all at once": [43],
}


@pytest.mark.parametrize(
    "case",
    matrix(
        list(
            itertools.product(
                SPLITS, [(7, 0), (7, 3), (1, 11), (47, 2)], [None, RelativeT5, RotaryPosition], [True, False]
            )
        )
    ),
)
def test_decoding_in_pieces_equals_the_whole(case):
    split, (window, num_global), kind, need_weights = case
    lengths = SPLITS[split]
    ours, _ = pair(window, num_global)
    position = code(kind, causal=True)
    x = torch.randn(B, 43, D)
    whole = ours(x, x, x, Mask(causal=True), positions=placed_at(position, None, 43))
    output, weights = pieces(ours, x, lengths, ours.new_cache(), position=position, need_weights=need_weights)
    torch.testing.assert_close(output, whole.output, rtol=1e-5, atol=1e-5)
    if need_weights:
        torch.testing.assert_close(weights, whole.weights, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("padding", "num_global"), [("left", 0), ("right", 0), ("right", 1), ("holes", 0), ("all", 0), ("all", 3)]
)
@pytest.mark.parametrize("lengths", SPLITS.values(), ids=SPLITS)
def test_decoding_in_pieces_knows_which_tokens_are_real(lengths, padding, num_global):
    ours, _ = pair(7, num_global)
    real, position = real_tokens(padding, 43), code(ALiBi, causal=True)
    x = torch.randn(B, 43, D)
    whole = ours(x, x, x, Mask(real, causal=True), positions=placed_at(position, real, 43))
    output, _ = pieces(ours, x, lengths, ours.new_cache(), real, position)
    torch.testing.assert_close(output, whole.output, rtol=1e-5, atol=1e-5)


def test_a_cache_that_keeps_everything_gives_the_same():
    ours, _ = pair(7, 3)
    real, position = real_tokens("left", 43), code(RelativeT5, causal=True)
    x = torch.randn(B, 43, D)
    whole = ours(x, x, x, Mask(real, causal=True), positions=placed_at(position, real, 43)).output
    with torch.no_grad():
        output, _ = pieces(ours, x, SPLITS["pieces of all sizes"], KeyValueCache(), real, position)
    torch.testing.assert_close(output, whole, rtol=1e-5, atol=1e-5)


def test_global_tokens_lost_to_padding_on_the_left_are_refused():
    ours, _ = pair(7, 3)
    x = torch.randn(B, 43, D)
    with pytest.raises(ValueError, match=r"^num_global=3 cannot be decoded in pieces after padding on the left"):
        pieces(ours, x, [31, 12], ours.new_cache(), real_tokens("left", 43))


def test_the_cache_holds_no_more_than_first_and_last_tokens():
    window, num_global = 7, 3
    cache = WindowCache(window, num_global)
    everything = torch.arange(1009.0).view(1, 1, -1, 1)
    cache.append(KeyValues(everything[:, :, :501], everything[:, :, :501]))
    for token in range(501, 1009):
        one = everything[:, :, token : token + 1]
        memory = cache.append(KeyValues(one, -one))
        held = (memory.keys, memory.values, memory.first.keys, memory.first.values)
        assert memory.keys.flatten().tolist() == list(range(token - window, token + 1))
        assert memory.first.keys.flatten().tolist() == [0, 1, 2]
        assert memory.num_before == token - window
        assert max(part.untyped_storage().nbytes() for part in held) <= (window + 1) * everything.element_size()
    assert cache.length == 1009


def test_what_the_cache_returned_before_does_not_change():
    cache = WindowCache(3, 2)
    first = cache.append(KeyValues(torch.ones(1, 1, 1, 1), torch.ones(1, 1, 1, 1)))
    second = cache.append(KeyValues(torch.full((1, 1, 1, 1), 2.0), torch.ones(1, 1, 1, 1)))
    for number in range(3, 11):
        cache.append(KeyValues(torch.full((1, 1, 1, 1), float(number)), torch.ones(1, 1, 1, 1)))
    assert first.keys.flatten().tolist() == [1]
    assert second.keys.flatten().tolist() == [1, 2]
    assert isinstance(second, WindowKeyValues)
    assert second.first.keys.flatten().tolist() == [1, 2]


def test_gradients_flow_through_what_the_cache_keeps():
    ours, _ = pair(7, 3)
    x = torch.randn(B, 43, D, requires_grad=True)
    outputs = (
        ours(x, x, x, Mask(causal=True), need_weights=False).output,
        pieces(ours, x, [17, 26], ours.new_cache())[0],
    )
    whole, split = (torch.autograd.grad(output.square().sum(), [x, *ours.parameters()]) for output in outputs)
    torch.testing.assert_close(split, whole, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("num_global", [0, 3])
@pytest.mark.parametrize("window", [2, 7])
def test_equals_longformer_on_shared_weights(window, num_global):
    config = LongformerConfig(
        hidden_size=D,
        num_attention_heads=H,
        attention_window=[2 * window],
        num_hidden_layers=1,
        attention_probs_dropout_prob=0.0,
    )
    theirs = LongformerSelfAttention(config, layer_id=0).eval()
    ours, _ = pair(window, num_global)
    ours_to_theirs = {"query": ours.w_q, "key": ours.w_k, "value": ours.w_v}
    for name, projection in ours_to_theirs.items():
        getattr(theirs, name).load_state_dict(projection.state_dict())
        getattr(theirs, f"{name}_global").load_state_dict(projection.state_dict())
    length = 2 * window * 5
    real = real_tokens("right", length)
    real[2, : num_global + 1] = True
    x = torch.randn(B, length, D)
    is_global = torch.arange(length)[None].expand(B, -1) < num_global
    theirs_mask = torch.zeros(B, length).masked_fill(~real, -10000.0).masked_fill(is_global, 10000.0)
    (expected,) = theirs(
        x,
        attention_mask=theirs_mask,
        is_index_masked=~real,
        is_index_global_attn=is_global,
        is_global_attn=num_global > 0,
    )
    output = ours(x, x, x, Mask(real), need_weights=False).output
    # Theirs ends before the projection of the output, and what padding asks for differs.
    torch.testing.assert_close(output[real], ours.w_o(expected)[real], rtol=1e-5, atol=1e-5)


class Largest(TorchDispatchMode):
    """Remembers the most numbers in any tensor that is made."""

    def __init__(self) -> None:
        super().__init__()
        self.numel = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        results = result if isinstance(result, tuple | list) else (result,)
        self.numel = max([self.numel, *(each.numel() for each in results if isinstance(each, Tensor))])
        return result


def largest(length: int, causal: bool, kind: type[Position] | None, need_weights: bool = False) -> int:
    attention = SlidingWindowAttention(D, H, 0.1, window=7, num_global=3)
    position = code(kind, causal)
    here = torch.arange(length)[None]
    placed = position and QueryKeyPositions(position, here, here)
    x = torch.randn(1, length, D, requires_grad=True)
    real = torch.ones(1, length, dtype=torch.bool)
    with Largest() as made:
        output = attention(x, x, x, Mask(real, causal), need_weights=need_weights, positions=placed).output
        output.square().sum().backward()
    return made.numel


@pytest.mark.parametrize("causal", [False, True], ids=["both sides", "causal"])
@pytest.mark.parametrize("kind", POSITIONS, ids=lambda kind: kind.__name__ if kind else "None")
def test_nothing_of_size_n_by_n_is_made(kind, causal):
    length = 997
    size = largest(length, causal, kind)
    assert size < length * length / 3
    assert largest(2 * length, causal, kind) < 2.2 * size
    assert largest(length, causal, kind, need_weights=True) >= length * length


def test_a_window_far_beyond_the_sequence_costs_no_more_than_the_sequence():
    attention = SlidingWindowAttention(D, H, window=100003)
    x = torch.randn(1, 37, D)
    with Largest() as made:
        attention(x, x, x, need_weights=False)
    assert made.numel < 100003


@pytest.mark.parametrize("causal", [False, True], ids=["both sides", "causal"])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float16, 1e-2), (torch.bfloat16, 5e-2)], ids=str)
@pytest.mark.parametrize("kind", [None, ALiBi, RotaryPosition], ids=lambda kind: kind.__name__ if kind else "None")
def test_half_precision_stays_close_and_finite(kind, dtype, tolerance, causal):
    length = 67
    ours, full = pair(5, 2)
    real = real_tokens("all", length)
    placed = placed_at(code(kind, causal), real, length)
    x = torch.randn(B, length, D).to(dtype)
    expected = full(*[x.float()] * 3, equivalent(length, 5, 2, real, causal), positions=placed).output
    output = ours.to(dtype)(x, x, x, Mask(real, causal), need_weights=False, positions=placed).output
    assert output.dtype == dtype
    torch.testing.assert_close(output.float(), expected, rtol=tolerance, atol=tolerance)
    output.float().square().sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in ours.parameters())


def test_queries_without_a_key_get_the_output_bias():
    ours, _ = pair(5, 2)
    x = torch.randn(B, 31, D)
    for kind in (None, ALiBi):
        real = real_tokens("all", 31)
        placed = placed_at(code(kind, causal=False), real, 31)
        output = ours(x, x, x, Mask(real), need_weights=False, positions=placed).output
        torch.testing.assert_close(output[2], ours.w_o.bias.expand(31, D))


@pytest.mark.parametrize("mask", [None, Mask(causal=True)], ids=["both sides", "causal"])
def test_dropout_drops_weights_in_training_only(mask):
    # Identical values of 1: without dropout the output is 1; with it, it varies around 1, row by row and head by head.
    attention = SlidingWindowAttention(D, H, 0.5, window=7, num_global=3)
    for projection in (attention.w_v, attention.w_o):
        torch.nn.init.zeros_(projection.bias)
        torch.nn.init.eye_(projection.weight)
    x, ones = torch.randn(B, 997, D), torch.ones(B, 997, D)

    def run() -> Tensor:
        return attention(x, x, ones, mask, need_weights=False).output

    dropped = run()
    assert dropped.std(dim=(1, 2)).min() > 0.1
    assert dropped[:, :3].std() > 0.01
    assert dropped.mean().item() == pytest.approx(1, abs=0.05)
    attention.eval()
    torch.testing.assert_close(run(), ones)


@pytest.mark.parametrize("need_weights", [True, False], ids=["explicit", "fused"])
@pytest.mark.parametrize(
    ("num_queries", "num_keys", "mask"),
    [(5, 7, None), (7, 5, None), (7, 5, Mask(causal=True)), (5, 7, Mask(torch.ones(B, 7, dtype=torch.bool)))],
    ids=["fewer queries", "more queries", "more queries, causal", "padding"],
)
def test_refuses_two_sequences(num_queries, num_keys, mask, need_weights):
    ours, _ = pair(5, 2)
    assert "cross" in ours.unsupported
    queries, keys = torch.randn(B, num_queries, D), torch.randn(B, num_keys, D)
    with pytest.raises(ValueError, match=rf"^{num_queries} queries and {num_keys} keys .* self-attention only.*LED"):
        ours(queries, keys, keys, mask, need_weights=need_weights)


@pytest.mark.parametrize("window", [0, -7])
def test_refuses_a_window_without_neighbours(window):
    with pytest.raises(ValueError, match=rf"^window={window} must be at least 1"):
        SlidingWindowAttention(D, H, window=window)


def test_refuses_less_than_no_global_tokens():
    with pytest.raises(ValueError, match=r"^num_global=-1 must be at least 0"):
        SlidingWindowAttention(D, H, num_global=-1)


def test_refuses_what_full_attention_refuses():
    with pytest.raises(ValueError, match=r"^num_heads=5 does not divide d_model=18"):
        SlidingWindowAttention(18, 5)
    with pytest.raises(ValueError, match=f"^dropout={math.nan} is not a probability"):
        SlidingWindowAttention(D, H, math.nan)
