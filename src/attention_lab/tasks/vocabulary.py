"""The token ids every task shares: three special tokens, then the symbols."""

from collections.abc import Iterable

PAD, BOS, EOS = 0, 1, 2
SPECIAL_TOKENS = ("<pad>", "<bos>", "<eos>")
FIRST_SYMBOL = len(SPECIAL_TOKENS)


def num_tokens(vocab_size: int) -> int:
    """Returns how many token ids a model needs for `vocab_size` symbols: the symbols and the special tokens."""
    return FIRST_SYMBOL + vocab_size


def token_label(token: int) -> str:
    """Returns how a reader sees a token: `<eos>` for a special one, the symbol's number (from 0) for the rest."""
    return SPECIAL_TOKENS[token] if token < FIRST_SYMBOL else str(token - FIRST_SYMBOL)


def token_labels(tokens: Iterable[int]) -> list[str]:
    """Returns the label of every token, in order."""
    return [token_label(int(token)) for token in tokens]
