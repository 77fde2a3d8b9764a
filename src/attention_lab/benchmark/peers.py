"""`peers`: throughput of training and decoding beside other libraries' Transformers of the same shape."""

import importlib.metadata
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from statistics import median

import torch
from torch import nn

from attention_lab.benchmark.contenders import (
    CONTENDERS,
    PACKAGES,
    Decode,
    build_contender,
    installed,
    measure_memory,
    train,
    training_data,
)
from attention_lab.benchmark.fresh_process import MeasurementError
from attention_lab.benchmark.machine import Machine, Rates, median_ratios, take_turns
from attention_lab.benchmark.plain_loop import PlainLoop
from attention_lab.benchmark.results import Row, log, write_results
from attention_lab.benchmark.settings import PeersSettings
from attention_lab.cli.composing import check_choice, choices, compose_settings
from attention_lab.composition.build import build_task
from attention_lab.plotting.canvas import save
from attention_lab.plotting.cost import draw_throughput
from attention_lab.report.tables import as_markdown
from attention_lab.settings.schema import TrainSettings

_WARM_UP_STEPS, _WARM_UP_TOKENS = 3, 8
_MEMORY_STEPS = 3
"""Training steps whose peak memory is measured."""


def run(settings: PeersSettings, out: Path) -> str:
    """Measures, leaves `peers.json`, `peers.csv`, `peers.md` and a figure in a folder, and returns the tables.

    Raises:
        SettingError: there is no such task, the shape is impossible, or there is no such device.
    """
    machine, longest = Machine(settings), settings.max_length
    mixed, fixed = compose(settings, min_length=1), compose(settings, min_length=longest)
    weights = {name: num_weights(build_contender(name, mixed).network) for name in installed()}
    training: dict[str, Rates] = {}
    for race, learned in ((f"training, lengths 1-{longest}", mixed), (f"training, length {longest}", fixed)):
        log(race)
        training[race] = _race_training(settings, learned, machine)
    race = f"decoding {settings.decode_length} tokens"
    log(race)
    decoding = {race: _race_decoding(settings, fixed, machine)}
    log("memory of training")
    memory = {name: _memory(name, settings, mixed, machine) for name in weights}
    rows = peers_rows(training | decoding, weights, memory)
    tables = training_table(training, weights, memory) + "\n" + decoding_table(decoding, weights)
    content = {
        "contenders": rows,
        "packages": {
            PACKAGES[name]: importlib.metadata.version(PACKAGES[name]) for name in PACKAGES if name in weights
        },
        "not_installed": not_installed(weights),
    }
    write_results(out / "peers", settings, machine, rows, tables, **content)
    bars = {race: {name: median(own) for name, own in rates.items()} for race, rates in (training | decoding).items()}
    save(draw_throughput(bars), out / "peers", settings.pdf)
    return tables


def compose(settings: PeersSettings, min_length: int) -> TrainSettings:
    """Returns the settings of `train.py` for sources of at least a length, with a learning rate that suits everybody.

    Raises:
        SettingError: there is no such task, or one of the settings cannot be used.
    """
    check_choice("task", settings.task, choices("task"))
    sections = {
        "model": ("d_model", "num_heads", "num_layers", "d_ff"),
        "data": ("vocab_size", "max_length", "train_size", "batch_size"),
    }
    sizes = [f"{section}.{name}={getattr(settings, name)}" for section, names in sections.items() for name in names]
    optimizer = ["optimizer.learning_rate=1e-3", "optimizer.final_learning_rate=1e-3", "optimizer.weight_decay=0.1"]
    overrides = [f"task={settings.task}", *sizes, *optimizer, f"data.min_length={min_length}"]
    longest_target = build_task(compose_settings(overrides).task).longest(settings.max_length)
    longest = max(longest_target, settings.max_length, settings.decode_length)
    return compose_settings([*overrides, f"position.max_len={longest + 2}"])


def num_weights(network: nn.Module) -> int:
    """Returns how many weights a network has."""
    return sum(weights.numel() for weights in network.parameters())


