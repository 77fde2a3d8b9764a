"""A user's mistake: exit status 2, one line that names the setting, its value and what is allowed, no traceback."""

from pathlib import Path

import pytest

MISTAKES = [
    ("experiment=nope", "experiment=nope", "smoke"),
    ("trainr.max_steps=3", "trainr.max_steps=3", "did you mean trainer.max_steps"),
    ("+trainr.max_steps=3", "trainr.max_steps=3", "did you mean trainer"),
    ("+trainer.max_step=3", "trainer.max_step=3", "did you mean trainer.max_steps"),
    ("++data.foo=3", "data.foo=3", "data.vocab_size"),
    ("+task.foo=3", "task.foo=3", "there are none"),
    ("~seed", "seed", "missing"),
    ("data=3", "data=3", "section"),
    ("seed=-1", "seed=-1", "between 0 and 4294967295"),
    ("seed=x", "seed=x", "a whole number"),
    ("seed=1.5", "seed=1.5", "a whole number"),
    ("data.batch_size=0", "data.batch_size=0", "at least 1"),
    ("data.batch_size=true", "data.batch_size=true", "a whole number"),
    ("data.min_length=9 data.max_length=3", "data.max_length=3", "min_length=9"),
    ("data.unique_symbols=true", "data.max_length=16", "vocab_size=10"),
    ("data.vocab_size=1 data.max_length=1 data.test_size=1", "data.max_length=1", "more symbols"),
    ("data.max_length=6000", "data.max_length=6000", "position.max_len=5000"),
    ("position.max_len=3", "position.max_len=3", "17 tokens"),
    ("position_sampling.range=1", "position_sampling.range=1", "at least 2"),
    ("position_sampling.range=9", "position_sampling.range=9", "17 tokens"),
    ("position_sampling.range=6000", "position_sampling.range=6000", "position.max_len=5000"),
    ("position_sampling.range=99 position=none", "position_sampling.range=99", "use null"),
    ("position_sampling.range=99 model=lstm", "position_sampling.range=99", "use null"),
    ("position_sampling.range=20 model=decoder_only", "position_sampling.range=20", "34 tokens"),
    ("position=two_ended_rotary position.frames=[middle]", "position.frames=['middle']", "start_again"),
    ("position=two_ended_rotary position.frames=[]", "position.frames=[]", "at least one"),
    ("position=two_ended_rotary model=decoder_only", "position=two_ended_rotary", "use position=rotary"),
    ("model.num_heads=7", "model.num_heads=7", "use one of [1, 2, 4, 8"),
    ("model.d_model=0", "model.d_model=0", "at least 1"),
    ("model.num_layers=0", "model.num_layers=0", "at least 1"),
    ("model.d_ff=-1", "model.d_ff=-1", "at least 1"),
    ("model.dropout=1.5", "model.dropout=1.5", "dropout < 1"),
    ("model._target_=torch.load", "model._target_=torch.load", "SequenceModel"),
    ("optimizer.learning_rate=-1", "optimizer.learning_rate=-1", "above 0"),
    ("optimizer.learning_rate=nan", "optimizer.learning_rate=nan", "a number"),
    ("trainer.precision=8", "trainer.precision=8", "32-true"),
    ("checkpoint.monitor=val/foo", "checkpoint.monitor=val/foo", "val/exact_match"),
    ("early_stopping.monitor=loss", "early_stopping.monitor=loss", "val/loss"),
    ("trainer.max_steps=0", "trainer.max_steps=0", "at least 1"),
    ("--seed 3", "--seed", "seed=VALUE"),
    ("seed=${nope}", "seed", "'nope' not found"),
    ("seed=null", "seed=null", "a whole number"),
    ("data.max_length='10'", "data.max_length='10'", "a whole number"),
    ("-x", "-x", "--help"),
    (
        "optimizer.learning_rate=1e30 optimizer.final_learning_rate=0 experiment=smoke",
        "optimizer.learning_rate=",
        "diverge",
    ),
    ("seed=0,1", "seed=0,1", "-m seed=0,1"),
    ("task=mixture data.min_length=1", "data.min_length=1", "2 symbols or more"),
    ("task=mixture task.tasks=[copy,foo]", "task.tasks=['copy', 'foo']", "foo, which is not the name of a task"),
]


