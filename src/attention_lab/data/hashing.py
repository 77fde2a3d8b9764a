"""Numbers that never change: a content hash and a random stream that are the same on every machine, for ever."""

import numpy as np
from jaxtyping import Integer, UInt64


def mix(values: UInt64[np.ndarray, "..."]) -> UInt64[np.ndarray, "..."]:
    """Scrambles 64-bit integers one to one: SplitMix64's finaliser (Steele et al. 2014, variant 13 of Stafford)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def content_hash(sequences: Integer[np.ndarray, "N L"]) -> UInt64[np.ndarray, " N"]:
    """Returns a hash of each row's tokens and length; unlike Python's `hash`, it depends on nothing else."""
    hashes = mix(np.full(len(sequences), sequences.shape[1], dtype=np.uint64))
    for column in sequences.T:
        # Adding the golden ratio keeps a token 0 after a hash 0 from standing still.
        hashes = mix(hashes + column.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15))
    return hashes


def random_bits(count: int, *key: int) -> UInt64[np.ndarray, " count"]:
    """Returns `count` random 64-bit integers for a key.

    NumPy guarantees the stream of a bit generator for ever (NEP 19), but not what `Generator` makes of it; hence
    the raw bits.
    """
    return np.random.Philox(np.random.SeedSequence(key)).random_raw(count)
