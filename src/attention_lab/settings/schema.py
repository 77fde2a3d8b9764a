"""Every setting of a run, with its type and what it may be. Light to import: nothing here needs torch or numpy."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, cast

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from attention_lab.errors import SettingError
from attention_lab.settings.checking import STRICT, Section, build, unknown
from attention_lab.settings.lightning import PASSED_ON, REFUSED, Strategy, passed_on
from attention_lab.settings.plain import check_plain

Config = dict[str, Any]
"""A run's config, or a section of it, as plain types: names and what they are set to."""

Component = Config
"""The config of an object: `_target_`, its class, and the class's own settings."""

Count = Annotated[int, Field(ge=1)]
Natural = Annotated[int, Field(ge=0)]
Precision = Literal["auto", "32-true", "bf16-mixed", "16-mixed"]
Accelerator = Literal["auto", "cpu", "gpu"]


def _texts(given: object) -> object:
    """Returns sequences as texts: a list of numbers is one sequence, a list of texts or of lists is several."""
    if not isinstance(given, list):
        return None if given is None else [str(given)]
    listed = cast(list[object], given)
    if listed and all(isinstance(each, int) for each in listed):
        return [" ".join(map(str, listed))]
    return [" ".join(map(str, cast(list[object], each))) if isinstance(each, list) else str(each) for each in listed]


Sources = Annotated[list[str] | None, BeforeValidator(_texts)]
Packages = Annotated[list[str], BeforeValidator(lambda given: [given] if isinstance(given, str) else given)]
"""Names of packages; a single one needs no brackets."""


MOST_SYMBOLS = 2**28
"""Symbols that a split may have, all sequences together."""

MOST_EVALUATED = 2**24
"""The same of the splits that are evaluated, so that it takes minutes and no file can make it days."""


class DataSettings(Section):
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
        path: a file of pairs, or a folder of one for each split, for `task=file`.
        source_column: where in it the sources stand.
        target_column: where the targets stand.
        fingerprint: of each file's bytes; found, not set.
    """

    min_length: Count
    max_length: Count
    vocab_size: Annotated[int, Field(ge=1, le=10**6)]
    unique_symbols: bool
    train_size: Count
    validation_size: Count
    test_size: Count
    batch_size: Annotated[int, Field(ge=1, le=10**6)]
    # What evaluates a checkpoint does not ask the file.
    num_workers: Annotated[int, Field(ge=0, le=1024)] = 0
    path: str | None = None
    source_column: str = "source"
    target_column: str = "target"
    fingerprint: str | None = None

    @model_validator(mode="after")
    def _check(self) -> "DataSettings":
        if self.max_length < self.min_length:
            reason = f"is below min_length={self.min_length}; the longest length comes last"
            raise SettingError("max_length", self.max_length, reason)
        if self.unique_symbols and self.max_length > self.vocab_size:
            reason = (
                f"needs as many different symbols; with unique_symbols=true it is at most vocab_size={self.vocab_size}"
            )
            raise SettingError("max_length", self.max_length, reason)
        for name, symbols in (
            ("train_size", MOST_SYMBOLS),
            ("validation_size", MOST_EVALUATED),
            ("test_size", MOST_EVALUATED),
        ):
            size, most = getattr(self, name), symbols // self.max_length
            if size > most:
                reason = f"is too much: with max_length={self.max_length} it may be at most {most}, so that the split"
                raise SettingError(name, size, f"{reason} fits into memory and can be evaluated")
        return self


class PositionSamplingSettings(Section):
    """Which positions a sequence has in training.

    Attributes:
        range: they are drawn from 0 to `range` - 1; null counts 0, 1, 2, ...
        distribution: `log_uniform` draws how far the range goes, for every sequence anew; `uniform` always uses all.
    """

    range: Annotated[int, Field(ge=2)] | None = None
    distribution: Literal["log_uniform", "uniform"] = "log_uniform"


COUNTED = PositionSamplingSettings()
"""Without sampling."""


ADAMW = "torch.optim.AdamW"
"""What earlier runs were trained with, whose configs name no class."""


class OptimizerSettings(Section):
    """An optimizer with a linear warm-up, then a cosine. What else stands in its section are its class's arguments.

    Attributes:
        learning_rate: its peak, reached at the end of the warm-up.
        final_learning_rate: where the cosine ends, at `trainer.max_steps`.
        warmup_steps: steps until the peak.
        weight_decay: of matrices only; decoupled where the class means that, as AdamW does.
        betas: decay rates of the two moments; null for an optimizer that has none.
        gradient_clip: largest norm of the gradient; 0 does not clip.
    """

    model_config = STRICT | ConfigDict(extra="allow")

    learning_rate: Annotated[float, Field(gt=0)]
    final_learning_rate: float
    warmup_steps: Natural
    weight_decay: Annotated[float, Field(ge=0)]
    gradient_clip: Annotated[float, Field(ge=0)]
    betas: list[float] | None = None

    @property
    def component(self) -> Component:
        """The optimizer's class, and those of its arguments that only it has."""
        return {"_target_": ADAMW, **(self.model_extra or {})}

    @model_validator(mode="after")
    def _check(self) -> "OptimizerSettings":
        if not 0 <= self.final_learning_rate <= self.learning_rate:
            reason = f"must lie between 0 and learning_rate={self.learning_rate}"
            raise SettingError("final_learning_rate", self.final_learning_rate, reason)
        if self.betas is not None and (len(self.betas) != 2 or not all(0 <= beta < 1 for beta in self.betas)):
            raise SettingError("betas", self.betas, "must be two numbers, each at least 0 and below 1")
        return self