# Settings out of their range, and what does not go together, are refused by tests/settings, tests/composition and the
# tests of what refuses them. Plain runs show a few of these as whole commands, and all that the command line refuses.
REFUSED_BELOW = ("data.", "model.", "position", "optimizer.", "trainer.", "checkpoint.", "early_stopping.", "seed=")
SHOWN = {"model.num_heads=7", "data.batch_size=0", "data.max_length=6000", "seed=-1", "seed=0,1", "seed=${nope}"}
CASES = [
    pytest.param(
        *mistake,
        id=mistake[0],
        marks=[pytest.mark.slow] if mistake[0].startswith(REFUSED_BELOW) and mistake[0] not in SHOWN else [],
    )
    for mistake in MISTAKES
]


@pytest.mark.parametrize(("arguments", "named", "allowed"), CASES)
def test_a_mistake_is_told_in_one_line(command, capsys, arguments, named, allowed):
    assert command("train.py", *arguments.split()) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1, lines
    assert lines[0].startswith("error: ")
    assert named in lines[0]
    assert allowed in lines[0]


def test_a_refused_run_leaves_no_folder_behind(command):
    assert command("train.py", "model.num_heads=7") == 2
    assert not list(Path("outputs/train").iterdir())
    Path("mine").mkdir()
    Path("mine/notes.txt").touch()
    assert command("train.py", "model.num_heads=7", "hydra.run.dir=mine") == 2
    assert Path("mine/notes.txt").exists()


def test_a_gpu_that_is_not_there_is_missed(command, capsys, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert command("train.py", "trainer=gpu") == 2
    assert "trainer=gpu" in capsys.readouterr().err


@pytest.mark.parametrize("folder", ["file/run", "/proc/run"])
def test_a_folder_that_cannot_be_written_is_named(command, capsys, folder):
    Path("file").touch()
    assert command("train.py", f"hydra.run.dir={folder}") == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert f"hydra.run.dir={folder}" in lines[0]


@pytest.mark.parametrize("sweep", [False, True], ids=["one run", "a sweep"])
@pytest.mark.parametrize(("here", "folder"), [(".", r"a\${b}"), ("a${b}", "run"), ("a${b}", "../run")])
def test_a_folder_that_hydra_would_take_for_a_setting_is_named(command, capsys, monkeypatch, here, folder, sweep):
    Path(here).mkdir(exist_ok=True)
    monkeypatch.chdir(here)
    arguments = ("-m", f"hydra.sweep.dir={folder}") if sweep else (f"hydra.run.dir={folder}",)
    assert command("train.py", *arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: hydra.{'sweep' if sweep else 'run'}.dir=")
    assert "a${b}" in line
    assert not list(Path.cwd().iterdir())


def test_the_traceback_shows_when_it_is_asked_for(command, capsys):
    assert command("train.py", "seed=-1", full_error="1") == 2
    assert "Traceback" in capsys.readouterr().err


def test_training_that_diverges_says_so(command, capsys):
    arguments = ("experiment=smoke", "optimizer.learning_rate=1e30", "optimizer.final_learning_rate=0")
    assert command("train.py", *arguments) == 2
    assert "optimizer.learning_rate=1e+30 made training diverge" in capsys.readouterr().err


def test_a_checkpoint_has_to_be_named(command, capsys):
    assert command("evaluate.py") == 2
    assert "checkpoint is missing" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (None, "does not exist"),
        (b"", "no checkpoint"),
        (b"<html>404</html>", "no checkpoint"),
        (b"PK\x03\x04" + bytes(100), "no checkpoint"),
        (b"\x80\x02cos\nsystem\n.", "no checkpoint"),
        (b"requests==2.0\n", "no checkpoint"),
    ],
    ids=["missing", "empty", "html", "broken zip", "pickle", "text"],
)
def test_a_file_that_is_no_checkpoint_is_refused(command, capsys, content, complaint):
    if content is not None:
        Path("some.ckpt").write_bytes(content)
    assert command("evaluate.py", "checkpoint=some.ckpt") == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert "checkpoint=some.ckpt" in lines[0]
    assert complaint in lines[0]
