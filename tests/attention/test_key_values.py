"""The cache of keys and values: nothing lost, nothing mixed up, little copied."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attention_lab.attention.key_values import KeyValueCache, KeyValues
from attention_lab.attention.mask import Mask
from attention_lab.attention.multi_head import MultiHeadAttention
from attention_lab.attention.packing import AttentionMetadata, Packing

B, H, K = 2, 3, 5


def project(attention, k, v, positions=None):
    """Keys and values of one padded batch."""
    return attention.project(k, v, Packing.of([k]), positions)[0]


def attend(attention, q, memory, mask, num_keys=None, positions=None, need_weights=True):
    """What one padded batch attends to."""
    num_keys = num_keys or memory.keys.size(2)
    metadata = AttentionMetadata((mask,), Packing.of([q]), Packing(((len(q), num_keys),)), positions)
    return attention.attend(q, [memory], metadata, need_weights=need_weights)


def random_key_values(length: int, seed: int = 0) -> KeyValues:
    generator = torch.Generator().manual_seed(seed)
    return KeyValues(*(torch.randn(B, H, length, K, generator=generator) for _ in range(2)))


def both(memory: KeyValues):
    return memory.keys, memory.values


@settings(deadline=None, max_examples=50)
@given(lengths=st.lists(st.integers(1, 23), min_size=1, max_size=7), seed=st.integers(0, 2**32))
def test_returns_all_that_was_ever_appended(lengths, seed):
    everything = random_key_values(sum(lengths), seed)
    parts = [part.split(lengths, dim=2) for part in (everything.keys, everything.values)]
    cache = KeyValueCache()
    for new in zip(*parts, strict=True):
        so_far = cache.append(KeyValues(*new))
        assert so_far.keys.size(2) == cache.length
        torch.testing.assert_close(both(so_far), tuple(part[:, :, : cache.length] for part in both(everything)))
    assert cache.length == sum(lengths)


def test_what_was_returned_before_does_not_change():
    cache = KeyValueCache()
    first = cache.append(random_key_values(7))
    for seed in range(1, 23):
        cache.append(random_key_values(1, seed))
    torch.testing.assert_close(both(first), both(random_key_values(7)))


def test_room_is_moved_rarely():
    cache = KeyValueCache()
    one = random_key_values(1)
    # Kept, so that no address can be used twice.
    returned = [cache.append(one) for _ in range(257)]
    # What came first, then doubling from 16 on: 16, 34, 70, 142, 286.
    assert len({so_far.keys.untyped_storage().data_ptr() for so_far in returned}) == 6


def test_room_for_what_is_expected_is_made_once():
    cache = KeyValueCache(expected=97)
    returned = [cache.append(random_key_values(1, seed)) for seed in range(103)]
    places = [so_far.keys.untyped_storage().data_ptr() for so_far in returned]
    # What came first, room for what was expected, and for more than that.
    assert [places.index(place) for place in dict.fromkeys(places)] == [0, 1, 97]
    assert returned[96].keys.untyped_storage().nbytes() == B * H * 97 * K * 4


def test_what_comes_first_is_kept_as_it_is_with_its_gradients():
    first = KeyValues(*(part.requires_grad_() for part in both(random_key_values(7))))
    so_far = KeyValueCache().append(first)
    assert so_far is first


def test_the_type_of_numbers_is_kept():
    cache = KeyValueCache()
    so_far = cache.append(KeyValues(*(part.half() for part in both(random_key_values(3)))))
    assert so_far.keys.dtype == so_far.values.dtype == torch.float16


def test_attending_token_by_token_equals_causal_attention_over_all():
    torch.manual_seed(0)
    attention = MultiHeadAttention(H * K, H, dropout=0.0)
    x = torch.randn(B, 19, H * K)
    expected = attention(x, x, x, Mask(causal=True))
    cache = KeyValueCache()
    with torch.no_grad():
        for token in range(x.size(1)):
            new = x[:, token : token + 1]
            output, weights = attend(attention, new, cache.append(project(attention, new, new)), Mask(causal=True))
            torch.testing.assert_close(output[:, 0], expected.output[:, token], rtol=1e-5, atol=1e-5)
            torch.testing.assert_close(weights[:, :, 0], expected.weights[:, :, token, : token + 1])
