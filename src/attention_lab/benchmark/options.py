"""What a benchmark can be told, as plain types that travel to other processes. Light to import."""

from dataclasses import dataclass
from typing import Literal

Device = Literal["auto", "cpu", "gpu"]
Precision = Literal["auto", "32-true", "bf16-mixed"]


class BenchmarkError(Exception):
    """An option that cannot be used: one line that says what is allowed."""


@dataclass(frozen=True)
class CostOptions:
    """Options of `cost`.

    Attributes:
        lengths: sequence lengths, in tokens, ascending.
        kinds: names of the layers to measure; None measures all.
        d_model: model width D.
        num_heads: attention heads.
        d_ff: width of the feed-forward layer; None makes it 4 D.
        batch_size: sequences at a time.
        repeats: timed repeats of which the median counts.
        memory_limit_gib: what is bound to need more is left out.
        timeout: seconds that one process may take.
        device: where to run.
        precision: of matrix products.
        threads: threads on a CPU; None leaves the choice to PyTorch.
        pdf: write figures as PDF, too.
    """

    lengths: tuple[int, ...]
    kinds: tuple[str, ...] | None
    d_model: int
    num_heads: int
    d_ff: int | None
    batch_size: int
    repeats: int
    memory_limit_gib: float
    timeout: int
    device: Device
    precision: Precision
    threads: int | None
    pdf: bool


@dataclass(frozen=True)
class PeersOptions:
    """Options of `peers`.

    Attributes:
        task: name of a task.
        d_model: model width D.
        num_heads: attention heads.
        num_layers: layers of the encoder, and of the decoder.
        d_ff: width of the feed-forward layers.
        vocab_size: symbols, specials not counted.
        max_length: longest source of training, in symbols.
        train_size: distinct training sequences.
        batch_size: sequences a training batch.
        steps: training steps of each contender a round.
        rounds: rounds of which the median counts.
        decode_length: tokens to decode.
        decode_batch: sequences to decode at a time.
        device: where to run.
        precision: of matrix products.
        threads: threads on a CPU; None leaves the choice to PyTorch.
        pdf: write figures as PDF, too.
    """

    task: str
    d_model: int
    num_heads: int
    num_layers: int
    d_ff: int
    vocab_size: int
    max_length: int
    train_size: int
    batch_size: int
    steps: int
    rounds: int
    decode_length: int
    decode_batch: int
    device: Device
    precision: Precision
    threads: int | None
    pdf: bool


@dataclass(frozen=True)
class LoopOptions:
    """Options of `loop`.

    Attributes:
        steps: training steps that are timed, of each loop in each round.
        rounds: rounds of which the median counts.
        seeds: runs of each loop, with seeds 0, 1, ..., until the task is solved.
        threads: threads of both loops; None leaves the choice to PyTorch.
    """

    steps: int
    rounds: int
    seeds: int
    threads: int | None
