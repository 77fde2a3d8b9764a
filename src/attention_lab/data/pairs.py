"""Pairs of a source and a target from a file of the user's: read, dealt to the splits, and numbered."""

import csv
import hashlib
import json
import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import pyarrow as pa
from datasets import Dataset
from pyarrow import parquet

from attention_lab.data.batches import NOWHERE, SequenceRows
from attention_lab.data.hashing import content_hash, random_bits
from attention_lab.data.sampling import NUM_SHARES, SHARES, SPLITS, Split
from attention_lab.errors import SettingError
from attention_lab.tasks.pairs import Pairs, TokensOf, tokens_of
from attention_lab.tasks.vocabulary import FIRST_SYMBOL, UNKNOWN

log = logging.getLogger(__name__)

_LARGEST_FILE = 2**30
"""Bytes: a file is read into memory whole."""

_DELIMITERS = {".csv": ",", ".tsv": "\t"}
_TABLES = (".parquet", ".arrow")
_KINDS = (*_DELIMITERS, ".jsonl", ".json", *_TABLES)


class PairFile(NamedTuple):
    """A file of pairs, or a folder of a file for each split, and what is to be taken from it.

    Attributes:
        path: where it is; in a folder, files are called `train`, `validation` and `test`.
        source: the column of the sources.
        target: the column of the targets.
        max_length: tokens that a source or a target may have; longer pairs are left out.
        sizes: how many pairs each split has at most.
    """

    path: Path
    source: str
    target: str
    max_length: int
    sizes: Mapping[Split, int]


class Pair(NamedTuple):
    """A row of a file, as tokens.

    Attributes:
        source: the tokens to be read.
        target: the tokens to be said.
        alignment: the source position of every target token, NOWHERE where the file gives none.
        split: what it is for, if the file says so.
    """

    source: Sequence[str]
    target: Sequence[str]
    alignment: Sequence[int]
    split: Split | None


class NumberedPairs(NamedTuple):
    """A file's pairs, ready to be learned.

    Attributes:
        symbols: what the symbols are called, those of the training split; the first one stands for all others.
        rows: each split's.
        fingerprint: of each file's bytes, so that a run that goes on sees whether they are the same.
    """

    symbols: Sequence[str]
    rows: Mapping[Split, SequenceRows]
    fingerprint: str


def read_splits(file: PairFile, task: Pairs, seed: int) -> NumberedPairs:
    """Reads a file's pairs and deals them to the splits.

    A pair belongs to the split that its file or its row names, or else to the one that its source's content decides, so
    that no source is in two splits. The vocabulary is that of the training split.

    Args:
        file: where they are, and how many to take.
        task: says what the tokens are.
        seed: decides which pairs are taken where there are more than are wanted.

    Raises:
        SettingError: the file cannot be read, or a split is empty; the row is named.
    """
    files = _files(file.path)
    pairs = [pair for path, split in files for pair in _pairs(file._replace(path=path), task, split)]
    fitting = [pair for pair in pairs if max(len(pair.source), len(pair.target)) <= file.max_length]
    if len(fitting) < len(pairs):
        log.warning(
            "%d of %d pairs are longer than data.max_length=%d and are left out.",
            len(pairs) - len(fitting),
            len(pairs),
            file.max_length,
        )
    dealt = _deal(fitting)
    chosen: dict[Split, list[Pair]] = {split: _some(dealt[split], file.sizes[split], seed) for split in SPLITS}
    for split, some in chosen.items():
        if not some:
            reason = f"leaves no pair for the {split} split; it takes more pairs, or a column split that names some"
            raise SettingError("data.path", str(file.path), reason)
    seen = sorted({token for pair in chosen["train"] for token in (*pair.source, *pair.target)} - {UNKNOWN})
    symbols = (UNKNOWN, *seen)
    numbers = {symbol: number + FIRST_SYMBOL for number, symbol in enumerate(symbols)}
    rows: dict[Split, SequenceRows] = {split: _numbered(some, numbers) for split, some in chosen.items()}
    _warn_of_held_out(chosen, numbers)
    fingerprints = [hashlib.sha256(path.read_bytes()).hexdigest()[:16] for path, _ in files]
    return NumberedPairs(symbols, rows, "-".join(fingerprints))


