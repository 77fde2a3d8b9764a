"""A projection is a linear layer: same weights, same results, same gradients."""

import pytest
import torch
from torch import nn

from attention_lab.attention.projection import Projection

N, M = 7, 5


def both() -> tuple[Projection, nn.Linear]:
    torch.manual_seed(0)
    ours, theirs = Projection(N, M), nn.Linear(N, M)
    theirs.load_state_dict(ours.state_dict())
    return ours, theirs


@pytest.mark.parametrize("shape", [(3, N), (2, 11, N), (2, 3, 11, N)])
def test_equals_pytorchs_own_with_its_gradients(shape):
    torch.manual_seed(1)
    x, upstream = torch.randn(shape, requires_grad=True), torch.randn(*shape[:-1], M)
    found = []
    for layer in both():
        y = layer(x)
        found.append((y, *torch.autograd.grad(y, [x, *layer.parameters()], upstream)))
    torch.testing.assert_close(*found)


def test_without_gradients_it_is_pytorchs_own():
    ours, theirs = both()
    with torch.no_grad():
        x = torch.randn(2, 11, N)
        assert torch.equal(ours(x), theirs(x))
