"""`python -m attention_lab.benchmark cost`, and likewise `peers` and `loop`.

Light to import: what takes seconds is imported once the settings are right.
"""

import argparse
import importlib
import json
import os
import sys
import typing
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from pydantic.fields import FieldInfo

from attention_lab.benchmark.fresh_process import MeasurementError
from attention_lab.benchmark.settings import BenchmarkSettings, CostSettings, LoopSettings, PeersSettings
from attention_lab.errors import SettingError
from attention_lab.settings.checking import build

_BENCHMARKS: dict[str, tuple[type[BenchmarkSettings], str]] = {
    "cost": (CostSettings, "time and memory of one layer against sequence length, every kind of attention"),
    "peers": (PeersSettings, "training and decoding speed beside torch.nn.Transformer, x-transformers and BART"),
    "loop": (LoopSettings, "what a step of train.py takes beside one of a plain loop of PyTorch"),
}
"""The settings of each benchmark, and what it measures."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a benchmark, prints its tables and where they were written.

    Returns:
        0, or 2 where a setting cannot be used, or 1 where a measurement failed.
    """
    given = vars(_parser().parse_args(arguments))
    name, out = given.pop("benchmark"), given.pop("out", None)
    out = out or Path("outputs/benchmark") / f"{datetime.now():%Y-%m-%d_%H-%M-%S-%f}_{name}"
    # As the commands do: waiting threads should not spin for milliseconds. Read once, when torch is imported.
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    try:
        settings = build(_BENCHMARKS[name][0], given, "")
        print(importlib.import_module(f"attention_lab.benchmark.{name}").run(settings, out))
    except (SettingError, MeasurementError) as error:
        print("error:", error, file=sys.stderr)
        return 2 if isinstance(error, SettingError) else 1
    print(f"Written to {out}.")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m attention_lab.benchmark", description="Measures what attention costs, on this machine."
    )
    benchmarks = parser.add_subparsers(dest="benchmark", required=True, metavar="{cost,peers,loop}")
    for name, (settings, measures) in _BENCHMARKS.items():
        one = benchmarks.add_parser(
            name, help=measures, description=settings.__doc__, argument_default=argparse.SUPPRESS
        )
        for setting, field in settings.model_fields.items():
            _add_flag(one, setting, field)
        one.add_argument("--out", type=Path, help="folder for tables and figures; outputs/benchmark/TIME if not given")
    return parser


def _add_flag(parser: argparse.ArgumentParser, setting: str, field: FieldInfo) -> None:
    """Adds the flag of a setting, which reads plain values; what they may be, the settings check."""
    flag, help, hint, default = "--" + setting.replace("_", "-"), field.description, field.annotation, field.default
    if hint is bool:
        parser.add_argument(flag, action="store_true", help=help)
        return
    listed = list in [typing.get_origin(one) for one in (hint, *typing.get_args(hint))]
    if default is not None:
        help = f"{help} (default: {','.join(map(str, default)) if listed else default})"
    choices = typing.get_args(hint) if typing.get_origin(hint) is typing.Literal else ()
    metavar = f"{{{','.join(choices)}}}" if choices else None
    parser.add_argument(flag, type=_values if listed else _value, help=help, metavar=metavar)


def _value(text: str) -> object:
    """Returns a number where the text is one, else the text."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _values(text: str) -> list[object]:
    return [_value(part) for part in text.split(",")]


if __name__ == "__main__":
    sys.exit(main())
