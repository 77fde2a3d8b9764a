"""What an evaluation finds, as typed records: report.json, tables, pages, figures and the terminal are views of them.

A field has the name that `report.json` has for it. Figures are None where there is nothing to measure: a network
without attention, or a mechanism that keeps no map of a sequence that long.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from attention_lab.metrics.alignment import Head


@dataclass(frozen=True)
class Scores:
    """How a network does on the test split.

    Attributes:
        loss: cross-entropy per token, in nats, teacher-forced.
        token_accuracy: share of right tokens, teacher-forced.
        exact_match: share of sequences with every token right, teacher-forced.
        decoded_exact_match: the same when the network reads its own output.
        token_error_rate: edits that its output then needs, over the tokens that are due.
        alignment_hit_rate: the best head's.
        alignment_mass: the best head's.
    """

    loss: float
    token_accuracy: float
    exact_match: float
    decoded_exact_match: float
    token_error_rate: float
    alignment_hit_rate: float | None
    alignment_mass: float | None

    def figures(self) -> dict[str, float | None]:
        """Returns the same under the names of `metrics.json`: `test/loss` and so on."""
        return {f"test/{name}": value for name, value in vars(self).items()}


@dataclass(frozen=True)
class Accuracy:
    """Teacher-forced accuracy under an intervention: shares of sequences, and of tokens."""

    exact_match: float
    token_accuracy: float


@dataclass(frozen=True)
class HeadAlignment:
    """A head's address, and how it aligns; see `HeadScores`."""

    attention: str
    layer: int
    head: int
    frame: str
    hit_rate: float | None
    mass: float | None
    mass_p5: float | None
    mass_min: float | None
    alignment_error_rate: float | None
    entropy: float | None
    confidence: float | None

    @property
    def address(self) -> Head:
        """Where the head is."""
        return Head(self.attention, self.layer, self.head, self.frame)


@dataclass(frozen=True)
class HeadRecord(HeadAlignment):
    """How a head aligns, and what is left when its output is zero, or always its mean over the validation split."""

    exact_match_without: float
    token_accuracy_without: float
    exact_match_with_mean: float
    token_accuracy_with_mean: float


@dataclass(frozen=True)
class Baselines:
    """What the best head's alignment is to be compared with.

    Attributes:
        untrained: the best head before the first step.
        chance: mass of a head that looks everywhere alike.
    """

    untrained: HeadAlignment | None
    chance: float | None


@dataclass(frozen=True)
class LengthRecord:
    """How a network does on sequences of one length.

    Attributes:
        length: source length, in symbols.
        sequences: how many were scored.
        alignment_hit_rate: the best head's, as are mass, entropy and chance (see `HeadScores`).
        alignment_oracle_head_hit_rate: share of tokens that any head hits, as `alignment_oracle_head_mass` is of any.
    """

    length: int
    sequences: int
    token_accuracy: float
    exact_match: float
    decoded_exact_match: float
    alignment_hit_rate: float | None
    alignment_mass: float | None
    alignment_entropy: float | None
    alignment_chance: float | None
    alignment_oracle_head_hit_rate: float | None
    alignment_oracle_head_mass: float | None


@dataclass(frozen=True)
class JointAblation:
    """What is left when that many heads are silenced together, best aligned first."""

    silenced: int
    exact_match: float
    token_accuracy: float


@dataclass(frozen=True)
class EdgeCuts:
    """What is left when all aligned heads lose everything, only their gold edges, or as many random ones.

    Attributes:
        aligned: heads that hit at least nine target tokens in ten on the validation split.
        cut: the heads intervened on: the aligned ones, or all where none is aligned.
        intact: what the whole network reaches.
        without_heads: what is left without those heads.
        without_gold_edges: what is left without their edges to gold tokens; None where matrices of edges are too large.
        without_random_edges: the same for as many other edges.
    """

    aligned: Sequence[Head]
    cut: Sequence[Head]
    intact: Accuracy
    without_heads: Accuracy
    without_gold_edges: Accuracy | None
    without_random_edges: Accuracy | None


