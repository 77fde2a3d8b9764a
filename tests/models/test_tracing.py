"""Tracing: a network compiles and exports as it is, for batches of any size, with and without padding."""

import subprocess
import sys

import pytest

SCRIPT = """
import torch
from attention_lab.models.{module} import {name}
from attention_lab.tasks.vocabulary import BOS, EOS, PAD

torch.manual_seed(0)
network = {name}(11, 8, 2, 1, 7).eval()
small = torch.tensor([[5, 6, 7, EOS, PAD], [5, 6, EOS, PAD, PAD]]), torch.tensor([[BOS, 5, 6, 7], [BOS, 5, 6, PAD]])
large = (
    torch.tensor([[5, 6, 7, 8, 9, EOS], [PAD, 5, 6, EOS, PAD, PAD], [4, EOS, PAD, PAD, PAD, PAD]]),
    torch.tensor([[BOS, 5, 6, 7, 8, 9], [BOS, 5, 6, PAD, PAD, PAD], [BOS, 4, PAD, PAD, PAD, PAD]]),
)
auto = {{0: torch.export.Dim.AUTO, 1: torch.export.Dim.AUTO}}
with torch.no_grad():
    exported = torch.export.export(network, small, dynamic_shapes=(auto, auto)).module()
    compiled = torch.compile(network, backend="aot_eager", fullgraph=True)
    for batch in (small, large):
        expected = network(*batch).logits
        for traced in (exported, compiled):
            torch.testing.assert_close(traced(*batch).logits, expected)
"""


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("EncoderDecoder", marks=pytest.mark.slow),
        pytest.param("DecoderOnly", marks=pytest.mark.slow),
        "EncoderOnly",
    ],
)
def test_a_network_compiles_and_exports_with_equal_logits(name: str) -> None:
    module = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).removeprefix("_")
    # In a process without the tests' checks of annotations, which nothing can be traced through.
    code = SCRIPT.format(module=module, name=name)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
