"""The token ids every task shares: three special tokens, then the symbols."""

from collections.abc import Iterable, Sequence

PAD, BOS, EOS = 0, 1, 2
SPECIAL_TOKENS = ("<pad>", "<bos>", "<eos>")
FIRST_SYMBOL = len(SPECIAL_TOKENS)


def num_tokens(vocab_size: int) -> int:
    """Returns how many token ids a model needs for `vocab_size` symbols: the symbols and the special tokens."""
    return FIRST_SYMBOL + vocab_size


UNKNOWN = "<unk>"
"""What every symbol is called that was not seen in training; of names, always the first."""


def token_label(token: int, symbols: Sequence[str] = ()) -> str:
    """Returns how a reader sees a token: `<eos>` for a special one, the name or the number (from 0) of a symbol.

    Args:
        token: its id.
        symbols: what the symbols are called; numbers have no other names.
    """
    if token < FIRST_SYMBOL:
        return SPECIAL_TOKENS[token]
    if not symbols:
        return str(token - FIRST_SYMBOL)
    # What cannot be seen has a sign, or its escape.
    shown = symbols[token - FIRST_SYMBOL].replace(" ", "␣")
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in shown)


def token_labels(tokens: Iterable[int], symbols: Sequence[str] = ()) -> list[str]:
    """Returns the label of every token, in order."""
    return [token_label(int(token), symbols) for token in tokens]
