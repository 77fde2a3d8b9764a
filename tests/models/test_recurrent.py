"""Recurrent networks: the cells' equations, padding that is never read, causality, decoding, start values, learning."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from attention_lab.models.inference import greedy_decode
from attention_lab.models.recurrent import LSTM, Cell, RecurrentSeq2Seq, read, recurrent_layers
from attention_lab.positions.coordinates import UNLIMITED
from attention_lab.tasks.vocabulary import BOS, EOS, FIRST_SYMBOL, PAD

B, LAYERS, D, S, T, V = 3, 2, 17, 11, 13, 23


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


@pytest.fixture(params=["rnn", "lstm"])
def cell(request: pytest.FixtureRequest) -> Cell:
    return request.param


@pytest.fixture
def model(cell: Cell) -> RecurrentSeq2Seq:
    return build(cell)


def build(cell: Cell = "lstm", **settings: Any) -> RecurrentSeq2Seq:
    return RecurrentSeq2Seq(**{"num_tokens": V, "d_model": D, "num_layers": LAYERS, "cell": cell, **settings})


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


def one_step(cell: Cell, layer: list[Tensor], x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """Elman 1990, or Gers et al. 2000 with the gates in PyTorch's order: input, forget, cell, output."""
    w_x, w_h, b_x, b_h = layer
    total = w_x @ x + b_x + w_h @ h + b_h
    if cell == "rnn":
        return total.tanh(), c
    enter, forget, candidate, leave = total.split(D)
    c = forget.sigmoid() * c + enter.sigmoid() * candidate.tanh()
    return leave.sigmoid() * c.tanh(), c


def run_through(cell: Cell, layers: nn.RNNBase, inputs: list[Tensor], state: list[tuple[Tensor, Tensor]]):
    """Takes the inputs one by one through all layers; returns the last layer's h after each, and the state."""
    outputs = []
    for entering in inputs:
        x = entering
        for number in range(LAYERS):
            layer = [layers.get_parameter(f"{name}_l{number}") for name in ("weight_ih", "weight_hh", "bias_ih")]
            state[number] = one_step(cell, [*layer, layers.get_parameter(f"bias_hh_l{number}")], x, *state[number])
            x = state[number][0]
        outputs.append(x)
    return outputs, state


@torch.no_grad()
def test_equals_the_cells_equations_in_a_plain_loop(cell: Cell, model: RecurrentSeq2Seq) -> None:
    # Biases start out all alike; only when they differ can a mixed-up one be seen.
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    source, target = ragged_source(), random_target()
    logits = model(source, target).logits
    for row in range(B):
        nothing = [(torch.zeros(D), torch.zeros(D))] * LAYERS
        heard = list(model.source_embedding(source[row][source[row] != PAD][None])[0])
        _, state = run_through(cell, model.encoder, heard, nothing)
        outputs, _ = run_through(cell, model.decoder, list(model.target_embedding(target[row : row + 1])[0]), state)
        close(logits[row], torch.stack([model.output(h) for h in outputs]))


def test_says_a_distribution_for_every_target_token_and_has_no_maps(model: RecurrentSeq2Seq) -> None:
    output = model(ragged_source(), random_target(), need_weights=True)
    assert output.logits.shape == (B, T, V)
    assert output.attention == {}
    assert model.alignment_attention == ""
    assert list(model.alignment_layers) == []


def test_every_target_token_depends_on_every_source_token_and_on_no_padding(model: RecurrentSeq2Seq) -> None:
    embedded = []
    model.source_embedding.register_forward_hook(lambda *call: embedded.append(call[-1]))
    source = ragged_source()
    logits = model(source, random_target()).logits
    real = (source != PAD).sum(dim=1, keepdim=True)
    for token in range(T):
        (gradient,) = torch.autograd.grad(logits[:, token].square().sum(), embedded, retain_graph=True)
        # What is read stands in front.
        assert torch.equal(gradient.any(-1), torch.arange(S) < real)


