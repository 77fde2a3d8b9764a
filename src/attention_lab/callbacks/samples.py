"""Sample predictions as text in TensorBoard."""

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
        writer.add_text("samples", as_markdown(compare(self.examples, said.cpu())), trainer.global_step)
