"""What `python train.py` does: train, score the best checkpoint, say what was reached."""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from lightning.pytorch import Callback, Trainer, seed_everything
from lightning.pytorch.loggers import Logger, TensorBoardLogger

from attention_lab.callbacks.alignment import AlignmentMonitor
from attention_lab.callbacks.attention_maps import AttentionMaps
from attention_lab.callbacks.history import AlignmentHistory
from attention_lab.callbacks.progress import TrainingProgress
from attention_lab.callbacks.samples import SamplePredictions
from attention_lab.commands.terminal import quiet_libraries
from attention_lab.composition.build import build_data, build_run
from attention_lab.composition.pairs import with_pairs
from attention_lab.composition.training import build_callbacks, build_loggers, build_optimizer, build_profiler
from attention_lab.data.batches import readable_rows, spread_rows
from attention_lab.data.module import SequenceData
from attention_lab.errors import Interrupted, SettingError
from attention_lab.evaluation.scoring import TestScores, test_scores, whole_map_fits
from attention_lab.launch.processes import launch
from attention_lab.launch.world import check_world_size, launcher, rank
from attention_lab.models.model import SequenceModel
from attention_lab.report.tables import figure
from attention_lab.runs.checkpoint import CheckpointFile
from attention_lab.runs.examples import Examples, as_plain
from attention_lab.runs.files import write_json
from attention_lab.runs.folder import BEST, RUN_FILES, RUN_FOLDERS, asked_for, check_places, check_unused, locked
from attention_lab.runs.paths import look_at, program, shown, typed
from attention_lab.runs.resume import checkpoint_of, make_ready, take_weights
from attention_lab.runs.trained import load_trained
from attention_lab.settings.flat import flat_settings
from attention_lab.settings.schema import TENSORBOARD, Config, TrainSettings
from attention_lab.training.loggers import TensorBoard, hparam_columns
from attention_lab.training.module import DivergedError, SequenceTraining
from attention_lab.training.restoring import restore
from attention_lab.training.trainer import check_device, choose_device, make_trainer
from attention_lab.training.tuning import flush_denormals, frozen_heap

log = logging.getLogger(__name__)


class Prepared(NamedTuple):
    """What a run trains, on what, how, and the checkpoint that it goes on from, if it does."""

    settings: TrainSettings
    module: SequenceTraining
    data: SequenceData
    last: CheckpointFile | None


class Finished(NamedTuple):
    """How far a training came: its steps, the seconds that they took, and the loggers that are open still."""

    steps: int
    seconds: float
    loggers: list[Logger]


def train(settings: TrainSettings, run_dir: Path, record: Mapping[str, str] | None = None) -> None:
    """Trains a network and leaves `checkpoints/`, `tensorboard/` and `metrics.json` in the run directory.

    Args:
        settings: the checked settings.
        run_dir: where everything goes.
        record: what else goes into `.hydra/` when a run begins: texts by file name.

    Raises:
        SettingError: the settings do not fit together, or not this machine, or not the run that is to go on.
    """
    quiet_libraries()
    settings = settings.shortened()
    check_world_size(settings.trainer.devices, nodes=settings.trainer.num_nodes)
    check_device(settings.trainer)
    if rank() > 0:
        # The folder and the terminal belong to the first process.
        _fit(_prepare(settings, run_dir), run_dir, {})
        return
    run_dir.mkdir(parents=True, exist_ok=True)
    with locked(run_dir):
        check_places(run_dir, RUN_FILES, RUN_FOLDERS)
        if settings.resume is None:
            check_unused(run_dir)
        prepared = _prepare(settings, run_dir)
        try:
            if settings.trainer.world_size > 1 and not launcher():
                finished = launch(_prepare_and_fit, settings.trainer.devices, settings, run_dir, record or {})
            else:
                finished = _fit(prepared, run_dir, record or {})
        except Interrupted:
            if (run_dir / "checkpoints" / "last.ckpt").exists():
                log.info("Go on with it:  %s train.py %s", program("python"), typed("resume", run_dir))
            raise
        _report(prepared.data, finished, prepared.settings, run_dir)


