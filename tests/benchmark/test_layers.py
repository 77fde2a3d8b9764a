"""Every attention of the configs is a kind whose cost can be measured, at any length."""

from pathlib import Path

import pytest

from attention_lab.attention.mask import Mask
from attention_lab.benchmark.cost import EXPLICIT, build_case, layer_kinds, least_bytes
from attention_lab.benchmark.layer_cost import measure_memory, measure_time
from attention_lab.benchmark.settings import CostSettings
from attention_lab.errors import SettingError
from attention_lab.models.blocks import TransformerBlock

CONFIGS = Path(__file__).parents[2] / "configs" / "attention"
SETTINGS = CostSettings(batch_size=2, d_model=24, num_heads=4, d_ff=29, device="cpu")


def test_every_attention_is_a_kind() -> None:
    assert set(layer_kinds(None)) == {path.stem for path in CONFIGS.glob("*.yaml")} | {EXPLICIT, "lstm", "rnn"}
    assert layer_kinds(["rnn", "full"]) == ["full", "rnn"]


def test_a_kind_that_there_is_not_is_refused() -> None:
    with pytest.raises(SettingError, match=r"^kinds=fulll is not a choice; did you mean full\?") as refused:
        layer_kinds(["fulll"])
    assert (refused.value.setting, refused.value.value) == ("kinds", "fulll")


@pytest.mark.parametrize("kind", layer_kinds(None))
def test_every_kind_is_measured(kind: str) -> None:
    case = build_case(kind, 97, SETTINGS)
    assert measure_time(case, repeats=1) > 0
    assert measure_memory(case, steps=1) > 0
    assert case.causal == (kind not in ("conv_mixed", "linformer"))
    assert case.need_weights == (kind == EXPLICIT)
    if kind == "linformer":
        # It has to know the longest sequence.
        assert case.module.attn.max_keys == 97


def test_sequences_shorter_than_the_warm_up_are_measured() -> None:
    assert measure_time(build_case("full", 7, SETTINGS), repeats=1) > 0


def test_causal_kinds_are_given_a_causal_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, run = [], TransformerBlock.forward

    def forward(self, x, mask=None, *, need_weights=True):
        seen.append((mask, need_weights, tuple(x.shape)))
        return run(self, x, mask, need_weights=need_weights)

    monkeypatch.setattr(TransformerBlock, "forward", forward)
    for kind in ("full", EXPLICIT, "conv_mixed"):
        measure_time(build_case(kind, 37, SETTINGS), repeats=1)
    # A warm-up, a step that is not timed, and one that is.
    shapes = [(2, 16, 24), (2, 37, 24), (2, 37, 24)]
    assert seen == [
        *((Mask(causal=True), False, shape) for shape in shapes),
        *((Mask(causal=True), True, shape) for shape in shapes),
        *((None, False, shape) for shape in shapes),
    ]


def test_only_the_explicit_form_is_bound_to_need_squares() -> None:
    assert least_bytes("full", 16384, 1, 4) == 0
    assert least_bytes(EXPLICIT, 16384, 1, 4) == 4 * 4 * 2**30
