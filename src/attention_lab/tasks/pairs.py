"""pairs of a file: any sources with any targets, which no rule gives."""

from collections.abc import Sequence
from typing import Literal, NoReturn

from attention_lab.tasks.task import Task

TokensOf = Literal["characters", "words"]
"""What the tokens of a text are."""


class Pairs(Task):
    """Say to each source what the examples of a file say to it.

    There is no rule: the right answer to a source that is not in the file, and its alignment, nobody knows.

    Args:
        source_tokens: what the tokens of a source are.
        target_tokens: the same of a target.
        longest_target: tokens of the longest one, which the file tells.
    """

    def __init__(
        self, source_tokens: TokensOf = "characters", target_tokens: TokensOf = "characters", longest_target: int = 1
    ) -> None:
        self.source_tokens: TokensOf = source_tokens
        self.target_tokens: TokensOf = target_tokens
        self.longest_target = longest_target

    def alignment(self, sources: object) -> NoReturn:
        raise ValueError("the pairs of a file have no rule; their alignment stands in the file, if at all")

    def longest(self, max_length: int) -> int:
        return max(max_length, self.longest_target)


def tokens_of(cell: object, tokens: TokensOf) -> list[str]:
    """Returns the tokens of a text; those of a list are its items.

    Raises:
        ValueError: it is neither, or has none.
    """
    if isinstance(cell, str):
        found = list(cell) if tokens == "characters" else cell.split()
    elif isinstance(cell, Sequence) and all(isinstance(each, (str, int)) for each in cell):
        found = [str(each) for each in cell]
    else:
        raise ValueError(f"is {cell!r}, which is neither text nor a list of tokens")
    if not found:
        raise ValueError("is empty")
    return found