def _prepare(settings: TrainSettings, run_dir: Path) -> Prepared:
    """Builds what is trained and what it is trained on, and refuses what does not go together.

    Raises:
        SettingError: something does not; nothing in the folder has changed.
    """
    flush_denormals()
    seed_everything(settings.seed, verbose=False)
    settings, pairs = with_pairs(settings)
    task, network = build_run(settings, settings.trusted)
    config = settings.plain()
    # A CPU saves what it does not pad; a GPU has to wait for every part.
    parts = 1 if choose_device(settings.trainer.accelerator).type == "cuda" else network.batch_parts
    task.symbols = () if pairs is None else pairs.symbols
    data = build_data(task, settings.data, settings.seed, parts=parts, rows=pairs and pairs.rows)
    _check_monitors(settings, network, data)
    data.endless, data.limit = True, settings.trainer.limit_train_batches
    _check_shares(data, settings.trainer.world_size)
    last = checkpoint_of(settings, config, run_dir)
    if last is None and settings.init_from is not None:
        take_weights(network, settings.init_from)
    module = _module(network, settings, config)
    module.examples = pairs and as_plain(Examples(pairs.symbols, pairs.rows))
    return Prepared(settings, module, data, last)


def _announce(prepared: Prepared) -> None:
    weights = sum(each.numel() for each in prepared.module.network.parameters())
    begins = "" if prepared.last is None else f", going on from {shown(prepared.last.path)}"
    log.info("Training %s: %d weights%s.", prepared.data.task.name, weights, begins)


def _fit(prepared: Prepared, run_dir: Path, record: Mapping[str, str]) -> Finished:
    """Trains, as the only process or as one of several that do the same.

    Raises:
        SettingError: the checkpoint to go on from does not fit (nothing in the folder has changed); training diverged.
        Interrupted: it was told to stop; `last.ckpt` is written.
    """
    settings, module, data, last = prepared
    trainer = make_trainer(
        settings,
        run_dir,
        _callbacks(settings, data, module.network, run_dir),
        build_loggers(settings.logger, run_dir, settings.trusted),
        build_profiler(settings.trainer.profiler, run_dir, settings.trusted),
        launched=bool(launcher()),
    )
    if last is not None:
        restore(last, trainer, module, settings.resume)
    if rank() == 0:
        make_ready(run_dir, settings.plain(), record, last)
        for logger in _beside_tensorboard(trainer):
            logger.log_hyperparams(flat_settings(settings.plain()))
        _announce(prepared)
    try:
        with frozen_heap():
            trainer.fit(module, data, ckpt_path=last and last.path, weights_only=True)
    except DivergedError as error:
        hint = "use a smaller one (what was written before is as good as it was)"
        made = f"made training diverge: {error}; {hint}"
        raise SettingError("optimizer.learning_rate", settings.optimizer.learning_rate, made) from error
    except Interrupted:
        # Below the ^C that a terminal shows.
        log.info("")
        log.info("Interrupted after step %d.", trainer.global_step)
        raise
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        # What is scored from here on, one process scores alone.
        torch.distributed.destroy_process_group()
    return Finished(trainer.global_step, round(module.seconds, 2), _beside_tensorboard(trainer))


def _beside_tensorboard(trainer: Trainer) -> list[Logger]:
    return [logger for logger in trainer.loggers if not isinstance(logger, TensorBoardLogger)]


def _prepare_and_fit(settings: TrainSettings, run_dir: Path, record: Mapping[str, str]) -> Finished:
    """Trains in a process that was launched for it, and has nothing of what its launcher has built."""
    quiet_libraries()
    return _fit(_prepare(settings, run_dir), run_dir, record)._replace(loggers=[])


def _report(data: SequenceData, finished: Finished, settings: TrainSettings, run_dir: Path) -> None:
    """Scores the best checkpoint, and writes down and says what was reached."""
    best = run_dir / BEST
    trained = load_trained(best, trust=settings.trusted)
    scores = test_scores(trained.network, data, choose_device(settings.trainer.accelerator))
    metrics = {
        **scores.figures,
        "train/steps": finished.steps,
        "train/seconds": finished.seconds,
        "seed": settings.seed,
        "checkpoint": str(best),
    }
    write_json(metrics, run_dir / "metrics.json")
    known = {name: value for name, value in scores.figures.items() if value is not None}
    for logger in finished.loggers:
        logger.log_metrics(known, finished.steps)
        logger.save()
    if any(component["_target_"] == TENSORBOARD for component in settings.logger.own.values()):
        logger = TensorBoard(run_dir)
        logger.log_result(hparam_columns(flat_settings(trained.config), asked_for(run_dir)), known, finished.steps)
        logger.finalize("success")
    _say_what_was_reached(scores, finished, trained.step, run_dir)


