"""Linear attention: sums over keys that every query shares, instead of a score for every pair."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from jaxtyping import Bool, Float, Integer
from torch import Tensor
from torch.nn import functional

from attention_lab.attention.key_values import KeyValues
from attention_lab.attention.mask import Mask, boolean
from attention_lab.attention.multi_head import MultiHeadAttention
from attention_lab.positions.position import QueryKeyPositions

CHUNK = 64
"""Tokens whose pairs are looked at one by one in the causal form."""


class LinearAttention(MultiHeadAttention):
    """output_i = φ(q_i)ᵀ Σ_j φ(k_j) v_jᵀ / φ(q_i)ᵀ Σ_j φ(k_j) with φ(x) = elu(x) + 1, in every head.

    Katharopoulos et al. 2020, "Transformers are RNNs", equations 5 to 7. The sums do not depend on the query, so n
    tokens cost O(n) time and memory; in the causal form the sums run along the tokens (equations 9 to 12). They are
    kept in single precision or better, whatever the precision of the queries. Products are not scaled by √K: that
    would cancel.

    There are no weights to drop on the way to the values, so `dropout` is accepted and ignored, as in the authors'
    code. A mask with `allowed` takes the explicit path with its (B, H, L, S) weights, as
    does asking for them: they are φ(q_i)ᵀφ(k_j), made to sum to 1.

    Constructor arguments and what they raise are those of `MultiHeadAttention`.
    """

    unsupported: ClassVar[Mapping[str, str]] = {
        "bias": "its pairs have no scores that a bias could be added to",
        "cached_weights": "a cache keeps sums, and no keys that a query could give a weight to",
        "turn": "turned before the feature map, a query and a key no longer meet by their distance alone, and turned "
        "features would give negative weights",
    }

    def new_cache(self, expected: int = 0) -> "RunningSums":
        """Returns an empty cache, whose size does not depend on how many tokens it takes in."""
        return RunningSums()

    def mix(
        self,
        queries: Float[Tensor, "B H L K"],
        memory: KeyValues,
        mask: Mask,
        positions: QueryKeyPositions | None,
        need_weights: bool,
    ) -> tuple[Float[Tensor, "B H L K"], Float[Tensor, "B H L S"] | None]:
        """Mixes values, head by head.

        Behind a cache that has let tokens go the weights are None even when asked for: there are no keys left to give
        a weight to.

        Raises:
            ValueError: tokens that a cache has let go are to be masked: by a matrix, or by `mask.keys` although the
                cache was not told that they are padding.
        """
        past = memory.past if isinstance(memory, SummedKeyValues) else None
        if past is not None and mask.allowed is not None:
            raise ValueError(
                f"mask={tuple(mask.allowed.shape)} is a matrix, and the tokens before these are kept only as sums; "
                "use a Mask without `allowed`, or attend without a cache"
            )
        # Mixed precision would take the products, and with them the sums, in half precision.
        with torch.autocast(queries.device.type, enabled=False):
            if past is None and (need_weights or mask.allowed is not None):
                mixed, weights = explicit(queries, memory, mask)
            else:
                mixed, weights = summed(queries, memory, mask, past), None
        wanted = weights.to(queries.dtype) if need_weights and weights is not None else None
        return mixed.to(queries.dtype), wanted


class Past(NamedTuple):
    """What is kept of tokens whose keys and values are not.

    Attributes:
        sums: Σ_j φ(k_j) [v_j, 1]ᵀ; its last column is the normaliser.
        tokens: how many tokens are in it, padding not counted.
    """

    sums: Float[Tensor, "B H K M"]
    tokens: Integer[Tensor, "B"]


@dataclass(slots=True)
class SummedKeyValues(KeyValues):
    """The keys and values of a piece, and the sums over all tokens before it."""

    past: Past


class RunningSums:
    """A cache for decoding: the sums over all tokens so far, and the keys and values of the last piece only."""

    def __init__(self) -> None:
        self._past: Past | None = None
        self._piece: tuple[KeyValues, Bool[Tensor, "B S"] | None] | None = None

    def append(self, new: KeyValues, real: Bool[Tensor, "B S"] | None = None) -> KeyValues:
        """Takes in the next tokens and returns them with the sums over all that came before.

        Args:
            new: the keys and values of the next tokens.
            real: which of them are not padding; all where not given. A mask comes too late for tokens that were summed.
        """
        # A piece is summed only when the next one comes: a target read all at once never needs its sums.
        if self._piece is not None:
            self._past = _added(self._past, *self._piece)
        self._piece = new, real
        return new if self._past is None else SummedKeyValues(new.keys, new.values, self._past)


def explicit(
    queries: Float[Tensor, "B H L K"], memory: KeyValues, mask: Mask
) -> tuple[Float[Tensor, "B H L K"], Float[Tensor, "B H L S"]]:
    """Returns output and weights, with every pair's weight spelled out (equation 4)."""
    weights = feature_map(queries) @ feature_map(memory.keys).transpose(-2, -1)
    matrix = mask.matrix(queries.size(-2), memory.keys.size(-2), queries.device)
    if matrix is not None:
        weights = weights.masked_fill(~matrix, 0.0)
    weights = weights / _divisor(weights.sum(dim=-1, keepdim=True))
    return weights @ memory.values.to(weights.dtype), weights


