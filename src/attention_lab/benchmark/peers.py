"""`peers`: throughput of training and decoding beside other libraries' Transformers of the same shape."""

import importlib.metadata
import sys
from dataclasses import asdict
from pathlib import Path

import torch

from attention_lab.benchmark.alone import TIGHT_HEAP, Failed, run_alone
from attention_lab.benchmark.contenders import CONTENDERS, Contender, Decode, installed
from attention_lab.benchmark.machine import Machine
from attention_lab.benchmark.options import PeersOptions
from attention_lab.benchmark.peers_table import Standing, decoding_table, standing_rows, training_table
from attention_lab.benchmark.race import Result, Runner, race
from attention_lab.benchmark.training_run import (
    MEMORY_STEPS,
    TrainingRun,
    built,
    memory_question,
    network_shape,
    training_data,
)
from attention_lab.data.module import SequenceData
from attention_lab.plotting.canvas import save
from attention_lab.plotting.cost import draw_throughput
from attention_lab.runs.files import write_csv, write_json, write_text

_OURS = next(iter(CONTENDERS))
_TRAINING = "attention_lab.benchmark.training_run"
_WARM_UP_STEPS, _WARM_UP_TOKENS = 3, 8


def run_peers(options: PeersOptions, out: Path) -> str:
    """Measures, leaves `peers.json`, `peers.csv`, `peers.md` and a figure in a folder, and returns the tables.

    Raises:
        BenchmarkError: there is no such task, or the shape is impossible.
    """
    machine = Machine(options.device, options.precision, options.threads)
    shape = network_shape(options)
    weights = {name: built(name, shape).num_weights for name in installed()}
    races: dict[str, dict[str, Result]] = {}
    for title, fixed in (
        (f"training, lengths 1-{options.max_length}", False),
        (f"training, length {options.max_length}", True),
    ):
        _say(title)
        races[title] = _race_training(options, machine, fixed)
    title = f"decoding {options.decode_length} tokens"
    _say(title)
    races[title] = _race_decoding(options, machine)
    _say("memory of training")
    memory = {name: _memory(name, options) for name in weights}
    standing = Standing(races, weights, memory, [name for name in CONTENDERS if name not in weights])
    tables = f"{training_table(standing)}\n{decoding_table(standing)}"
    write_json(
        {
            "options": asdict(options),
            "machine": machine.described() | _versions(),
            "contenders": standing_rows(standing),
            "not_installed": standing.not_installed,
        },
        out / "peers.json",
    )
    rows = [row | {"rates": " ".join(f"{rate:.0f}" for rate in row["rates"])} for row in standing_rows(standing)]
    write_csv(rows, out / "peers.csv")
    write_text(tables, out / "peers.md")
    bars = {title: {name: result.median for name, result in results.items()} for title, results in races.items()}
    save(draw_throughput(bars), out / "peers", options.pdf)
    return tables


def _race_training(options: PeersOptions, machine: Machine, fixed: bool) -> dict[str, Result]:
    shape = network_shape(options)
    runners: dict[str, Runner] = {}
    # Who is dealt the same batches can share the rows.
    data: dict[int, SequenceData] = {}
    for name in installed():
        made = CONTENDERS[name]
        if made.batch_parts not in data:
            data[made.batch_parts] = training_data(options, made, machine, fixed)
        run = TrainingRun(built(name, shape), data[made.batch_parts], machine)
        runners[name] = Runner(run, _WARM_UP_STEPS, options.steps)
    return race(runners, options.rounds, machine, _OURS)


def _race_decoding(options: PeersOptions, machine: Machine) -> dict[str, Result]:
    shape = network_shape(options)
    rows = training_data(options, Contender, machine, fixed=True).rows("train")
    source = rows.__getitems__(range(min(options.decode_batch, len(rows)))).source.to(machine.device)
    runners: dict[str, Runner] = {}
    for name in installed():
        if not CONTENDERS[name].decodes:
            continue
        contender = built(name, shape).to(machine.device).eval()
        for how, decode in contender.decoders().items():
            run = _DecodingRun(decode, source, machine)
            runners[f"{name}, {how}"] = Runner(run, min(_WARM_UP_TOKENS, options.decode_length), options.decode_length)
    return race(runners, options.rounds, machine, f"{_OURS}, cached")


class _DecodingRun:
    """Decodes a batch and returns how many tokens were said."""

    def __init__(self, decode: Decode, source: torch.Tensor, machine: Machine) -> None:
        self._decode = decode
        self._source = source
        self._machine = machine

    def __call__(self, length: int) -> int:
        with torch.inference_mode(), self._machine.computing():
            said = self._decode(self._source, length)
        assert said.shape == (len(self._source), length), "a contender stopped early"
        return said.numel()


def _memory(name: str, options: PeersOptions) -> float | None:
    """Returns the MiB that training takes on top of the network, its gradients and the optimiser; None if it failed."""
    try:
        steps, none = (
            run_alone(_TRAINING, memory_question(name, options, count), environment=TIGHT_HEAP)
            for count in (MEMORY_STEPS, 0)
        )
    except Failed as failure:
        _say(f"{name}: {failure}")
        return None
    return max(steps["peak_bytes"] - (0 if steps["on_gpu"] else none["peak_bytes"]), 0) / 2**20


def _versions() -> dict[str, str]:
    packages = {made.package for name, made in CONTENDERS.items() if name in installed() and made.package}
    return {package: importlib.metadata.version(package) for package in sorted(packages)}


def _say(what: str) -> None:
    print(what, file=sys.stderr, flush=True)
