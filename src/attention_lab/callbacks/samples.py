"""Sample predictions as text in TensorBoard."""

from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor

from attention_lab.callbacks.writer import writer_of
from attention_lab.data.batches import Batch
from attention_lab.models.decoding import greedy_decode
from attention_lab.models.inference import evaluation_mode
from attention_lab.models.model import SequenceModel
from attention_lab.tasks.vocabulary import PAD, token_label


class SamplePredictions(Callback):
    """Logs a table `samples` of source, expected and said at validations; wrong tokens are bold.

    Args:
        examples: the rows to say, always the same.
    """

    def __init__(self, examples: Batch) -> None:
        self.examples = examples

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        writer = writer_of(trainer)
        if writer is None:
            return
        network = pl_module.network
        assert isinstance(network, SequenceModel)
        with evaluation_mode(network):
            said = greedy_decode(network, self.examples.source.to(pl_module.device), self.examples.labels.size(1))
        table = samples_table(self.examples, said.cpu())
        writer.add_text("samples", table, trainer.global_step)


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
