"""A run never raises a user's mistake or an error of its own: how it ended is what it returns."""

import copy
import io
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, open_dict, read_write

from attention_lab.cli.configs import Configs
from attention_lab.cli.job import SIGNALS, Job, Outcome, say_what_is_loaded
from attention_lab.cli.signals import Signals
from attention_lab.errors import Interrupted, SettingError

CONFIGS = Path(__file__).parents[2] / "configs"


@pytest.fixture(autouse=True)
def _signals(tmp_path, monkeypatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    handlers = {signum: signal.getsignal(signum) for signum in (signal.SIGINT, signal.SIGTERM)}
    yield
    SIGNALS.received, SIGNALS.waits_for_work = None, False
    for signum, handler in handlers.items():
        signal.signal(signum, handler)


def run(main: Callable[[DictConfig], None], *overrides: str, process: int | None = None) -> Outcome:
    """Runs a job as Hydra would, in the folder `run`."""
    configs = Configs(str(CONFIGS), "train")
    config = configs.compose(overrides)
    HydraConfig.instance().set_config(config)
    with read_write(config.hydra.runtime), open_dict(config.hydra.runtime):
        config.hydra.runtime.output_dir = str(Path("run").absolute())
    HydraConfig.instance().set_config(config)
    config = copy.deepcopy(config)
    with open_dict(config):
        del config["hydra"]
    Path("run").mkdir(exist_ok=True)
    return Job(main, configs, resumable=True, typed=None, process=process or os.getpid())(config)


def raising(error: BaseException) -> Callable[[DictConfig], None]:
    def main(_: DictConfig) -> None:
        raise error

    return main


def test_what_came_out_is_returned():
    def main(_: DictConfig) -> None:
        Path("run/metrics.json").write_text('{"test/decoded_exact_match": 0.25}')

    assert run(main, "seed=3") == Outcome(0, Path("run").absolute(), ("seed=3",), "exact match 0.2500")


def test_a_mistake_is_returned_and_leaves_no_folder():
    outcome = run(raising(SettingError("seed", -1, "is\nnegative")), "seed=-1")
    assert (outcome.status, outcome.text, outcome.told) == (2, "seed=-1 is negative", False)
    assert not Path("run").exists()


def test_a_mistake_in_a_chosen_file_names_the_file():
    outcome = run(raising(SettingError("data.train_size", 512, "is wrong")), "experiment=smoke")
    assert outcome.text.endswith(f"(in {CONFIGS}/experiment/smoke.yaml)")


def test_any_other_error_is_returned_with_its_traceback_told(capsys):
    outcome = run(raising(RuntimeError("oh\nno")))
    assert (outcome.status, outcome.text, outcome.told) == (1, "RuntimeError: oh", True)
    assert "Traceback" in capsys.readouterr().err


def test_no_room_is_no_mistake():
    outcome = run(raising(OSError(28, "No space left on device")))
    assert outcome.status == 1
    assert "No space left" in outcome.text


def test_an_interruption_ends_a_sweep_wherever_its_runs_are():
    with pytest.raises(Interrupted):
        run(raising(Interrupted(signal.SIGINT)))
    SIGNALS.received, SIGNALS.waits_for_work = None, False
    assert run(raising(Interrupted(signal.SIGTERM)), process=-1).status == 143
    # The next one of the same process does not begin.
    assert run(raising(AssertionError("begun")), process=-1).status == 143
    assert not Path("run").exists()


def begun(**config: object) -> None:
    Path("run/checkpoints").mkdir(parents=True)
    Path("run/checkpoints/last.ckpt").touch()
    Path("run/.hydra").mkdir()
    Path("run/.hydra/config.yaml").write_text(yaml.safe_dump(config))
    Path("run/.hydra/overrides.yaml").write_text(yaml.safe_dump(["task=copy", "seed=3"]))


def test_what_goes_on_has_the_config_it_had_and_what_is_new():
    begun(seed=3, trainer={"max_steps": 20}, task={"_target_": "x"})
    seen: list[DictConfig] = []
    assert run(seen.append, "task=copy", "seed=3", "trainer.max_steps=40", "resume=auto").status == 0
    (config,) = seen
    assert config == {
        "seed": 3,
        "trainer": {"max_steps": 40},
        "task": {"_target_": "x"},
        "resume": str(Path("run").absolute()),
    }
    assert "task=reverse cannot change" in run(seen.append, "task=reverse", "resume=auto").text
    # Without being asked to go on, nothing is touched.
    assert "holds a run already" in run(seen.append, "task=copy").text
    assert Path("run/checkpoints/last.ckpt").exists()


def test_what_has_ended_is_left_alone():
    begun(seed=3)
    Path("run/metrics.json").write_text('{"test/decoded_exact_match": 1}')
    outcome = run(raising(AssertionError("begun")), "task=copy", "resume=auto")
    assert (outcome.status, outcome.text) == (0, "exact match 1.0000, had ended before")


def test_a_signal_is_handed_to_the_processes_that_do_the_work(monkeypatch):
    told: list[tuple[int, int]] = []
    monkeypatch.setattr("multiprocessing.active_children", lambda: [type("Worker", (), {"pid": 7})])
    signals = Signals()
    signals.listen()
    handler = signal.getsignal(signal.SIGINT)
    assert callable(handler)
    monkeypatch.setattr(os, "kill", lambda pid, signum: told.append((pid, signum)))
    handler(signal.SIGINT, None)
    assert (told, signals.received) == ([(7, signal.SIGINT)], signal.SIGINT)
    signals.running = True
    with pytest.raises(Interrupted):
        handler(signal.SIGINT, None)


class Terminal(io.StringIO):
    """Keeps what is written to it, as no pipe would."""

    def isatty(self) -> bool:
        return True


def test_what_takes_seconds_is_told_at_a_terminal_and_nowhere_else(monkeypatch, capsys):
    monkeypatch.delitem(sys.modules, "torch")
    say_what_is_loaded()
    assert capsys.readouterr().out == ""
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    say_what_is_loaded()
    assert terminal.getvalue() == "Loading PyTorch ...\n"
    # As it is where it was closed when the program began.
    monkeypatch.setattr(sys, "stdout", None)
    say_what_is_loaded()