@pytest.mark.parametrize("length", [1, 7])
@pytest.mark.parametrize("more", [(0, 4), (4, 0), (3, 4)], ids=["right", "left", "both"])
def test_padding_changes_no_logits_and_no_gradient(model: RecurrentSeq2Seq, more: tuple[int, int], length: int) -> None:
    source, target = random_source(length), random_target()

    def outcome(source: Tensor) -> list[Tensor]:
        logits = model(source, target).logits
        loss = functional.cross_entropy(logits[:, :-1].flatten(0, 1), target[:, 1:].flatten())
        return [logits, *torch.autograd.grad(loss, list(model.parameters()))]

    close(outcome(functional.pad(source, more, value=PAD)), outcome(source))


@pytest.mark.parametrize("more", [(0, 2), (0, 13), (2, 0), (13, 0), (5, 7)])
def test_more_padding_changes_nothing(model: RecurrentSeq2Seq, more: tuple[int, int]) -> None:
    source, target = ragged_source(), random_target()
    close(model(functional.pad(source, more, value=PAD), target).logits, model(source, target).logits)
    close(model(source, functional.pad(target, (0, more[1]), value=PAD)).logits[:, :T], model(source, target).logits)


def test_rows_do_not_see_each_other(model: RecurrentSeq2Seq) -> None:
    source, target = ragged_source(), random_target()
    together = model(source, target).logits
    for row in range(B):
        alone = source[row][source[row] != PAD][None]
        close(together[row], model(alone, target[row : row + 1]).logits[0])


def test_a_source_of_nothing_but_padding_is_the_same_at_any_length_and_has_finite_gradients(
    model: RecurrentSeq2Seq,
) -> None:
    source, target = random_source(), random_target()
    source[1] = PAD
    logits = model(source, target).logits
    close(model(functional.pad(source, (3, 4), value=PAD), target).logits, logits)
    logits.square().mean().backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


@pytest.mark.parametrize("bidirectional", [True, False])
def test_a_state_stands_where_its_token_stood(cell: Cell, bidirectional: bool) -> None:
    embedding = build(cell).source_embedding
    encoder = recurrent_layers(cell, D, 14, LAYERS, 0.0, bidirectional=bidirectional)
    source = ragged_source()
    states = read(source, embedding, encoder).states
    for row in range(B):
        real = source[row] != PAD
        expected, _ = encoder(embedding(source[row][real][None]))
        close(states[row][real], expected[0])
        assert not states[row][~real].any()


@pytest.mark.parametrize("changed", [1, 6, T - 1])
def test_changing_a_target_token_changes_no_logits_before_it(model: RecurrentSeq2Seq, changed: int) -> None:
    source, target = ragged_source(), random_target()
    other = target.clone()
    other[:, changed] = (target[:, changed] - FIRST_SYMBOL + 1) % (V - FIRST_SYMBOL) + FIRST_SYMBOL
    before, after = model(source, target).logits, model(source, other).logits
    torch.testing.assert_close(after[:, :changed], before[:, :changed], rtol=0, atol=1e-6)
    # ... and every one from it on.
    assert ((after - before)[:, changed:].abs().amax(-1) > 1e-5).all()


def test_no_gradient_flows_from_a_logit_to_a_later_target_token(model: RecurrentSeq2Seq) -> None:
    embedded = []
    model.target_embedding.register_forward_hook(lambda *call: embedded.append(call[-1]))
    logits = model(ragged_source(), random_target()).logits
    for token in range(T):
        (gradient,) = torch.autograd.grad(logits[:, token].square().sum(), embedded, retain_graph=True)
        assert not gradient[:, token + 1 :].any()
        assert gradient[:, : token + 1].any(-1).all()


@pytest.mark.parametrize("pieces", [[1] * T, [7, 1, 3, 2]], ids=["step by step", "in pieces"])
@torch.no_grad()
def test_reading_a_target_in_pieces_gives_the_logits_of_the_full_forward(
    model: RecurrentSeq2Seq, pieces: list[int]
) -> None:
    source, target = ragged_source(), random_target()
    state, logits = model.begin(source), []
    for piece in target.split(pieces, dim=1):
        output, state = model.step(piece, state)
        logits.append(output.logits)
    close(torch.cat(logits, dim=1), model(source, target).logits)


def test_a_state_can_be_gone_on_from_twice(model: RecurrentSeq2Seq) -> None:
    target = random_target()
    with torch.no_grad():
        _, state = model.step(target[:, :5], model.begin(ragged_source()))
        first, _ = model.step(target[:, 5:], state)
        again, _ = model.step(target[:, 5:], state)
    assert torch.equal(first.logits, again.logits)