@dataclass(frozen=True)
class Interventions(EdgeCuts):
    """The same, and what is left when more and more heads are silenced together."""

    together: Sequence[JointAblation]


@dataclass(frozen=True)
class TaskRecord:
    """One task of a mixture, scored on the sequences that ask for it.

    Attributes:
        task: its name.
        sequences: how many ask for it.
        alignment_hit_rate: that of `best_head`, as is the mass.
        best_head: the head that aligns best with this task on the validation split.
        heads: every head on this task.
    """

    task: str
    sequences: int
    token_accuracy: float
    exact_match: float
    decoded_exact_match: float
    alignment_hit_rate: float | None
    alignment_mass: float | None
    best_head: Head | None
    heads: Sequence[HeadRecord]


@dataclass(frozen=True)
class PatternRecord:
    """How much a head of self-attention follows each pattern: the mean weight it puts where that says, 0 to 1.

    Attributes:
        previous_token: on the token before.
        same_token: on the token itself.
        duplicate_token: on earlier tokens that are the same.
        induction: on the tokens that came after these (Olsson et al. 2022).
        first_token: on the first token.
        position: the place, from 0, that gets most weight, whatever stands there.
        position_mass: how much it gets, where there is such a place.
    """

    attention: str
    layer: int
    head: int
    previous_token: float | None
    same_token: float | None
    duplicate_token: float | None
    induction: float | None
    first_token: float | None
    position: int
    position_mass: float


@dataclass(frozen=True)
class Attribution:
    """How well gradient × input finds the tokens that target tokens come from, scored as a head is."""

    hit_rate: float
    mass: float


@dataclass(frozen=True)
class Patching:
    """What heads bring back of an answer, when the source is another one, by what they gave on the clean source.

    A share is how far the answer's lead over the other one, in log-odds, comes back: 0 not at all, 1 to what it was.
    It is None where the two answers are the same token, or the source makes no difference of a nat.

    Attributes:
        clean_source: labels of the source that the answer belongs to.
        corrupted_source: labels of the source that is read instead.
        clean: labels of the answer, token by token.
        corrupted: labels of the answer that belongs to the other source.
        heads: who is patched, at one token at a time.
        restored: a list of shares a head, each a token.
        together: the same when all heads are patched at that token.
    """

    clean_source: Sequence[str]
    corrupted_source: Sequence[str]
    clean: Sequence[str]
    corrupted: Sequence[str]
    heads: Sequence[Head]
    restored: Sequence[Sequence[float | None]]
    together: Sequence[float | None]


@dataclass(frozen=True)
class Environment:
    """What the evaluation ran on."""

    python: str
    torch: str
    device: str


@dataclass(frozen=True)
class Report:
    """Everything that `report.json` says of one checkpoint.

    Attributes:
        scores: on the test split; `test/...` in the file.
        checkpoint: its path.
        step: optimiser steps behind it.
        best_head: the head that aligns best on the validation split; None without attention to the source.
        baselines: what its alignment is compared with.
        length_curve: one record a length.
        heads: one record a head.
        interventions: what is left when heads are silenced or edges cut.
        tasks: one record for each task of a mixture.
        patterns: one record for each head of self-attention.
        patching: what heads bring back in one example; None where none can.
        attribution: gradient × input, which needs no attention; None where nothing is known to be right.
        config: the config of the run that wrote the checkpoint.
        environment: what the evaluation ran on.
    """

    scores: Scores
    checkpoint: str
    step: int
    best_head: Head | None
    baselines: Baselines
    length_curve: Sequence[LengthRecord]
    heads: Sequence[HeadRecord]
    interventions: Interventions
    tasks: Sequence[TaskRecord]
    patterns: Sequence[PatternRecord]
    patching: Patching | None
    attribution: Attribution | None
    config: Mapping[str, object]
    environment: Environment
