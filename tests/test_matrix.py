"""Architecture by attention by position: every cell that can work learns, every other is refused with its reason."""

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from torch import Tensor, nn

from attention_lab.attention.packing import Packing
from attention_lab.composition.build import build_network
from attention_lab.data.batches import Batch
from attention_lab.errors import SettingError
from attention_lab.evaluation.ablation import Silenced, all_heads, head_means, silencing
from attention_lab.evaluation.edges import cut_edges
from attention_lab.evaluation.scoring import head_scores
from attention_lab.metrics.sequence import token_loss
from attention_lab.models.model import SequenceModel
from attention_lab.settings.schema import COUNTED, DataSettings, PositionSamplingSettings
from attention_lab.tasks.vocabulary import BOS, EOS, FIRST_SYMBOL, PAD
from tests.pairwise import matrix

CONFIGS = Path(__file__).parents[1] / "configs"
DATA = DataSettings(
    min_length=1,
    max_length=11,
    vocab_size=7,
    unique_symbols=False,
    train_size=100,
    validation_size=10,
    test_size=10,
    batch_size=7,
    num_workers=0,
)
B, LONGEST = 7, 11
CPU = torch.device("cpu")

MODELS = ("encoder_decoder", "decoder_only", "encoder_only")
ATTENTIONS = tuple(sorted(path.stem for path in (CONFIGS / "attention").glob("*.yaml")))
POSITIONS = tuple(sorted(path.stem for path in (CONFIGS / "position").glob("*.yaml")))
CELLS = list(itertools.product(MODELS, ATTENTIONS, POSITIONS))

# Written down by hand, so that it does not follow what the code says.
NOT_CAUSAL = {"linformer", "conv_mixed"}
NO_TURNING = {"linear", "linformer"}
NO_BIAS = {"linear", "linformer", "flash"}
NO_PIECES = {"decoder_only": {"linear"}, "encoder_only": {"sliding_window", "conv_mixed"}}
NO_FRAMES = {"grouped_query", "multi_query", "conv_mixed"}


def reason(model: str, attention: str, position: str) -> str | None:
    if attention in NOT_CAUSAL and model != "encoder_only":
        return f"attention={attention} cannot be causal, which model={model} needs: "
    unable = {
        "rotary": NO_TURNING,
        "two_ended_rotary": NO_TURNING | NO_FRAMES,
        "alibi": NO_BIAS,
        "relative_t5": NO_BIAS,
    }
    if attention in unable.get(position, ()):
        return f"position={position} does not go with attention={attention}: "
    if position == "two_ended_rotary" and model == "decoder_only":
        return f"position={position} does not go with model={model}: "
    return None


VALID = [cell for cell in CELLS if reason(*cell) is None]
INVALID = [cell for cell in CELLS if reason(*cell) is not None]
# Every two of model, attention and position meet in plain runs; the other cells are slow tests.
PARAMETRIZED = pytest.mark.parametrize("cell", matrix(VALID), ids=" ".join)


def component(group: str, name: str, **changed: Any) -> dict[str, Any]:
    return {**yaml.safe_load((CONFIGS / group / f"{name}.yaml").read_text()), **changed}


def build(
    model: str, attention: str, position: str, sampling: PositionSamplingSettings | None = None
) -> SequenceModel[Any]:
    torch.manual_seed(0)
    shape = {"d_model": 24, "num_heads": 4, "num_layers": 2, "d_ff": 23}
    return build_network(
        component("model", model, **shape),
        component("attention", attention),
        component("position", position),
        DATA,
        sampling or COUNTED,
        {"model": model, "attention": attention, "position": position},
    )


