"""Every attention of the configs is a kind whose cost can be measured, at any length."""

from pathlib import Path

import pytest

from attention_lab.attention.mask import Mask
from attention_lab.benchmark.kinds import EXPLICIT, choose_kinds, least_bytes
from attention_lab.benchmark.layer import measure
from attention_lab.benchmark.options import BenchmarkError

CONFIGS = Path(__file__).parents[2] / "configs" / "attention"
QUESTION = {
    "batch_size": 2,
    "d_model": 24,
    "num_heads": 4,
    "d_ff": 29,
    "steps": 1,
    "repeats": 1,
    "device": "cpu",
    "precision": "32-true",
    "threads": None,
}


def test_every_attention_is_a_kind() -> None:
    names = [kind.name for kind in choose_kinds(None)]
    assert set(names) == {path.stem for path in CONFIGS.glob("*.yaml")} | {EXPLICIT, "lstm", "rnn"}
    assert [kind.name for kind in choose_kinds(["rnn", "full"])] == ["full", "rnn"]


def test_a_kind_that_there_is_not_is_refused() -> None:
    with pytest.raises(BenchmarkError, match=r"--kinds: fulll is not a kind of layer; use some of full,full_explicit,"):
        choose_kinds(["fulll"])


@pytest.mark.parametrize("kind", choose_kinds(None), ids=lambda kind: kind.name)
@pytest.mark.parametrize("length", [7, 97])
def test_every_kind_is_measured(kind, length: int) -> None:
    answer = measure({**QUESTION, "component": kind.at(length), "need_weights": kind.need_weights, "length": length})
    assert answer["seconds"] > 0
    assert answer["peak_bytes"] > 0
    assert answer["form"] == ("bidirectional" if kind.name in ("conv_mixed", "linformer") else "causal")


def test_causal_kinds_are_given_a_causal_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    from attention_lab.models.blocks import TransformerBlock

    seen = []

    whole = TransformerBlock.forward

    def forward(self, x, mask=None, *, need_weights=True, **_):
        seen.append((mask, need_weights, tuple(x.shape)))
        return whole(self, x, mask, need_weights=need_weights)

    monkeypatch.setattr(TransformerBlock, "forward", forward)
    for kind in choose_kinds(["full", EXPLICIT, "conv_mixed"]):
        measure({**QUESTION, "component": kind.component, "need_weights": kind.need_weights, "length": 37})
    # A warm-up, a step that is not timed, and one that is.
    shapes = [(2, 16, 24), (2, 37, 24), (2, 37, 24)]
    assert seen == [
        *((Mask(causal=True), False, shape) for shape in shapes),
        *((Mask(causal=True), True, shape) for shape in shapes),
        *((None, False, shape) for shape in shapes),
    ]


def test_the_longest_sequence_is_told_to_what_has_to_know_it() -> None:
    for kind in choose_kinds(None):
        assert kind.at(8192).get("max_len") == (8192 if "max_len" in kind.component else None)


def test_only_the_explicit_form_is_bound_to_need_squares() -> None:
    by_name = {kind.name: kind for kind in choose_kinds(["full", EXPLICIT])}
    assert least_bytes(by_name["full"], 16384, 1, 4) == 0
    assert least_bytes(by_name[EXPLICIT], 16384, 1, 4) == 4 * 4 * 2**30


def test_other_classes_are_not_measured() -> None:
    component = {"_target_": "torch.nn.Linear"}
    with pytest.raises(ValueError, match=r"_target_=torch\.nn\.Linear is neither an attention nor a recurrent layer"):
        measure({**QUESTION, "component": component, "need_weights": False, "length": 7})