class TrainerSettings(Section):
    """Where and how long to train. What else stands in its section are arguments of Lightning's `Trainer`.

    Attributes:
        accelerator: `auto` takes a GPU if there is one.
        precision: `auto` is bf16-mixed on a GPU that can, else 32-true.
        max_steps: optimiser steps at most.
        validate_every: steps between validations.
        devices: processes a machine that train together, each on a GPU of its own or on the CPU; each takes a share of
            every batch.
        num_nodes: machines; on each, torchrun or srun starts as many processes.
        strategy: how processes go together; `auto` is DDP where there are several.
        deterministic: use only reproducible kernels, also on a GPU.
        accumulate_grad_batches: batches a step; the loss is the mean over all of their tokens.
        limit_train_batches: batches an epoch at most, or their share; null for all.
        limit_val_batches: validation batches that are scored while training, or their share; null for all.
        fast_dev_run: train so many steps and score so many batches, to see whether all works; true for one.
        log_every_n_steps: steps between two losses that are logged.
        profiler: `simple` or `advanced` writes into the run's folder what took how long; or a class and its arguments.
    """

    model_config = STRICT | ConfigDict(extra="allow")

    accelerator: Accelerator
    precision: Precision
    max_steps: Count
    validate_every: Count
    deterministic: bool
    # Earlier checkpoints know nothing of the rest.
    devices: Count = 1
    num_nodes: Count = 1
    strategy: Strategy = "auto"
    accumulate_grad_batches: Count = 1
    limit_train_batches: int | float | None = None
    limit_val_batches: int | float | None = None
    fast_dev_run: bool | int = False
    log_every_n_steps: Count = 10
    profiler: Literal["simple", "advanced"] | Component | None = None

    @property
    def world_size(self) -> int:
        """Processes, on all machines together."""
        return self.devices * self.num_nodes

    @property
    def lightnings(self) -> Mapping[str, Any]:
        """Further arguments of Lightning's `Trainer`, those that are given."""
        return {name: value for name, value in (self.model_extra or {}).items() if value is not None}

    @model_validator(mode="after")
    def _check(self) -> "TrainerSettings":
        given: Config = self.model_extra or {}
        for name, value in given.items():
            if name in REFUSED:
                raise SettingError(name, value, REFUSED[name])
            if name not in PASSED_ON:
                known = [f"trainer.{each}" for each in (*type(self).model_fields, *PASSED_ON)]
                error = unknown(f"trainer.{name}", value, known)
                raise SettingError(error.setting.removeprefix("trainer."), error.value, error.reason)
        build(passed_on, given, "")
        for name in ("limit_train_batches", "limit_val_batches"):
            limit: float | None = getattr(self, name)
            if limit is not None and not (limit >= 1 if isinstance(limit, int) else 0 < limit <= 1):
                raise SettingError(name, limit, "must be 1 batch or more, or as a share above 0.0 and up to 1.0")
        if self.fast_dev_run < 0:
            raise SettingError("fast_dev_run", self.fast_dev_run, "must be true, false or a number of steps")
        return self


