"""Sample predictions as text in TensorBoard."""

from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.loggers import TensorBoardLogger
from torch import Tensor

from attention_lab.data.batches import Batch
from attention_lab.models.decoding import greedy_decode
from attention_lab.models.inference import evaluation_mode
from attention_lab.models.model import SequenceModel
from attention_lab.tasks.vocabulary import PAD, token_label


class SamplePredictions(Callback):
    """Logs a table `samples` of source, expected and said at validations; wrong tokens are bold.

    Args:
        examples: the rows to say, always the same.
        every: show them at every n-th validation.
    """

    def __init__(self, examples: Batch, every: int = 1) -> None:
        self.examples = examples
        self.every = every
        self._validations = 0

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.sanity_checking:
            return
        self._validations += 1
        due = self._validations % self.every == 0
        if not (due and trainer.is_global_zero and isinstance(trainer.logger, TensorBoardLogger)):
            return
        network = pl_module.network
        assert isinstance(network, SequenceModel)
        with evaluation_mode(network):
            said = greedy_decode(network, self.examples.source.to(pl_module.device), self.examples.labels.size(1))
        table = samples_table(self.examples, said.cpu())
        trainer.logger.experiment.add_text("samples", table, trainer.global_step)

    def state_dict(self) -> dict[str, Any]:
        return {"validations": self._validations}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._validations = state_dict["validations"]


def samples_table(examples: Batch, said: Tensor) -> str:
    """Returns a Markdown table with one row an example: right or wrong, source, expected, said."""
    lines = ["| | source | expected | said |", "|---|---|---|---|"]
    for source, labels, answer in zip(examples.source, examples.labels, said, strict=True):
        expected = [token for token in labels.tolist() if token != PAD]
        tokens = [token for token in answer.tolist() if token != PAD]
        wanted: list[int | None] = [*expected, *[None] * len(tokens)]
        marked = [_marked(token, right=token == want) for token, want in zip(tokens, wanted, strict=False)]
        # A token that is missing is an error as well.
        marked += ["**…**"] * (len(tokens) < len(expected))
        verdict = "✓" if tokens == expected else "✗"
        shown = " ".join(token_label(token) for token in source.tolist() if token != PAD)
        lines.append(f"| {verdict} | {shown} | {' '.join(map(token_label, expected))} | {' '.join(marked)} |")
    return "\n".join(lines)


def _marked(token: int, right: bool) -> str:
    return token_label(token) if right else f"**{token_label(token)}**"
