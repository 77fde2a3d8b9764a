"""Two-ended rotary positions: in its frame, each head meets at distance zero what its task needs."""

import pytest
import torch

from attention_lab.attention.mask import Mask
from attention_lab.attention.multi_head import MultiHeadAttention
from attention_lab.models.encoder_decoder import EncoderDecoder
from attention_lab.positions.coordinates import Ruler, num_symbols
from attention_lab.positions.rotary import RotaryPosition
from attention_lab.positions.two_ended_rotary import TwoEndedRotary
from attention_lab.tasks.copy import Copy
from attention_lab.tasks.duplicate import Duplicate
from attention_lab.tasks.reverse import Reverse
from attention_lab.tasks.vocabulary import EOS, FIRST_SYMBOL, PAD

H, K = 4, 6
COUNTED = Ruler()
FRAMES = ["start", "end", "start_again", "end_again"]


def placed(num: int, num_targets: int, ruler: Ruler = COUNTED):
    real = torch.ones(1, num + 1, dtype=torch.bool)
    code = TwoEndedRotary(H * K, frames=FRAMES, num_heads=H)
    return code.for_cross_attention(
        ruler.target(torch.arange(num_targets)[None], num_symbols(real)), ruler.source(real)
    )


def meeting(found, head: int) -> list[list[int]]:
    """For each target token, the source tokens at distance zero."""
    zero = found.queries[0, head][:, None] == found.keys[0, head]
    return [row.nonzero()[:, 0].tolist() for row in zero]


@pytest.mark.parametrize("marks", [None, torch.tensor([[3, 4, 9, 17, 40, 41, 90, 97, 99, 300, 301, 555]])])
def test_each_frame_meets_what_its_task_needs_by_hand(marks):
    found = placed(4, 9, Ruler(marks))
    assert meeting(found, 0) == [[0], [1], [2], [3], [4], [], [], [], []]
    # EOS, source token 4, comes last from either end.
    assert meeting(found, 1) == [[3], [2], [1], [0], [4], [], [], [], []]
    assert meeting(found, 2) == [[], [], [], [], [0], [1], [2], [3], [4]]
    assert meeting(found, 3) == [[], [], [], [], [3], [2], [1], [0], [4]]


def test_the_frames_of_tasks_are_their_alignments():
    for task, frame in ((Copy(), 0), (Reverse(), 1)):
        gold = task.alignment(torch.zeros(1, 5, dtype=torch.long).numpy())[0].tolist()
        found = meeting(placed(5, 5), frame)
        assert [[place] for place in gold] == found
    gold = Duplicate().alignment(torch.zeros(1, 5, dtype=torch.long).numpy())[0].tolist()
    found = placed(5, 10)
    assert meeting(found, 0)[:5] + meeting(found, 2)[5:] == [[place] for place in gold]


def test_each_head_is_rotary_attention_in_its_own_coordinates():
    torch.manual_seed(0)
    attention = MultiHeadAttention(H * K, H, 0.0)
    x, memory = torch.randn(1, 7, H * K), torch.randn(1, 5, H * K)
    found = placed(4, 7)
    _, weights = attention(x, memory, memory, Mask(), positions=found)
    assert weights is not None
    plain = RotaryPosition(H * K, 30.0, 3.0, num_heads=H)
    for head in range(H):
        alone = found._replace(code=plain, queries=found.queries[:, head], keys=found.keys[:, head])
        _, expected = attention(x, memory, memory, Mask(), positions=alone)
        assert expected is not None
        torch.testing.assert_close(weights[:, head], expected[:, head])


@pytest.mark.parametrize(
    ("code", "least"), [(TwoEndedRotary(64), 0.48), (RotaryPosition(64), 0.0)], ids=["two-ended", "RoFormer"]
)
def test_no_wrong_distance_scores_like_the_right_one(code, least):
    distances = torch.arange(1, 2**16, dtype=torch.double)
    scores = torch.stack([(distances * angle).cos() for angle in code.frequencies.double()]).mean(dim=0)
    nearest = 1 - scores.max().item()
    assert least <= nearest <= least + 0.035


def test_frames_are_dealt_to_heads_in_turn():
    assert TwoEndedRotary(36, num_heads=6).frames == (*FRAMES, "start", "end")
    assert TwoEndedRotary(24, num_heads=2).frames == ("start", "end")
    assert TwoEndedRotary(24, frames=["end"], num_heads=2).frames == ("end", "end")


def test_padding_of_other_rows_moves_nobody():
    torch.manual_seed(0)
    network = EncoderDecoder(13, 24, 4, 1, 11, position=TwoEndedRotary).eval()
    row = [FIRST_SYMBOL, FIRST_SYMBOL + 2, EOS]
    alone, target = torch.tensor([row]), torch.tensor([[1, FIRST_SYMBOL, FIRST_SYMBOL + 1]])
    right, left = torch.tensor([[*row, PAD, PAD]]), torch.tensor([[PAD, PAD, *row]])
    for padded in (right, left):
        torch.testing.assert_close(network(padded, target).logits, network(alone, target).logits)


def test_what_cannot_be_is_refused():
    for frames in ([], FRAMES):
        with pytest.raises(ValueError, match=r"^frames="):
            TwoEndedRotary(12, frames=frames, num_heads=2)