def not_installed(weights: Mapping[str, int]) -> list[str]:
    """Returns who could not take part, of all that have weights otherwise."""
    return [name for name in CONTENDERS if name not in weights]


def _race_training(settings: PeersSettings, learned: TrainSettings, machine: Machine) -> Rates:
    contenders = {name: build_contender(name, learned) for name in installed()}
    # Who is dealt the same batches can share the rows.
    all_parts = {contender.batch_parts for contender in contenders.values()}
    data = {parts: training_data(learned, parts, machine) for parts in all_parts}
    runs: dict[str, Callable[[int], int]] = {}
    for name, contender in contenders.items():
        loop = PlainLoop(contender.network, contender.predict, learned, machine)
        runs[name] = partial(train, loop, iter(data[contender.batch_parts].train_dataloader()), machine)
    return take_turns(runs, _WARM_UP_STEPS, settings.steps, settings.rounds, machine)


def _race_decoding(settings: PeersSettings, learned: TrainSettings, machine: Machine) -> Rates:
    rows, length = training_data(learned, 1, machine).rows("train"), settings.decode_length
    source = rows.__getitems__(range(min(settings.decode_batch, len(rows)))).source.to(machine.device)

    def run(decode: Decode, length: int) -> int:
        with torch.inference_mode(), machine.computing():
            decoded = decode(source, length)
        assert decoded.shape == (len(source), length), "a contender stopped early"
        return decoded.numel()

    runs: dict[str, Callable[[int], int]] = {}
    for name in installed():
        contender = build_contender(name, learned)
        contender.network.to(machine.device).eval()
        runs |= {f"{name}, {how}": partial(run, decode) for how, decode in contender.decoders.items()}
    return take_turns(runs, min(_WARM_UP_TOKENS, length), length, settings.rounds, machine)


def _memory(name: str, settings: PeersSettings, learned: TrainSettings, machine: Machine) -> float | None:
    """Returns the MiB that training takes on top of the network, its gradients and the optimiser; None if it failed."""
    try:
        return machine.mebibytes(partial(measure_memory, name, learned, settings), _MEMORY_STEPS)
    except MeasurementError as error:
        log(f"{name}: {error}")
        return None


def peers_rows(races: Mapping[str, Rates], weights: Mapping[str, int], memory: Mapping[str, float | None]) -> list[Row]:
    """Returns one row a race and contender."""
    return [
        {
            "race": race,
            "network": name,
            "tokens_per_second": median(own),
            "ours_over_theirs": median_ratios(rates)[name],
            "rates": list(own),
            "weights": weights.get(name),
            "training_mebibytes": memory.get(name),
        }
        for race, rates in races.items()
        for name, own in rates.items()
    ]


def training_table(races: Mapping[str, Rates], weights: Mapping[str, int], memory: Mapping[str, float | None]) -> str:
    """Returns a row a contender as Markdown: weights, real target tokens per second, ours / theirs, memory."""
    columns = [column for race in races for column in (f"{race}: tokens/s", "ours / theirs")]
    rows: list[list[str]] = []
    for name, count in weights.items():
        cells = [cell for rates in races.values() for cell in _cells(rates, name)]
        mebibytes = memory[name]
        rows.append([name, f"{count:,}", *cells, "–" if mebibytes is None else f"{mebibytes:.1f}"])
    rows += [[name, "not installed", *["–"] * (len(columns) + 1)] for name in not_installed(weights)]
    return as_markdown(["network", "weights", *columns, "MiB of a step"], rows)


def decoding_table(races: Mapping[str, Rates], weights: Mapping[str, int]) -> str:
    """Returns a row a contender and way of decoding as Markdown."""
    ((race, rates),) = races.items()
    rows = [[name, *_cells(rates, name)] for name in rates]
    rows += [[name, "not installed", "–"] for name in not_installed(weights)]
    return as_markdown([race, "tokens/s", "ours, cached / theirs"], rows)


def _cells(rates: Rates, name: str) -> list[str]:
    return [f"{median(rates[name]):,.0f}", f"{median_ratios(rates)[name]:.2f}"]
