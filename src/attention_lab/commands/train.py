"""What `python train.py` does: train, score the best checkpoint, say what was reached."""

import logging
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, Trainer, seed_everything
from lightning.pytorch.loggers import TensorBoardLogger

from attention_lab.callbacks.alignment import AlignmentMonitor
from attention_lab.callbacks.attention_maps import AttentionMaps
from attention_lab.callbacks.progress import TrainingProgress
from attention_lab.callbacks.samples import SamplePredictions
from attention_lab.commands.terminal import quiet_libraries
from attention_lab.composition.build import build_data, build_network, build_task
from attention_lab.composition.compatibility import check_sampling, check_sequences
from attention_lab.data.batches import readable_rows, spread_rows
from attention_lab.data.module import SequenceData
from attention_lab.errors import SettingError
from attention_lab.evaluation.checkpoint import load_trained
from attention_lab.evaluation.scoring import TestScores, test_scores
from attention_lab.launch.processes import check_processes, companions, rank, started_by_another
from attention_lab.models.model import SequenceModel
from attention_lab.report.numbers import figure
from attention_lab.runs.files import write_json
from attention_lab.runs.folder import check_unused, held
from attention_lab.runs.paths import shown
from attention_lab.runs.resume import checkpoint_of, make_ready, take_weights
from attention_lab.settings.flat import flat_settings
from attention_lab.settings.schema import TrainSettings
from attention_lab.training.module import SequenceTraining
from attention_lab.training.trainer import check_device, choose_device, make_trainer
from attention_lab.training.tuning import flush_denormals, frozen_heap

log = logging.getLogger(__name__)


def train(
    settings: TrainSettings, config: dict[str, Any], run_dir: Path, record: Mapping[str, str] | None = None
) -> None:
    """Trains a network and leaves `checkpoints/`, `tensorboard/` and `metrics.json` in the run directory.

    Args:
        settings: the checked settings.
        config: the same as plain types, to go into checkpoints.
        run_dir: where everything goes.
        record: what else goes into `.hydra/` when a run begins: texts by file name.

    Raises:
        SettingError: the settings do not fit together, or not this machine, or not the run that is to go on.
    """
    if settings.resume is not None and Path(settings.resume) != run_dir:
        raise SettingError(f"resume={settings.resume} is to be written just so, without a sign or a sweep")
    check_processes(settings.trainer.devices)
    check_device(settings.trainer)
    own = {name: value for name, value in config.items() if name != "resume"}
    if rank() > 0:
        _train(settings, own, run_dir, {})
        return
    with held(run_dir):
        if settings.resume is None:
            check_unused(run_dir)
        _train(settings, own, run_dir, record or {})


def _train(settings: TrainSettings, config: dict[str, Any], run_dir: Path, record: Mapping[str, str]) -> None:
    quiet_libraries()
    flush_denormals()
    seed_everything(settings.seed, verbose=False)
    task = build_task(settings.task)
    network = build_network(
        settings.model,
        settings.attention,
        settings.position,
        settings.data,
        settings.position_sampling,
        longest=task.longest,
    )
    check_sequences(network, task, settings.data)
    check_sampling(network, settings.position_sampling, task, settings.data)
    _check_monitors(settings, network)
    # A CPU saves what it does not pad; a GPU has to wait for every part.
    parts = 1 if choose_device(settings.trainer.accelerator).type == "cuda" else network.batch_parts
    data = build_data(task, settings.data, settings.seed, parts=parts)
    _check_shares(data, settings.trainer.devices)
    module = _training(network, settings, config)
    last = checkpoint_of(settings, config, run_dir)
    if last is None and settings.init_from is not None:
        take_weights(network, settings.init_from)
    if rank() == 0:
        make_ready(run_dir, config, record, last)
    log.info(
        "Training %s: %d weights%s.",
        task.name,
        sum(weights.numel() for weights in network.parameters()),
        "" if last is None else f", going on from {shown(last.path)}",
    )
    with companions(settings.trainer.devices, {**config, "resume": settings.resume}, str(run_dir)):
        callbacks = _callbacks(settings, data, network)
        trainer = make_trainer(settings, run_dir, callbacks, started_by_another())
        with frozen_heap():
            trainer.fit(module, data, ckpt_path=last and last.path, weights_only=True)
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        # What is scored from here on, one process scores alone.
        torch.distributed.destroy_process_group()
    if rank() == 0:
        _report(trainer, module, data, settings, run_dir)


