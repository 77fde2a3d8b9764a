"""The layers whose cost is compared, each at one sequence length."""

from collections.abc import Sequence

from torch import nn

from attention_lab.benchmark.layer_cost import Case
from attention_lab.benchmark.settings import CostSettings
from attention_lab.cli.composing import check_choice, choices, compose_settings
from attention_lab.composition.build import build_network
from attention_lab.models.blocks import TransformerBlock

EXPLICIT = "full_explicit"
"""Full attention that is asked for its weights, an n x n matrix for each head."""

_RECURRENT = {"lstm": nn.LSTM, "rnn": nn.RNN}

PUBLISHED = {
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
"""What the articles say about time, and about memory or the cache where that is the point; n tokens, width d."""


def layer_kinds(names: Sequence[str] | None) -> list[str]:
    """Returns all kinds, or those of these names: every attention of the configs, the explicit form, recurrent ones.

    Raises:
        SettingError: there is no kind of that name.
    """
    attentions = choices("attention")
    known = ["full", EXPLICIT, *(name for name in attentions if name != "full"), *_RECURRENT]
    for name in names or ():
        check_choice("kinds", name, known)
    return [name for name in known if names is None or name in names]


def build_case(kind: str, length: int, settings: CostSettings) -> Case:
    """Builds a layer, causal if it can be, for sequences of a length.

    Raises:
        SettingError: its settings do not go together.
    """
    width, shape = settings.d_model, (settings.batch_size, length, settings.d_model)
    if kind in _RECURRENT:
        return Case(_RECURRENT[kind](width, width, batch_first=True), True, False, shape, settings)
    # Every attention serves in a bidirectional stack.
    overrides = [f"attention={'full' if kind == EXPLICIT else kind}", "model=encoder_only", "model.num_layers=1"]
    sizes = {"d_model": width, "num_heads": settings.num_heads, "d_ff": settings.d_ff or 4 * width}
    run = compose_settings([*overrides, *(f"model.{name}={size}" for name, size in sizes.items())])
    limit = {"max_len": length} if "max_len" in run.attention else {}
    network = build_network(run.model, run.attention | limit, run.position, run.data)
    block = next(module for module in network.modules() if isinstance(module, TransformerBlock))
    return Case(block, "causal" not in block.attn.unsupported, kind == EXPLICIT, shape, settings)


def least_bytes(kind: str, length: int, batch_size: int, num_heads: int) -> int:
    """Returns an estimate of what a layer is bound to need for matrices of n x n; 0 where it makes none.

    Four of them are alive at once, in single precision: scores and weights, masked and not, and later their gradients.
    """
    return 4 * 4 * batch_size * num_heads * length**2 if kind == EXPLICIT else 0
