"""Measures one layer at one length, in a process of its own that reads from standard input what to measure."""

import importlib
import inspect
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from attention_lab.attention.mask import Mask
from attention_lab.attention.multi_head import MultiHeadAttention
from attention_lab.benchmark.alone import answer
from attention_lab.benchmark.machine import Machine
from attention_lab.models.blocks import TransformerBlock

WARM_UP = 16
"""Tokens of the step that comes first, so that what libraries set up once is nobody's memory and nobody's time."""


@dataclass(frozen=True)
class LayerQuestion:
    """What to measure.

    Attributes:
        component: `_target_` and settings of an attention, or of a recurrent layer of PyTorch.
        need_weights: ask for attention weights.
        length: tokens of a sequence.
        batch_size: sequences.
        d_model: model width D.
        num_heads: attention heads.
        d_ff: width of the feed-forward layer.
        steps: steps whose peak memory is measured; 0 only builds the layer and warms up, for a memory to compare with.
        repeats: timed repeats after those.
        device: `auto`, `cpu` or `gpu`.
        precision: of matrix products.
        threads: threads on a CPU; None leaves the choice to PyTorch.
    """

    component: dict[str, Any]
    need_weights: bool
    length: int
    batch_size: int
    d_model: int
    num_heads: int
    d_ff: int
    steps: int
    repeats: int
    device: str
    precision: str
    threads: int | None


def measure(question: dict[str, Any]) -> dict[str, Any]:
    """Runs a layer forward and backward.

    Returns:
        `form`: whether the layer is causal or bidirectional. `seconds`: the median of the repeats, None without any.
        `peak_bytes`: as `Machine.peak_bytes` gives it. `on_gpu`, and `machine`, which describes it.

    Raises:
        ValueError: the component is not a layer that can be measured.
    """
    asked = LayerQuestion(**question)
    machine = Machine(asked.device, asked.precision, asked.threads)
    layer, causal = _built(asked)
    layer.to(machine.device)
    mask = Mask(causal=True) if causal else None
    _step(layer, asked, mask, machine, min(WARM_UP, asked.length))()
    # Input and gradient of the output are there before memory and time count, also where nothing is measured.
    step = _step(layer, asked, mask, machine, asked.length)

    def steps() -> None:
        for _ in range(asked.steps):
            step()

    peak = machine.peak_bytes(steps)
    times = [machine.seconds(step) for _ in range(asked.repeats)]
    return {
        "form": "causal" if causal else "bidirectional",
        "seconds": statistics.median(times) if times else None,
        "peak_bytes": peak,
        "on_gpu": machine.is_gpu,
        "machine": machine.described(),
    }


def _built(asked: LayerQuestion) -> tuple[nn.Module, bool]:
    """Returns the layer, and whether it is causal: every kind is, that can be."""
    module, _, name = asked.component["_target_"].rpartition(".")
    found = getattr(importlib.import_module(module), name)
    settings = {key: value for key, value in asked.component.items() if key != "_target_"}
    if inspect.isclass(found) and issubclass(found, MultiHeadAttention):

        def attention(d_model: int, num_heads: int, dropout: float) -> MultiHeadAttention:
            return found(d_model, num_heads, dropout, **settings)

        layer = TransformerBlock(asked.d_model, asked.num_heads, asked.d_ff, dropout=0.0, attention=attention)
        return layer, "causal" not in found.unsupported
    if inspect.isclass(found) and issubclass(found, (nn.LSTM, nn.RNN)):
        return found(asked.d_model, asked.d_model, batch_first=True), True
    raise ValueError(f"_target_={asked.component['_target_']} is neither an attention nor a recurrent layer")


def _step(
    layer: nn.Module, asked: LayerQuestion, mask: Mask | None, machine: Machine, length: int
) -> Callable[[], None]:
    """Returns what runs the layer on a sequence of a length, forward and backward, gradient of the input included."""
    shape = (asked.batch_size, length, asked.d_model)
    x = torch.randn(shape, device=machine.device, requires_grad=True)
    # Not ones: behind layer norm those become gradients so near zero that a CPU slows down over them.
    gradient = torch.randn(shape, device=machine.device)

    def output() -> Tensor:
        if isinstance(layer, TransformerBlock):
            return layer(x, mask, need_weights=asked.need_weights).output
        return layer(x)[0]

    def step() -> None:
        layer.zero_grad(set_to_none=False)
        x.grad = None
        with machine.computing():
            y = output()
        y.backward(gradient.to(y.dtype))

    return step


if __name__ == "__main__":
    answer(measure)
