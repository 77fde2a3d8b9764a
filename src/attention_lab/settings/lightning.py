"""What Lightning's `Trainer` takes besides our own settings: what is passed on to it, and what is not, and why.

A list, since importing Lightning would take seconds; a test holds it against the `Trainer` that is installed.
"""

import inspect
from typing import Literal

Strategy = Literal["auto", "ddp", "ddp_find_unused_parameters_true", "ddp_find_unused_parameters_false"]
"""Every process has the whole network: only so is a checkpoint the same whoever writes it, and goes on bit for bit."""


def passed_on(
    *,
    benchmark: bool | None = None,
    detect_anomaly: bool | None = None,
    enable_autolog_hparams: bool | None = None,
    enable_model_summary: bool | None = None,
    gradient_clip_algorithm: str | None = None,
    gradient_clip_val: float | None = None,
    inference_mode: bool | None = None,
    max_time: str | dict[str, int] | None = None,
    model_registry: str | None = None,
    sync_batchnorm: bool | None = None,
) -> None:
    """Takes the arguments that change nothing that is promised: its signature is their schema."""


PASSED_ON = tuple(inspect.signature(passed_on).parameters)

_COUNTED_IN_STEPS = "does not go with training batches that never end, which are counted in steps"

REFUSED = {
    "barebones": "takes away the validations, without which there is no checkpoint to go on from",
    "callbacks": "has a section of its own: +callbacks.mine._target_=my_module.MyCallback",
    "check_val_every_n_epoch": f"{_COUNTED_IN_STEPS}; use trainer.validate_every",
    "default_root_dir": "is the run's folder; use hydra.run.dir",
    "enable_checkpointing": "is always true: best.ckpt and last.ckpt are what is scored and gone on from",
    "enable_progress_bar": "is drawn on a terminal only, and nowhere else",
    "limit_predict_batches": "does not go with training, which predicts nothing",
    "limit_test_batches": "would give figures of another test split; use data.test_size",
    "logger": "has a section of its own: logger=[tensorboard,csv]",
    "max_epochs": f"{_COUNTED_IN_STEPS}; use trainer.max_steps",
    "min_epochs": f"{_COUNTED_IN_STEPS}; early_stopping.threshold=null trains for all of trainer.max_steps",
    "min_steps": "would train on past the last step; early_stopping.threshold=null trains for all of trainer.max_steps",
    "num_sanity_val_steps": "would count as a validation; trainer.fast_dev_run=true tries everything",
    "overfit_batches": "would validate on other data than the split's; use data.train_size and limit_val_batches",
    "plugins": "are objects, which no config can hold; write a script with Trainer, as the README shows",
    "reload_dataloaders_every_n_epochs": _COUNTED_IN_STEPS,
    "use_distributed_sampler": "is always false: the data deal each process its share, every row once",
    "val_check_interval": "counts batches; use trainer.validate_every, which counts steps",
}
"""Arguments that would break something that is promised, or that have another name here, and what to do instead."""
