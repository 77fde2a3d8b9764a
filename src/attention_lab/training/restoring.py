"""What a checkpoint says of a training, held against it before Lightning or an optimiser sees that.

PyTorch takes the state of an optimiser as it comes: its fused kernels write past the end of a moment that is too small.
"""

import copy
from collections import defaultdict
from collections.abc import Mapping
from typing import Any, cast

import lightning
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from attention_lab.errors import SettingError
from attention_lab.runs.checkpoint import CheckpointFile, read_checkpoint
from attention_lab.runs.paths import typed
from attention_lab.runs.structure import AtLeast, check_like, is_count, is_number, is_score, like
from attention_lab.runs.trained import fitting_weights
from attention_lab.training.checkpointing import WholeFiles

_CUDA_STATE = torch.empty(16, dtype=torch.uint8)
"""As long as CUDA's random state is: a seed and an offset."""

_SCALER = dict.fromkeys(("scale", "growth_factor", "backoff_factor", "growth_interval", "_growth_tracker"), is_number)
"""What mixed precision in 16 bits keeps; it may be absent."""


def restore(file: CheckpointFile, trainer: Trainer, module: LightningModule, run: object) -> None:
    """Checks all that a training goes on from and lays it down where Lightning will look for it.

    What the settings say, such as the optimiser's, comes from the settings and not from the file.

    Args:
        file: the run's `last.ckpt`.
        trainer: the trainer that will go on.
        module: what it will train.
        run: the run's folder as the user named it.

    Raises:
        SettingError: the file does not fit, or the run has lost its best checkpoint or has a broken one.
    """
    module.trainer = trainer
    try:
        content = _checked(file, trainer, module)
        best = file.path.with_name("best.ckpt")
        if best.exists():
            fitting_weights(read_checkpoint(best, "resume"), cast(Any, module).network, "resume")
        elif cast(Any, content)["callbacks"]["BestAndLast"]["best"] is not None:
            raise SettingError("checkpoints/best.ckpt", reason="is missing")
    except SettingError as error:
        hint = f"{typed('init_from', file.path)} starts a new run with its weights, if these are whole"
        raise SettingError("resume", run, f"cannot go on: {error}; {hint}") from error
    files = trainer.strategy.checkpoint_io
    assert isinstance(files, WholeFiles)
    files.checked = content


def _checked(file: CheckpointFile, trainer: Trainer, module: LightningModule) -> dict[str, object]:
    optimizer, scheduler = _fresh(module)
    check_like(file.content, _expected(file, trainer, module, optimizer), "checkpoints/last.ckpt")
    content = cast(Any, file.content)
    groups = optimizer.state_dict()["param_groups"]
    (given,), (scheduled,) = content["optimizer_states"], content["lr_schedulers"]
    if any(
        (each < 0).any() for state in given["state"].values() for name, each in state.items() if _counts(name, each)
    ):
        raise SettingError("checkpoints/last.ckpt.optimizer_states", reason="holds a count or a square below zero")
    peak = max(float(group.get("initial_lr", group["lr"])) for group in groups)
    rates = [group["lr"] for group in given["param_groups"]] + scheduled["_last_lr"]
    if not all(0 <= rate <= peak for rate in rates):
        raise SettingError("checkpoints/last.ckpt.optimizer_states", reason=f"has a learning rate beyond {peak}")
    kept = {"last_epoch", "_step_count", "_last_lr"}
    # Whoever watched before need not do so now.
    watching = {callback.state_key for callback in cast(list[Callback], cast(Any, trainer).callbacks)}
    return {
        "epoch": content["epoch"],
        "global_step": file.step,
        # Whatever wrote it, its form is the present one.
        "pytorch-lightning_version": lightning.__version__,
        "state_dict": content["state_dict"],
        "loops": copy.deepcopy({"fit_loop": content["loops"]["fit_loop"]}),
        "callbacks": {name: state for name, state in content["callbacks"].items() if name in watching},
        "optimizer_states": [
            {
                # Copies, since two may lie on one another in the file.
                "state": {
                    index: {name: each.clone() for name, each in state.items()}
                    for index, state in given["state"].items()
                },
                "param_groups": [
                    {**group, "lr": read["lr"]} for group, read in zip(groups, given["param_groups"], strict=True)
                ],
            }
        ],
        "lr_schedulers": [{**scheduler.state_dict(), **{name: scheduled[name] for name in kept}}],
        "attention_lab": {name: content["attention_lab"][name] for name in ("solved", "seconds")},
        **{name: content[name] for name in ("MixedPrecision",) if name in content},
    }