def summed(
    queries: Float[Tensor, "B H L K"], memory: KeyValues, mask: Mask, past: Past | None
) -> Float[Tensor, "B H L K"]:
    """Returns the same output, without a weight for every pair (equations 5 and 12)."""
    features, values = _features_and_values(memory, _real(mask, memory, past))
    queries = feature_map(queries)
    if mask.causal and queries.size(-2) > 1:
        products = _causal_products(queries, features, values, None if past is None else past.sums)
    else:
        sums = features.transpose(-2, -1) @ values
        products = queries @ (sums if past is None else past.sums + sums)
    return products[..., :-1] / _divisor(products[..., -1:])


def feature_map(x: Float[Tensor, "*batch K"]) -> Float[Tensor, "*batch K"]:
    """φ(x) = elu(x) + 1, never negative, in single precision or better."""
    return functional.elu(x.to(torch.promote_types(x.dtype, torch.float32))) + 1


def _features_and_values(
    memory: KeyValues, real: Bool[Tensor, "#B S"] | None
) -> tuple[Float[Tensor, "B H S K"], Float[Tensor, "B H S M"]]:
    """Returns φ(k) and [v, 1]: with a column of ones, one product gives both what is mixed and its normaliser."""
    features = feature_map(memory.keys)
    if real is not None:
        features = features.masked_fill(~real[:, None, :, None], 0.0)
    return features, functional.pad(memory.values.to(features.dtype), (0, 1), value=1.0)


def _causal_products(
    queries: Float[Tensor, "B H L K"],
    keys: Float[Tensor, "B H S K"],
    values: Float[Tensor, "B H S M"],
    sums: Float[Tensor, "B H K M"] | None,
) -> Float[Tensor, "B H L M"]:
    """Returns φ(q_i)ᵀ Σ_j φ(k_j) [v_j, 1]ᵀ over the tokens j up to i, the queries being the last L of S tokens.

    Within a chunk pair by pair, from chunk to chunk by the sums: O(n) numbers, where a sum for every token would be
    (n, K, K) of them.
    """
    earlier, length = keys.size(-2) - queries.size(-2), min(queries.size(-2), keys.size(-2))
    if sums is None:
        sums = keys.new_zeros(*keys.shape[:2], keys.size(-1), values.size(-1))
    if earlier > 0:
        sums = sums + keys[:, :, :earlier].transpose(-2, -1) @ values[:, :, :earlier]
    size = min(CHUNK, length)
    queries, keys, values = (
        functional.pad(part[:, :, -length:], (0, 0, 0, -length % size)).unflatten(2, (-1, size))
        for part in (queries, keys, values)
    )
    of_chunks = keys.transpose(-2, -1) @ values
    # Shifted, not subtracted afterwards: rounding would let the future show through.
    before = torch.cat([sums[:, :, None], of_chunks[:, :, :-1]], dim=2).cumsum(dim=2)
    products = (queries @ keys.transpose(-2, -1)).tril() @ values + queries @ before
    # Queries from before the first key see nothing.
    return functional.pad(products.flatten(2, 3)[:, :, :length], (0, 0, max(0, -earlier), 0))


def _real(mask: Mask, memory: KeyValues, past: Past | None) -> Bool[Tensor, "#B S"] | None:
    """Returns which of the keys at hand are real, once it is sure that those in the sums were real too."""
    if mask.keys is None:
        return None
    gone = boolean(mask.keys).size(1) - memory.keys.size(-2)
    if past is not None and gone > 0 and not torch.equal(mask.keys[:, :gone].sum(dim=1), past.tokens):
        raise ValueError(
            f"mask.keys={tuple(mask.keys.shape)} hides tokens that are already in the sums; "
            "tell the cache what is padding: append(new, real)"
        )
    return mask.keys[:, max(0, gone) :]


def _added(past: Past | None, piece: KeyValues, real: Bool[Tensor, "B S"] | None) -> Past:
    features, values = _features_and_values(piece, real)
    batch, _, length, _ = features.shape
    sums = features.transpose(-2, -1) @ values
    tokens = torch.full((batch,), length, device=sums.device) if real is None else real.sum(dim=1)
    return Past(sums, tokens) if past is None else Past(past.sums + sums, past.tokens + tokens)


def _divisor(normaliser: Tensor) -> Tensor:
    """Returns 1 where there is nothing to divide: a query that sees no key gets zeros, and finite gradients."""
    return normaliser.where(normaliser > 0, 1.0)
