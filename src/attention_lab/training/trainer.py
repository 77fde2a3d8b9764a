"""The Lightning trainer: where to run, how long, and which steps to keep."""

from contextlib import nullcontext
from pathlib import Path
from typing import Any, Literal

import torch
from lightning.fabric.plugins.environments.lightning import LightningEnvironment
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.loggers import Logger
from lightning.pytorch.profilers import PassThroughProfiler, Profiler

from attention_lab.errors import SettingError
from attention_lab.settings.schema import Config, Precision, TrainerSettings, TrainSettings
from attention_lab.training.checkpointing import BestAndLast, WholeFiles
from attention_lab.training.resuming import ExactResume
from attention_lab.training.stopping import StopAtTheEnd, StopOnSignal, StopWhenSolved


class NoProfiler(PassThroughProfiler):
    """Measures nothing, without the generator that Lightning runs for each hook of each callback, over sixty a step."""

    # Any, since Lightning declares the generator.
    def profile(self, action_name: str) -> Any:
        return nullcontext()


def make_trainer(
    settings: TrainSettings,
    run_dir: Path,
    callbacks: list[Callback],
    loggers: list[Logger],
    profiler: Profiler | None = None,
    launched: bool = False,
) -> Trainer:
    """Builds the trainer for a run.

    Args:
        settings: the run's settings.
        run_dir: gets `checkpoints/best.ckpt` and `checkpoints/last.ckpt`.
        callbacks: what to show; what keeps and stops a run is added here.
        loggers: what gets the scalars.
        profiler: measures what takes how long.
        launched: whether this process is one of several, whose environment says which one.

    Raises:
        SettingError: the device is not there, or cannot run at that precision, or Lightning refuses an argument.
    """
    chosen = settings.trainer
    device = check_device(chosen)
    # A process that trains alone is to heed no variable that a cluster's batch job happens to have.
    environment = [] if launched else [LightningEnvironment()]
    arguments: Config = {"gradient_clip_val": settings.optimizer.gradient_clip or None, "enable_model_summary": False}
    try:
        return Trainer(
            accelerator="gpu" if device.type == "cuda" else "cpu",
            devices=chosen.devices,
            num_nodes=chosen.num_nodes,
            strategy="ddp" if chosen.strategy == "auto" and chosen.world_size > 1 else chosen.strategy,
            # The data deal each process its share.
            use_distributed_sampler=False,
            precision=_precision(chosen.precision, device),
            # The data have no end, and the last step is for `StopAtTheEnd`: Lightning's own leaves its validation out.
            max_epochs=-1,
            accumulate_grad_batches=chosen.accumulate_grad_batches,
            # Lightning counts batches.
            val_check_interval=chosen.validate_every * chosen.accumulate_grad_batches,
            check_val_every_n_epoch=None,
            limit_val_batches=chosen.limit_val_batches,
            num_sanity_val_steps=0,
            log_every_n_steps=chosen.log_every_n_steps,
            deterministic=chosen.deterministic,
            logger=loggers,
            plugins=[WholeFiles(), *environment],
            callbacks=[*callbacks, *_keeping_and_stopping(settings, run_dir / "checkpoints")],
            default_root_dir=run_dir,
            profiler=profiler or NoProfiler(),
            **{**arguments, **chosen.lightnings},
        )
    except (MisconfigurationException, TypeError, ValueError) as error:
        raise _refused(chosen, error) from error


def _refused(settings: TrainerSettings, error: Exception) -> SettingError:
    """Returns which of the further arguments Lightning means, as far as its words tell."""
    said, given = " ".join(str(error).split()), settings.lightnings
    name = next((name for name in given if name in said or len(given) == 1), None)
    where = "trainer" if name is None else f"trainer.{name}"
    return SettingError(where, given.get(name or ""), f"is refused by Lightning: {said}")


def check_device(settings: TrainerSettings) -> torch.device:
    """Returns where to run.

    Raises:
        SettingError: the devices are not there, or cannot run at that precision.
    """
    device = choose_device(settings.accelerator)
    _precision(settings.precision, device)
    if device.type == "cuda" and settings.devices > torch.cuda.device_count():
        there = f"needs as many GPUs, and {torch.cuda.device_count()} are visible"
        raise SettingError("trainer.devices", settings.devices, f"{there}; use that many, or trainer.accelerator=cpu")
    return device


def choose_device(accelerator: str, setting: str = "trainer") -> torch.device:
    """Returns where to run; `auto` takes a GPU if there is one.

    Apple's GPUs are left alone: networks this small run faster beside them.

    Args:
        accelerator: `auto`, `cpu` or `gpu`.
        setting: what a user calls this choice.

    Raises:
        SettingError: a GPU is asked for and there is none.
    """
    if accelerator == "gpu" and not torch.cuda.is_available():
        hint = f"use {setting}=cpu or {setting}=auto"
        raise SettingError(setting, "gpu", f"needs a CUDA GPU, and none is visible; {hint}")
    return torch.device("cpu" if accelerator == "cpu" or not torch.cuda.is_available() else "cuda")


def _precision(asked: Precision, device: torch.device) -> Literal["32-true", "bf16-mixed", "16-mixed"]:
    if asked == "auto":
        return "bf16-mixed" if device.type == "cuda" and torch.cuda.is_bf16_supported() else "32-true"
    if asked == "16-mixed" and device.type == "cpu":
        raise SettingError("trainer.precision", asked, "needs a GPU; on a CPU use 32-true or bf16-mixed")
    return asked


def _keeping_and_stopping(settings: TrainSettings, folder: Path) -> list[Callback]:
    steps, solved = settings.trainer, settings.early_stopping
    return [
        ExactResume(steps.validate_every, steps.max_steps),
        StopOnSignal(folder / "last.ckpt"),
        StopAtTheEnd(steps.max_steps),
        StopWhenSolved(solved.monitor, solved.mode, solved.threshold),
        BestAndLast(folder, settings.checkpoint.monitor, settings.checkpoint.mode),
    ]
