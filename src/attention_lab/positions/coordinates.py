"""Where tokens are: every token carries its coordinate, and codes never count for themselves."""

from jaxtyping import Bool, Integer
from torch import Tensor


def from_start(real: Bool[Tensor, "B L"]) -> Integer[Tensor, "B L"]:
    """Returns each token's distance from the first real one, in tokens.

    Padding on the left does not shift anybody; padding itself gets the nearest coordinate, which nobody reads.
    """
    return (real.cumsum(dim=1) - 1).clamp(min=0)
