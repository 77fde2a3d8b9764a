"""Token ids: three special tokens, then the symbols."""

import pytest

from attention_lab.tasks.vocabulary import BOS, EOS, FIRST_SYMBOL, PAD, num_tokens, token_label, token_labels


def test_special_tokens_come_first_and_never_change() -> None:
    # Checkpoints depend on these numbers.
    assert (PAD, BOS, EOS, FIRST_SYMBOL) == (0, 1, 2, 3)


@pytest.mark.parametrize(("vocab_size", "expected"), [(1, 4), (7, 10), (10, 13)])
def test_tokens_are_symbols_and_specials(vocab_size: int, expected: int) -> None:
    assert num_tokens(vocab_size) == expected


@pytest.mark.parametrize(
    ("token", "label"), [(PAD, "<pad>"), (BOS, "<bos>"), (EOS, "<eos>"), (3, "0"), (4, "1"), (13, "10")]
)
def test_labels_are_special_names_or_symbol_numbers(token: int, label: str) -> None:
    assert token_label(token) == label


def test_every_token_has_a_label_of_its_own() -> None:
    labels = token_labels(range(num_tokens(11)))
    assert len(set(labels)) == 14


def test_labels_keep_the_order() -> None:
    assert token_labels([5, 3, 2, 0]) == ["2", "0", "<eos>", "<pad>"]
