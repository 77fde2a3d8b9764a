"""Every setting of a run, with its type and what it may be. Light to import: nothing here needs torch."""

from dataclasses import dataclass
from typing import Any, Literal

from attention_lab.data.sampling import SourceSpace

Component = dict[str, Any]
"""The config of an object: `_target_`, its class, and the class's own settings."""


Precision = Literal["auto", "32-true", "bf16-mixed", "16-mixed"]


MOST_SYMBOLS = 2**28
"""Symbols that a split may have, all sequences together."""

MOST_EVALUATED = 2**24
"""The same of the splits that are evaluated, so that it takes minutes and no file can make it days."""


@dataclass(frozen=True)
class DataSettings:
    """What the splits hold.

    Attributes:
        min_length: shortest source, in symbols.
        max_length: longest source, in symbols.
        vocab_size: how many symbols there are, specials not counted.
        unique_symbols: whether a symbol may occur only once in a source.
        train_size: distinct training sequences.
        validation_size: distinct validation sequences.
        test_size: distinct test sequences.
        batch_size: sequences a batch.
        num_workers: processes that assemble batches; 0 is fastest unless the main process is starved.
    """

    min_length: int
    max_length: int
    vocab_size: int
    unique_symbols: bool
    train_size: int
    validation_size: int
    test_size: int
    batch_size: int
    # What evaluates a checkpoint does not ask the file.
    num_workers: int = 0

    def __post_init__(self) -> None:
        for name in ("min_length", "vocab_size", "train_size", "validation_size", "test_size", "batch_size"):
            _at_least(1, self, name)
        _at_least(0, self, "num_workers")
        if self.max_length < self.min_length:
            raise ValueError(
                f"max_length={self.max_length} is below min_length={self.min_length}; the longest length comes last"
            )
        if self.unique_symbols and self.max_length > self.vocab_size:
            raise ValueError(
                f"max_length={self.max_length} needs as many different symbols; with unique_symbols=true it is at "
                f"most vocab_size={self.vocab_size}"
            )
        for name, most in (("vocab_size", 10**6), ("batch_size", 10**6), ("num_workers", 1024)):
            if getattr(self, name) > most:
                raise ValueError(f"{name}={getattr(self, name)} is more than a toy task needs; use at most {most}")
        for name, most in (
            ("train_size", MOST_SYMBOLS),
            ("validation_size", MOST_EVALUATED),
            ("test_size", MOST_EVALUATED),
        ):
            if getattr(self, name) * self.max_length > most:
                raise ValueError(
                    f"{name}={getattr(self, name)} is too much: with max_length={self.max_length} it may be at most "
                    f"{most // self.max_length}, so that the split fits into memory and can be evaluated"
                )

    @property
    def space(self) -> SourceSpace:
        """The sources that may be drawn."""
        return SourceSpace(self.min_length, self.max_length, self.vocab_size, self.unique_symbols)


@dataclass(frozen=True)
class PositionSamplingSettings:
    """Which positions a sequence has in training.

    Attributes:
        range: they are drawn from 0 to `range` - 1; null counts 0, 1, 2, ...
        distribution: `log_uniform` draws how far the range goes, for every sequence anew; `uniform` always uses all.
    """

    range: int | None = None
    distribution: Literal["log_uniform", "uniform"] = "log_uniform"

    def __post_init__(self) -> None:
        if self.range is not None and self.range < 2:
            raise ValueError(f"range={self.range} must be at least 2")


COUNTED = PositionSamplingSettings()
"""Without sampling."""


@dataclass(frozen=True)
class OptimizerSettings:
    """AdamW with a linear warm-up, then a cosine.

    Attributes:
        learning_rate: its peak, reached at the end of the warm-up.
        final_learning_rate: where the cosine ends, at `trainer.max_steps`.
        warmup_steps: steps until the peak.
        weight_decay: decoupled weight decay, of matrices only.
        betas: decay rates of the two moments.
        gradient_clip: largest norm of the gradient; 0 does not clip.
    """

    learning_rate: float
    final_learning_rate: float
    warmup_steps: int
    weight_decay: float
    betas: list[float]
    gradient_clip: float

    def __post_init__(self) -> None:
        if not self.learning_rate > 0:
            raise ValueError(f"learning_rate={self.learning_rate} must be above 0")
        if not 0 <= self.final_learning_rate <= self.learning_rate:
            raise ValueError(
                f"final_learning_rate={self.final_learning_rate} must lie between 0 and "
                f"learning_rate={self.learning_rate}"
            )
        for name in ("warmup_steps", "weight_decay", "gradient_clip"):
            _at_least(0, self, name)
        if len(self.betas) != 2 or not all(0 <= beta < 1 for beta in self.betas):
            raise ValueError(f"betas={self.betas} must be two numbers, each at least 0 and below 1")


