"""The kinds of layers whose cost is compared. Light to import: classes are named, not loaded."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from attention_lab.benchmark.choices import read_choices
from attention_lab.benchmark.options import BenchmarkError

EXPLICIT = "full_explicit"

_ARTICLES = {
    "full": "O(n²·d) (Vaswani et al. 2017), memory O(n) in blocks (Dao et al. 2022)",
    EXPLICIT: "O(n²·d), memory O(n²) (Vaswani et al. 2017)",
    "flash": "O(n²·d), memory O(n) (Dao et al. 2022)",
    "grouped_query": "O(n²·d), cache G/H (Ainslie et al. 2023)",
    "multi_query": "O(n²·d), cache 1/H (Shazeer 2019)",
    "conv_mixed": "O(n²·d/2 + n·k·d) (Jiang et al. 2020)",
    "sliding_window": "O(n·w·d) (Beltagy et al. 2020)",
    "linear": "O(n·d²/H) (Katharopoulos et al. 2020)",
    "linformer": "O(n·k·d) (Wang et al. 2020)",
    "lstm": "O(n·d²), n steps one after another (Vaswani et al. 2017, table 1)",
    "rnn": "O(n·d²), n steps one after another (Vaswani et al. 2017, table 1)",
}


class Kind(NamedTuple):
    """A kind of layer.

    Attributes:
        name: what it is called.
        component: `_target_` and settings of its attention, or of the recurrent layer.
        need_weights: whether the layer is asked for its attention weights, an n x n matrix for each head.
        articles: what is published about its cost; n tokens, width d.
    """

    name: str
    component: dict[str, Any]
    need_weights: bool
    articles: str

    def at(self, length: int) -> dict[str, Any]:
        """Returns the component for a length: what has to know the longest sequence is told that one."""
        return self.component | ({"max_len": length} if "max_len" in self.component else {})


def choose_kinds(names: Sequence[str] | None) -> list[Kind]:
    """Returns the kinds of these names, or all: every attention of the configs, the explicit form, and recurrent ones.

    Raises:
        BenchmarkError: there is no kind of that name.
    """
    attentions = read_choices("attention")
    components = {
        "full": attentions.pop("full"),
        EXPLICIT: {"_target_": "attention_lab.attention.multi_head.MultiHeadAttention"},
        **attentions,
        "lstm": {"_target_": "torch.nn.LSTM"},
        "rnn": {"_target_": "torch.nn.RNN"},
    }
    for name in names or ():
        if name not in components:
            raise BenchmarkError(f"--kinds: {name} is not a kind of layer; use some of {','.join(components)}")
    return [
        Kind(name, component, name == EXPLICIT, _ARTICLES.get(name, "–"))
        for name, component in components.items()
        if names is None or name in names
    ]


def least_bytes(kind: Kind, length: int, batch_size: int, num_heads: int) -> int:
    """Returns an estimate of what a layer is bound to need for matrices of n x n; 0 where it makes none.

    Four of them are alive at once, in single precision: scores and weights, masked and not, and later their gradients.
    """
    return 4 * 4 * batch_size * num_heads * length**2 if kind.need_weights else 0
