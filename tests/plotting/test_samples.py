"""The table of sample predictions, worked by hand."""

import torch

from attention_lab.data.batches import Batch
from attention_lab.plotting.samples import as_markdown, compare

# copy: 4 1 -> 4 1, copy: 5 -> 5 and copy: 6 -> 6
EXAMPLES = Batch(
    source=torch.tensor([[7, 4, 2], [8, 2, 0], [9, 2, 0]]),
    target=torch.tensor([[1, 7, 4], [1, 8, 0], [1, 9, 0]]),
    labels=torch.tensor([[7, 4, 2], [8, 2, 0], [9, 2, 0]]),
    alignment=torch.tensor([[0, 1, -1], [0, -1, -1], [0, -1, -1]]),
)


def test_right_wrong_missing_and_surplus_tokens_are_told_apart():
    said = torch.tensor([[7, 5, 2], [8, 0, 0], [9, 2, 0]])
    assert as_markdown(compare(EXAMPLES, said)).splitlines()[2:] == [
        "| ✗ | 4 1 &lt;eos> | 4 1 &lt;eos> | 4 **2** &lt;eos> |",
        "| ✗ | 5 &lt;eos> | 5 &lt;eos> | 5 **…** |",
        "| ✓ | 6 &lt;eos> | 6 &lt;eos> | 6 &lt;eos> |",
    ]


def test_what_is_said_beyond_the_end_is_wrong():
    said = torch.tensor([[7, 4, 2, 0], [8, 9, 9, 2], [9, 2, 0, 0]])
    assert (
        as_markdown(compare(EXAMPLES, said)).splitlines()[3]
        == "| ✗ | 5 &lt;eos> | 5 &lt;eos> | 5 **6** **6** **&lt;eos>** |"
    )
