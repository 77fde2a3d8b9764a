"""The whole network: PyTorch's layers, causality, padding, cached decoding, attention maps and settings."""

import math
from functools import partial

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from attention_lab.attention.multi_head import MultiHeadAttention
from attention_lab.models.encoder_decoder import EncoderDecoder
from attention_lab.models.transformer import PACKED_PARTS
from attention_lab.positions.sinusoidal import PositionalEncoding
from attention_lab.tasks.vocabulary import BOS, FIRST_SYMBOL, PAD

B, LAYERS, H, K, S, T, D_FF, V, MAX_LEN = 3, 2, 5, 7, 11, 13, 19, 23, 29
D = H * K
NAMES = ("encoder_self", "decoder_self", "decoder_cross")


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


@pytest.fixture
def model() -> EncoderDecoder:
    return build()


def build(**settings) -> EncoderDecoder:
    sizes = {"num_tokens": V, "d_model": D, "num_heads": H, "num_layers": LAYERS, "d_ff": D_FF}
    position = partial(PositionalEncoding, max_len=MAX_LEN)
    return EncoderDecoder(**{**sizes, "position": position, **settings})


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


def close(actual, expected) -> None:
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)


def as_in_pytorch(attention: MultiHeadAttention) -> dict[str, Tensor]:
    parts = (attention.w_q, attention.w_k, attention.w_v)
    return {
        "in_proj_weight": torch.cat([part.weight for part in parts]),
        "in_proj_bias": torch.cat([part.bias for part in parts]),
        "out_proj.weight": attention.w_o.weight,
        "out_proj.bias": attention.w_o.bias,
    }


def pytorchs_layers(model: EncoderDecoder) -> tuple[nn.TransformerEncoder, nn.TransformerDecoder]:
    """PyTorch's two stacks with the model's weights."""
    settings = {"dropout": 0.0, "batch_first": True}
    encoder = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(D, H, D_FF, **settings), LAYERS, enable_nested_tensor=False
    )
    decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(D, H, D_FF, **settings), LAYERS)
    attentions = {"attn": "self_attn", "self_attn": "self_attn", "cross_attn": "multihead_attn"}
    feed_forward = {"ffn.0": "linear1", "ffn.3": "linear2"}
    for blocks, layers in ((model.encoder, encoder.layers), (model.decoder, decoder.layers)):
        for block, layer in zip(blocks, layers, strict=True):
            state = {}
            for name, module in block.named_modules():
                if name in attentions:
                    state |= {f"{attentions[name]}.{key}": weight for key, weight in as_in_pytorch(module).items()}
                elif name in feed_forward or name.startswith("norm"):
                    theirs = feed_forward.get(name, name)
                    state |= {f"{theirs}.{key}": weight for key, weight in module.state_dict().items()}
            layer.load_state_dict(state, strict=True)
    return encoder, decoder


def test_equals_pytorchs_layers_on_shared_weights(model):
    # Norms and biases start out all alike; only when they differ can a mixed-up one be seen.
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    encoder, decoder = pytorchs_layers(model)
    source, target = ragged_source(), random_target()
    padded = source == PAD
    # Row 2 of the source starts after five padding tokens.
    places = torch.arange(S).repeat(B, 1)
    places[2] = (places[2] - 5).clamp(min=0)
    memory = encoder(model.source_embedding(source, places), src_key_padding_mask=padded)
    future = torch.ones(T, T, dtype=torch.bool).triu(1)
    embedded = model.target_embedding(target)
    decoded = decoder(embedded, memory, tgt_mask=future, memory_key_padding_mask=padded)
    close(model(source, target).logits, model.output(decoded))


@pytest.mark.parametrize("need_weights", [True, False], ids=["explicit", "fused"])
@pytest.mark.parametrize("changed", [1, 6, T - 1])
def test_changing_a_target_token_changes_no_logits_before_it(model, changed, need_weights):
    source, target = ragged_source(), random_target()
    other = target.clone()
    other[:, changed] = (target[:, changed] - FIRST_SYMBOL + 1) % (V - FIRST_SYMBOL) + FIRST_SYMBOL
    before = model(source, target, need_weights=need_weights).logits
    after = model(source, other, need_weights=need_weights).logits
    torch.testing.assert_close(after[:, :changed], before[:, :changed], rtol=0, atol=1e-6)
    # ... and every one from it on.
    assert ((after - before)[:, changed:].abs().amax(-1) > 1e-5).all()