def _warn_of_held_out(chosen: Mapping[Split, Sequence[Pair]], known: Collection[str]) -> None:
    """Says what makes held-out figures worse, tokens that were never seen, or better, sources that were."""
    trained = {tuple(pair.source) for pair in chosen["train"]}
    held_out: tuple[Split, ...] = ("validation", "test")
    for split in held_out:
        tokens = (token for pair in chosen[split] for token in (*pair.source, *pair.target))
        unknown = sum(token not in known for token in tokens)
        if unknown:
            log.warning("%d tokens of the %s split are in no training sequence: %s for each.", unknown, split, UNKNOWN)
        seen = sum(tuple(pair.source) in trained for pair in chosen[split])
        if seen:
            log.warning("%d sources of the %s split are in the training split as well.", seen, split)


def _files(path: Path) -> list[tuple[Path, Split | None]]:
    """Returns the files to be read, each with the split that all of its pairs are for, if its name says so."""
    if not path.is_dir():
        return [(_checked(path), None)]
    found: list[tuple[Path, Split | None]] = []
    for split in SPLITS:
        named = sorted(file for file in path.glob(f"{split}.*") if file.stem == split and file.suffix.lower() in _KINDS)
        if len(named) != 1:
            names = ", ".join(file.name for file in named) or f"no {split}.csv"
            reason = f"is a folder with {names}; it takes one file each of train, validation and test"
            raise SettingError("data.path", str(path), f"{reason}, of the kinds {', '.join(_KINDS)}")
        found.append((_checked(named[0]), split))
    return found


def _checked(path: Path) -> Path:
    if not path.is_file():
        raise SettingError("data.path", str(path), f"is no file and no folder (looked for it in {Path.cwd()})")
    if path.suffix.lower() not in _KINDS:
        raise SettingError("data.path", str(path), f"is none of the kinds that can be read: {', '.join(_KINDS)}")
    if path.stat().st_size > _LARGEST_FILE:
        size = f"{path.stat().st_size / 2**30:.1f} GiB"
        raise SettingError("data.path", str(path), f"has {size}; it is read into memory, so 1 GiB is the most")
    return path


def _pairs(file: PairFile, task: Pairs, split: Split | None) -> Iterator[Pair]:
    """Yields a file's pairs, which are all for a split where one is given.

    Raises:
        SettingError: a row cannot be used; rows count from 1, without a header.
    """
    number, path = 0, file.path
    try:
        for row in _rows(path):
            number += 1
            pair = _pair(row, file, task)
            if split and pair.split not in (None, split):
                raise _RowError(f"names the split {pair.split}, in a file for {split}")
            yield pair._replace(split=split or pair.split)
    except UnicodeDecodeError as error:
        strange = f"byte {error.start} of what was read is {error.object[error.start]:#x}"
        raise SettingError("data.path", str(path), f"is not UTF-8 after row {number}: {strange}") from error
    except (ValueError, OSError, csv.Error, pa.ArrowException) as error:
        # A row that cannot be read is the one after the last that could.
        where = f"row {number}" if isinstance(error, _RowError) else f"row {number + 1}"
        raise SettingError("data.path", str(path), f"{where}: {' '.join(str(error).split())}") from error
    if not number:
        raise SettingError("data.path", str(path), "holds no rows")


class _RowError(ValueError):
    """A row that was read and cannot be used."""


def _rows(path: Path) -> Iterator[Mapping[str | None, object]]:
    kind = path.suffix.lower()
    if kind in _TABLES:
        yield from _table_rows(path)
        return
    with path.open(encoding="utf-8-sig", newline="") as file:
        if kind in _DELIMITERS:
            yield from csv.DictReader(file, delimiter=_DELIMITERS[kind], strict=True)
            return
        listed: object = json.load(file) if kind == ".json" else map(json.loads, file)
        if not isinstance(listed, (list, map)):
            raise ValueError("a JSON file is a list of rows; for a row a line, call it .jsonl")
        for row in cast(Iterable[object], listed):
            if not isinstance(row, dict):
                raise ValueError("is no object with source and target")
            yield cast(dict[str | None, object], row)


