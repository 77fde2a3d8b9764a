"""Sample predictions as text in TensorBoard."""

from collections.abc import Sequence

from lightning.pytorch import Callback, LightningModule, Trainer

from attention_lab.callbacks.writer import writer_of
from attention_lab.data.batches import Batch
from attention_lab.models.inference import evaluation_mode, greedy_decode
from attention_lab.models.model import SequenceModel
from attention_lab.plotting.samples import as_markdown, compare


class SamplePredictions(Callback):
    """Logs a table `samples` of source, expected and predicted tokens at validations; wrong tokens are bold.

    Args:
        examples: the rows to say, always the same.
        symbols: what their symbols are called, if not numbers.
    """

    def __init__(self, examples: Batch, symbols: Sequence[str] = ()) -> None:
        self.examples = examples
        self.symbols = symbols

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        writer = writer_of(trainer)
        if writer is None:
            return
        network = pl_module.network
        assert isinstance(network, SequenceModel)
        with evaluation_mode(network):
            said = greedy_decode(network, self.examples.source.to(pl_module.device), self.examples.labels.size(1))
        writer.add_text("samples", as_markdown(compare(self.examples, said.cpu(), self.symbols)), trainer.global_step)