@pytest.mark.parametrize("need_weights", [True, False], ids=["explicit", "fused"])
def test_no_gradient_flows_from_a_logit_to_a_later_target_token(model, need_weights):
    embedded = []
    model.target_embedding.register_forward_hook(lambda *call: embedded.append(call[-1]))
    logits = model(ragged_source(), random_target(), need_weights=need_weights).logits
    for token in range(T):
        (gradient,) = torch.autograd.grad(logits[:, token].square().sum(), embedded, retain_graph=True)
        assert not gradient[:, token + 1 :].any()
        assert gradient[:, : token + 1].any(-1).all()


def test_every_target_token_depends_on_every_source_token(model):
    embedded = []
    model.source_embedding.register_forward_hook(lambda *call: embedded.append(call[-1]))
    source = ragged_source()
    logits = model(source, random_target()).logits
    for token in range(T):
        (gradient,) = torch.autograd.grad(logits[:, token].square().sum(), embedded, retain_graph=True)
        assert torch.equal(gradient.any(-1), source != PAD)


@pytest.mark.parametrize("side", ["right", "left", "both"])
def test_padding_the_source_changes_nothing(model, side):
    source, target = random_source(7), random_target()
    more = {"right": (0, 4), "left": (4, 0), "both": (3, 4)}[side]
    padded = functional.pad(source, more, value=PAD)
    expected = model(source, target, need_weights=True)
    actual = model(padded, target, need_weights=True)
    close(actual.logits, expected.logits)
    real = slice(more[0], more[0] + 7)
    close([maps[..., real] for maps in actual.attention["decoder_cross"]], list(expected.attention["decoder_cross"]))
    close(
        [maps[..., real, real] for maps in actual.attention["encoder_self"]], list(expected.attention["encoder_self"])
    )
    close(model(padded, target).logits, expected.logits)


def test_padding_the_target_on_the_right_changes_nothing(model):
    source, target = ragged_source(), random_target()
    padded = functional.pad(target, (0, 4), value=PAD)
    for need_weights in (True, False):
        expected = model(source, target, need_weights=need_weights).logits
        close(model(source, padded, need_weights=need_weights).logits[:, :T], expected)


@pytest.mark.parametrize("more", [(0, 2), (0, 13), (2, 0), (13, 0), (5, 7)])
def test_more_padding_changes_nothing(model, more):
    source, target = ragged_source(), random_target()
    close(model(functional.pad(source, more, value=PAD), target).logits, model(source, target).logits)


def test_padding_changes_no_gradient(model):
    source, target = random_source(7), random_target()

    def gradients(source: Tensor) -> list[Tensor]:
        logits = model(source, target).logits
        loss = functional.cross_entropy(logits[:, :-1].flatten(0, 1), target[:, 1:].flatten())
        return list(torch.autograd.grad(loss, list(model.parameters())))

    close(gradients(functional.pad(source, (3, 4), value=PAD)), gradients(source))


def test_rows_do_not_see_each_other(model):
    sources = [random_source(length, 1) for length in (11, 7, 2)]
    targets = [random_target(length, 1) for length in (5, 13, 3)]
    batch = [
        torch.cat([functional.pad(row, (0, longest - row.size(1)), value=PAD) for row in rows])
        for rows, longest in ((sources, 11), (targets, 13))
    ]
    together = model(*batch).logits
    for row, (source, target) in enumerate(zip(sources, targets, strict=True)):
        close(together[row, : target.size(1)], model(source, target).logits[0])


def test_a_source_of_nothing_but_padding_gives_finite_logits_and_gradients(model):
    source = random_source()
    source[1] = PAD
    for need_weights in (True, False):
        logits = model(source, random_target(), need_weights=need_weights).logits
        assert logits.isfinite().all()
        model.zero_grad()
        logits.square().mean().backward()
        assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


@pytest.mark.parametrize("length", [1, 13, 23], ids=["one token", "in the first room", "beyond the first room"])
def test_cached_decoding_equals_the_full_forward(model, length):
    source, target = ragged_source(), random_target(length)
    expected = model(source, target).logits
    with torch.no_grad():
        state = model.begin(source)
        for token in range(length):
            output, state = model.step(target[:, token, None], state)
            close(output.logits[:, 0], expected[:, token])


