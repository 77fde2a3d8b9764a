"""`python -m attention_lab.benchmark cost`, and likewise `peers` and `loop`.

    cost   time and memory of one layer of every kind of attention against sequence length
    peers  throughput of training and decoding beside torch.nn.Transformer, x-transformers and BART
    loop   what a step of `train.py` takes beside one of a plain loop of PyTorch

Light to import: what takes seconds is imported once the arguments are right.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from attention_lab.benchmark.options import BenchmarkError, CostOptions, LoopOptions, PeersOptions


class Asked(NamedTuple):
    """What a command line asks for.

    Attributes:
        options: of `cost`, `peers` or `loop`.
        out: the folder for tables and figures.
    """

    options: CostOptions | PeersOptions | LoopOptions
    out: Path


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a benchmark, prints its tables and says where everything is.

    Returns:
        0, or 2 where the arguments cannot be used.
    """
    options, out = parsed(arguments)
    # As the commands do: waiting threads should not spin for milliseconds. Read once, when torch is imported.
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    out.mkdir(parents=True, exist_ok=True)
    try:
        if isinstance(options, CostOptions):
            from attention_lab.benchmark.cost import run_cost

            tables = run_cost(options, out)
        elif isinstance(options, LoopOptions):
            from attention_lab.benchmark.loop import run_loop

            tables = run_loop(options, out)
        else:
            from attention_lab.benchmark.peers import run_peers

            tables = run_peers(options, out)
    except BenchmarkError as error:
        print("error:", error, file=sys.stderr)
        return 2
    print(tables)
    print(f"Written to {out}.")
    return 0


def parsed(arguments: Sequence[str] | None = None) -> Asked:
    """Returns what a command line asks for; ends the process where it cannot be read."""
    given = vars(_parser().parse_args(arguments))
    benchmark = given.pop("benchmark")
    out = given.pop("out") or Path("outputs/benchmark") / f"{datetime.now():%Y-%m-%d_%H-%M-%S-%f}_{benchmark}"
    return Asked(_OPTIONS[benchmark](**given), out)


_OPTIONS = {"cost": CostOptions, "peers": PeersOptions, "loop": LoopOptions}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m attention_lab.benchmark", description="Measures what attention costs, on this machine."
    )
    benchmarks = parser.add_subparsers(dest="benchmark", required=True, metavar="{cost,peers,loop}")
    cost = benchmarks.add_parser(
        "cost",
        help="time and memory of one layer against sequence length, every kind of attention",
        description="Forward and backward through one layer, each kind and length in a fresh process.",
    )
    _add_cost(cost)
    peers = benchmarks.add_parser(
        "peers",
        help="training and decoding speed beside torch.nn.Transformer, x-transformers and BART",
        description="The same task, shapes, threads and optimiser for all; contenders take turns.",
    )
    _add_peers(peers)
    loop = benchmarks.add_parser(
        "loop",
        help="what a step of train.py takes beside one of a plain loop of PyTorch",
        description="The same training either way, experiment=fixed_length_reverse on a CPU; the loops take turns.",
    )
    _add_loop(loop)
    for each in (cost, peers):
        _add_device(each)
    for each in (cost, peers, loop):
        _add_common(each)
    return parser


def _add_cost(parser: argparse.ArgumentParser) -> None:
    add = partial(_add, parser)
    add("--lengths", type=_numbers, default="1024,2048,4096,8192,16384", help="sequence lengths, in tokens")
    add("--kinds", type=_names, help="kinds of layers, such as full,full_explicit,lstm; all there are if not given")
    add("--d-model", type=_positive, default=64, help="model width")
    add("--num-heads", type=_positive, default=4, help="attention heads")
    add("--d-ff", type=_positive, help="width of the feed-forward layer; 4 times the model width if not given")
    add("--batch-size", type=_positive, default=1, help="sequences at a time")
    add("--repeats", type=_positive, default=5, help="timed repeats; the median counts")
    add("--memory-limit-gib", type=float, default=6.0, help="leave out what is bound to need more than this")
    add("--timeout", type=_positive, default=600, help="seconds that one process may take")


def _add_peers(parser: argparse.ArgumentParser) -> None:
    add = partial(_add, parser)
    add("--task", default="reverse", help="what is learned: a file of configs/task")
    add("--d-model", type=_positive, default=128, help="model width")
    add("--num-heads", type=_positive, default=4, help="attention heads")
    add("--num-layers", type=_positive, default=1, help="layers of the encoder, and of the decoder")
    add("--d-ff", type=_positive, default=256, help="width of the feed-forward layers")
    add("--vocab-size", type=_positive, default=10, help="symbols, special tokens not counted")
    add("--max-length", type=_positive, default=16, help="longest source of training, in symbols")
    add("--train-size", type=_positive, default=20480, help="distinct training sequences")
    add("--batch-size", type=_positive, default=128, help="sequences a training batch")
    add("--steps", type=_positive, default=30, help="training steps of each contender a round")
    add("--rounds", type=_positive, default=3, help="rounds; the median counts")
    add("--decode-length", type=_positive, default=256, help="tokens to decode")
    add("--decode-batch", type=_positive, default=32, help="sequences to decode at a time")


def _add_loop(parser: argparse.ArgumentParser) -> None:
    add = partial(_add, parser)
    add("--steps", type=_positive, default=1000, help="timed steps of each loop a round")
    add("--rounds", type=_positive, default=5, help="rounds; the median counts")
    add("--seeds", type=_positive, default=3, help="runs of each loop until the task is solved")


def _add_device(parser: argparse.ArgumentParser) -> None:
    add = partial(_add, parser)
    add("--device", choices=("auto", "cpu", "gpu"), default="auto", help="auto takes a GPU if there is one")
    add(
        "--precision",
        choices=("auto", "32-true", "bf16-mixed"),
        default="auto",
        help="auto is bf16-mixed on a GPU, else 32-true, as in training",
    )
    parser.add_argument("--pdf", action="store_true", help="write every figure as PDF beside the PNG")


def _add_common(parser: argparse.ArgumentParser) -> None:
    add = partial(_add, parser)
    add("--threads", type=_positive, help="threads on a CPU; as many as PyTorch chooses if not given")
    add("--out", type=Path, help="folder for tables and figures; outputs/benchmark/TIME if not given")


def _add(parser: argparse.ArgumentParser, flag: str, help: str, **details: Any) -> None:
    default = details.get("default")
    parser.add_argument(flag, help=help if default is None else f"{help} (default: {default})", **details)


def _positive(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a whole number of at least 1")
    return number


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(sorted({_positive(part) for part in text.split(",")}))


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split(","))


if __name__ == "__main__":
    sys.exit(main())
