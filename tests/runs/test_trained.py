"""A checkpoint is anybody's file: what does not fit is refused by name, and nothing foreign runs."""

import copy
import importlib
import os
import pickle
from pathlib import Path

import pytest
import torch
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from attention_lab.composition.build import build_network
from attention_lab.errors import SettingError
from attention_lab.runs.trained import find_checkpoints, load_trained, untrained_network
from attention_lab.settings.checking import build
from attention_lab.settings.flat import flat_settings
from attention_lab.settings.moved import MOVED_TARGETS
from attention_lab.settings.schema import TrainSettings

CONFIGS = Path(__file__).parents[2] / "configs"


@pytest.fixture(scope="module")
def content() -> dict:
    with initialize_config_dir(str(CONFIGS), version_base="1.3"):
        config = OmegaConf.to_container(compose("train", ["experiment=smoke", "seed=11"]), resolve=True)
    settings = build(TrainSettings, config, "")
    network = build_network(settings.model, settings.attention, settings.position, settings.data)
    return {
        "attention_lab": {"format": 1, "config": config},
        "state_dict": {f"network.{name}": value for name, value in network.state_dict().items()},
        "global_step": 17,
    }


def saved(content: dict, folder: Path) -> Path:
    torch.save(content, folder / "some.ckpt")
    return folder / "some.ckpt"


def refusal(path: Path) -> str:
    with pytest.raises(SettingError) as refused:
        load_trained(path)
    message = str(refused.value)
    assert message.startswith(f"checkpoint={path} ")
    assert "\n" not in message
    return message


def test_a_checkpoint_comes_back_as_it_was(content, tmp_path):
    trained = load_trained(saved(content, tmp_path))
    assert trained.step == 17
    assert trained.settings.seed == 11
    assert not trained.network.training
    for name, value in trained.network.state_dict().items():
        assert torch.equal(value, content["state_dict"][f"network.{name}"])


def test_a_name_may_be_text(content, tmp_path):
    assert load_trained(str(saved(content, tmp_path))).step == 17


def test_how_to_run_does_not_come_from_the_file(content, tmp_path):
    changed = copy.deepcopy(content)
    config = changed["attention_lab"]["config"]
    config["data"]["num_workers"] = 200
    config["trainer"] = {"accelerator": "tpu", "devices": 10**6}
    config["callbacks"] = {"_target_": "os.system", "command": "touch ran"}
    trained = load_trained(saved(changed, tmp_path))
    assert trained.data.num_workers == 0
    for name in ("trainer", "callbacks", "optimizer", "checkpoint", "early_stopping"):
        del config[name]
    del config["data"]["num_workers"]
    assert load_trained(saved(changed, tmp_path)).step == 17


def test_a_batch_that_only_a_file_asks_for_has_a_bound(content, tmp_path):
    changed = copy.deepcopy(content)
    changed["attention_lab"]["config"]["data"] |= {"batch_size": 10**6, "max_length": 255, "test_size": 50_000}
    assert load_trained(saved(changed, tmp_path)).data.batch_size == 1024
    changed["attention_lab"]["config"]["data"]["test_size"] = 10**6
    assert "data.test_size=1000000" in refusal(saved(changed, tmp_path))


def test_what_an_earlier_version_did_not_write_has_its_default(content, tmp_path):
    changed = copy.deepcopy(content)
    config = changed["attention_lab"]["config"]
    del config["position_sampling"], config["init_from"]
    del config["trainer"]["devices"], config["attention"]["qk_norm"], config["attention"]["sharpness"]
    whole = load_trained(saved(content, tmp_path)).config
    earlier = load_trained(saved(changed, tmp_path)).config
    assert earlier == whole
    assert flat_settings(earlier) == flat_settings(whole)


def test_a_class_that_has_another_name_now_is_found(content, tmp_path, monkeypatch):
    changed = copy.deepcopy(content)
    position = changed["attention_lab"]["config"]["position"]
    now, position["_target_"] = position["_target_"], "attention_lab.positions.before.Before"
    assert "positions.before" in refusal(saved(changed, tmp_path))
    monkeypatch.setitem(MOVED_TARGETS, "attention_lab.positions.before.Before", now)
    assert load_trained(saved(changed, tmp_path)).config["position"]["_target_"] == now


def test_every_class_that_has_moved_has_a_place():
    for target in MOVED_TARGETS.values():
        module, _, name = target.rpartition(".")
        assert hasattr(importlib.import_module(module), name)


