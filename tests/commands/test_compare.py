"""What the pages of compared checkpoints are called: by their runs, and never twice alike."""

from pathlib import Path

import pytest

from attention_lab.commands.compare import unique_names


@pytest.mark.parametrize(
    ("files", "names"),
    [
        (["runs/a/checkpoints/best.ckpt", "runs/b/checkpoints/best.ckpt"], ["a", "b"]),
        (["runs/a/checkpoints/best.ckpt", "runs/a/checkpoints/last.ckpt"], ["a_best", "a_last"]),
        (["x/a/checkpoints/best.ckpt", "y/a/checkpoints/best.ckpt"], ["0_a_best", "1_a_best"]),
        (["some.ckpt", "other.ckpt"], ["some", "other"]),
        (["Some.ckpt", "some.ckpt"], ["0_Some", "1_some"]),
        (["a b#%?&.ckpt", "c.ckpt"], ["a-b", "c"]),
        (["\u65e5\u672c.ckpt", "...ckpt"], ["0_checkpoint", "1_checkpoint"]),
        (["x" * 200 + ".ckpt", "y.ckpt"], ["x" * 80, "y"]),
        (["x" * 200 + "1.ckpt", "x" * 200 + "2.ckpt"], ["0_" + "x" * 80, "1_" + "x" * 80]),
    ],
)
def test_every_page_has_a_name_of_its_own_on_any_system(files: list[str], names: list[str]) -> None:
    assert unique_names([Path(file) for file in files]) == names