def _report(
    trainer: Trainer, module: SequenceTraining, data: SequenceData, settings: TrainSettings, run_dir: Path
) -> None:
    """Scores the best checkpoint and writes down what was reached."""
    seconds = round(module.seconds, 2)
    best = run_dir / "checkpoints" / "best.ckpt"
    trained = load_trained(best)
    scores = test_scores(trained.network, data, choose_device(settings.trainer.accelerator))
    metrics = {
        **scores.figures,
        "train/steps": trainer.global_step,
        "train/seconds": seconds,
        "seed": settings.seed,
        "checkpoint": str(best),
    }
    write_json(metrics, run_dir / "metrics.json")
    assert isinstance(trainer.logger, TensorBoardLogger)
    known = {name: value for name, value in scores.figures.items() if value is not None}
    trainer.logger.log_hyperparams(flat_settings(module.config), known, trainer.global_step)
    trainer.logger.finalize("success")
    _say_what_was_reached(scores, metrics, trained.step, run_dir)


def _check_shares(data: SequenceData, devices: int) -> None:
    """Refuses more processes than there are sequences to share."""
    fewest = min(len(data.rows("train")), len(data.rows("validation")), data.batch_size)
    if devices > fewest:
        raise SettingError(f"trainer.devices={devices} cannot share {fewest} sequences; use at most {fewest}")


def _check_monitors(settings: TrainSettings, network: SequenceModel[Any]) -> None:
    """Refuses to wait for the alignment of a network that has none."""
    for section, monitor in (
        ("checkpoint", settings.checkpoint.monitor),
        ("early_stopping", settings.early_stopping.monitor),
    ):
        if monitor.startswith("val/alignment") and not network.alignment_layers:
            raise SettingError(f"{section}.monitor={monitor} needs attention from target to source; use val/loss")


def _training(network: SequenceModel[Any], settings: TrainSettings, config: dict[str, Any]) -> SequenceTraining:
    optimizer = settings.optimizer
    return SequenceTraining(
        network,
        learning_rate=optimizer.learning_rate,
        final_learning_rate=optimizer.final_learning_rate,
        warmup_steps=optimizer.warmup_steps,
        max_steps=settings.trainer.max_steps,
        weight_decay=optimizer.weight_decay,
        betas=(optimizer.betas[0], optimizer.betas[1]),
        config=config,
    )


def _callbacks(settings: TrainSettings, data: SequenceData, network: SequenceModel[Any]) -> list[Callback]:
    shows = settings.callbacks
    rows = data.rows("validation")
    layers = network.alignment_layers
    callbacks: list[Callback] = [TrainingProgress(settings.trainer.max_steps)]
    if layers:
        # First, since what it logs is shown.
        callbacks.insert(0, AlignmentMonitor(network.alignment_attention, len(layers), layers[0].num_heads))
    example = readable_rows(rows, 1)
    if shows.attention_maps and layers and not example:
        log.warning("No attention maps: even the shortest validation sequence is too long to be mapped.")
    elif shows.attention_maps and network.axes:
        callbacks.append(AttentionMaps(rows[example[0]]))
    if shows.num_samples:
        callbacks.append(SamplePredictions(rows.__getitems__(spread_rows(rows, shows.num_samples))))
    return callbacks


def _say_what_was_reached(scores: TestScores, metrics: dict[str, Any], best_step: int, run_dir: Path) -> None:
    figures = scores.figures
    where = shown(run_dir)
    # Where the environment is not activated, its programs have to be named in full.
    programs = "" if shutil.which("python") == sys.executable else f"{shown(Path(sys.executable).parent)}/"
    for line in (
        "",
        f"Trained {metrics['train/steps']} steps in {metrics['train/seconds']:.1f} s; the best checkpoint is that of "
        f"step {best_step}. On the test split:",
        f"  exact match      {figures['test/decoded_exact_match']:.4f} decoded, "
        f"{figures['test/exact_match']:.4f} teacher-forced",
        f"  token accuracy   {figures['test/token_accuracy']:.4f}",
        f"  alignment        hit rate {figure(figures['test/alignment_hit_rate'])}, "
        f"mass {figure(figures['test/alignment_mass'])} ({scores.best_head}, the best on validation)"
        if scores.best_head is not None
        else "  alignment        none: this network has no attention from target to source",
        "",
        f"Everything is in {where}.",
        f"Look at the attention:    {programs}tensorboard --logdir {where} --samples_per_plugin images=1000",
        f"Evaluate the checkpoint:  {programs}python evaluate.py checkpoint={where}/checkpoints/best.ckpt",
    ):
        log.info(line)