def test_what_a_trainer_of_ones_own_leaves_out_is_told(content, tmp_path):
    bare = {name: content[name] for name in ("state_dict", "global_step")}
    assert "no section attention_lab" in refusal(saved(bare, tmp_path))
    for name in ("task", "model", "data", "seed"):
        changed = copy.deepcopy(content)
        del changed["attention_lab"]["config"][name]
        message = refusal(saved(changed, tmp_path))
        assert f"{name} is missing" in message
        assert "SequenceTraining(config=...)" in message


NASTY_CONFIGS = {
    "dots": ("task", "_target_", "attention_lab" + ".a" * 400),
    "places": ("position", "max_len", 2**62),
    "width": ("model", "d_model", 2**62),
    "integer": ("trainer", "max_steps", 10**5000),
    "text": ("model", "d_model", "x" * 10**6),
    "tensor": ("model", "d_model", torch.zeros(3)),
}


@pytest.mark.parametrize("name", NASTY_CONFIGS)
def test_a_config_that_is_out_of_all_bounds_is_refused(content, tmp_path, name):
    section, setting, value = NASTY_CONFIGS[name]
    changed = copy.deepcopy(content)
    changed["attention_lab"]["config"][section][setting] = value
    assert len(refusal(saved(changed, tmp_path))) < 2000


def test_a_foreign_or_newer_file_is_refused(content, tmp_path):
    assert "was not written by attention_lab" in refusal(saved({"state_dict": {}}, tmp_path))
    assert "was not written by attention_lab" in refusal(saved([1, 2], tmp_path))
    bare = {**content, "attention_lab": {"config": content["attention_lab"]["config"]}}
    assert "format None" in refusal(saved(bare, tmp_path))
    assert "was not written by attention_lab" in refusal(saved({**content, "global_step": "many"}, tmp_path))
    newer = {**content, "attention_lab": {**content["attention_lab"], "format": 99}}
    assert "format 99" in refusal(saved(newer, tmp_path))


@pytest.mark.parametrize("version", [1, 2])
def test_two_ended_positions_of_an_earlier_format_are_refused(content, tmp_path, version):
    two_ended = {"_target_": "attention_lab.positions.two_ended_rotary.TwoEndedRotary"}
    config = {**content["attention_lab"]["config"], "position": two_ended}
    old = {**content, "attention_lab": {"format": version, "config": config}}
    assert "train it again" in refusal(saved(old, tmp_path))


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9, 0.999])
def test_a_truncated_file_is_refused(content, tmp_path, share):
    path = saved(content, tmp_path)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(share * len(whole))])
    assert "broken" in refusal(path)


def test_a_run_folder_is_answered_with_the_file_in_it(content, tmp_path):
    (tmp_path / "checkpoints").mkdir()
    saved(content, tmp_path / "checkpoints").rename(tmp_path / "checkpoints/best.ckpt")
    assert f"try checkpoint={tmp_path}/checkpoints/best.ckpt" in refusal(tmp_path)


class Bomb:
    def __reduce__(self):
        return (Path.touch, (Path("exploded"),))


