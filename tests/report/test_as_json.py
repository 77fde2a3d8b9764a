"""`report.json` is a contract: every key, its nesting, and what may be null, of one checkpoint and of several."""

import json
from pathlib import Path
from typing import Any

import pytest

from attention_lab.commands.evaluate import evaluate
from attention_lab.settings.schema import EvaluateSettings

HEAD = {"attention": str, "layer": int, "head": int, "frame": str}
ALIGNMENT = dict.fromkeys(
    ("hit_rate", "mass", "mass_p5", "mass_min", "alignment_error_rate", "entropy", "confidence"), float
)
LEFT = {"exact_match": float, "token_accuracy": float}
HEAD_RECORD = {
    **HEAD,
    **ALIGNMENT,
    "exact_match_without": float,
    "token_accuracy_without": float,
    "exact_match_with_mean": float,
    "token_accuracy_with_mean": float,
}
RIGHT = {"token_accuracy": float, "exact_match": float, "decoded_exact_match": float}
ALIGNED = {"alignment_hit_rate": float, "alignment_mass": float}
LENGTH = {"length": int, "sequences": int, **RIGHT, **ALIGNED}
FOLLOWED = ("entropy", "oracle_head_hit_rate", "oracle_head_mass")
LENGTH |= {f"alignment_{name}": float for name in ("entropy", "chance", "oracle_head_hit_rate", "oracle_head_mass")}
TEST = {f"test/{name}": float for name in ("loss", *RIGHT, "token_error_rate", *ALIGNED)}
REPORT = {
    **TEST,
    "checkpoint": str,
    "step": int,
    "best_head": HEAD,
    "baselines": {"untrained": {**HEAD, **ALIGNMENT}, "chance": float},
    "length_curve": [LENGTH],
    "heads": [HEAD_RECORD],
    "interventions": {
        "aligned": [HEAD],
        "cut": [HEAD],
        "intact": LEFT,
        "without_heads": LEFT,
        "without_gold_edges": LEFT,
        "without_random_edges": LEFT,
        "together": [{"silenced": int, **LEFT}],
    },
    "tasks": [{"task": str, "sequences": int, **RIGHT, **ALIGNED, "best_head": HEAD, "heads": [HEAD_RECORD]}],
    "patterns": [
        {
            **{"attention": str, "layer": int, "head": int, "position": int, "position_mass": float},
            **dict.fromkeys(("previous_token", "same_token", "duplicate_token", "induction", "first_token"), float),
        }
    ],
    "patching": {
        **{key: [str] for key in ("clean_source", "corrupted_source", "clean", "corrupted")},
        **{"heads": [HEAD], "restored": [[float]], "together": [float]},
    },
    "attribution": {"hit_rate": float, "mass": float},
    "config": dict,
    "environment": {"python": str, "torch": str, "device": str},
}
SUMMARY = {"mean": float, "worst": float, "low": float, "high": float}
COMPARED = dict.fromkeys((*RIGHT, *ALIGNED, *(f"alignment_{name}" for name in FOLLOWED)), SUMMARY)
COMPARISON = {
    "groups": [
        {
            "settings": dict,
            **dict.fromkeys(TEST, SUMMARY),
            "length_curve": [{"length": int, **COMPARED}],
            "runs": [
                {
                    "checkpoint": str,
                    "seed": int,
                    "step": int,
                    **TEST,
                    "solved": {"step": int, "seconds": float},
                    "weights": int,
                    "length_curve": [LENGTH],
                }
            ],
        }
    ]
}


def hold(value: Any, shape: Any, where: str, nulls: set[str]) -> None:
    """Holds a value against its shape, and notes where it is null."""
    if value is None:
        nulls.add(where)
    elif isinstance(shape, dict):
        assert set(value) == set(shape), where
        for name, inner in shape.items():
            hold(value[name], inner, f"{where}.{name}" if where else name, nulls)
    elif isinstance(shape, list):
        assert isinstance(value, list), where
        for item in value:
            hold(item, shape[0], where, nulls)
    else:
        assert type(value) is shape, where


def written(tmp_path: Path, checkpoint: str | list[str]) -> dict[str, Any]:
    tmp_path.mkdir(exist_ok=True)
    evaluate(
        EvaluateSettings(
            checkpoint=checkpoint,
            accelerator="cpu",
            batch_size=None,
            num_figures=0,
            lengths=[4, 9],
            num_per_length=5,
            decode_up_to=1024,
            pdf=False,
        ),
        tmp_path,
    )
    return json.loads((tmp_path / "report.json").read_text())


@pytest.fixture
def runs(trained) -> dict[str, str]:
    kinds = {"mixture": ("task=mixture", "position=two_ended_rotary"), "lstm": ("model=lstm",)}
    few = ("experiment=smoke", "trainer=cpu", "trainer.max_steps=2", "callbacks.attention_maps=false")
    return {name: str(trained(*few, *more) / "checkpoints" / "best.ckpt") for name, more in kinds.items()}


def test_every_key_is_where_it_always_was_and_null_where_there_is_nothing(runs, tmp_path):
    nulls: set[str] = set()
    report = written(tmp_path / "one", runs["mixture"])
    hold(report, REPORT, "", nulls)
    # Untrained, its answer does not hang on its source by as much as a nat.
    assert nulls == {"patching.restored", "patching.together"}
    assert len(report["tasks"]) > 1
    assert len(report["heads"]) == 4
    assert [record["silenced"] for record in report["interventions"]["together"]] == [0, 1, 2, 3, 4]

    nulls.clear()
    report = written(tmp_path / "two", runs["lstm"])
    hold(report, REPORT, "", nulls)
    aligned = {f"length_curve.{name}" for name in LENGTH if name.startswith("alignment")}
    assert nulls == aligned | {
        "test/alignment_hit_rate",
        "test/alignment_mass",
        "best_head",
        "baselines.untrained",
        "baselines.chance",
        "patching",
    }
    assert report["heads"] == report["tasks"] == report["interventions"]["cut"] == []

    report = written(tmp_path / "both", list(runs.values()))
    nulls.clear()
    hold(report, COMPARISON, "", nulls)
    # One seed has no interval; the LSTM has no alignment.
    rest = {name for name in nulls if not name.endswith((".low", ".high")) and "alignment" not in name}
    assert rest == {"groups.runs.solved"}
    assert {f"groups.test/loss.{part}" for part in ("low", "high")} < nulls
    assert len(report["groups"]) == 2
