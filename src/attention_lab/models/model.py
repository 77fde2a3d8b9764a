"""What training, decoding and evaluation know of a network."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar, Generic, Literal, NamedTuple, TypeVar

from jaxtyping import Bool, Float, Integer
from torch import Tensor, nn

from attention_lab.attention.multi_head import AlignmentLayer, MultiHeadAttention
from attention_lab.attention.packing import Packing
from attention_lab.positions.position import Position

State = TypeVar("State")

AttentionMaps = dict[str, tuple[Tensor, ...]]
"""Attention weights under their address: `maps[attention][layer][:, head]` has shape (B, L, S)."""


MAX_CELLS = 2**22
"""Cells of an attention map that exist at a time, over all rows of a batch and per head: 16 MiB in single precision."""

Intervention = Mapping[tuple[str, int], Bool[Tensor, "..."]]
"""For an attention and a layer: True where a head may still attend, broadcastable to (B, H, L, S)."""

NOTHING_CLOSED: Intervention = {}
"""No intervention."""


Axis = Literal["source", "target", "to say", "to say in place", "source, target", "source, to say"]
"""What stands along a side of a map: tokens that are read, or those to be said after each."""


class ModelOutput(NamedTuple):
    """What a network says about every target token.

    Attributes:
        logits: unnormalised log-probabilities of the next token, (B, T, V).
        attention: the weights behind them; empty when they were not asked for.
    """

    logits: Float[Tensor, "B T V"]
    attention: AttentionMaps


class SequenceModel(nn.Module, ABC, Generic[State]):
    """A network that reads a source and says a target, token by token.

    `State` is whatever the network keeps between two tokens when it decodes.
    """

    max_length: int
    """How many tokens (specials included) a source or a target may have."""

    alignment_attention: str = ""
    """The attention whose rows are the target tokens to say and whose columns are the source tokens; empty without."""

    needs: ClassVar[tuple[str, ...]] = ()
    """What its attention must be able to be: `causal`, `cross`."""

    axes: ClassVar[dict[str, tuple[Axis, Axis]]] = {}
    """What the rows and the columns of each attention's maps are."""

    unable: ClassVar[Mapping[str, str]] = {}
    """What positions may ask for and this network cannot do, and why."""

    batch_parts: int = 3
    """How many parts of like lengths a training batch is best cut into on a CPU: more save padding, and each costs."""

    says_at_most_its_source: ClassVar[bool] = False
    """Whether targets may not be longer than their sources."""

    @property
    def frames(self) -> tuple[str, ...]:
        """Where each head of that attention measures positions from; empty where all do alike."""
        return ()

    @property
    @abstractmethod
    def alignment_layers(self) -> Sequence[AlignmentLayer]:
        """The modules of that attention, layer by layer; none without it."""

    @abstractmethod
    def forward(
        self,
        source: Integer[Tensor, "B S"],
        target: Integer[Tensor, "B T"],
        *,
        need_weights: bool = False,
        intervention: Intervention | None = None,
    ) -> ModelOutput:
        """Predicts every next target token at once, given the true ones before it (teacher forcing).

        Args:
            source: tokens, padded with PAD on either side.
            target: BOS and then the target's tokens, padded with PAD on the right.
            need_weights: return the attention weights as well; the logits stay the same up to rounding.
            intervention: edges that are to be closed. A head that may attend to nothing says nothing (zeros).
        """

    def packed_logits(
        self, sources: Sequence[Integer[Tensor, "_ _"]], targets: Sequence[Integer[Tensor, "_ _"]]
    ) -> Float[Tensor, "1 N V"]:
        """Returns what `forward` says of several batches, up to rounding: the logits of all their tokens in one row.

        This is what training calls. A network that can runs whatever treats every token alike once for all of them: who
        changes its `forward` changes this with it.
        """
        logits = [self(source, target).logits for source, target in zip(sources, targets, strict=True)]
        return Packing.of(targets).pack(logits)

    @abstractmethod
    def begin(self, source: Integer[Tensor, "B S"], num_targets: int = 0) -> State:
        """Reads the source, once, for decoding.

        Args:
            source: tokens, padded with PAD on either side.
            num_targets: how many target tokens there may be, as far as is known: where positions are spread over a
                range, it says how far apart they are.
        """

    @abstractmethod
    def step(
        self, tokens: Integer[Tensor, "B L"], state: State, *, need_weights: bool = False
    ) -> tuple[ModelOutput, State]:
        """Reads the next L target tokens (one when decoding) and predicts what follows each of them.

        Reading a target in pieces gives what `forward` gives. Where weights are asked for, they are those of the
        attention from target to source, L rows at a time; in a long sequence, maps of any other would cost as much
        again. The state it was given is used up.
        """

    def alignment_maps(self, attention: AttentionMaps, num_targets: int, num_sources: int) -> tuple[Tensor, ...]:
        """Returns, layer by layer, the part of the maps that leads from target to source, (B, H, T, S).

        Args:
            attention: the maps of some target tokens.
            num_targets: how many these are (T).
            num_sources: how many source tokens there are (S), EOS and padding included.
        """
        return attention[self.alignment_attention]

    def target_rows(self, layer: Float[Tensor, "B L D"], num_targets: int) -> Float[Tensor, "B T D"]:
        """Returns, of what that attention gives for all its queries, the part at which the target is said."""
        return layer

    def map_side(self, num_sources: int, num_targets: int) -> int:
        """Returns how many rows and columns the largest map has, at most, that is made of as many tokens."""
        return max(num_sources, num_targets)

    def alignment_mask(self, allowed: Bool[Tensor, "B H T S"]) -> Bool[Tensor, "B H L N"]:
        """Returns an intervention that closes, of the edges from target to source, those not allowed."""
        return allowed

    def __call__(
        self, source: Tensor, target: Tensor, *, need_weights: bool = False, intervention: Intervention | None = None
    ) -> ModelOutput:
        """Runs `forward` (typed: `nn.Module.__call__` says nothing about what it takes and gives)."""
        return super().__call__(source, target, need_weights=need_weights, intervention=intervention)


def check_shape(num_layers: int, num_heads: int) -> None:
    """Refuses numbers of layers and heads that no network has, before anything is made of them.

    Raises:
        ValueError: a number is out of its range.
    """
    for name, number in (("num_layers", num_layers), ("num_heads", num_heads)):
        if not 1 <= number <= _MOST:
            raise ValueError(f"{name}={number} must be at least 1, and at most {_MOST}")


_MOST = 1000
"""Layers, and heads, that a network may have."""


def most_tokens(network: nn.Module, position: Position) -> int:
    """Returns how many tokens both a position code and every attention of a network have places for."""
    attentions = [module for module in network.modules() if isinstance(module, MultiHeadAttention)]
    return min(position.max_len, *(attention.max_keys for attention in attentions))


def attention_maps(layers: Mapping[str, Sequence[Tensor | None]]) -> AttentionMaps:
    """Returns each attention's weights, layer by layer; nothing of an attention whose layers kept none."""
    kept = {name: tuple(weights for weights in each if weights is not None) for name, each in layers.items()}
    return {name: each for name, each in kept.items() if each}
