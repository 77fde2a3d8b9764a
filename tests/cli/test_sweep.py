"""How a sweep goes on, and what it says at its end."""

from pathlib import Path

import pytest
import yaml

from attention_lab.cli.arguments import read
from attention_lab.cli.job import Outcome
from attention_lab.cli.sweep import complaints, continued, status_of, summary
from attention_lab.errors import SettingError


@pytest.fixture
def sweep(tmp_path) -> Path:
    def begun(task: list[str], hydra: tuple[str, ...] = (), sources: tuple[dict[str, str], ...] = ()) -> Path:
        overrides = {"task": task, "hydra": ["hydra.mode=MULTIRUN", *hydra]}
        content = {"hydra": {"overrides": overrides, "runtime": {"config_sources": list(sources)}}}
        (tmp_path / "multirun.yaml").write_text(yaml.safe_dump(content))
        return tmp_path

    return begun


def test_a_sweep_goes_on_with_what_it_was_begun_with(sweep):
    folder = sweep(["task=copy,reverse", "trainer.max_steps=20", "resume=auto"])
    more = continued(read([f"resume={folder}", "trainer.max_steps=40", "hydra/launcher=joblib"], "resume"), folder)
    assert more.multirun
    assert more.overrides == ("task=copy,reverse", "trainer.max_steps=40", "hydra/launcher=joblib")


@pytest.mark.parametrize(
    ("typed", "hint"),
    [("seed=0,1,2", "other runs"), ("seed=5", "other runs"), ("data.max_length=3,4", "other runs")],
)
def test_a_sweep_that_goes_on_has_the_runs_that_it_had(sweep, typed, hint):
    folder = sweep(["seed=0,1"])
    with pytest.raises(SettingError, match=hint):
        continued(read([typed], "resume"), folder)


@pytest.mark.parametrize(
    ("hydra", "sources", "named"),
    [
        (("hydra.sweep.subdir=x",), (), "hydra.sweep.subdir=x"),
        ((), ({"provider": "command-line", "path": "/own"},), "--config-dir /own"),
    ],
)
def test_what_would_name_other_runs_is_to_be_typed_again(sweep, hydra, sources, named):
    folder = sweep(["seed=0,1"], hydra, sources)
    with pytest.raises(SettingError, match=named):
        continued(read([], "resume"), folder)
    typed = ["-cd", "/own"] if sources else list(hydra)
    assert continued(read(typed, "resume"), folder).multirun


@pytest.mark.parametrize("text", ["model._target_=os.system", "'optimizer={_target_:a.b}'", "x"])
def test_a_record_starts_no_code_of_its_own(sweep, text):
    with pytest.raises(SettingError):
        continued(read([], "resume"), sweep([text.strip("'")]))


@pytest.mark.parametrize("content", ["", "hydra: 3", "[", "hydra: {overrides: {task: 1, hydra: []}}"])
def test_a_record_that_cannot_be_read_is_refused(tmp_path, content):
    (tmp_path / "multirun.yaml").write_text(content)
    with pytest.raises(SettingError, match="cannot be read"):
        continued(read([], "resume"), tmp_path)


def ended(number: int, status: int, text: str) -> Outcome:
    return Outcome(status, Path(f"/sweep/{number}"), ("task=copy", f"seed={number}"), text)


def test_a_reason_is_said_once_and_for_which_runs():
    outcomes = [ended(0, 0, "exact match 0.5"), ended(1, 2, "wrong"), ended(2, 2, "wrong"), ended(3, 1, "worse")]
    assert complaints(outcomes, Path("/sweep")) == ["wrong (1: seed=1; 2: seed=2)", "worse (3: seed=3)"]
    first, *lines = summary(outcomes, Path("/sweep"))
    assert first.startswith("1 of 4 runs")
    assert [line.split(maxsplit=1)[1] for line in lines] == [
        "exact match 0.5",
        "failed: wrong",
        "failed: as 1",
        "failed: worse",
    ]


@pytest.mark.parametrize(
    ("statuses", "status"),
    [((0, 0), 0), ((0, 2), 2), ((2, 2), 2), ((0, 1), 1), ((2, 1), 1), ((0, 130, 2), 130), ((143, 1), 143)],
)
def test_the_status_says_whether_all_is_well(statuses, status):
    assert status_of([ended(number, each, "") for number, each in enumerate(statuses)]) == status
