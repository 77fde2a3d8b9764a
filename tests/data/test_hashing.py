"""Hashes and random bits are what they always were: published numbers, pinned numbers, a plain Python version."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from attention_lab.data.hashing import content_hash, mix, random_bits

GOLDEN_RATIO = 0x9E3779B97F4A7C15
ROWS = st.lists(st.integers(0, 2**31 - 1), max_size=11)


def plain_mix(value: int) -> int:
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) % 2**64
    return value ^ (value >> 31)


def plain_hash(row: list[int]) -> int:
    value = plain_mix(len(row))
    for token in row:
        value = plain_mix((value + token + GOLDEN_RATIO) % 2**64)
    return value


def hash_of(row: list[int]) -> int:
    return int(content_hash(np.array([row], dtype=np.int64))[0])


def test_mix_gives_the_published_stream_of_splitmix64() -> None:
    # SplitMix64 seeded with 0 returns the mix of every multiple of the golden ratio.
    states = np.arange(1, 4, dtype=np.uint64) * np.uint64(GOLDEN_RATIO)
    assert mix(states).tolist() == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]


def test_content_hash_never_changes() -> None:
    assert [hash_of(row) for row in ([], [3], [3, 4], [4, 3], [3, 4, 5, 6, 7])] == [
        0,
        17625268538026313537,
        4286867416082645417,
        18366210818549904308,
        1243875956077399806,
    ]


def test_random_bits_never_change() -> None:
    assert random_bits(3, 0).tolist() == [259491006799949737, 4754966410622352325, 8698845897610382596]
    assert random_bits(3, 5, 2, 11).tolist() == [12373916676898642067, 10957848260303094590, 2627798078245412858]


@given(ROWS)
@settings(max_examples=60, deadline=None)
def test_content_hash_equals_plain_integer_arithmetic(row: list[int]) -> None:
    assert hash_of(row) == plain_hash(row)


@given(ROWS, ROWS)
@settings(max_examples=60, deadline=None)
def test_hashes_are_equal_only_for_equal_rows(first: list[int], second: list[int]) -> None:
    assert (hash_of(first) == hash_of(second)) == (first == second)


def test_length_counts_even_where_every_token_is_zero() -> None:
    assert len({hash_of([0] * length) for length in range(13)}) == 13


def test_order_counts() -> None:
    assert len({hash_of(row) for row in ([3, 4, 5], [3, 5, 4], [4, 3, 5], [5, 4, 3])}) == 4


def test_the_integer_type_does_not_count() -> None:
    rows = np.array([[3, 100, 7], [5, 4, 127]])
    expected = content_hash(rows).tolist()
    for dtype in (np.int8, np.uint8, np.int16, np.int32, np.uint64):
        assert content_hash(rows.astype(dtype)).tolist() == expected


def test_neighbours_and_memory_layout_do_not_count() -> None:
    rows = np.arange(3, 3 + 7 * 5).reshape(7, 5)
    expected = content_hash(rows)
    assert content_hash(np.asfortranarray(rows)).tolist() == expected.tolist()
    assert content_hash(rows[::-2]).tolist() == expected[::-2].tolist()
    assert [hash_of(row) for row in rows.tolist()] == expected.tolist()


def test_hashing_leaves_the_rows_alone() -> None:
    rows = np.array([[3, 4, 5]])
    content_hash(rows)
    assert rows.tolist() == [[3, 4, 5]]


def test_random_bits_depend_on_every_part_of_the_key_and_on_its_order() -> None:
    keys = [(5, 2, 11), (7, 2, 11), (5, 3, 11), (5, 2, 13), (2, 5, 11), (5, 2)]
    assert len({tuple(random_bits(2, *key).tolist()) for key in keys}) == len(keys)


def test_fewer_random_bits_are_the_first_of_more() -> None:
    assert random_bits(7, 5, 2).tolist() == random_bits(13, 5, 2)[:7].tolist()


def test_random_bits_care_for_no_global_state() -> None:
    before = random_bits(5, 3).tolist()
    np.random.seed(17)
    assert random_bits(5, 3).tolist() == before