def _expected(
    file: CheckpointFile, trainer: Trainer, module: LightningModule, optimizer: Optimizer
) -> Mapping[str, object]:
    """Returns what everything in a checkpoint must be, the best that can be known without training."""
    states, groups = _states_after_a_step(optimizer), optimizer.state_dict()["param_groups"]
    given = file.content.get("optimizer_states")
    reached: Mapping[object, object] = {}
    if isinstance(given, list) and given and isinstance(given[0], dict) and isinstance(given[0].get("state"), dict):
        # A weight that no gradient has reached has no state.
        reached = given[0]["state"]
    fit_loop = cast(dict[str, Any], like(trainer.fit_loop.state_dict()))
    # By this one Lightning knows which step it is.
    fit_loop["epoch_loop.automatic_optimization.optim_progress"]["optimizer"]["step"]["total"]["completed"] = file.step
    optional = {"MixedPrecision": _SCALER} if "MixedPrecision" in file.content else {}
    return AtLeast(
        epoch=is_count,
        state_dict=module.state_dict(),
        loops=AtLeast(fit_loop=fit_loop),
        callbacks=AtLeast(
            ExactResume={"random": _is_random, "validated": is_count},
            StopWhenSolved={"last": is_score},
            BestAndLast={"best": is_score},
        ),
        optimizer_states=[
            {
                "state": {index: state for index, state in states.items() if index in reached or not reached},
                "param_groups": [AtLeast(params=group["params"], lr=is_number) for group in groups],
            }
        ],
        lr_schedulers=[AtLeast(last_epoch=is_count, _step_count=is_count, _last_lr=[is_number] * len(groups))],
        attention_lab=AtLeast(seconds=_is_duration, solved=_is_solved),
        **optional,
    )


def _fresh(module: LightningModule) -> tuple[Optimizer, LRScheduler]:
    made = cast(Any, module.configure_optimizers())
    return made["optimizer"], made["lr_scheduler"]["scheduler"]


def _states_after_a_step(optimizer: Optimizer) -> dict[int, dict[str, Any]]:
    """Returns what an optimiser keeps of every weight, by asking it: as shapes, without numbers."""
    sketch = copy.copy(optimizer)
    sketch.state = defaultdict(dict)
    sketch.param_groups = []
    for group in optimizer.param_groups:
        weights = [nn.Parameter(torch.empty_like(weight, device="meta")) for weight in group["params"]]
        for weight in weights:
            weight.grad = torch.empty_like(weight)
        plain = {name: False for name in ("fused", "foreach", "capturable") if name in group}
        sketch.param_groups.append({**group, **plain, "params": weights})
    sketch.step()
    return sketch.state_dict()["state"]


def _counts(name: str, state: Tensor) -> bool:
    """Says whether a state of an optimiser is a count of steps, or a mean of squares."""
    return state.dim() == 0 or name.endswith("_sq")


def _is_random(states: object) -> bool:
    """Says whether a value is the state of every process's random numbers, such as PyTorch accepts."""
    try:
        for state in cast(list[dict[str, Any]], states):
            check_like(state, {"cpu": torch.get_rng_state(), "cuda": [_CUDA_STATE] * len(state["cuda"])}, "")
            torch.Generator().set_state(state["cpu"])
            # CUDA counts its numbers in fours.
            if any(int(each[8:].view(torch.int64)) % 4 for each in state["cuda"]):
                return False
    except (SettingError, RuntimeError, TypeError, KeyError):
        return False
    return isinstance(states, list) and len(cast(list[object], states)) > 0


def _is_duration(value: object) -> bool:
    return is_number(value) and value >= 0


def _is_solved(value: object) -> bool:
    if value is None:
        return True
    try:
        check_like(value, {"step": is_count, "seconds": _is_duration}, "")
    except SettingError:
        return False
    return True