@dataclass(frozen=True)
class TrainerSettings:
    """Where and how long to train.

    Attributes:
        accelerator: `auto` takes a GPU if there is one.
        precision: `auto` is bf16-mixed on a GPU that can, else 32-true.
        max_steps: optimiser steps at most.
        validate_every: steps between validations.
        devices: processes that train together, each on a GPU of its own or on the CPU; each takes a share of every
            batch.
        deterministic: use only reproducible kernels, also on a GPU.
    """

    accelerator: Literal["auto", "cpu", "gpu"]
    precision: Precision
    max_steps: int
    validate_every: int
    deterministic: bool
    # Earlier checkpoints know nothing of it.
    devices: int = 1

    def __post_init__(self) -> None:
        for name in ("max_steps", "validate_every", "devices"):
            _at_least(1, self, name)


Monitor = Literal["val/loss", "val/token_accuracy", "val/exact_match", "val/alignment_hit_rate", "val/alignment_mass"]
"""Every scalar that a validation logs."""


@dataclass(frozen=True)
class CheckpointSettings:
    """Which step is the best one.

    Attributes:
        monitor: the validation scalar that decides.
        mode: whether less (`min`) or more (`max`) of it is better.
    """

    monitor: Monitor
    mode: Literal["min", "max"]


@dataclass(frozen=True)
class EarlyStoppingSettings:
    """When the task counts as solved.

    Attributes:
        monitor: the validation scalar to watch.
        mode: whether it must fall (`min`) or rise (`max`) to `threshold`.
        threshold: stop as soon as a validation reaches it; null trains for all `trainer.max_steps`.
    """

    monitor: Monitor
    mode: Literal["min", "max"]
    threshold: float | None


@dataclass(frozen=True)
class CallbackSettings:
    """What every validation shows in TensorBoard besides scalars.

    Attributes:
        attention_maps: draw the attention of one validation example.
        num_samples: sample predictions to show; 0 shows none.
    """

    attention_maps: bool
    num_samples: int

    def __post_init__(self) -> None:
        _at_least(0, self, "num_samples")


@dataclass(frozen=True, kw_only=True)
class TrainedSettings:
    """What a checkpoint is asked about the run that wrote it: which network learned what.

    Attributes:
        task: what to learn.
        model: the network.
        attention: its attention.
        position: its position code.
        data: the sequences.
        seed: decides weights, data and their order, and every random number of training.
        position_sampling: which positions a sequence has in training.
    """

    task: Component
    model: Component
    attention: Component
    position: Component
    data: DataSettings
    seed: int
    # Earlier checkpoints know nothing of it.
    position_sampling: PositionSamplingSettings = COUNTED

    def __post_init__(self) -> None:
        check_seed(self.seed)


@dataclass(frozen=True, kw_only=True)
class TrainSettings(TrainedSettings):
    """Everything `train.py` can be told: what to learn, and how to.

    Attributes:
        optimizer: how weights move.
        trainer: where and how long.
        checkpoint: which step is the best.
        early_stopping: when the task counts as solved.
        callbacks: what is shown meanwhile.
        init_from: a checkpoint whose weights a new run begins with.
        resume: the folder of a run to go on with, or `latest`.
    """

    optimizer: OptimizerSettings
    trainer: TrainerSettings
    checkpoint: CheckpointSettings
    early_stopping: EarlyStoppingSettings
    callbacks: CallbackSettings
    # Earlier checkpoints know nothing of it.
    init_from: str | None = None
    resume: str | None = None


@dataclass(frozen=True)
class EvaluateSettings:
    """Everything `evaluate.py` can be told.

    Attributes:
        checkpoint: path of a checkpoint that `train.py` wrote, or a pattern like `runs/*/checkpoints/best.ckpt`, or a
            list of those; several checkpoints are compared.
        accelerator: `auto` takes a GPU if there is one.
        batch_size: sequences a batch, null for as many as in training; no figure depends on it beyond rounding.
        num_figures: test sequences to draw attention maps of.
        lengths: source lengths of the length curve, in symbols; null takes some from a quarter of the longest training
            length to four times as long.
        num_per_length: sequences at each of these lengths; fewer where these would have more than 65,536 tokens.
        decode_up_to: the longest of them that is decoded freely; beyond, teacher forcing answers for decoding, since a
            sequence is right in both or in neither.
        pdf: write every figure as PDF beside the PNG.
    """

    checkpoint: str | list[str]
    accelerator: Literal["auto", "cpu", "gpu"]
    batch_size: int | None
    num_figures: int
    lengths: list[int] | None
    num_per_length: int
    decode_up_to: int
    pdf: bool

    def __post_init__(self) -> None:
        if not self.checkpoint:
            raise ValueError(f"checkpoint={self.checkpoint!r} names no file")
        if self.batch_size is not None:
            _at_least(1, self, "batch_size")
        _at_least(0, self, "num_figures")
        _at_least(1, self, "num_per_length")
        _at_least(0, self, "decode_up_to")
        if self.lengths is not None and min(self.lengths, default=1) < 1:
            raise ValueError(f"lengths={self.lengths} must be at least 1 each")


def check_seed(seed: int) -> None:
    """Refuses seeds that NumPy and PyTorch do not take."""
    if not 0 <= seed < 2**32:
        raise ValueError(f"seed={seed} must lie between 0 and {2**32 - 1}")


def _at_least(least: int, settings: object, name: str) -> None:
    value = getattr(settings, name)
    if value < least:
        raise ValueError(f"{name}={value} must be at least {least}")