def copying(rows: int = B, longest: int = LONGEST, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Source, target and labels of copies, row by row one symbol shorter, padded on the right."""
    generator = torch.Generator().manual_seed(seed)
    symbols = torch.randint(FIRST_SYMBOL, FIRST_SYMBOL + 7, (rows, longest), generator=generator)
    labels = torch.full((rows, longest + 1), PAD)
    for row in range(rows):
        length = max(1, longest - row)
        labels[row, :length] = symbols[row, :length]
        labels[row, length] = EOS
    target = torch.cat([torch.full((rows, 1), BOS), labels[:, :-1]], dim=1)
    target[target == EOS] = PAD
    return labels.clone(), target, labels


def close(actual: Tensor, expected: Tensor, tolerance: float = 1e-5) -> None:
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


@PARAMETRIZED
def test_ten_steps_make_the_loss_fall_with_finite_gradients(cell):
    network = build(*cell)
    optimizer = torch.optim.Adam(network.parameters(), lr=5e-3)
    source, target, labels = copying()
    losses = []
    for _ in range(10):
        loss = token_loss(network(source, target).logits, labels)
        optimizer.zero_grad()
        loss.backward()
        assert all(weight.grad is None or weight.grad.isfinite().all() for weight in network.parameters())
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.9 * losses[0]
    reached = [weight.grad is not None and bool(weight.grad.any()) for weight in network.parameters()]
    assert sum(reached) > 0.9 * len(reached)


@PARAMETRIZED
def test_no_later_target_token_leaks_into_an_earlier_logit(cell):
    network = build(*cell).eval()
    source, target, _ = copying()
    other = target.clone()
    other[0, 5] = FIRST_SYMBOL + (target[0, 5] - FIRST_SYMBOL + 1) % 7
    before, after = (network(source, each).logits for each in (target, other))
    close(after[:, :5], before[:, :5])
    if cell[0] != "encoder_only":
        assert not torch.allclose(after[0, 5:], before[0, 5:], atol=1e-6)


@PARAMETRIZED
def test_padding_changes_nothing(cell):
    network = build(*cell).eval()
    source, target, labels = copying()
    together = network(source, target).logits
    wider = nn.functional.pad(source, (0, 5), value=PAD), nn.functional.pad(target, (0, 3), value=PAD)
    padded = network(*wider).logits
    for row in range(B):
        length = int((labels[row] != PAD).sum())
        alone = network(source[row : row + 1, :length], target[row : row + 1, :length]).logits
        close(together[row : row + 1, :length], alone, 1e-4)
        close(padded[row : row + 1, :length], alone, 1e-4)


@PARAMETRIZED
def test_packed_batches_are_the_batches_one_by_one(cell):
    network = build(*cell, PositionSamplingSettings(range=32, distribution="log_uniform"))
    source, target, labels = copying()
    parts = [(slice(0, 1), 12), (slice(1, 4), 11), (slice(4, 7), 8)]
    sources, targets, said = ([column[rows, :end] for rows, end in parts] for column in (source, target, labels))

    def logits_and_gradients(row: Callable[[], Tensor]) -> tuple[Tensor, list[Tensor]]:
        torch.manual_seed(3)
        logits = row()
        network.zero_grad()
        token_loss(logits, Packing.of(said).pack(said)).backward()
        return logits, [weight.grad for weight in network.parameters() if weight.grad is not None]

    packed, gradients = logits_and_gradients(lambda: network.logits(sources, targets))
    single, expected = logits_and_gradients(
        lambda: Packing.of(targets).pack([network(*part).logits for part in zip(sources, targets, strict=True)])
    )
    close(packed, single)
    assert len(gradients) == len(expected)
    for mine, other in zip(gradients, expected, strict=True):
        close(mine, other, 1e-4)


@PARAMETRIZED
def test_cached_decoding_is_the_full_forward(cell):
    network = build(*cell).eval()
    source, target, labels = copying()
    expected = network(source, target).logits
    real = labels != PAD
    with torch.no_grad():
        for lengths in ([1] * target.size(1), [3, 1, target.size(1) - 4]):
            state, said = network.begin(source), []
            for piece in target.split(lengths, dim=1):
                output, state = network.step(piece, state)
                said.append(output.logits)
            close(torch.cat(said, dim=1)[real], expected[real])


@PARAMETRIZED
def test_maps_in_pieces_are_the_rows_of_the_whole_map_or_are_not_there(cell):
    network = build(*cell).eval()
    source, target, labels = copying()
    real, size = (labels != PAD)[:, None, :, None], target.size(1)
    with torch.no_grad():
        whole = network.alignment_maps(network(source, target, need_weights=True).attention, size, source.size(1))
        state, pieces = network.begin(source), []
        for piece in target.split([5, 1, size - 6], dim=1):
            output, state = network.step(piece, state, need_weights=True)
            if network.maps_in_pieces:
                pieces.append(network.alignment_maps(output.attention, piece.size(1), source.size(1)))
            else:
                assert network.alignment_attention not in output.attention
    assert network.maps_in_pieces == (cell[0] == "encoder_decoder" or cell[1] not in NO_PIECES[cell[0]])
    for layer, rows in enumerate(zip(*pieces, strict=True)):
        joined = torch.cat(rows, dim=2)
        close(joined.masked_fill(~real, 0.0), whole[layer].masked_fill(~real, 0.0))


# Where there is no map to score, torchmetrics says that nothing was scored.
@pytest.mark.filterwarnings("ignore:The ``compute`` method of metric AlignmentScores")
@PARAMETRIZED
def test_evaluation_copes_with_maps_of_any_length(cell, monkeypatch):
    """As for sequences so long that their maps do not fit, in whatever pieces."""
    network = build(*cell).eval()
    source, target, labels = copying()
    alignment = torch.arange(labels.size(1)).expand_as(labels).masked_fill(labels < FIRST_SYMBOL, -1)
    if cell[2] == "none":
        # Equal symbols get equal weights then, and rounding says which of them is the highest: only a symbol that its
        # sequence holds once can be hit for certain.
        alone = (source[:, :, None] == source[:, None, :]).sum(dim=2) == 1
        alignment = alignment.masked_fill(~alone, -1)
        assert (alignment >= 0).any()
    batch = Batch(source, target, labels, alignment)
    whole = head_scores(network, [batch], CPU)
    monkeypatch.setattr("attention_lab.evaluation.scoring.MAX_CELLS", 36)
    pieces = head_scores(network, [batch], CPU)
    if network.maps_in_pieces:
        torch.testing.assert_close(pieces.hit_rate, whole.hit_rate)
        torch.testing.assert_close(pieces.mass, whole.mass, rtol=1e-3, atol=1e-3)
    else:
        assert pieces.hit_rate.isnan().all() or torch.equal(pieces.hit_rate, whole.hit_rate)


@PARAMETRIZED
def test_asking_for_the_weights_changes_nothing_and_they_are_well_formed(cell):
    network = build(*cell).eval()
    source, target, labels = copying()
    asked, not_asked = (network(source, target, need_weights=need) for need in (True, False))
    real = labels != PAD
    close(asked.logits[real], not_asked.logits[real])
    assert not_asked.attention == {}
    assert set(asked.attention) <= set(network.axes)
    maps = network.alignment_maps(asked.attention, target.size(1), source.size(1))
    assert len(maps) == len(network.alignment_layers)
    for weights in maps:
        assert weights.shape == (B, 4, target.size(1), source.size(1))
        # Nobody looks at padding.
        padded = (source == PAD)[:, None, None, :] & real[:, None, :, None]
        assert (weights.masked_select(padded.expand_as(weights)).abs() < 1e-6).all()


@PARAMETRIZED
def test_heads_can_be_silenced_measured_and_their_edges_cut(cell):
    network = build(*cell).eval()
    source, target, labels = copying()
    # A copy's alignment; the last row has but one symbol, and EOS comes from nowhere.
    alignment = torch.arange(labels.size(1)).expand_as(labels).masked_fill(labels < FIRST_SYMBOL, -1)
    batch = Batch(source, target, labels, alignment)
    heads = all_heads(network)
    means = head_means(network, [batch], CPU)
    assert means.shape == (2, 4, 6)
    logits = network(source, target).logits
    real = labels != PAD
    for variant in (Silenced(heads), Silenced(heads, means)):
        with silencing(network, variant):
            found = network(source, target).logits
        assert found.isfinite().all()
        assert not torch.allclose(found[real], logits[real])
    scores = head_scores(network, [batch], CPU)
    assert scores.mass.shape == (2, 4)
    cuts = cut_edges(network, scores, [batch], CPU, seed=0)
    assert cuts.cut == (cuts.aligned or heads)
    if cell[1] in ("linformer", "conv_mixed"):
        return
    # With every edge to the source closed, the source is not seen.
    closed = torch.zeros(B, 4, target.size(1), source.size(1), dtype=torch.bool)
    intervention = {(network.alignment_attention, layer): network.alignment_mask(closed) for layer in range(2)}
    maps = network(source, target, need_weights=True, intervention=intervention).attention
    for weights in network.alignment_maps(maps, target.size(1), source.size(1)):
        assert not weights.any()


@PARAMETRIZED
def test_brain_floats_are_close(cell):
    network = build(*cell).eval()
    source, target, labels = copying()
    expected = network(source, target).logits
    with torch.autocast("cpu", torch.bfloat16):
        found = network(source, target).logits
    real = labels != PAD
    assert found.isfinite().all()
    assert (found.float() - expected)[real].abs().mean() < 0.05 * expected[real].abs().mean() + 0.02


@pytest.mark.parametrize("cell", INVALID, ids=" ".join)
def test_what_cannot_work_is_refused_with_its_reason(cell):
    with pytest.raises(SettingError) as refusal:
        build(*cell)
    assert str(refusal.value).startswith(reason(*cell))
    assert "; use " in str(refusal.value)
    assert "\n" not in str(refusal.value)
