"""The stack that predicts everything at once: padding is never decoded, and the end is EOS."""

import pytest
import torch
from torch.nn import functional

from attention_lab.models.encoder_only import EncoderOnly
from attention_lab.models.inference import greedy_decode
from attention_lab.tasks.vocabulary import EOS, FIRST_SYMBOL, PAD

SOURCES = [[EOS], [5, EOS], [6, 7, 5, EOS], [4, 8, 9, 6, 6, EOS]]


@pytest.fixture
def model() -> EncoderOnly:
    torch.manual_seed(0)
    model = EncoderOnly(11, 16, 2, 2, 17).eval()
    with torch.no_grad():
        # Symbols are likelier than EOS, so that nothing ends by itself.
        model.output.bias[FIRST_SYMBOL:] += 5
    return model


@pytest.mark.parametrize("left", [0, 3])
def test_a_source_beside_a_longer_one_predicts_what_it_predicts_alone(model: EncoderOnly, left: int) -> None:
    rows = [[PAD] * left + source + [PAD] * (6 - len(source)) for source in SOURCES]
    together = greedy_decode(model, torch.tensor(rows), 9)
    for row, source in zip(together, SOURCES, strict=True):
        alone = greedy_decode(model, torch.tensor([source]), 9)[0]
        longest = max(len(row), len(alone))
        one, other = (functional.pad(each, (0, longest - len(each)), value=PAD) for each in (row, alone))
        assert torch.equal(one, other)
        assert (alone == EOS).any()


@torch.no_grad()
def test_maps_have_source_tokens_where_they_were_given(model: EncoderOnly) -> None:
    source, target = torch.tensor([SOURCES[2]]), torch.tensor([[1, 5, 6, 7]])
    (expected, *_) = model(source, target, need_weights=True).attention["self"]
    for more in ((2, 0), (1, 3)):
        maps = model(functional.pad(source, more, value=PAD), target, need_weights=True).attention["self"]
        real = slice(more[0], more[0] + 4)
        torch.testing.assert_close(maps[0][:, :, :4, real], expected)
        closed = torch.ones(1, 1, 1, 4 + sum(more), dtype=torch.bool)
        closed[..., more[0] + 1] = False
        cut = model(
            functional.pad(source, more, value=PAD), target, need_weights=True, intervention={("self", 0): closed}
        )
        assert not cut.attention["self"][0][..., more[0] + 1].any()