def test_reading_a_target_in_pieces_gives_the_logits_and_maps_of_the_full_forward(model):
    source, target = ragged_source(), random_target(23)
    expected = model(source, target, need_weights=True)
    with torch.no_grad():
        state, end = model.begin(source), 0
        for piece in target.split([7, 1, 13, 2], dim=1):
            output, state = model.step(piece, state, need_weights=True)
            rows, end = slice(end, end + piece.size(1)), end + piece.size(1)
            close(output.logits, expected.logits[:, rows])
            assert set(output.attention) == {"decoder_cross"}
            for name, layers in output.attention.items():
                for layer, weights in enumerate(layers):
                    close(weights, expected.attention[name][layer][:, :, rows, : weights.size(-1)])


def test_each_decoding_has_a_cache_of_its_own(model):
    sources, target = (ragged_source(), random_source()), random_target(3)
    with torch.no_grad():
        states = [model.begin(source) for source in sources]
        # Two decodings take turns.
        for token in range(3):
            for row, source in enumerate(sources):
                output, states[row] = model.step(target[:, token, None], states[row])
                close(output.logits[:, 0], model(source, target).logits[:, token])


def test_asking_for_the_maps_changes_no_logits(model):
    source, target = ragged_source(), random_target()
    asked, not_asked = (model(source, target, need_weights=need_weights) for need_weights in (True, False))
    close(asked.logits, not_asked.logits)
    assert not_asked.attention == {}
    assert model(source, target).attention == {}


def test_every_attention_has_its_maps_under_its_name_layer_by_layer(model):
    maps = model(ragged_source(), random_target(), need_weights=True).attention
    shapes = {name: [tuple(weights.shape) for weights in layers] for name, layers in maps.items()}
    expected = {"encoder_self": (B, H, S, S), "decoder_self": (B, H, T, T), "decoder_cross": (B, H, T, S)}
    assert shapes == {name: [shape] * LAYERS for name, shape in expected.items()}
    assert model.alignment_attention in maps


def test_every_row_of_every_map_sums_to_one(model):
    maps = model(ragged_source(), random_target(), need_weights=True).attention
    for name in NAMES:
        for weights in maps[name]:
            torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]))


def test_no_map_puts_anything_on_padding(model):
    source, target = ragged_source(), random_target()
    target[1, 5:] = PAD
    maps = model(source, target, need_weights=True).attention
    for name, keys in (("encoder_self", source), ("decoder_cross", source), ("decoder_self", target)):
        on_padding = (keys == PAD)[:, None, None, :]
        # What a padded query looks at, nobody reads.
        asking = (source if name == "encoder_self" else target) != PAD
        for weights in maps[name]:
            assert not weights.where(on_padding & asking[:, None, :, None], 0).any()
            assert weights.where(~on_padding, 0).any()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("layer", range(LAYERS))
def test_a_map_belongs_to_the_layer_and_the_head_of_its_address(model, name, layer):
    stack, attention = {
        "encoder_self": (model.encoder, "attn"),
        "decoder_self": (model.decoder, "self_attn"),
        "decoder_cross": (model.decoder, "cross_attn"),
    }[name]
    module = stack[layer].get_submodule(attention)
    head = 3
    with torch.no_grad():
        # A head whose queries are all zero looks at everything alike.
        module.w_q.weight[head * K : (head + 1) * K] = 0
        module.w_q.bias[head * K : (head + 1) * K] = 0
    maps = model(random_source(), random_target(), need_weights=True).attention
    even = {
        (each, number, index)
        for each, layers in maps.items()
        for number, weights in enumerate(layers)
        for index in range(H)
        # The last query sees all keys, in causal attention as well.
        if torch.allclose(weights[:, index, -1], torch.tensor(1 / weights.size(-1)))
    }
    assert even == {(name, layer, head)}


def test_matrices_are_drawn_xavier_uniform_and_biases_are_zero():
    for name, module in build(d_model=55, d_ff=211).named_modules():
        if isinstance(module, nn.Linear):
            limit = math.sqrt(6 / (module.in_features + module.out_features))
            assert module.weight.abs().max() <= limit, name
            assert module.weight.std().item() == pytest.approx(limit / math.sqrt(3), rel=0.1), name
            assert not module.bias.any(), name


