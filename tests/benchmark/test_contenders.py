"""Contenders do the same work: same shapes, no look ahead, nothing read from padding, every token decoded."""

import pytest
import torch

from attention_lab.benchmark import contenders
from attention_lab.benchmark.contenders import CONTENDERS, PACKAGES, Contender, build_contender, installed
from attention_lab.benchmark.peers import num_weights
from attention_lab.cli.composing import compose_settings
from attention_lab.settings.schema import TrainSettings
from attention_lab.tasks.vocabulary import BOS, PAD


def settings(d_model: int, num_heads: int, d_ff: int) -> TrainSettings:
    sizes = [f"model.d_model={d_model}", f"model.num_heads={num_heads}", f"model.d_ff={d_ff}"]
    return compose_settings(["data.vocab_size=10", "position.max_len=31", *sizes])


@pytest.fixture(scope="module")
def small() -> TrainSettings:
    return settings(d_model=24, num_heads=2, d_ff=48)


@pytest.fixture(params=list(CONTENDERS))
def contender(request: pytest.FixtureRequest, small: TrainSettings) -> Contender:
    if request.param in PACKAGES:
        pytest.importorskip(PACKAGES[request.param])
    contender = build_contender(request.param, small)
    contender.network.eval()
    return contender


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    source = torch.randint(3, 13, (5, 7))
    source[1, 4:] = PAD
    target = torch.randint(3, 13, (5, 11))
    target[:, 0] = BOS
    return source, target


def test_nobody_sees_the_future(contender: Contender) -> None:
    source, target = batch()
    changed = target.clone()
    changed[:, 6:] = 3 + (target[:, 6:] - 2) % 10
    with torch.no_grad():
        before, after = contender.predict(source, target), contender.predict(source, changed)
    assert before.shape == (5, 11, 13)
    torch.testing.assert_close(before[:, :6], after[:, :6])
    assert not torch.allclose(before[:, 6:], after[:, 6:])


def test_nobody_reads_padding(contender: Contender) -> None:
    source, target = batch()
    with torch.no_grad():
        padded = contender.predict(source, target)[1]
        unpadded = contender.predict(source[1:2, :4], target[1:2])[0]
    torch.testing.assert_close(padded, unpadded, rtol=1e-4, atol=1e-5)


def test_decoding_never_stops_early_and_chooses_the_likeliest(contender: Contender) -> None:
    source, _ = batch()
    for how, decode in contender.decoders.items():
        with torch.inference_mode():
            decoded = decode(source, 23)
            read = torch.cat([torch.full((5, 1), BOS), decoded[:, :-1]], dim=1)
            logits = contender.predict(source, read)
        assert decoded.shape == (5, 23), how
        # Where two tokens are as good as equal, rounding may choose either.
        chosen = logits.gather(-1, decoded[..., None])[..., 0]
        torch.testing.assert_close(chosen, logits.max(dim=-1).values, rtol=1e-4, atol=1e-4)


def test_all_have_about_as_many_weights() -> None:
    shape = settings(d_model=128, num_heads=4, d_ff=256)
    weights = {name: num_weights(build_contender(name, shape).network) for name in installed()}
    assert max(weights.values()) < 1.1 * min(weights.values()), weights


def test_who_is_not_installed_does_not_take_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contenders.importlib.util, "find_spec", lambda _: None)
    assert installed() == ["ours", "ours, padded", "torch.nn.Transformer"]