Monitor = Literal["val/loss", "val/token_accuracy", "val/exact_match", "val/alignment_hit_rate", "val/alignment_mass"]
"""Every scalar that a validation logs."""


class CheckpointSettings(Section):
    """Which step is the best one.

    Attributes:
        monitor: the validation scalar that decides.
        mode: whether less (`min`) or more (`max`) of it is better.
    """

    monitor: Monitor
    mode: Literal["min", "max"]


class EarlyStoppingSettings(Section):
    """When the task counts as solved.

    Attributes:
        monitor: the validation scalar to watch.
        mode: whether it must fall (`min`) or rise (`max`) to `threshold`.
        threshold: stop as soon as a validation reaches it; null trains for all `trainer.max_steps`.
    """

    monitor: Monitor
    mode: Literal["min", "max"]
    threshold: float | None


class CallbackSettings(Section):
    """What every validation shows in TensorBoard besides scalars, and callbacks of the user's own.

    Attributes:
        attention_maps: draw the attention of one validation example.
        num_samples: sample predictions to show; 0 shows none.
    """

    model_config = STRICT | ConfigDict(extra="allow")

    attention_maps: bool
    num_samples: Natural

    @property
    def own(self) -> Mapping[str, Component]:
        """The user's own callbacks, each under the name that it was given: its class and its settings."""
        return self.model_extra or {}

    @model_validator(mode="after")
    def _check_own(self) -> "CallbackSettings":
        _check_components(self.model_extra or {}, "callbacks", list(type(self).model_fields))
        return self


class LoggerSettings(Section):
    """Where scalars go, each logger under a name: its class and its settings. Only TensorBoard gets pictures."""

    model_config = STRICT | ConfigDict(extra="allow")

    @property
    def own(self) -> Mapping[str, Component]:
        """The loggers, by their names."""
        return self.model_extra or {}

    @model_validator(mode="after")
    def _check_own(self) -> "LoggerSettings":
        _check_components(self.model_extra or {}, "logger", [])
        return self


TENSORBOARD = "attention_lab.training.loggers.TensorBoard"
"""What earlier runs were logged by, whose configs name no logger."""


def _check_components(given: Mapping[str, object], section: str, besides: list[str]) -> None:
    """Refuses what is neither a setting of a section nor a class with its settings.

    Raises:
        SettingError: there is such a thing, by its name in the section.
    """
    for name, component in given.items():
        if not isinstance(component, dict) or "_target_" not in component:
            error = unknown(f"{section}.{name}", component, [f"{section}.{each}" for each in besides])
            raise SettingError(error.setting.removeprefix(f"{section}."), error.value, error.reason)


class TrainedSettings(Section):
    """What a checkpoint is asked about the run that wrote it: which network learned what.

    Attributes:
        task: what to learn.
        model: the network.
        attention: its attention.
        position: its position code.
        data: the sequences.
        seed: decides weights, data and their order, and every random number of training.
        position_sampling: which positions a sequence has in training.
        choices: the name of each choice, by its group, as it was typed: `attention` is `linformer`.
    """

    task: Component
    model: Component
    attention: Component
    position: Component
    data: DataSettings
    seed: int
    # Earlier checkpoints know nothing of it.
    position_sampling: PositionSamplingSettings = COUNTED
    choices: dict[str, str] = Field(default_factory=dict[str, str])

    @model_validator(mode="after")
    def _check_seed(self) -> "TrainedSettings":
        if not 0 <= self.seed < 2**32:
            # NumPy takes no others.
            raise SettingError("seed", self.seed, f"must lie between 0 and {2**32 - 1}")
        return self


