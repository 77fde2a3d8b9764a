"""Which run goes on, with what, and what is refused. That nothing is lost, tests/reliability shows."""

import json
import shlex
import shutil
from pathlib import Path

import pytest
import torch
import yaml
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

from attention_lab.runs.checkpoint import CHECKPOINT_FORMAT
from attention_lab.runs.folder import locked
from attention_lab.runs.paths import typed
from attention_lab.runs.trained import load_trained

ROOT = Path(__file__).parents[2]

SMALL = ("experiment=smoke", "trainer=cpu", "trainer.max_steps=10", "callbacks.attention_maps=false")


@pytest.fixture
def run(command, trained) -> Path:  # noqa: ARG001 - the command's fixture chooses an empty folder
    shutil.copytree(trained(*SMALL), "run")
    return Path("run")


def refusal(command, capsys, *settings: str) -> str:
    capsys.readouterr()
    assert command("train.py", *settings) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    return lines[0]


def test_a_run_goes_on_in_its_folder_with_its_config(command, run):
    before = (run / ".hydra/overrides.yaml").read_text()
    assert command("train.py", "resume=run", "trainer.max_steps=20") == 0
    assert json.loads((run / "metrics.json").read_text())["train/steps"] == 20
    last = torch.load(run / "checkpoints/last.ckpt", weights_only=True)
    assert last["global_step"] == 20
    config = last["attention_lab"]["config"]
    assert "resume" not in config
    written = yaml.safe_load((run / ".hydra/config.yaml").read_text())
    assert written == config
    assert (run / ".hydra/overrides.yaml").read_text() == before
    assert "going on from run/checkpoints/last.ckpt" in (run / "train.log").read_text()
    # And once more, from what the second part has left.
    assert command("train.py", "resume=run", "trainer.max_steps=30") == 0
    assert not Path("outputs").exists()


@pytest.mark.parametrize(
    "named",
    ["../folder/run", *(pytest.param(name, marks=pytest.mark.slow) for name in ("run/", "link", "link/../run/."))],
)
def test_a_run_may_be_named_in_any_way(command, run, named):
    Path("link").symlink_to(run.name)
    here = Path.cwd()
    assert command("train.py", f"resume={named.replace('folder', here.name)}", "trainer.max_steps=11") == 0
    assert json.loads((run / "metrics.json").read_text())["train/steps"] == 11


