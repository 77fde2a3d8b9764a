"""The LSTM with attention: Luong's network in a plain loop, padding, causality, decoding, interventions, learning."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from attention_lab.attention.multi_head import AlignmentLayer
from attention_lab.data.batches import Batch
from attention_lab.evaluation.ablation import Silenced, all_heads, head_means, silencing
from attention_lab.evaluation.edges import cut_edges
from attention_lab.evaluation.scoring import head_scores
from attention_lab.metrics.alignment import Head
from attention_lab.models.inference import greedy_decode
from attention_lab.models.recurrent import LSTM
from attention_lab.models.recurrent_attention import LSTMWithAttention
from attention_lab.positions.coordinates import UNLIMITED
from attention_lab.tasks.vocabulary import BOS, EOS, FIRST_SYMBOL, PAD

B, LAYERS, HALF, S, T, V = 3, 2, 17, 11, 13, 23
D = 2 * HALF
CROSS = ("decoder_cross", 0)


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


@pytest.fixture
def model() -> LSTMWithAttention:
    return build()


def build(**settings: Any) -> LSTMWithAttention:
    return LSTMWithAttention(**{"num_tokens": V, "d_model": D, "num_layers": LAYERS, **settings})


def random_source(length: int = S, batch: int = B) -> Tensor:
    return torch.randint(FIRST_SYMBOL, V, (batch, length))


def random_target(length: int = T, batch: int = B) -> Tensor:
    return torch.cat([torch.full((batch, 1), BOS), torch.randint(FIRST_SYMBOL, V, (batch, length - 1))], dim=1)


def ragged_source() -> Tensor:
    """Row 0 is whole, row 1 padded on the right, row 2 on the left."""
    source = random_source()
    source[1, 7:] = PAD
    source[2, :5] = PAD
    return source


def close(actual: Any, expected: Any) -> None:
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)


def all_closed() -> Tensor:
    return torch.zeros(1, 1, 1, 1, dtype=torch.bool)


def lstm(layers: nn.RNNBase, inputs: list[Tensor], number: int, h: Tensor, c: Tensor, suffix: str = ""):
    """Runs one layer in one direction (Gers et al. 2000); returns h after each input, and the last h and c."""
    names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    w_x, w_h, b_x, b_h = (layers.get_parameter(f"{name}_l{number}{suffix}") for name in names)
    outputs = []
    for x in inputs:
        enter, forget, candidate, leave = (w_x @ x + b_x + w_h @ h + b_h).chunk(4)
        c = forget.sigmoid() * c + enter.sigmoid() * candidate.tanh()
        h = leave.sigmoid() * c.tanh()
        outputs.append(h)
    return outputs, h, c


def in_a_plain_loop(model: LSTMWithAttention, source: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """The whole network for one row without padding: logits (T, V) and attention (T, S)."""
    zeros = torch.zeros(HALF)
    x, state = list(model.source_embedding(source[None])[0]), []
    for number in range(LAYERS):
        forward, h_forward, c_forward = lstm(model.encoder, x, number, zeros, zeros)
        backward, h_backward, c_backward = lstm(model.encoder, x[::-1], number, zeros, zeros, "_reverse")
        x = [torch.cat(both) for both in zip(forward, backward[::-1], strict=True)]
        state.append((torch.cat([h_forward, h_backward]), torch.cat([c_forward, c_backward])))
    memory = torch.stack(x)
    y = list(model.target_embedding(target[None])[0])
    for number in range(LAYERS):
        y, _, _ = lstm(model.decoder, y, number, *state[number])
    logits, maps = [], []
    for h in y:
        weights = (memory @ model.attention.w_a(h)).softmax(0)
        attended = model.attention.w_o(weights @ memory) + model.attention.w_h(h)
        logits.append(model.output(attended.tanh()))
        maps.append(weights)
    return torch.stack(logits), torch.stack(maps)


@torch.no_grad()
def test_equals_a_plain_loop_of_the_equations(model: LSTMWithAttention) -> None:
    # Biases start out all alike; only when they differ can a mixed-up one be seen.
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    source, target = ragged_source(), random_target()
    output = model(source, target, need_weights=True)
    for row in range(B):
        real = source[row] != PAD
        logits, maps = in_a_plain_loop(model, source[row][real], target[row])
        close(output.logits[row], logits)
        close(output.attention["decoder_cross"][0][row, 0][:, real], maps)


def test_its_one_head_has_a_map_whose_rows_sum_to_one_and_hold_no_padding(model: LSTMWithAttention) -> None:
    source = ragged_source()
    output = model(source, random_target(), need_weights=True)
    assert output.logits.shape == (B, T, V)
    assert list(output.attention) == [model.alignment_attention] == ["decoder_cross"]
    (weights,) = output.attention["decoder_cross"]
    assert weights.shape == (B, 1, T, S)
    torch.testing.assert_close(weights.sum(-1), torch.ones(B, 1, T))
    real = (source != PAD)[:, None, None].expand_as(weights)
    assert torch.equal(weights > 0, real)


def test_asking_for_the_map_changes_no_logits(model: LSTMWithAttention) -> None:
    source, target = ragged_source(), random_target()
    asked, not_asked = (model(source, target, need_weights=need_weights) for need_weights in (True, False))
    close(asked.logits, not_asked.logits)
    assert not_asked.attention == {}


@pytest.mark.parametrize("need_weights", [True, False], ids=["explicit", "fused"])
@pytest.mark.parametrize("more", [(0, 4), (4, 0), (3, 4)], ids=["right", "left", "both"])
def test_padding_changes_no_logits_no_map_and_no_gradient(
    model: LSTMWithAttention, more: tuple[int, int], need_weights: bool
) -> None:
    source, target = random_source(7), random_target()

    def outcome(source: Tensor, real: slice) -> list[Tensor]:
        output = model(source, target, need_weights=need_weights)
        loss = functional.cross_entropy(output.logits[:, :-1].flatten(0, 1), target[:, 1:].flatten())
        maps = [weights[..., real] for weights in output.attention.get("decoder_cross", ())]
        return [output.logits, *maps, *torch.autograd.grad(loss, list(model.parameters()))]

    padded = functional.pad(source, more, value=PAD)
    close(outcome(padded, slice(more[0], more[0] + 7)), outcome(source, slice(7)))


@pytest.mark.parametrize("more", [(0, 2), (0, 13), (2, 0), (13, 0), (5, 7)])
def test_more_padding_changes_nothing(model: LSTMWithAttention, more: tuple[int, int]) -> None:
    source, target = ragged_source(), random_target()
    expected = model(source, target).logits
    close(model(functional.pad(source, more, value=PAD), target).logits, expected)
    close(model(source, functional.pad(target, (0, more[1]), value=PAD)).logits[:, :T], expected)


@pytest.mark.parametrize("need_weights", [True, False], ids=["explicit", "fused"])
def test_a_source_of_nothing_but_padding_is_the_same_at_any_length_and_has_finite_gradients(
    model: LSTMWithAttention, need_weights: bool
) -> None:
    source, target = random_source(), random_target()
    source[1] = PAD
    logits = model(source, target, need_weights=need_weights).logits
    close(model(functional.pad(source, (3, 4), value=PAD), target, need_weights=need_weights).logits, logits)
    logits.square().mean().backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


@pytest.mark.parametrize("need_weights", [True, False], ids=["explicit", "fused"])
@pytest.mark.parametrize("changed", [1, 6, T - 1])
def test_changing_a_target_token_changes_no_logits_before_it(
    model: LSTMWithAttention, changed: int, need_weights: bool
) -> None:
    source, target = ragged_source(), random_target()
    other = target.clone()
    other[:, changed] = (target[:, changed] - FIRST_SYMBOL + 1) % (V - FIRST_SYMBOL) + FIRST_SYMBOL
    before = model(source, target, need_weights=need_weights).logits
    after = model(source, other, need_weights=need_weights).logits
    torch.testing.assert_close(after[:, :changed], before[:, :changed], rtol=0, atol=1e-6)
    # ... and every one from it on.
    assert ((after - before)[:, changed:].abs().amax(-1) > 1e-5).all()


@pytest.mark.parametrize("need_weights", [True, False], ids=["explicit", "fused"])
def test_gradients_flow_from_a_logit_to_all_of_the_source_and_to_no_later_target_token(
    model: LSTMWithAttention, need_weights: bool
) -> None:
    read, said = [], []
    model.source_embedding.register_forward_hook(lambda *call: read.append(call[-1]))
    model.target_embedding.register_forward_hook(lambda *call: said.append(call[-1]))
    source = ragged_source()
    logits = model(source, random_target(), need_weights=need_weights).logits
    real = (source != PAD).sum(dim=1, keepdim=True)
    for token in range(T):
        from_source, from_target = torch.autograd.grad(
            logits[:, token].square().sum(), [*read, *said], retain_graph=True
        )
        # What is read stands in front.
        assert torch.equal(from_source.any(-1), torch.arange(S) < real)
        assert not from_target[:, token + 1 :].any()
        assert from_target[:, : token + 1].any(-1).all()


@pytest.mark.parametrize("pieces", [[1] * T, [7, 1, 3, 2]], ids=["step by step", "in pieces"])
@torch.no_grad()
def test_reading_a_target_in_pieces_gives_the_logits_and_maps_of_the_full_forward(
    model: LSTMWithAttention, pieces: list[int]
) -> None:
    source, target = ragged_source(), random_target()
    expected = model(source, target, need_weights=True)
    state, logits, maps = model.begin(source), [], []
    for piece in target.split(pieces, dim=1):
        output, state = model.step(piece, state, need_weights=True)
        logits.append(output.logits)
        maps.append(output.attention["decoder_cross"][0])
    close(torch.cat(logits, dim=1), expected.logits)
    close(torch.cat(maps, dim=2), expected.attention["decoder_cross"][0])


def test_a_state_dict_makes_another_network_the_same(model: LSTMWithAttention) -> None:
    other, source, target = build(), ragged_source(), random_target()
    assert not torch.allclose(other(source, target).logits, model(source, target).logits)
    other.load_state_dict(model.state_dict(), strict=True)
    assert torch.equal(other(source, target).logits, model(source, target).logits)


@pytest.mark.parametrize("need_weights", [True, False], ids=["explicit", "fused"])
def test_silencing_the_head_is_closing_all_its_edges(model: LSTMWithAttention, need_weights: bool) -> None:
    source, target = ragged_source(), random_target()
    assert all_heads(model) == [Head("decoder_cross", 0, 0)]
    with silencing(model, Silenced(all_heads(model))):
        expected = model(source, target).logits
    closed = model(source, target, need_weights=need_weights, intervention={CROSS: all_closed()})
    close(closed.logits, expected)
    assert not torch.allclose(expected, model(source, target).logits, atol=1e-3)
    assert not any(weights.any() for weights in closed.attention.get("decoder_cross", ()))


@pytest.mark.parametrize("need_weights", [True, False], ids=["explicit", "fused"])
def test_a_closed_edge_is_a_token_that_attention_does_not_see(model: LSTMWithAttention, need_weights: bool) -> None:
    source, target = ragged_source(), random_target()
    allowed = torch.ones(B, 1, T, S, dtype=torch.bool)
    allowed[:, :, 4, 6] = False
    closed = model(source, target, need_weights=need_weights, intervention={CROSS: allowed})
    untouched = model(source, target, need_weights=True)
    elsewhere = torch.arange(T) != 4
    close(closed.logits[:, elsewhere], untouched.logits[:, elsewhere])
    assert ((closed.logits - untouched.logits)[:, 4].abs().amax(-1) > 1e-5).all()
    if need_weights:
        left = untouched.attention["decoder_cross"][0][:, :, 4].clone()
        left[..., 6] = 0
        close(closed.attention["decoder_cross"][0][:, :, 4], left / left.sum(-1, keepdim=True))


def test_its_attention_can_be_measured_as_any_other(model: LSTMWithAttention) -> None:
    model.eval()
    (attention,) = model.alignment_layers
    assert isinstance(attention, AlignmentLayer)
    source, cpu = random_source(5), torch.device("cpu")
    target = torch.cat([torch.full((B, 1), BOS), source[:, :-1]], dim=1)
    batch = Batch(source, target, source, torch.arange(5).repeat(B, 1))
    (found,) = model(source, target, need_weights=True).attention["decoder_cross"]
    memory = model.begin(source).memory
    mean = (found[:, 0] @ memory).mean(dim=(0, 1))
    means = head_means(model, [batch], cpu)
    torch.testing.assert_close(means.float(), mean[None, None], rtol=1e-4, atol=1e-5)
    # Where the head always says its mean, every context is that mean.
    with silencing(model, Silenced(all_heads(model), means)):
        always = model(source, target).logits
    hidden, _ = model.decoder(model.target_embedding(target), model.begin(source).state)
    attended = (attention.w_o(mean) + model.attention.w_h(hidden)).tanh()
    torch.testing.assert_close(always, model.output(attended), rtol=1e-4, atol=1e-5)
    scores = head_scores(model, [batch], cpu)
    hits = (found[:, 0].argmax(-1) == torch.arange(5)).float().mean()
    assert scores.of(Head("decoder_cross", 0, 0))["hit_rate"] == pytest.approx(hits.item())
    assert cut_edges(model, scores, [batch], cpu, seed=3).cut == [Head("decoder_cross", 0, 0)]


@pytest.mark.parametrize("place", ["source_embedding", "target_embedding", "dropout", "encoder", "decoder"])
def test_dropout_acts_in_training_only_on_the_way_into_each_layer(place: str) -> None:
    model = build(dropout=0.5).eval()
    source, target = ragged_source(), random_target()
    assert torch.equal(model(source, target).logits, model(source, target).logits)
    model.get_submodule(place).train()
    first, second = (model(source, target, need_weights=True) for _ in range(2))
    assert not torch.allclose(first.logits, second.logits)
    # Each of them comes before attention.
    assert not torch.allclose(first.attention["decoder_cross"][0], second.attention["decoder_cross"][0])


def test_dropout_acts_after_attention_too() -> None:
    model, attended, heard = build(dropout=0.5), [], []
    model.attention.register_forward_hook(lambda *call: attended.append(call[-1].output))
    model.output.register_forward_pre_hook(lambda *call: heard.append(call[-1][0]))
    model(ragged_source(), random_target())
    (attended,), (heard,) = attended, heard
    kept = heard != 0
    assert 0.4 < kept.float().mean() < 0.6
    close(heard[kept], 2 * attended[kept])


def test_settings_reach_the_layers() -> None:
    model = build(num_layers=5, dropout=0.3)
    for layers in (model.encoder, model.decoder):
        assert (type(layers), layers.num_layers, layers.dropout) == (LSTM, 5, 0.3)
    assert model.encoder.bidirectional
    assert (model.encoder.hidden_size, model.decoder.hidden_size) == (HALF, D)
    assert model.max_length == UNLIMITED


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("num_layers", 0),
        ("d_model", 0),
        ("d_model", -2),
        ("d_model", 15),
        ("num_tokens", 0),
        ("dropout", 1.0),
        ("dropout", -0.5),
    ],
)
def test_refuses_settings_out_of_their_range(setting: str, value: object) -> None:
    with pytest.raises(ValueError, match=rf"^{setting}={value} "):
        build(**{setting: value})


@pytest.mark.parametrize("need_weights", [True, False], ids=["explicit", "fused"])
def test_runs_in_half_precision(model: LSTMWithAttention, need_weights: bool) -> None:
    source, target = ragged_source(), random_target()
    expected = model(source, target).logits
    with torch.autocast("cpu", torch.bfloat16):
        logits = model(source, target, need_weights=need_weights).logits
        output, _ = model.step(target, model.begin(source), need_weights=need_weights)
    assert logits.dtype == torch.bfloat16
    torch.testing.assert_close(logits.float(), expected, rtol=0, atol=0.05)
    assert torch.equal(output.logits, logits)
    logits.float().square().mean().backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


def test_learns_to_copy() -> None:
    def batch() -> tuple[Tensor, Tensor]:
        source = torch.cat([torch.randint(FIRST_SYMBOL, 8, (64, 5)), torch.full((64, 1), EOS)], dim=1)
        return source, torch.cat([torch.full((64, 1), BOS), source[:, :-1]], dim=1)

    model = LSTMWithAttention(8, d_model=64)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = []
    for _ in range(30):
        source, target = batch()
        loss = functional.cross_entropy(model(source, target).logits.transpose(1, 2), source)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 3


def test_decodes_what_it_was_taught() -> None:
    source = torch.cat([random_source(3, 5), torch.full((5, 1), EOS)], dim=1)
    target = torch.cat([torch.full((5, 1), BOS), source[:, :-1]], dim=1)
    model = build(d_model=38)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(30):
        loss = functional.cross_entropy(model(source, target).logits.transpose(1, 2), source)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert torch.equal(greedy_decode(model.eval(), source, 4), source)
