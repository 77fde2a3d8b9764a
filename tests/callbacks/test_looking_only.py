"""Callbacks look and never touch: the network, its mode and the random numbers stay as they were."""

from unittest.mock import Mock

import pytest
import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.loggers import TensorBoardLogger

from attention_lab.callbacks.alignment import AlignmentMonitor
from attention_lab.callbacks.attention_maps import AttentionMaps
from attention_lab.callbacks.history import AlignmentHistory
from attention_lab.callbacks.samples import SamplePredictions
from attention_lab.data.batches import SequenceRows, readable_rows
from attention_lab.data.sampling import SourceSpace
from attention_lab.data.splits import make_split
from attention_lab.models.encoder_decoder import EncoderDecoder
from attention_lab.runs.folder import HISTORY
from attention_lab.runs.history import read_history
from attention_lab.tasks.reverse import Reverse


@pytest.fixture
def rows() -> SequenceRows:
    return SequenceRows(make_split(Reverse(), SourceSpace(2, 7, 5), "validation", 41, seed=3))


@pytest.fixture
def trainer(tmp_path):
    logger = TensorBoardLogger(tmp_path, name=None, version="tensorboard")
    yield Mock(spec=Trainer, is_global_zero=True, sanity_checking=False, logger=logger, loggers=[logger], global_step=0)
    logger.experiment.close()


def test_maps_and_samples_leave_no_trace_in_the_network(rows, trainer):
    network = EncoderDecoder(8, d_model=12, num_heads=3, d_ff=7, dropout=0.2)
    network.encoder.eval()
    module = Mock(spec=LightningModule, network=network, device=torch.device("cpu"))
    modes = [part.training for part in network.modules()]
    weights = {name: value.clone() for name, value in network.state_dict().items()}
    random_state = torch.get_rng_state()
    maps = AttentionMaps(rows[readable_rows(rows, 1)[0]])
    maps.on_train_start(trainer, module)
    maps.on_validation_end(trainer, module)
    SamplePredictions(rows.__getitems__([0, 5])).on_validation_end(trainer, module)
    assert [part.training for part in network.modules()] == modes
    assert all(torch.equal(value, weights[name]) for name, value in network.state_dict().items())
    assert all(weight.grad is None for weight in network.parameters())
    assert torch.equal(torch.get_rng_state(), random_state)


@pytest.mark.parametrize("silent", [{"is_global_zero": False}, {"sanity_checking": True}, {"loggers": []}])
def test_nothing_is_written_from_elsewhere_or_in_the_sanity_check(rows, trainer, silent):
    written = []
    trainer.logger.experiment.file_writer.add_summary = lambda *_: written.append("image")
    trainer.logger.experiment.add_text = lambda *_, **__: written.append("text")
    network = EncoderDecoder(8, d_model=12, num_heads=3, d_ff=7)
    module = Mock(spec=LightningModule, network=network, device=torch.device("cpu"))
    callbacks = AttentionMaps(rows[0]), SamplePredictions(rows[0])
    for callback in callbacks:
        callback.on_validation_end(trainer, module)
    assert written == ["image"] * 3 + ["text"]
    for name, value in silent.items():
        setattr(trainer, name, value)
    for callback in callbacks:
        callback.on_validation_end(trainer, module)
    assert len(written) == 4


def test_the_most_readable_rows_are_short_and_varied(rows):
    chosen = rows.__getitems__(readable_rows(rows, 3)).source
    assert chosen.shape == (3, 8)
    variety = [len(set(row.tolist())) for row in rows.__getitems__(range(len(rows))).source if 0 not in row.tolist()]
    assert [len(set(row.tolist())) for row in chosen] == sorted(variety, reverse=True)[:3]


def test_a_run_that_goes_on_before_its_first_step_keeps_one_beginning(rows, trainer, tmp_path):
    network = EncoderDecoder(8, d_model=12, num_heads=3, d_ff=7)
    module = Mock(spec=LightningModule, network=network, device=torch.device("cpu"))
    for _ in range(2):
        maps = AttentionMaps(rows[readable_rows(rows, 1)[0]])
        history = AlignmentHistory(tmp_path, AlignmentMonitor(network), maps)
        for callback in (maps, history):
            callback.on_train_start(trainer, module)
    trainer.global_step, trainer.callback_metrics = 10, {"val/exact_match": torch.tensor(0.5)}
    for callback in (maps, history):
        callback.on_validation_end(trainer, module)
    written = read_history(tmp_path / HISTORY)
    assert [moment.step for moment in written] == [0, 10]
    assert [moment.exact_match for moment in written] == [None, 0.5]
    # What is kept is what is drawn, to one part in 255.
    with torch.no_grad():
        shown = network(maps.example.source, maps.example.target, need_weights=True).attention["decoder_cross"][0]
    assert written[1].maps is not None
    assert abs(written[1].maps[0] / 255 - shown[0].numpy()).max() <= 0.5 / 255 + 1e-6
