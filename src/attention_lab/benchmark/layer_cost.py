"""Time and memory of one layer, measured in a process of its own. Quick to import: nothing here builds a layer."""

import statistics
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from attention_lab.attention.mask import Mask
from attention_lab.benchmark.machine import Machine
from attention_lab.benchmark.settings import DeviceSettings
from attention_lab.models.blocks import TransformerBlock

WARM_UP = 16
"""Tokens of the step that comes first, so that what libraries set up once is nobody's memory and nobody's time."""


class Case(NamedTuple):
    """A layer and its input.

    Attributes:
        module: a Transformer's block, or a recurrent layer of PyTorch.
        causal: whether the block is given a causal mask.
        need_weights: whether the block is asked for its attention weights.
        shape: of the input, (B, L, D).
        settings: where to run.
    """

    module: nn.Module
    causal: bool
    need_weights: bool
    shape: tuple[int, int, int]
    settings: DeviceSettings


def measure_time(case: Case, repeats: int) -> float:
    """Returns the median seconds of a step, forward and backward, after one that gets memory from the system."""
    machine = Machine(case.settings)
    step = _prepare(case, machine)
    step()
    return statistics.median(machine.seconds(step) for _ in range(repeats))


def measure_memory(case: Case, steps: int) -> int:
    """Returns the peak bytes of so many steps; 0 leaves the layer, its input and the warm-up."""
    machine = Machine(case.settings)
    step = _prepare(case, machine)

    def run() -> None:
        for _ in range(steps):
            step()

    return machine.peak_bytes(run)


def _prepare(case: Case, machine: Machine) -> Callable[[], None]:
    """Returns a step, once a short one has warmed up the machine."""
    batch, length, width = case.shape
    case.module.to(machine.device)
    _step(case, machine, (batch, min(WARM_UP, length), width))()
    return _step(case, machine, case.shape)


def _step(case: Case, machine: Machine, shape: tuple[int, int, int]) -> Callable[[], None]:
    """Returns what runs the layer forward and backward, gradient of the input included."""
    module, mask = case.module, Mask(causal=True) if case.causal else None
    # Input and gradient of the output are there before memory and time count, also where nothing is measured.
    x = torch.randn(shape, device=machine.device, requires_grad=True)
    # Not ones: behind layer norm those become gradients so near zero that a CPU slows down over them.
    gradient = torch.randn(shape, device=machine.device)

    def output() -> Tensor:
        if isinstance(module, TransformerBlock):
            return module(x, mask, need_weights=case.need_weights).output
        return module(x)[0]

    def step() -> None:
        module.zero_grad(set_to_none=False)
        x.grad = None
        with machine.computing():
            y = output()
        y.backward(gradient.to(y.dtype))

    return step