def test_a_pickle_that_would_run_code_does_not(content, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "broken" in refusal(saved({**content, "bomb": Bomb()}, tmp_path))
    path = tmp_path / "plain.ckpt"
    path.write_bytes(pickle.dumps(Bomb()))
    assert "broken" in refusal(path)
    assert not Path("exploded").exists()


@pytest.mark.parametrize(
    "target", ["torch.load", "builtins.open", "shutil.copy", "attention_lab.composition.build.build_network"]
)
def test_a_config_that_names_something_foreign_is_refused(content, tmp_path, target):
    changed = copy.deepcopy(content)
    changed["attention_lab"]["config"]["model"]["_target_"] = target
    assert f"model._target_={target}" in refusal(saved(changed, tmp_path))


@pytest.mark.parametrize("change", ["missing", "extra", "shape", "type"])
def test_weights_that_do_not_fit_are_refused(content, tmp_path, change):
    weights = dict(content["state_dict"])
    name = "network.output.weight"
    if change == "missing":
        del weights[name]
    else:
        wrong = {"extra": torch.zeros(3), "shape": torch.zeros(2, 2), "type": "text"}[change]
        weights[name if change != "extra" else "network.more"] = wrong
    assert "do not fit" in refusal(saved({**content, "state_dict": weights}, tmp_path))


def test_the_batch_size_of_evaluation_is_the_one_that_was_asked_for(content, tmp_path):
    path = saved(content, tmp_path)
    trained_with = content["attention_lab"]["config"]["data"]["batch_size"]
    for asked, expected in ((None, trained_with), (7, 7)):
        first = next(iter(load_trained(path, asked).data.loader("test")))
        assert len(first.source) == min(expected, len(load_trained(path).data.rows("test")))


def test_a_pattern_names_its_files_in_order_and_each_once(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("b/x.ckpt", "a/x.ckpt", "c/y.ckpt"):
        Path(name).parent.mkdir()
        Path(name).touch()
    assert find_checkpoints("*/x.ckpt") == [Path("a/x.ckpt"), Path("b/x.ckpt")]
    assert find_checkpoints(["c/y.ckpt", "*/*.ckpt"]) == [Path("c/y.ckpt"), Path("a/x.ckpt"), Path("b/x.ckpt")]
    assert find_checkpoints("**/y.ckpt") == [Path("c/y.ckpt")]


def test_files_come_in_the_order_of_their_numbers(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("10_b", "2_b", "1_c", "1_a2", "1_a10", "a"):
        Path(f"{name}.ckpt").touch()
    assert [path.stem for path in find_checkpoints("*.ckpt")] == ["1_a2", "1_a10", "1_c", "2_b", "10_b", "a"]


def test_the_latest_is_the_best_checkpoint_of_the_run_that_was_written_to_last(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SettingError, match=r"^checkpoint=latest finds no run with checkpoints/best\.ckpt in "):
        find_checkpoints("latest")
    for number, run in enumerate(("b", "sweep/0_copy", "a", "begun")):
        checkpoints = tmp_path / "outputs/train" / run / "checkpoints"
        checkpoints.mkdir(parents=True)
        if run != "begun":
            (checkpoints / "best.ckpt").touch()
        for path in (checkpoints, checkpoints.parent):
            os.utime(path, (1000 + number, 1000 + number))
    assert find_checkpoints("latest") == [tmp_path / "outputs/train/a/checkpoints/best.ckpt"]
    os.utime(tmp_path / "outputs/train/sweep/0_copy", (2000, 2000))
    assert find_checkpoints("latest") == [tmp_path / "outputs/train/sweep/0_copy/checkpoints/best.ckpt"]
    # Unless that is the name of a file.
    Path("latest").touch()
    assert find_checkpoints("latest") == [Path("latest")]


def test_a_path_without_a_pattern_is_taken_as_it_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert find_checkpoints("nowhere.ckpt") == [Path("nowhere.ckpt")]
    Path("[1].ckpt").touch()
    assert find_checkpoints("[1].ckpt") == [Path("[1].ckpt")]


def test_a_pattern_that_fits_nothing_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("folder.ckpt").mkdir()
    with pytest.raises(SettingError, match=r"^checkpoint=\*\.ckpt fits no file"):
        find_checkpoints("*.ckpt")


def test_the_untrained_network_is_the_one_that_training_starts_with(content):
    settings = build(TrainSettings, content["attention_lab"]["config"], "")
    torch.manual_seed(settings.seed)
    started = build_network(settings.model, settings.attention, settings.position, settings.data)
    torch.manual_seed(5)
    state = torch.get_rng_state()
    again = untrained_network(settings)
    assert torch.equal(torch.get_rng_state(), state)
    for name, value in started.state_dict().items():
        assert torch.equal(value, again.state_dict()[name])


def test_a_network_that_has_diverged_is_refused(content, tmp_path):
    broken = copy.deepcopy(content)
    broken["state_dict"]["network.output.bias"][3] = torch.nan
    assert "its run has diverged" in refusal(saved(broken, tmp_path))


@pytest.mark.parametrize("name", ["x" * 300 + ".ckpt", "y" * 300 + "/*.ckpt"])
def test_a_name_that_no_file_can_have_is_refused(name):
    with pytest.raises(SettingError, match="checkpoint="):
        [load_trained(file) for file in find_checkpoints(name)]


@pytest.mark.parametrize(
    ("found", "solved"),
    [
        ({"step": 50, "seconds": 2}, (50, 2.0)),
        (None, None),
        ("soon", None),
        ({"step": "50", "seconds": 2.5}, None),
        ({"seconds": 2.5}, None),
        ({"step": 50, "seconds": 10**400}, None),
        ({"step": 10**400, "seconds": 2.5}, None),
    ],
)
def test_when_its_run_was_solved_is_in_a_checkpoint_or_not(content, tmp_path, found, solved):
    known = {**content, "attention_lab": {**content["attention_lab"], "solved": found}}
    assert load_trained(saved(known, tmp_path)).solved == solved
