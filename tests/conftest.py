"""What holds for all tests: shape annotations of the package are checked, and no test changes how a CPU computes."""

import os
from collections.abc import Iterator

# As the commands do: without it the tests crawl on a machine that does anything else besides.
os.environ.setdefault("GOMP_SPINCOUNT", "10000")

import pytest
import torch
from jaxtyping import install_import_hook

# This has to come before the first import of the package.
install_import_hook("attention_lab", "beartype.beartype")


@pytest.fixture(autouse=True)
def _denormals() -> Iterator[None]:
    """Gives every test numbers below 1e-38, on its own thread, whatever a command has done in this process before."""
    torch.set_flush_denormal(False)
    yield
    torch.set_flush_denormal(False)
