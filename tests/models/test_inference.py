"""Looking at a network leaves no trace."""

import pytest
import torch
from torch import nn

from attention_lab.models.inference import evaluation_mode


@pytest.fixture
def network() -> nn.Module:
    """Trains, but for one part that is frozen in evaluation mode."""
    network = nn.Sequential(nn.Linear(3, 5), nn.Dropout(0.5), nn.Sequential(nn.Dropout(0.5), nn.Linear(5, 7)))
    network.train()
    network[2][0].eval()
    return network


def modes(network: nn.Module) -> dict[str, bool]:
    return {name: module.training for name, module in network.named_modules()}


def test_nothing_trains_inside(network):
    x = torch.ones(2, 3)
    with evaluation_mode(network):
        assert not any(modes(network).values())
        out = network(x)
        assert torch.equal(out, network(x))
    assert not out.requires_grad


def test_every_module_gets_its_own_mode_back(network):
    before = modes(network)
    with evaluation_mode(network):
        pass
    assert modes(network) == before
    assert len(set(before.values())) == 2


def test_modes_and_gradients_come_back_after_an_exception(network):
    before = modes(network)
    with pytest.raises(RuntimeError, match="stop"), evaluation_mode(network):
        raise RuntimeError("stop")
    assert modes(network) == before
    assert torch.is_grad_enabled()


@pytest.mark.parametrize("enabled", [True, False])
def test_gradients_are_as_they_were(network, enabled):
    with torch.set_grad_enabled(enabled):
        with evaluation_mode(network):
            assert not torch.is_grad_enabled()
        assert torch.is_grad_enabled() == enabled


def test_looks_can_be_nested(network):
    before = modes(network)
    with evaluation_mode(network):
        with evaluation_mode(network):
            pass
        assert not any(modes(network).values())
    assert modes(network) == before
