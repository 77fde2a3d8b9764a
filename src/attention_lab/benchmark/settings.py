"""The settings of the benchmarks: the flags of their command lines are made of these. Light to import."""

from typing import Annotated, Literal

from pydantic import Field

from attention_lab.settings.checking import Section

Count = Annotated[int, Field(ge=1)]


class BenchmarkSettings(Section):
    """What every benchmark can be told; the description of a setting is also the help of its flag."""

    threads: Count | None = Field(default=None, description="threads on a CPU; as many as PyTorch chooses if not given")


class DeviceSettings(BenchmarkSettings):
    """What benchmarks can be told that run on a GPU as well and draw figures."""

    device: Literal["auto", "cpu", "gpu"] = Field(default="auto", description="auto takes a GPU if there is one")
    precision: Literal["auto", "32-true", "bf16-mixed"] = Field(
        default="auto", description="auto is bf16-mixed on a GPU, else 32-true, as in training"
    )
    pdf: bool = Field(default=False, description="write every figure as PDF beside the PNG")


class CostSettings(DeviceSettings):
    """Forward and backward through one layer, each kind and length in a fresh process."""

    lengths: list[Count] = Field(default=[1024, 2048, 4096, 8192, 16384], description="sequence lengths, in tokens")
    kinds: list[str] | None = Field(
        default=None, description="kinds of layers, such as full,full_explicit,lstm; all if not given"
    )
    d_model: Count = Field(default=64, description="model width")
    num_heads: Count = Field(default=4, description="attention heads")
    d_ff: Count | None = Field(
        default=None, description="width of the feed-forward layer; 4 times the model width if not given"
    )
    batch_size: Count = Field(default=1, description="sequences at a time")
    repeats: Count = Field(default=5, description="timed repeats; the median counts")
    memory_limit_gib: float = Field(default=6.0, description="leave out what is bound to need more than this")
    timeout: Count = Field(default=600, description="seconds that one process may take")


class PeersSettings(DeviceSettings):
    """The same task, shapes, threads and optimiser for all; contenders take turns."""

    task: str = Field(default="reverse", description="what is learned: a file of configs/task")
    d_model: Count = Field(default=128, description="model width")
    num_heads: Count = Field(default=4, description="attention heads")
    num_layers: Count = Field(default=1, description="layers of the encoder, and of the decoder")
    d_ff: Count = Field(default=256, description="width of the feed-forward layers")
    vocab_size: Count = Field(default=10, description="symbols, special tokens not counted")
    max_length: Count = Field(default=16, description="longest source of training, in symbols")
    train_size: Count = Field(default=20480, description="distinct training sequences")
    batch_size: Count = Field(default=128, description="sequences a training batch")
    steps: Count = Field(default=30, description="training steps of each contender a round")
    rounds: Count = Field(default=3, description="rounds; the median counts")
    decode_length: Count = Field(default=256, description="tokens to decode")
    decode_batch: Count = Field(default=32, description="sequences to decode at a time")


class LoopSettings(BenchmarkSettings):
    """The same training either way, experiment=fixed_length_reverse on a CPU; the loops take turns."""

    steps: Count = Field(default=1000, description="timed steps of each loop a round")
    rounds: Count = Field(default=5, description="rounds; the median counts")
    seeds: Count = Field(default=3, description="runs of each loop until the task is solved, with seeds 0, 1, ...")
