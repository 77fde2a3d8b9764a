"""A run is called by what was asked for, and every system can make a folder of that name."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attention_lab.runs.naming import LONGEST, run_name


@pytest.mark.parametrize(
    ("overrides", "name"),
    [
        ([], "reverse"),
        (["position=rotary", "seed=3"], "reverse_position-rotary_seed-3"),
        (["seed=3", "position=rotary"], "reverse_seed-3_position-rotary"),
        (["model.num_heads=8", "+data.foo=1", "~attention.window"], "reverse_num_heads-8_foo-1_window"),
        (["early_stopping.threshold=null", "optimizer.betas=[0.9,0.98]"], "reverse_threshold-null_betas-0.9-0.98"),
        (["optimizer={weight_decay: 0.1}"], "reverse_optimizer-weight_decay-0.1"),
        # What it learns stands at the front; where it runs and how it is watched makes no other run of it.
        (["task=reverse", "trainer=cpu", "callbacks.num_samples=0", "data.num_workers=2", "resume=auto"], "reverse"),
        (["init_from='../a=b/best.ckpt'", "trust=[mine]", "trainer.max_steps=20"], "reverse_max_steps-20"),
    ],
)  # fmt: skip
def test_it_says_what_was_asked_for(overrides: list[str], name: str) -> None:
    assert run_name("reverse", overrides) == name


def test_what_all_runs_of_a_sweep_have_is_left_out() -> None:
    asked = ["experiment=smoke", "position=rotary", "model.d_model=32", "seed=1"]
    assert run_name("copy", asked, besides=["experiment", "model.d_model"]) == "copy_position-rotary_seed-1"


def test_a_long_name_says_how_much_it_leaves_out() -> None:
    name = run_name("copy", ["trainer=cpu", *(f"model.d_model={number}" for number in range(100, 120))])
    assert re.fullmatch(r"copy(_d_model-\d{3})+_and-\d+-more", name)
    assert name.count("d_model") + int(name.split("-")[-2]) == 20


@given(st.text(max_size=30), st.lists(st.text(max_size=60), max_size=9))
def test_any_system_can_make_a_folder_of_that_name(task: str, overrides: list[str]) -> None:
    name = run_name(task, overrides)
    assert re.fullmatch(r"[A-Za-z0-9.+_-]*", name)
    assert not name.endswith(".")
    assert len(name) <= max(LONGEST, len(task)) + len("_and-9-more")
