"""Everybody learns from the same rows, and ours in the parts that the training command makes."""

import pytest
import torch

from attention_lab.benchmark.__main__ import parsed
from attention_lab.benchmark.alone import run_alone
from attention_lab.benchmark.contenders import Ours, OursPadded, TorchTransformer
from attention_lab.benchmark.machine import Machine
from attention_lab.benchmark.options import BenchmarkError, PeersOptions
from attention_lab.benchmark.training_run import TrainingRun, built, memory_question, network_shape, training_data
from attention_lab.models.encoder_decoder import PACKED_PARTS
from attention_lab.tasks.vocabulary import PAD

SMALL = "--d-model 24 --num-heads 2 --d-ff 29 --max-length 7 --train-size 101 --batch-size 19 --decode-length 11"


def options(more: str = "") -> PeersOptions:
    asked = parsed(f"peers {SMALL} {more}".split()).options
    assert isinstance(asked, PeersOptions)
    return asked


def machine() -> Machine:
    return Machine("cpu", "auto", None)


def test_all_get_the_same_rows() -> None:
    parts = next(iter(training_data(options(), Ours, machine(), fixed=False).train_dataloader()))
    (whole,) = next(iter(training_data(options(), TorchTransformer, machine(), fixed=False).train_dataloader()))
    assert 1 < len(parts) <= PACKED_PARTS
    assert len({part.labels.size(1) for part in parts}) == len(parts)

    def rows(labels: torch.Tensor) -> list[list[int]]:
        return [[token for token in row if token != PAD] for row in labels.tolist()]

    assert sorted(row for part in parts for row in rows(part.labels)) == sorted(rows(whole.labels))


def test_fixed_lengths_have_no_padding() -> None:
    (batch,) = next(iter(training_data(options(), OursPadded, machine(), fixed=True).train_dataloader()))
    assert batch.source.shape == (19, 8)
    assert bool((batch.source != PAD).all())


def test_a_run_counts_real_tokens_and_learns() -> None:
    data = training_data(options(), TorchTransformer, machine(), fixed=True)
    contender = built("torch.nn.Transformer", network_shape(options()))
    before = [weights.clone() for weights in contender.parameters()]
    run = TrainingRun(contender, data, machine())
    # An epoch is five batches of 19 and one of 6; each row has seven symbols and EOS.
    assert run(7) == (101 + 19) * 8
    assert all(not torch.equal(old, new) for old, new in zip(before, contender.parameters(), strict=True))


def test_the_memory_of_steps_is_measured_in_a_process_of_its_own() -> None:
    module = "attention_lab.benchmark.training_run"
    measured = run_alone(module, memory_question("ours", options("--device cpu"), steps=1))
    assert measured["on_gpu"] is False
    assert measured["peak_bytes"] > 2**26


def test_mistakes_are_told() -> None:
    with pytest.raises(BenchmarkError, match=r"--task: revers is not a task; use one of copy, .*reverse"):
        training_data(options("--task revers"), Ours, machine(), fixed=False)
    with pytest.raises(BenchmarkError, match=r"num_heads=5 does not divide d_model=24"):
        built("ours", network_shape(options("--num-heads 5")))
