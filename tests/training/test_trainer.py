"""Where a training runs, and at which precision."""

import pytest
import torch

from attention_lab.errors import SettingError
from attention_lab.settings.checking import build
from attention_lab.settings.schema import TrainSettings
from attention_lab.training.trainer import check_device, choose_device, make_trainer
from tests.training.tiny import tiny


@pytest.fixture
def gpus(monkeypatch):
    def there(count: int, bf16: bool = True) -> None:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: bf16)

    return there


def settings(*overrides: str) -> TrainSettings:
    return build(TrainSettings, tiny(*overrides), "")


@pytest.mark.parametrize(
    ("accelerator", "count", "device"), [("auto", 0, "cpu"), ("auto", 1, "cuda"), ("cpu", 1, "cpu"), ("gpu", 1, "cuda")]
)
def test_auto_takes_a_gpu_if_there_is_one(gpus, accelerator, count, device):
    gpus(count)
    assert choose_device(accelerator).type == device


@pytest.mark.parametrize(
    ("overrides", "count", "setting"),
    [
        (["trainer.accelerator=gpu"], 0, "trainer"),
        (["trainer.accelerator=gpu", "trainer.devices=2"], 1, "trainer.devices"),
        (["trainer.precision=16-mixed"], 0, "trainer.precision"),
    ],
)
def test_what_the_machine_cannot_do_is_refused(gpus, overrides, count, setting):
    gpus(count)
    with pytest.raises(SettingError) as refused:
        check_device(settings(*overrides).trainer)
    assert refused.value.setting == setting


def test_a_trainer_counts_steps_alone_and_heeds_no_batch_job_around_it(tmp_path, monkeypatch):
    for name, value in {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "4", "SLURM_JOB_NAME": "x", "SLURM_PROCID": "3"}.items():
        monkeypatch.setenv(name, value)
    trainer = make_trainer(settings("trainer.validate_every=7", "optimizer.gradient_clip=0"), tmp_path, [], [])
    assert (trainer.world_size, trainer.global_rank) == (1, 0)
    assert (trainer.max_epochs, trainer.max_steps, trainer.val_check_interval) == (-1, -1, 7)
    assert trainer.gradient_clip_val is None
    assert trainer.precision == "32-true"
