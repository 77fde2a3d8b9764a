"""Contenders do the same work: same shapes, no look ahead, nothing read from padding, every token decoded."""

import pytest
import torch

from attention_lab.benchmark import contenders
from attention_lab.benchmark.contenders import CONTENDERS, Contender, NetworkShape, installed
from attention_lab.tasks.vocabulary import BOS, PAD

SHAPE = NetworkShape(num_tokens=13, d_model=24, num_heads=2, num_layers=1, d_ff=48, max_tokens=31)


@pytest.fixture(params=list(CONTENDERS))
def contender(request: pytest.FixtureRequest) -> Contender:
    package = CONTENDERS[request.param].package
    if package is not None:
        pytest.importorskip(package)
    torch.manual_seed(3)
    return CONTENDERS[request.param](SHAPE).eval()


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
        before, after = contender(source, target), contender(source, changed)
    assert before.shape == (5, 11, 13)
    torch.testing.assert_close(before[:, :6], after[:, :6])
    assert not torch.allclose(before[:, 6:], after[:, 6:])


def test_nobody_reads_padding(contender: Contender) -> None:
    source, target = batch()
    with torch.no_grad():
        padded = contender(source, target)[1]
        alone = contender(source[1:2, :4], target[1:2])[0]
    torch.testing.assert_close(padded, alone, rtol=1e-4, atol=1e-5)


def test_decoding_never_stops_early_and_says_the_likeliest(contender: Contender) -> None:
    source, _ = batch()
    for how, decode in contender.decoders().items():
        with torch.inference_mode():
            said = decode(source, 23)
            read = torch.cat([torch.full((5, 1), BOS), said[:, :-1]], dim=1)
            logits = contender(source, read)
        assert said.shape == (5, 23), how
        # Where two tokens are as good as equal, rounding may choose either.
        chosen = logits.gather(-1, said[..., None])[..., 0]
        torch.testing.assert_close(chosen, logits.max(dim=-1).values, rtol=1e-4, atol=1e-4)


def test_all_have_about_as_many_weights() -> None:
    shape = NetworkShape(num_tokens=13, d_model=128, num_heads=4, num_layers=1, d_ff=256, max_tokens=31)
    weights = {name: CONTENDERS[name](shape).num_weights for name in installed()}
    assert max(weights.values()) < 1.1 * min(weights.values()), weights


def test_who_is_not_installed_does_not_take_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contenders.importlib.util, "find_spec", lambda _: None)
    assert installed() == ["ours", "ours, padded", "torch.nn.Transformer"]
