"""Sequences of one's own: read, answered, held against the task, and seen while they are decoded."""

from typing import Any

import pytest
import torch

from attention_lab.errors import SettingError
from attention_lab.evaluation.answering import answer, looks, read_symbols
from attention_lab.metrics.alignment import Head
from attention_lab.models.inference import evaluation_mode, greedy_decode
from attention_lab.runs.trained import Trained, load_trained
from attention_lab.tasks.vocabulary import EOS, FIRST_SYMBOL
from tests.conftest import Training

CPU = torch.device("cpu")
MODELS = ["encoder_decoder", *(pytest.param(name, marks=pytest.mark.slow) for name in ("lstm", "lstm_attention"))]
MODELS += [pytest.param(name, marks=pytest.mark.slow) for name in ("decoder_only", "encoder_only")]


@pytest.fixture
def checkpoint(trained: Training) -> Trained:
    return load_trained(trained("experiment=smoke", "trainer=cpu") / "checkpoints/best.ckpt")


@pytest.mark.parametrize("text", ["3 1 4", " 3  1\t4 ", "3,1,4", "3, 1, 4", "03 1 4"])
def test_symbols_are_numbers_between_spaces_or_commas(text):
    assert read_symbols(text) == [3, 1, 4]


@pytest.mark.parametrize("text", ["3 x", "-1", "3.5", "3-1", "٣ 1", "<eos>", "1e3", "9" * 5000])
def test_what_is_no_symbol_is_refused_by_name(text):
    with pytest.raises(SettingError, match="is no symbol") as refused:
        read_symbols(text)
    assert len(str(refused.value).splitlines()) == 1


@pytest.mark.parametrize("model", MODELS)
def test_the_answer_is_what_decoding_gives_and_its_maps_are_what_decoding_saw(trained: Training, model):
    own = () if model == "encoder_decoder" else (f"model={model}",)
    checkpoint = load_trained(trained("experiment=smoke", "trainer=cpu", *own) / "checkpoints/best.ckpt")
    network = checkpoint.network
    symbols = [3, 1, 4, 1, 5]
    answered = answer(checkpoint, symbols, CPU)
    assert answered.source == ["3", "1", "4", "1", "5", "<eos>"]
    assert answered.expected == ["5", "1", "4", "1", "3", "<eos>"]
    source = torch.tensor([[symbol + FIRST_SYMBOL for symbol in symbols] + [EOS]])
    with evaluation_mode(network):
        decoded = greedy_decode(network, source, answered.batch.labels.size(1))
        state = network.begin(source, decoded.size(1))
        seen = []
        for token in answered.batch.target[0]:
            output, state = network.step(token.reshape(1, 1), state, need_weights=True)
            assert output.logits[0, -1].argmax() == decoded[0, len(seen)]
            seen.append(output.attention)
    assert torch.equal(answered.batch.labels, decoded)
    assert answered.right == (answered.predicted == answered.expected)
    if network.maps_in_pieces:
        name = network.alignment_attention
        steps = [network.alignment_maps(maps, 1, source.size(1))[0] for maps in seen]
        whole = network.alignment_maps(answered.maps, len(steps), source.size(1))[0]
        torch.testing.assert_close(whole, torch.cat(steps, dim=2), atol=1e-5, rtol=1e-4)
        look = looks(answered, checkpoint, Head(name, 0, 0))
        assert [each.place for each in look] == whole[0, 0].argmax(dim=-1).tolist()


def test_a_picture_has_the_heads_of_a_layer(checkpoint):
    answered = answer(checkpoint, [3, 1, 4], CPU)
    assert set(answered.maps) == {"encoder_self", "decoder_self", "decoder_cross"}
    assert answered.maps["decoder_cross"][0].shape[:2] == (1, 4)
    assert answered.draw("decoder_cross").size > (100, 100)
    with pytest.raises(KeyError, match="encoder_self, decoder_self, decoder_cross"):
        answered.draw("nothing")


@pytest.mark.parametrize(
    ("symbols", "why"),
    [
        ([], "is empty"),
        ([3, 10], "holds 10; this network knows the symbols 0 to 9"),
        ([-1], "holds -1"),
        ([1] * 5000, r"needs 5001 positions, its end among them; this network has 5000"),
    ],
)
def test_what_a_network_cannot_read_is_refused_in_one_line(checkpoint, symbols: Any, why):
    with pytest.raises(SettingError, match=why) as refused:
        answer(checkpoint, symbols, CPU)
    assert len(str(refused.value)) < 200


def test_a_source_beyond_all_training_is_answered_as_well(checkpoint):
    answered = answer(checkpoint, [1, 2] * 100, CPU)
    assert len(answered.expected) == 201
    assert len(answered.predicted) <= 209