DAMAGES = {
    "no optimiser": lambda content: content.pop("optimizer_states"),
    "no loops": lambda content: content.pop("loops"),
    "no schedule": lambda content: content.pop("lr_schedulers"),
    "no weight": lambda content: content["state_dict"].popitem(),
    "moments of one number": lambda content: [
        state.update(exp_avg=torch.zeros(1), exp_avg_sq=torch.zeros(1))
        for state in content["optimizer_states"][0]["state"].values()
    ],
    "garbage": lambda content: content["callbacks"]["ExactResume"].update(random="x"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_checkpoint_is_refused_and_nothing_is_lost(command, run, capsys, name):
    last = run / "checkpoints/last.ckpt"
    content = torch.load(last, weights_only=True)
    DAMAGES[name](content)
    torch.save(content, last)
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file() and path.suffix != ".log"}
    assert "resume=" in refusal(command, capsys, "resume=run", "trainer.max_steps=20")
    assert {path: path.read_bytes() for path in before} == before
    assert not list(run.rglob("*.part"))


def test_a_clock_that_was_set_back_does_not_turn_the_curves(command, run):
    later = sorted((run / "tensorboard").glob("events*"))
    for number, path in enumerate(later):
        path.rename(path.with_name(f"events.out.tfevents.{9999999990 + number}.host.1.0"))
    assert command("train.py", "resume=run", "trainer.max_steps=20") == 0
    steps = [
        event.step
        for path in sorted((run / "tensorboard").glob("events*"))
        for event in EventFileLoader(str(path)).Load()
        for value in event.summary.value
        if value.tag == "val/loss"
    ]
    assert steps == [10, 20]


@pytest.mark.parametrize(
    "setting",
    [
        f"trainer.max_steps={2**63}",
        f"trainer.validate_every={2**70}",
        f"optimizer.warmup_steps={10**300}",
        f"init_from={'x' * 1200}",
    ],
)
def test_what_its_readers_would_refuse_a_run_does_not_begin_with(command, capsys, setting):
    message = refusal(command, capsys, *SMALL, setting, "hydra.run.dir=new")
    assert message.startswith(f"error: {setting.partition('=')[0]}")
    assert not Path("new").exists()


@pytest.mark.parametrize("name", ["metrics.json/", "checkpoints", "tensorboard", ".hydra", ".hydra/config.yaml/"])
def test_what_stands_in_the_place_of_its_files_is_told_at_once(command, capsys, name):
    path = Path("new", name)
    if name.endswith("/"):
        path.mkdir(parents=True)
    else:
        path.parent.mkdir()
        path.touch()
    assert "in the place of " + name.rstrip("/") in refusal(command, capsys, *SMALL, "hydra.run.dir=new")


@pytest.mark.parametrize("length", [300, 5000])
def test_a_folder_that_cannot_be_is_told(command, capsys, length):
    assert "too long" in refusal(command, capsys, *SMALL, f"hydra.run.dir={'x' * length}")


def test_what_a_kill_has_left_half_written_goes(command, run):
    for name in ("checkpoints/.last.ckpt.part", ".metrics.json.part"):
        (run / name).write_text("half")
    assert command("train.py", "resume=run", "trainer.max_steps=11") == 0
    assert not list(run.rglob("*.part"))
    assert not (run / ".lock").exists()


def test_a_moved_run_goes_on_where_it_lies_now(command, run):
    best = torch.load(run / "checkpoints/last.ckpt", weights_only=True)["callbacks"]["BestAndLast"]["best"]
    run.rename("elsewhere")
    assert command("train.py", "resume=elsewhere", "trainer.max_steps=20") == 0
    assert not Path("run").exists()
    after = torch.load("elsewhere/checkpoints/last.ckpt", weights_only=True)
    assert after["callbacks"]["BestAndLast"]["best"] <= best


def test_a_folder_may_have_any_name(command, run, capsys):
    folder = Path("it's ${b} \\${seed}, [1]=%").absolute()
    run.rename(folder)
    assert command("train.py", f"resume={folder.name}", "trainer.max_steps=12") == 0
    said = capsys.readouterr().out
    assert json.loads((folder / "metrics.json").read_text())["train/steps"] == 12
    assert "step 12" in " ".join((folder / "train.log").read_text().split())
    # What it prints can be pasted, to evaluate and to go on.
    (pasted,) = [shlex.split(line) for line in said.splitlines() if "evaluate.py" in line]
    assert (
        command(
            "evaluate.py", *pasted[pasted.index("evaluate.py") + 1 :], "lengths=[]", "num_figures=0", "hydra.run.dir=e"
        )
        == 0
    )
    assert command("train.py", shlex.split(typed("resume", folder))[0], "trainer.max_steps=14") == 0
    assert {path.name for path in Path.cwd().iterdir()} == {folder.name, "e"}


@pytest.mark.slow
def test_the_latest_run_is_the_one_that_was_written_to_last(command):
    for name in ("b", "a"):
        assert command("train.py", *SMALL, f"hydra.run.dir=outputs/train/{name}") == 0
    assert command("train.py", "resume=latest", "trainer.max_steps=20") == 0
    steps = {name: json.loads(Path(f"outputs/train/{name}/metrics.json").read_text())["train/steps"] for name in "ab"}
    assert steps == {"a": 20, "b": 10}


@pytest.mark.slow
def test_a_run_without_a_checkpoint_begins_anew(command, run):
    whole = torch.load(run / "checkpoints/last.ckpt", weights_only=True)["state_dict"]
    for path in [*run.glob("checkpoints/*"), run / "metrics.json"]:
        path.unlink()
    assert command("train.py", "resume=run") == 0
    again = torch.load(run / "checkpoints/last.ckpt", weights_only=True)["state_dict"]
    assert all(torch.equal(again[name], value) for name, value in whole.items())


@pytest.mark.parametrize(
    ("settings", "named", "hint"),
    [
        ("resume=nowhere", "resume=nowhere", "does not exist"),
        ("resume=run/checkpoints/last.ckpt", "resume=run/checkpoints/last.ckpt", "init_from="),
        ("resume=run/checkpoints", "resume=run/checkpoints", "not the folder of a run"),
        ("resume=latest", "resume=latest", "no run"),
        ("resume=run", "trainer.max_steps=10", "ask for more"),
        ("resume=run trainer.max_steps=5", "trainer.max_steps=5", "10 steps"),
        ("resume=run trainer.max_steps=20 optimizer.learning_rate=1", "optimizer.learning_rate=1", "it was 0.0"),
        ("resume=run trainer.max_steps=20 seed=3", "seed=3", "it was 0"),
        ("resume=run trainer.max_steps=20 model.d_model=8", "model.d_model=8", "cannot change"),
        ("resume=run task=copy", "task=copy", "cannot change"),
        ("resume=run trainer.max_step=20", "trainer.max_step=20", "trainer.max_steps"),
        ("resume=run hydra.run.dir=other", "hydra.run.dir=other", "resume=run"),
        ("-m resume=run seed=1,2", "resume=run", "leave -m out"),
        ("-m resume=run,other", "resume=run,other", "names several"),
        ("resume=run trainer.max_steps=20 init_from=run/checkpoints/best.ckpt", "init_from=", "resume="),
        ("hydra.run.dir=run", "hydra.run.dir=run", "resume=run"),
        ("resume=" + "x" * 300, "resume=xxx", "does not exist"),
        ("init_from=nowhere.ckpt", "init_from=nowhere.ckpt", "does not exist"),
        ("init_from=run", "init_from=run", "try init_from=run/checkpoints/best.ckpt"),
        ("init_from=run/checkpoints/best.ckpt model.d_model=8", "init_from=run/checkpoints/best.ckpt", "same model"),
        ("init_from=run/train.log", "init_from=run/train.log", "no checkpoint"),
    ],
)
def test_what_cannot_go_on_is_refused_and_nothing_changes(command, run, capsys, settings, named, hint):
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    message = refusal(command, capsys, *settings.split())
    assert named in message
    assert hint in message
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


def test_a_run_of_an_earlier_format_can_only_lend_its_weights(command, run, capsys):
    path = run / "checkpoints/last.ckpt"
    content = torch.load(path, weights_only=True)
    content["attention_lab"] = {"format": 1, "config": content["attention_lab"]["config"], "solved": None}
    torch.save(content, path)
    assert "init_from=" in refusal(command, capsys, "resume=run", "trainer.max_steps=20")
    assert command("train.py", *SMALL, f"init_from={path}", "hydra.run.dir=second") == 0
    assert load_trained(path).step == 10


def test_a_run_of_the_second_format_goes_on(command, run):
    path = run / "checkpoints/last.ckpt"
    content = torch.load(path, weights_only=True)
    content["attention_lab"]["format"] = 2
    torch.save(content, path)
    assert command("train.py", "resume=run", "trainer.max_steps=20") == 0
    after = torch.load(path, weights_only=True)
    assert (after["global_step"], after["attention_lab"]["format"]) == (20, CHECKPOINT_FORMAT)


def test_positions_that_counted_otherwise_neither_go_on_nor_lend_their_weights(command, run, capsys):
    path = run / "checkpoints/last.ckpt"
    content = torch.load(path, weights_only=True)
    content["attention_lab"]["format"] = 2
    content["attention_lab"]["config"]["position"] = {
        "_target_": "attention_lab.positions.two_ended_rotary.TwoEndedRotary"
    }
    torch.save(content, path)
    for arguments in (("resume=run", "trainer.max_steps=20"), (f"init_from={path}", "hydra.run.dir=second")):
        assert "train it again" in refusal(command, capsys, *arguments)


def test_a_run_that_goes_on_in_another_process_is_left_alone(command, run, capsys):
    with locked(run.absolute()):
        assert "another process" in refusal(command, capsys, "resume=run", "trainer.max_steps=20")


def test_other_weights_to_begin_with_are_the_ones_it_begins_with(command, run):
    first = torch.load(run / "checkpoints/best.ckpt", weights_only=True)
    settings = (
        "experiment=smoke",
        "trainer=cpu",
        "trainer.max_steps=1",
        "optimizer.learning_rate=1e-12",
        "optimizer.final_learning_rate=0",
    )
    arguments = (*settings, "seed=5", "init_from=run/checkpoints/best.ckpt", "hydra.run.dir=second")
    assert command("train.py", *arguments) == 0
    second = torch.load("second/checkpoints/best.ckpt", weights_only=True)
    assert second["global_step"] == 1
    assert second["attention_lab"]["config"]["init_from"] == "run/checkpoints/best.ckpt"
    for name, value in first["state_dict"].items():
        torch.testing.assert_close(second["state_dict"][name], value, rtol=0, atol=1e-6)


@pytest.mark.slow
def test_a_run_with_other_weights_to_begin_with_goes_on_with_its_own(command, run):  # noqa: ARG001
    assert command("train.py", *SMALL, "init_from=run/checkpoints/best.ckpt", "hydra.run.dir=second") == 0
    shutil.rmtree("run")
    assert command("train.py", "resume=second", "trainer.max_steps=20") == 0
    assert torch.load("second/checkpoints/last.ckpt", weights_only=True)["global_step"] == 20


@pytest.mark.slow
def test_a_run_that_was_solved_is_done(command, capsys):
    solved = ("early_stopping.threshold=1000", "trainer.max_steps=40", "hydra.run.dir=run")
    assert command("train.py", "experiment=smoke", "trainer=cpu", *solved) == 0
    assert json.loads(Path("run/metrics.json").read_text())["train/steps"] == 10
    assert "has ended after 10 steps" in refusal(command, capsys, "resume=run")
    # Ended before it was scored, it is scored, and goes no further.
    Path("run/metrics.json").unlink()
    assert command("train.py", "resume=run") == 0
    assert json.loads(Path("run/metrics.json").read_text())["train/steps"] == 10
    assert command("train.py", "resume=run", "early_stopping.threshold=null", "trainer.max_steps=30") == 0
    assert json.loads(Path("run/metrics.json").read_text())["train/steps"] == 30


@pytest.mark.slow
def test_figures_of_fewer_steps_do_not_stay(command, run, monkeypatch):
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("attention_lab.commands.train._report", killed)
        with pytest.raises(KeyboardInterrupt):
            command("train.py", "resume=run", "trainer.max_steps=20")
    assert not (run / "metrics.json").exists()
    assert command("train.py", "resume=run") == 0
    assert json.loads((run / "metrics.json").read_text())["train/steps"] == 20


@pytest.mark.slow
def test_a_sweep_that_is_refused_leaves_the_runs_of_the_first_alone(command, capsys):
    arguments = ("-m", *SMALL, "seed=0", "hydra.sweep.dir=sweep")
    assert command("train.py", *arguments) == 0
    before = {
        path: path.read_bytes() for path in Path("sweep").rglob("*") if path.suffix in (".yaml", ".ckpt", ".json")
    }
    assert "holds a sweep already" in refusal(command, capsys, *arguments, "model.d_ff=8")
    changed = {
        path for path, content in before.items() if path.parent.name == ".hydra" and path.read_bytes() != content
    }
    assert not changed
