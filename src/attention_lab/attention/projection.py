"""The linear maps of attention and of the networks around it."""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional


class Projection(nn.Linear):
    """y = x Wᵀ + b: `nn.Linear`, which on a CPU makes a training step of the default network several per cent faster.

    There PyTorch fills the result with the bias and then adds the product to it; here the bias is added to the product
    while that is still in the cache. In all else, the names of weights included, it is the same.

    Args:
        in_features: width of x.
        out_features: width of y.
    """

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__(in_features, out_features)

    def forward(self, input: Float[Tensor, "*batch N"]) -> Float[Tensor, "*batch M"]:
        """Maps the last dimension."""
        # Gradients come first, being quicker to ask for: a decoded token goes through eight of these a layer.
        if not torch.is_grad_enabled() or input.device.type != "cpu":
            return functional.linear(input, self.weight, self.bias)
        product = functional.linear(input, self.weight)
        product += self.bias
        return product
