"""One line about what is wrong with a command line, judged against the config that would really be composed."""

from pathlib import Path

import pytest

from attention_lab.cli.arguments import read
from attention_lab.cli.configs import Configs
from attention_lab.cli.explaining import check, explained
from attention_lab.errors import SettingError

CONFIGS = Path(__file__).parents[2] / "configs"

MINE = {
    "mine": "# @package _global_\ndefaults:\n  - override /attention: sliding_window\nattention:\n  window: 4\n",
    "torn": "# @package _global_\nseed: [3\n",
    "lost": "# @package _global_\ndefaults:\n  - override /taks: copy\n",
    "elsewhere": "# @package _global_\ndefaults:\n  - override /task: foo\n",
    "misspelt": "# @package _global_\ntrainer:\n  max_step: 3\n",
}


@pytest.fixture
def mine(tmp_path, monkeypatch) -> Path:
    (tmp_path / "own/experiment").mkdir(parents=True)
    for name, text in MINE.items():
        (tmp_path / f"own/experiment/{name}.yaml").write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "own"


def complaint(*arguments: str, command: str = "train") -> str | None:
    try:
        read_ones = read(arguments, "checkpoint" if command == "evaluate" else "resume")
        configs = Configs.asked_for(read_ones.flags, CONFIGS, command)
        check(configs, read_ones)
        wrong = explained(configs, read_ones.overrides, read_ones.multirun)
    except SettingError as error:
        wrong = error
    return None if wrong is None else str(wrong)


WRONG = [
    # What is chosen elsewhere on the command line counts, not the default.
    (
        "attention=sliding_window attention.window=4 data.max_lenght=3",
        "data.max_lenght=3",
        "did you mean data.max_length",
    ),
    ("data.max_lenght=3 attention.window=4 attention=sliding_window", "data.max_lenght=3", "did you mean"),
    ("--config-dir own experiment=mine trainer.max_step=3", "trainer.max_step=3", "did you mean trainer.max_steps"),
    ("experiment=mine trainer.max_step=3 -cd own attention.window=8", "trainer.max_step=3", "trainer.max_steps"),
    ("hydra.searchpath=[file://own] experiment=mine seeds=3", "seeds=3", "did you mean seed"),
    ("attention=full attention.window=4", "attention.window=4", "not a setting"),
    # Flags are no settings, wherever they stand.
    ("seeds=3 --multirun task=copy -cd own", "seeds=3", "did you mean seed"),
    ("--config-dir nowhere seed=3", "--config-dir=nowhere", "does not exist"),
    ("-cp nowhere", "--config-path=", "nowhere is not a folder"),
    ("-cn trian", "--config-name=trian", "did you mean train"),
    ("--seed 3", "--seed", "seed=VALUE"),
    # Sweeps: the run that cannot be, and what makes it so.
    ("-m seeds=0,1", "seeds=0", "did you mean seed"),
    ("-m attention=full,sliding_window attention.window=4", "attention.window=4", "in the run with attention=full"),
    ("-m task=copy,foo seed=0,1", "task=foo", "use one of copy"),
    ("-m seed=interval(0,1)", "-m", "INTERVAL"),
    ("seed=0,1", "seed=0,1", "-m seed=0,1"),
    ("task=glob(*)", "task=glob(*)", "-m task=glob(*)"),
    # Hydra's signs.
    ("~sed", "~sed", "did you mean seed"),
    ("~task=foo", "~task=foo", "cannot be used"),
    ("++task=copy", "++task=copy", "without the plus: task=copy"),
    ("+experiment=smoke", "+experiment=smoke", "without the plus: experiment=smoke"),
    ("+seed=3", "+seed=3", "seed=3"),
    ("task@x=copy", "task@x=copy", "write task=copy"),
    ("seed@x=3", "seed@x=3", "did you mean seed"),
    ("hydra/launcher=nope", "hydra/launcher=nope", "basic"),
    ("hydra.lancher=3", "hydra.lancher=3", "not a setting"),
    ("hydra.searchpath=[file://nowhere]", "hydra.searchpath=[file://nowhere]", "path=nowhere is not available"),
    # Files that are wrong themselves.
    ("-cd own experiment=torn", "experiment=torn", "own/experiment/torn.yaml, line 3"),
    ("-cd own experiment=lost", "experiment=lost", "'taks'"),
    ("-cd own experiment=elsewhere", "experiment=elsewhere", "'task/foo'"),
    # Values and names of all kinds.
    ("task=", "task=", "not a choice"),
    ("task=null", "task=null", "use one of copy"),
    ("=3", "=3", "cannot be read"),
    ("seed = 3", "seed", "without spaces"),
    ("seed=ü", "seed=ü", 'seed="ü"'),
    ("sééd=3", "sééd=3", "cannot be read"),
    ("task=[copy", "task=[copy", "cannot be read"),
    ("seed.x=3", "seed.x=3", "did you mean seed"),
    ("optimizer={learning_rates:3}", "optimizer.learning_rates=3", "did you mean optimizer.learning_rate"),
    ("trainr.max_steps=3", "trainr.max_steps=3", "did you mean trainer.max_steps"),
    ("max_steps=3", "max_steps=3", "did you mean trainer.max_steps"),
    ("lr=0.1", "lr=0.1", "did you mean optimizer.learning_rate"),
    ("task=revers", "task=revers", "did you mean reverse"),
    ("model=bert", "model=bert", "encoder_decoder"),
    ("task.foo=3", "task.foo=3", "not a setting"),
    ("task=[copy,reverse]", "task=[copy,reverse]", "-m task=A,B"),
    ("task={}", "task={}", "copy, duplicate"),
    # A setting twice: the last one would win.
    ("seed=1 seed=2", "seed", "given twice, by seed=1 and seed=2"),
    ("seed=1 ++seed=2", "seed", "given twice, by seed=1 and ++seed=2"),
    ("task=copy seed=3 task=reverse", "task", "given twice"),
    ("-m seed=0,1 seed=2", "seed", "given twice"),
    ("optimizer={learning_rate:1} optimizer.learning_rate=2", "optimizer.learning_rate", "given twice"),
    (
        "-m optimizer={learning_rate:1},{learning_rate:3} optimizer={weight_decay:1},{weight_decay:2}",
        "optimizer",
        "twice",
    ),
]