class TrainSettings(TrainedSettings):
    """Everything `train.py` can be told: what to learn, and how to.

    Attributes:
        optimizer: how weights move.
        trainer: where and how long.
        checkpoint: which step is the best.
        early_stopping: when the task counts as solved.
        callbacks: what is shown meanwhile.
        logger: where scalars go.
        init_from: a checkpoint whose weights a new run begins with.
        resume: the folder of a run to go on with, or `latest`.
        trust: packages whose classes a config that is read from a file may name.
    """

    optimizer: OptimizerSettings
    trainer: TrainerSettings
    checkpoint: CheckpointSettings
    early_stopping: EarlyStoppingSettings
    callbacks: CallbackSettings
    # Earlier checkpoints know nothing of the rest.
    logger: LoggerSettings = Field(
        default_factory=lambda: LoggerSettings.model_validate({"tensorboard": {"_target_": TENSORBOARD}})
    )
    init_from: str | None = None
    resume: str | None = None
    trust: Packages = Field(default_factory=list[str])

    @model_validator(mode="after")
    def _check_plain(self) -> "TrainSettings":
        # What no checkpoint may hold is better refused before training than after it.
        check_plain(self.plain())
        return self

    def shortened(self) -> "TrainSettings":
        """Returns the settings of a development run, of few steps and few batches, if that is what is asked for."""
        steps, data = int(self.trainer.fast_dev_run), self.data
        if not steps:
            return self
        rows = steps * data.batch_size
        sizes = {name: min(getattr(data, name), rows) for name in ("validation_size", "test_size")}
        trainer = {"max_steps": min(steps, self.trainer.max_steps), "validate_every": steps}
        return self.model_copy(
            update={
                "data": data.model_copy(update=sizes),
                "trainer": self.trainer.model_copy(update=trainer),
            }
        )

    def plain(self) -> Config:
        """Returns what describes the run, as plain types: it goes into its folder and into every checkpoint.

        Whom this machine trusts, and that the run went on from an earlier one, are no part of it.
        """
        of_a_file = {"path", "source_column", "target_column", "fingerprint"}
        return self.model_dump(
            exclude={"resume": True, "trust": True, "data": of_a_file if self.data.path is None else set[str]()}
        )

    @property
    def trusted(self) -> list[str] | None:
        """Packages whose classes may be built; None where the user wrote the config, who may name any class."""
        return None if self.resume is None else self.trust


class EvaluateSettings(Section):
    """Everything `evaluate.py` can be told.

    Attributes:
        checkpoint: path of a checkpoint that `train.py` wrote, or a pattern like `runs/*/checkpoints/best.ckpt`, or a
            list of those, or `latest`; several checkpoints are compared.
        source: sequences of one's own, symbols with spaces between: `3 1 4`, or a list of such texts. Where there are
            some, they are answered, and nothing is scored.
        accelerator: `auto` takes a GPU if there is one.
        batch_size: sequences a batch, null for as many as in training; no figure depends on it beyond rounding.
        num_figures: test sequences to draw attention maps of.
        lengths: source lengths of the length curve, in symbols; null takes some from a quarter of the longest training
            length to four times as long.
        num_per_length: sequences at each of these lengths; fewer where these would have more than 65,536 tokens.
        decode_up_to: the longest of them that is decoded freely; beyond, teacher forcing answers for decoding, since a
            sequence is right in both or in neither.
        pdf: write every figure as PDF beside the PNG.
        trust: packages besides this one whose classes a checkpoint may name.
    """

    checkpoint: str | list[str]
    source: Sources = None
    accelerator: Accelerator
    batch_size: Count | None
    num_figures: Natural
    lengths: list[Count] | None
    num_per_length: Count
    decode_up_to: Natural
    pdf: bool
    trust: Packages = Field(default_factory=list[str])

    @model_validator(mode="after")
    def _check(self) -> "EvaluateSettings":
        if not self.checkpoint:
            raise SettingError("checkpoint", self.checkpoint, "names no file")
        if self.source == []:
            raise SettingError("source", self.source, "holds no sequence; write one, as in source='3 1 4'")
        return self
