"""Contenders learn from the same rows, take turns, are compared within rounds, and stand in the tables."""

from functools import partial

import pytest
import torch

from attention_lab.benchmark.contenders import build_contender, measure_memory, train, training_data
from attention_lab.benchmark.machine import Machine, median_ratios, take_turns
from attention_lab.benchmark.peers import compose, decoding_table, peers_rows, training_table
from attention_lab.benchmark.plain_loop import PlainLoop
from attention_lab.benchmark.settings import DeviceSettings, PeersSettings
from attention_lab.errors import SettingError
from attention_lab.settings.schema import TrainSettings
from attention_lab.tasks.vocabulary import PAD

SMALL = PeersSettings(
    d_model=24, num_heads=2, d_ff=29, max_length=7, train_size=101, batch_size=19, decode_length=11, device="cpu"
)


@pytest.fixture(scope="module")
def machine() -> Machine:
    return Machine(DeviceSettings(device="cpu"))


@pytest.fixture(scope="module")
def mixed() -> TrainSettings:
    return compose(SMALL, min_length=1)


@pytest.fixture(scope="module")
def fixed() -> TrainSettings:
    return compose(SMALL, min_length=7)


def test_contenders_take_turns(machine: Machine) -> None:
    calls: list[tuple[str, int]] = []

    def contender(name: str):
        def run(work: int) -> int:
            calls.append((name, work))
            return 17 * work

        return run

    rates = take_turns({"b": contender("b"), "a": contender("a")}, 2, 5, 3, machine)
    assert calls == [("b", 2), ("a", 2), *[("b", 5), ("a", 5)] * 3]
    assert all(len(own) == 3 and min(own) > 0 for own in rates.values())
    assert median_ratios(rates)["b"] == 1


def test_a_slow_round_is_slow_for_all() -> None:
    # Ours is twice as fast in two rounds of three; medians alone would say 20 / 10, whichever rounds these are.
    assert median_ratios({"ours": [20.0, 2.0, 40.0], "theirs": [10.0, 1.0, 80.0]})["theirs"] == pytest.approx(2.0)
    assert median_ratios({"ours": [20.0, 20.0, 1.0], "theirs": [5.0, 10.0, 0.25]})["theirs"] == pytest.approx(4.0)


def test_all_get_the_same_rows_and_ours_in_the_parts_that_training_makes(
    mixed: TrainSettings, machine: Machine
) -> None:
    most = build_contender("ours", mixed).batch_parts
    parts = next(iter(training_data(mixed, most, machine).train_dataloader()))
    (whole,) = next(iter(training_data(mixed, 1, machine).train_dataloader()))
    assert 1 < len(parts) <= most
    assert len({part.labels.size(1) for part in parts}) == len(parts)

    def rows(labels: torch.Tensor) -> list[list[int]]:
        return [[token for token in row if token != PAD] for row in labels.tolist()]

    assert sorted(row for part in parts for row in rows(part.labels)) == sorted(rows(whole.labels))


def test_fixed_lengths_have_no_padding(fixed: TrainSettings, machine: Machine) -> None:
    (batch,) = next(iter(training_data(fixed, 1, machine).train_dataloader()))
    assert batch.source.shape == (19, 8)
    assert bool((batch.source != PAD).all())


def test_training_counts_real_tokens_and_learns(fixed: TrainSettings, machine: Machine) -> None:
    contender = build_contender("torch.nn.Transformer", fixed)
    before = [weights.clone() for weights in contender.network.parameters()]
    loop = PlainLoop(contender.network, contender.predict, fixed, machine)
    batches = iter(training_data(fixed, 1, machine).train_dataloader())
    # An epoch is five batches of 19 and one of 6; each row has seven symbols and EOS.
    assert train(loop, batches, machine, 7) == (101 + 19) * 8
    assert all(not torch.equal(old, new) for old, new in zip(before, contender.network.parameters(), strict=True))


def test_there_is_room_for_what_is_trained_and_what_is_decoded(mixed: TrainSettings) -> None:
    assert mixed.position["max_len"] == 11 + 2
    assert mixed.model["d_model"] == 24


@pytest.mark.slow
def test_the_memory_of_steps_is_measured_in_processes_of_their_own(mixed: TrainSettings, machine: Machine) -> None:
    assert 0 <= machine.mebibytes(partial(measure_memory, "ours", mixed, SMALL), 1) < 2**10


def test_mistakes_are_told() -> None:
    with pytest.raises(SettingError, match=r"^task=revers is not a choice; did you mean reverse\?"):
        compose(PeersSettings(task="revers"), min_length=1)
    with pytest.raises(SettingError, match=r"num_heads=5 does not divide d_model=24"):
        build_contender("ours", compose(PeersSettings(d_model=24, num_heads=5), min_length=1))


TRAINING = {
    "lengths 1-7": {"ours": [1000.0, 3000.0, 2000.0], "torch.nn.Transformer": [500.0, 1000.0, 1000.0]},
    "length 7": {"ours": [4000.0], "torch.nn.Transformer": [5000.0]},
}
DECODING = {"decoding 9 tokens": {"ours, cached": [70.0], "torch.nn.Transformer, uncached": [7.0]}}
WEIGHTS = {"ours": 123456, "torch.nn.Transformer": 234567, "ours, padded": 1, "x-transformers": 1}
MEMORY = {"ours": 33.33, "torch.nn.Transformer": None}


def test_the_table_of_training() -> None:
    races = {race: {**rates, "ours, padded": [1.0], "x-transformers": [1.0]} for race, rates in TRAINING.items()}
    races["lengths 1-7"] |= {"ours, padded": [1.0] * 3, "x-transformers": [1.0] * 3}
    lines = training_table(races, WEIGHTS, {**MEMORY, "ours, padded": 1.0, "x-transformers": 1.0}).splitlines()
    assert lines[:4] == [
        "| network | weights | lengths 1-7: tokens/s | ours / theirs | length 7: tokens/s | ours / theirs "
        "| MiB of a step |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        "| ours | 123,456 | 2,000 | 1.00 | 4,000 | 1.00 | 33.3 |",
        "| torch.nn.Transformer | 234,567 | 1,000 | 2.00 | 5,000 | 0.80 | – |",
    ]
    assert lines[6:] == ["| BART (transformers) | not installed | – | – | – | – | – |"]


def test_the_table_of_decoding() -> None:
    assert decoding_table(DECODING, WEIGHTS).splitlines() == [
        "| decoding 9 tokens | tokens/s | ours, cached / theirs |",
        "| --- | --- | --- |",
        "| ours, cached | 70 | 1.00 |",
        "| torch.nn.Transformer, uncached | 7 | 10.00 |",
        "| BART (transformers) | not installed | – |",
    ]


def test_rows_name_race_and_network() -> None:
    rows = peers_rows(TRAINING | DECODING, WEIGHTS, MEMORY)
    assert [(row["race"], row["network"], row["weights"]) for row in rows][-3:] == [
        ("length 7", "torch.nn.Transformer", 234567),
        ("decoding 9 tokens", "ours, cached", None),
        ("decoding 9 tokens", "torch.nn.Transformer, uncached", None),
    ]