def test_a_state_dict_makes_another_network_the_same(cell: Cell, model: RecurrentSeq2Seq) -> None:
    other, source, target = build(cell), ragged_source(), random_target()
    assert not torch.allclose(other(source, target).logits, model(source, target).logits)
    other.load_state_dict(model.state_dict(), strict=True)
    assert torch.equal(other(source, target).logits, model(source, target).logits)


@torch.no_grad()
def test_recurrent_matrices_are_orthogonal_and_an_lstm_starts_with_open_forget_gates(
    cell: Cell, model: RecurrentSeq2Seq
) -> None:
    for layers in (model.encoder, model.decoder):
        matrices = [weight for name, weight in layers.named_parameters() if name.startswith("weight_hh")]
        assert len(matrices) == LAYERS
        for gate in (gate for matrix in matrices for gate in matrix.split(D)):
            close(gate @ gate.T, torch.eye(D))
        for number in range(LAYERS):
            bias = (layers.get_parameter(f"bias_ih_l{number}") + layers.get_parameter(f"bias_hh_l{number}")).split(D)
            assert [set(part.tolist()) for part in bias] == ([{0.0}] if cell == "rnn" else [{0.0}, {1.0}, {0.0}, {0.0}])


@pytest.mark.parametrize("place", ["source_embedding", "target_embedding", "dropout", "encoder", "decoder"])
def test_dropout_acts_in_training_only_on_the_way_into_each_layer(cell: Cell, place: str) -> None:
    model = build(cell, dropout=0.5).eval()
    source, target = ragged_source(), random_target()
    assert torch.equal(model(source, target).logits, model(source, target).logits)
    model.get_submodule(place).train()
    assert not torch.allclose(model(source, target).logits, model(source, target).logits)


def test_a_single_layer_has_dropout_around_it(cell: Cell) -> None:
    model = build(cell, dropout=0.5, num_layers=1)
    source, target = ragged_source(), random_target()
    assert not torch.allclose(model(source, target).logits, model(source, target).logits)


def test_settings_reach_the_layers(cell: Cell) -> None:
    model = build(cell, num_layers=5, dropout=0.3)
    for layers in (model.encoder, model.decoder):
        assert type(layers) is {"rnn": nn.RNN, "lstm": LSTM}[cell]
        assert (layers.num_layers, layers.hidden_size, layers.dropout) == (5, D, 0.3)
    assert model.max_length == UNLIMITED


@pytest.mark.parametrize(
    ("setting", "value"),
    [("num_layers", 0), ("num_layers", -2), ("d_model", 0), ("num_tokens", 0), ("dropout", 1.0), ("dropout", -0.5)],
)
def test_refuses_settings_out_of_their_range(setting: str, value: object) -> None:
    with pytest.raises(ValueError, match=rf"^{setting}={value} "):
        build(**{setting: value})


def test_runs_in_half_precision(model: RecurrentSeq2Seq) -> None:
    source, target = ragged_source(), random_target()
    expected = model(source, target).logits
    with torch.autocast("cpu", torch.bfloat16):
        logits = model(source, target).logits
        state = model.begin(source)
        output, _ = model.step(target, state)
    assert logits.dtype == torch.bfloat16
    torch.testing.assert_close(logits.float(), expected, rtol=0, atol=0.05)
    assert torch.equal(output.logits, logits)
    logits.float().square().mean().backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


def test_an_lstm_on_a_cpu_keeps_to_its_weights_precision() -> None:
    # Without this, oneDNN fails on CPUs that have no AVX-512; on the others nothing would show that it is gone.
    with torch.autocast("cpu", torch.bfloat16):
        states, (h, c) = LSTM(4, 4)(torch.randn(3, 2, 4).bfloat16())
    assert states.dtype == h.dtype == c.dtype == torch.float32


def test_decodes_what_it_was_taught() -> None:
    source = torch.cat([random_source(3, 5), torch.full((5, 1), EOS)], dim=1)
    target = torch.cat([torch.full((5, 1), BOS), source[:, :-1]], dim=1)
    model = build(d_model=37)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    losses = []
    for _ in range(40):
        loss = functional.cross_entropy(model(source, target).logits.transpose(1, 2), source)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 10
    assert torch.equal(greedy_decode(model.eval(), source, 4), source)