def test_dropout_acts_in_training_only():
    model = build(dropout=0.5)
    source, target = ragged_source(), random_target()
    assert not torch.allclose(model(source, target).logits, model(source, target).logits)
    model.eval()
    assert torch.equal(model(source, target).logits, model(source, target).logits)


def test_has_as_many_positions_as_its_position_code(model):
    assert model.max_length == MAX_LEN
    logits = model(random_source(MAX_LEN), random_target(MAX_LEN)).logits
    assert logits.shape == (B, MAX_LEN, V)


def test_refuses_a_source_or_a_target_longer_than_its_positions(model):
    with pytest.raises(ValueError, match=r"31 tokens .*max_len=29"):
        model(random_source(31), random_target())
    with pytest.raises(ValueError, match=r"31 tokens .*max_len=29"):
        model(random_source(), random_target(31))
    with pytest.raises(ValueError, match=r"31 tokens .*max_len=29"):
        model.begin(random_source(31))


def test_packed_batches_may_have_more_tokens_than_a_sequence(model):
    sources, targets = [ragged_source(), random_source(5)], [random_target(6), random_target(11)]
    sources[1][0] = PAD
    assert B * (S + 5) > MAX_LEN
    packed = model.logits(sources, targets)
    said = [model(*batch).logits for batch in zip(sources, targets, strict=True)]
    close(packed, torch.cat([logits.flatten(0, 1) for logits in said])[None])


def test_batches_are_cut_into_more_parts_where_these_are_packed():
    assert build().batch_parts == PACKED_PARTS


@pytest.mark.parametrize(
    "asked", [{"need_weights": True}, {"intervention": {("decoder_cross", 0): torch.tensor(True)}}]
)
def test_weights_and_interventions_belong_to_one_batch(model, asked):
    batch = [random_source(), random_source()], [random_target(), random_target()]
    with pytest.raises(ValueError, match="belong to a batch of one part, and there are 2"):
        model(*batch, **asked)


def test_refuses_a_packed_sequence_longer_than_its_positions(model):
    for sources, targets in (([S, 31], [T, T]), ([S, S], [31, T])):
        with pytest.raises(ValueError, match=r"31 tokens .*max_len=29"):
            model.logits(list(map(random_source, sources)), list(map(random_target, targets)))


@pytest.mark.parametrize(
    ("setting", "value"),
    [("num_layers", 0), ("num_layers", -2), ("d_ff", 0), ("num_heads", 3), ("dropout", 1.0), ("dropout", -0.5)],
)
def test_refuses_settings_out_of_their_range(setting, value):
    with pytest.raises(ValueError, match=rf"{setting}.*{value}\b"):
        build(**{setting: value})


def test_attention_and_position_are_built_by_their_factories():
    class OwnAttention(MultiHeadAttention):
        pass

    class OwnPosition(PositionalEncoding):
        pass

    model = build(attention=OwnAttention, position=OwnPosition)
    kinds = [type(module) for module in model.modules()]
    assert kinds.count(OwnAttention) == 3 * LAYERS
    assert kinds.count(OwnPosition) == 2
    assert MultiHeadAttention not in kinds
    assert PositionalEncoding not in kinds


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("attention", ["encoder_self", "decoder_self", "decoder_cross"])
def test_a_closed_head_is_a_head_whose_output_is_zero(attention: str, need_weights: bool) -> None:
    torch.manual_seed(0)
    network = EncoderDecoder(11, d_model=12, num_heads=3, num_layers=2, d_ff=7).eval()
    source, target = torch.randint(3, 11, (2, 5)), torch.randint(3, 11, (2, 7))
    allowed = torch.ones(1, 3, 1, 1, dtype=torch.bool)
    allowed[:, 1] = False
    closed = network(source, target, need_weights=need_weights, intervention={(attention, 1): allowed})
    stack, name = {
        "encoder_self": (network.encoder, "attn"),
        "decoder_self": (network.decoder, "self_attn"),
        "decoder_cross": (network.decoder, "cross_attn"),
    }[attention]
    with torch.no_grad():
        # What a head says enters through its own columns of the output projection.
        getattr(stack[1], name).w_o.weight[:, 4:8] = 0
    torch.testing.assert_close(closed.logits, network(source, target).logits, atol=1e-6, rtol=1e-5)
    if need_weights:
        assert not closed.attention[attention][1][:, 1].any()
        assert closed.attention[attention][0][:, 1].any()