def _check_shares(data: SequenceData, devices: int) -> None:
    """Refuses more processes than there are sequences to share."""
    fewest = min(len(data.rows("train")), len(data.rows("validation")), data.batch_size)
    if devices > fewest:
        raise SettingError("trainer.devices", devices, f"cannot share {fewest} sequences; use at most {fewest}")


def _check_monitors(settings: TrainSettings, network: SequenceModel[Any], data: SequenceData) -> None:
    """Refuses to wait for the alignment of a network that has none, or with what is not known."""
    for section, monitor in (
        ("checkpoint", settings.checkpoint.monitor),
        ("early_stopping", settings.early_stopping.monitor),
    ):
        if monitor.startswith("val/alignment") and not network.alignment_layers:
            raise SettingError(f"{section}.monitor", monitor, "needs attention from target to source; use val/loss")
        if monitor.startswith("val/alignment") and not data.rows("validation").aligned:
            raise SettingError(f"{section}.monitor", monitor, "needs pairs with an alignment; use val/loss")


def _module(network: SequenceModel[Any], settings: TrainSettings, config: Config) -> SequenceTraining:
    optimizer = settings.optimizer
    return SequenceTraining(
        network,
        learning_rate=optimizer.learning_rate,
        final_learning_rate=optimizer.final_learning_rate,
        warmup_steps=optimizer.warmup_steps,
        max_steps=settings.trainer.max_steps,
        weight_decay=optimizer.weight_decay,
        optimizer=build_optimizer(optimizer, settings.trusted),
        config=config,
    )


def _callbacks(
    settings: TrainSettings, data: SequenceData, network: SequenceModel[Any], run_dir: Path
) -> list[Callback]:
    """Returns what is shown of a run, in the order in which one builds on the other."""
    shows = settings.callbacks
    rows = data.rows("validation")
    monitor = AlignmentMonitor(network) if network.alignment_layers and rows.aligned else None
    maps = None
    example = rows[readable_rows(rows, 1)[0]]
    if shows.attention_maps and network.alignment_layers and not whole_map_fits(network, example):
        log.warning("No attention maps: even the shortest validation sequence is too long to be mapped.")
    elif shows.attention_maps and network.axes:
        maps = AttentionMaps(example, data.task.symbols)
    samples = spread_rows(rows, shows.num_samples)
    callbacks = [
        monitor,
        TrainingProgress(settings.trainer.max_steps),
        maps,
        monitor and AlignmentHistory(run_dir, monitor, maps),
        SamplePredictions(rows.__getitems__(samples), data.task.symbols) if samples else None,
        *build_callbacks(shows, settings.trusted),
    ]
    return [callback for callback in callbacks if callback is not None]


def _say_what_was_reached(scores: TestScores, finished: Finished, best_step: int, run_dir: Path) -> None:
    figures = scores.figures
    attends = bool(scores.heads.hit_rate.numel())
    unaligned = "not known" if attends else "none: this network has no attention from target to source"
    best = typed("checkpoint", run_dir / BEST)
    for line in (
        "",
        f"Trained {finished.steps} steps in {finished.seconds:.1f} s; the best checkpoint is that of "
        f"step {best_step}. On the test split:",
        f"  exact match      {figures['test/decoded_exact_match']:.4f} decoded, "
        f"{figures['test/exact_match']:.4f} teacher-forced",
        f"  token accuracy   {figures['test/token_accuracy']:.4f}",
        f"  alignment        hit rate {figure(figures['test/alignment_hit_rate'])}, "
        f"mass {figure(figures['test/alignment_mass'])} ({scores.best_head}, the best on validation)"
        if scores.best_head is not None
        else f"  alignment        {unaligned}",
        "",
        f"Everything is in {shown(run_dir)}.",
        f"Look at the attention:    {look_at(run_dir)}",
        f"Evaluate the checkpoint:  {program('python')} evaluate.py {best}",
    ):
        log.info(line)
