"""Masks spelled out, against a plain loop."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from attention_lab.attention.mask import Mask, as_mask, hiding_padding


def spelled_out(mask: Mask, batch: int, num_queries: int, num_keys: int) -> Tensor:
    """The matrix of every batch row and every query; no matrix means that everything may be attended to."""
    matrix = mask.matrix(num_queries, num_keys)
    full = torch.tensor(True) if matrix is None else matrix
    assert full.dtype == torch.bool
    return full.expand(batch, 1, num_queries, num_keys)


@st.composite
def masks(draw):
    """A mask and the sizes it is for: batch, queries, keys."""
    batch, num_queries, num_keys = (draw(st.integers(1, 6)) for _ in range(3))
    row = st.lists(st.booleans(), min_size=num_keys, max_size=num_keys)
    real = draw(st.none() | st.lists(row, min_size=batch, max_size=batch))
    return Mask(None if real is None else torch.tensor(real), causal=draw(st.booleans())), (
        batch,
        num_queries,
        num_keys,
    )


@given(masks())
def test_matrix_equals_a_plain_loop(described):
    mask, (batch, num_queries, num_keys) = described
    matrix = spelled_out(mask, batch, num_queries, num_keys)
    for row in range(batch):
        for query in range(num_queries):
            # The queries are the last ones: the last query stands where the last key does.
            here = query + num_keys - num_queries
            for key in range(num_keys):
                real = mask.keys is None or bool(mask.keys[row, key])
                assert bool(matrix[row, 0, query, key]) == (real and (not mask.causal or key <= here))


@given(masks())
def test_fewer_queries_see_what_the_last_of_all_queries_see(described):
    mask, (batch, num_queries, num_keys) = described
    num_queries = min(num_queries, num_keys)
    of_all = spelled_out(mask, batch, num_keys, num_keys)
    assert torch.equal(spelled_out(mask, batch, num_queries, num_keys), of_all[:, :, num_keys - num_queries :])


def test_causal_with_fewer_queries_than_keys_is_aligned_at_the_bottom_right():
    expected = torch.tensor([[1, 1, 1, 1, 0], [1, 1, 1, 1, 1]], dtype=torch.bool)
    assert torch.equal(Mask(causal=True).matrix(2, 5)[0, 0], expected)


def test_causal_with_more_queries_than_keys_leaves_the_first_ones_nothing():
    expected = torch.tensor([[0, 0], [1, 0], [1, 1]], dtype=torch.bool)
    assert torch.equal(Mask(causal=True).matrix(3, 2)[0, 0], expected)


def test_causal_and_padding_both_count():
    mask = Mask(keys=torch.tensor([[False, True, True], [True, True, False]]), causal=True)
    expected = [[[0, 0, 0], [0, 1, 0], [0, 1, 1]], [[1, 0, 0], [1, 1, 0], [1, 1, 0]]]
    assert torch.equal(mask.matrix(3, 3)[:, 0], torch.tensor(expected, dtype=torch.bool))


def test_no_matrix_where_everything_may_be_attended_to():
    assert Mask().matrix(3, 5) is None
    assert Mask(causal=True).matrix(1, 5) is None


def test_padding_alone_never_spells_out_the_queries():
    keys = torch.tensor([[True, True, False], [True, False, False]])
    assert Mask(keys).matrix(5, 3).shape == (2, 1, 1, 3)


def test_only_padding_has_to_be_hidden():
    real = torch.tensor([[True, True, True], [True, True, False]])
    assert hiding_padding(real) == Mask(keys=real)
    assert hiding_padding(real[:, :2]) == Mask()


def test_no_other_device_is_asked_whether_there_is_padding():
    real = torch.ones(2, 3, dtype=torch.bool, device="meta")
    assert hiding_padding(real).keys is real


def test_the_matrix_is_made_on_the_device_asked_for():
    assert Mask(causal=True).matrix(3, 5, torch.device("meta")).device.type == "meta"


@pytest.mark.parametrize("keys", [None, [[1, 1, 1, 0, 0], [0, 1, 1, 1, 1]]])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("num_queries", [1, 3, 5])
def test_the_number_of_visible_keys_is_that_of_the_matrix(keys, causal, num_queries):
    mask = Mask(None if keys is None else torch.tensor(keys, dtype=torch.bool), causal)
    visible = mask.num_visible(num_queries, 5, torch.device("cpu"))
    matrix = mask.matrix(num_queries, 5)
    spelled = torch.ones(1, 1, 1, 5, dtype=torch.bool) if matrix is None else matrix
    expected = spelled.expand(2, 1, num_queries, 5).sum(dim=-1)
    assert torch.equal(visible.expand(2, 1, num_queries), expected)


@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (1, 3, 1, 1), (4, 5), (1, 1, 1, 5)])
def test_keys_that_a_matrix_hides_are_not_visible(shape):
    allowed, real = torch.rand(shape) < 0.5, torch.rand(2, 5) < 0.7
    mask = Mask(real, causal=True).narrowed(allowed)
    expected = (Mask(real, causal=True).matrix(4, 5) & allowed).expand(2, 3, 4, 5).sum(dim=-1)
    assert torch.equal(mask.num_visible(4, 5, torch.device("cpu")).expand(2, 3, 4), expected)


def test_what_callers_give_becomes_a_description():
    mask, real = Mask(causal=True), torch.rand(2, 5) < 0.5
    assert as_mask(mask, 5) is mask
    assert as_mask(None, 5) == Mask()
    assert torch.equal(as_mask(real[:, None, None], 5).keys, real)
    for matrix in (real[:, None, :, None], torch.rand(5, 5) < 0.5, torch.tensor([True])):
        described = as_mask(matrix, 5)
        assert described.keys is None
        assert torch.equal(described.allowed.expand(2, 1, 5, 5), matrix.expand(2, 1, 5, 5))
