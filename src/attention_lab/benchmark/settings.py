"""The settings of the benchmarks: the flags of their command lines are made of these. Light to import."""

from dataclasses import dataclass, field
from typing import Literal, TypeVar

from attention_lab.errors import SettingError

T = TypeVar("T")


def _setting(default: T, description: str) -> T:
    """Declares a setting; its description is also the help of its flag."""
    return field(default=default, metadata={"help": description})


@dataclass(frozen=True)
class BenchmarkSettings:
    """What every benchmark can be told. Whole numbers are at least 1."""

    threads: int | None = _setting(None, "threads on a CPU; as many as PyTorch chooses if not given")

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            numbers = value if isinstance(value, list) else [value]
            if any(type(number) is int and number < 1 for number in numbers):
                raise SettingError(name, value, "must be at least 1")


@dataclass(frozen=True)
class DeviceSettings(BenchmarkSettings):
    """What benchmarks can be told that run on a GPU as well and draw figures."""

    device: Literal["auto", "cpu", "gpu"] = _setting("auto", "auto takes a GPU if there is one")
    precision: Literal["auto", "32-true", "bf16-mixed"] = _setting(
        "auto", "auto is bf16-mixed on a GPU, else 32-true, as in training"
    )
    pdf: bool = _setting(False, "write every figure as PDF beside the PNG")


@dataclass(frozen=True)
class CostSettings(DeviceSettings):
    """Forward and backward through one layer, each kind and length in a fresh process."""

    lengths: list[int] = field(
        default_factory=lambda: [1024, 2048, 4096, 8192, 16384], metadata={"help": "sequence lengths, in tokens"}
    )
    kinds: list[str] | None = field(
        default=None, metadata={"help": "kinds of layers, such as full,full_explicit,lstm; all if not given"}
    )
    d_model: int = _setting(64, "model width")
    num_heads: int = _setting(4, "attention heads")
    d_ff: int | None = _setting(None, "width of the feed-forward layer; 4 times the model width if not given")
    batch_size: int = _setting(1, "sequences at a time")
    repeats: int = _setting(5, "timed repeats; the median counts")
    memory_limit_gib: float = _setting(6.0, "leave out what is bound to need more than this")
    timeout: int = _setting(600, "seconds that one process may take")


@dataclass(frozen=True)
class PeersSettings(DeviceSettings):
    """The same task, shapes, threads and optimiser for all; contenders take turns."""

    task: str = _setting("reverse", "what is learned: a file of configs/task")
    d_model: int = _setting(128, "model width")
    num_heads: int = _setting(4, "attention heads")
    num_layers: int = _setting(1, "layers of the encoder, and of the decoder")
    d_ff: int = _setting(256, "width of the feed-forward layers")
    vocab_size: int = _setting(10, "symbols, special tokens not counted")
    max_length: int = _setting(16, "longest source of training, in symbols")
    train_size: int = _setting(20480, "distinct training sequences")
    batch_size: int = _setting(128, "sequences a training batch")
    steps: int = _setting(30, "training steps of each contender a round")
    rounds: int = _setting(3, "rounds; the median counts")
    decode_length: int = _setting(256, "tokens to decode")
    decode_batch: int = _setting(32, "sequences to decode at a time")


@dataclass(frozen=True)
class LoopSettings(BenchmarkSettings):
    """The same training either way, experiment=fixed_length_reverse on a CPU; the loops take turns."""

    steps: int = _setting(1000, "timed steps of each loop a round")
    rounds: int = _setting(5, "rounds; the median counts")
    seeds: int = _setting(3, "runs of each loop until the task is solved, with seeds 0, 1, ...")