@pytest.mark.usefixtures("mine")
@pytest.mark.parametrize(("arguments", "named", "hint"), WRONG, ids=[each[0] for each in WRONG])
def test_what_is_wrong_is_named_with_what_would_be_right(arguments, named, hint):
    line = complaint(*arguments.split())
    assert line is not None
    assert line.startswith(named)
    assert hint in line


RIGHT = [
    "",
    "attention=sliding_window attention.window=4",
    "-cd own experiment=mine attention.window=8",
    "trainer=cpu trainer.max_steps=5",
    "optimizer={learning_rate:1} optimizer={weight_decay:2}",
    "-m task=copy,reverse seed=0,1",
    "-m task=glob(*)",
    "~experiment",
    "hydra/launcher=basic seed=3 --run",
]


@pytest.mark.usefixtures("mine")
@pytest.mark.parametrize("arguments", RIGHT)
def test_what_is_right_is_left_alone(arguments):
    assert complaint(*arguments.split()) is None


@pytest.mark.parametrize("arguments", ["seed=3", "task=copy", "model.d_model=3"])
def test_each_command_has_settings_of_its_own(arguments):
    line = str(complaint("checkpoint=x.ckpt", arguments, command="evaluate"))
    assert line.startswith(f"{arguments} is not a setting")
    assert "trainer" not in line


def test_a_path_alone_belongs_to_the_setting_that_takes_one():
    assert "checkpoint=runs/best.ckpt" in str(complaint("runs/best.ckpt", command="evaluate"))
    assert "resume=runs/a" in str(complaint("runs/a"))


def test_a_setting_is_found_in_the_file_that_was_chosen(mine):
    configs = Configs(str(CONFIGS), "train", mine)
    assert configs.written_in("trainer.max_step", ["experiment=misspelt"]) == mine / "experiment/misspelt.yaml"
    assert configs.written_in("trainer.max_step", ["experiment=misspelt", "+trainer.max_step=4"]) is None
    assert configs.written_in("seed", []) is None