def _table_rows(path: Path) -> list[dict[str | None, object]]:
    """Reads Parquet, or Arrow: its file format, or its stream format, in which `datasets` saves."""
    table: Any
    if path.suffix.lower() == ".parquet":
        table = parquet.read_table(path)
    else:
        try:
            table = pa.ipc.open_file(path.read_bytes()).read_all()
        except pa.ArrowInvalid:
            table = pa.ipc.open_stream(path.read_bytes()).read_all()
    # Arrow believes what a file says of itself: without this, offsets of a damaged one end the process.
    table.validate(full=True)
    return table.to_pylist()


def _pair(row: Mapping[str | None, object], file: PairFile, task: Pairs) -> Pair:
    for setting, column in (("source_column", file.source), ("target_column", file.target)):
        if row.get(column) is None:
            there = ", ".join(name for name in row if name is not None)
            raise _RowError(f"has no {column}; it has {there or 'nothing'}; data.{setting}= names another column")
    # Here csv puts what has no column.
    if None in row:
        raise _RowError("has more cells than the header has columns")
    source = _tokens(row[file.source], file.source, task.source_tokens)
    target = _tokens(row[file.target], file.target, task.target_tokens)
    named = row.get("split") or None
    split: Split | None = next((split for split in SPLITS if split == named), None)
    if split is None and named is not None:
        raise _RowError(f"names the split {named!r}; there are {', '.join(SPLITS)}")
    return Pair(source, target, _alignment(row.get("alignment"), len(source), len(target)), split)


def _tokens(cell: object, column: str, kind: TokensOf) -> list[str]:
    try:
        return tokens_of(cell, kind)
    except ValueError as error:
        raise _RowError(f"{column} {error}") from error


def _alignment(cell: object, sources: int, targets: int) -> list[int]:
    """Returns where each target token comes from, of Pharaoh's links `0-0 1-2` or of a list of pairs."""
    places = [NOWHERE] * targets
    if cell is None or cell == "":
        return places
    try:
        links = [link.split("-") for link in cell.split()] if isinstance(cell, str) else list(cast(Any, cell))
        numbers = [(int(source), int(target)) for source, target in links]
    except (TypeError, ValueError):
        raise _RowError(f"has the alignment {str(cell)[:60]!r}; links are written as in 0-0 1-2") from None
    for source, target in numbers:
        if not (0 <= source < sources and 0 <= target < targets):
            raise _RowError(f"links {source}-{target}, but has {sources} source tokens and {targets} target tokens")
        if places[target] not in (NOWHERE, source):
            raise _RowError(f"links target token {target} to several source tokens; one for each can be scored")
        places[target] = source
    return places


def _deal(pairs: Sequence[Pair]) -> dict[Split, list[Pair]]:
    dealt: dict[Split, list[Pair]] = {split: [] for split in SPLITS}
    by_share: dict[int, Split] = {share: split for split in SPLITS for share in SHARES[split]}
    for pair, share in zip(pairs, _shares([pair.source for pair in pairs]), strict=True):
        dealt[pair.split or by_share[share]].append(pair)
    return dealt


def _shares(sources: Sequence[Sequence[str]]) -> list[int]:
    """Returns which of the ten shares each source's content puts it into."""
    texts = ["\x1f".join(source) for source in sources]
    lengths = np.array([len(text) for text in texts])
    shares = np.zeros(len(texts), dtype=np.int64)
    for length in np.unique(lengths):
        (same,) = np.nonzero(lengths == length)
        points = np.array([[ord(letter) for letter in texts[place]] for place in same])
        shares[same] = (content_hash(points) % np.uint64(NUM_SHARES)).astype(np.int64)
    return shares.tolist()


def _some(pairs: Sequence[Pair], count: int, seed: int) -> list[Pair]:
    order = random_bits(len(pairs), seed).argsort(kind="stable")[:count] if len(pairs) > count else range(len(pairs))
    return sorted((pairs[place] for place in order), key=lambda pair: len(pair.source))


def _numbered(pairs: Sequence[Pair], numbers: Mapping[str, int]) -> SequenceRows:
    def column(lists: Iterable[Sequence[int]]) -> Any:
        return pa.array(list(lists), type=pa.list_(pa.int32()))

    table = {
        "source": column([numbers.get(token, FIRST_SYMBOL) for token in pair.source] for pair in pairs),
        "target": column([numbers.get(token, FIRST_SYMBOL) for token in pair.target] for pair in pairs),
        "alignment": column(pair.alignment for pair in pairs),
    }
    return SequenceRows(Dataset(pa.table(table)))
