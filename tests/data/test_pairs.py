"""Pairs of a file: every kind of file, every way in which one can be bad, and how they are dealt and numbered."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from attention_lab.data.batches import NOWHERE, SequenceRows
from attention_lab.data.pairs import NumberedPairs, PairFile, read_splits
from attention_lab.data.sampling import SPLITS
from attention_lab.errors import SettingError
from attention_lab.tasks.pairs import Pairs
from attention_lab.tasks.vocabulary import FIRST_SYMBOL, token_labels

ROWS = [{"source": f"w{number}", "target": f"{number}!", "alignment": "1-0"} for number in range(60)]
SIZES = {"train": 1000, "validation": 1000, "test": 1000}


def read(path: Path, task: Pairs | None = None, columns: tuple[str, str] = ("source", "target"), most: int = 64):
    return read_splits(PairFile(path, *columns, most, SIZES), task or Pairs(), seed=3)


def texts(found: NumberedPairs, rows: SequenceRows) -> set[tuple[str, str]]:
    """Returns the pairs of a split as text."""
    said: set[tuple[str, str]] = set()
    for row in rows:
        source, target = (token_labels(part[0, :-1].tolist(), found.symbols) for part in (row.source, row.labels))
        said.add(("".join(source), "".join(target)))
    return said


def write(path: Path, rows: list[dict[str, object]]) -> Path:
    if path.suffix == ".parquet":
        parquet.write_table(pa.Table.from_pylist(rows), path)
    elif path.suffix == ".arrow":
        table = pa.Table.from_pylist(rows)
        make = pa.ipc.new_stream if path.stem == "stream" else pa.ipc.new_file
        with make(path, table.schema) as writer:
            writer.write_table(table)
    elif path.suffix == ".json":
        path.write_text(json.dumps(rows))
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        lines = [list(rows[0]), *(list(map(str, row.values())) for row in rows)]
        path.write_text("".join(("," if path.suffix == ".csv" else "\t").join(line) + "\n" for line in lines))
    return path


KINDS = ["pairs.csv", "pairs.tsv", "pairs.jsonl", "pairs.json", "pairs.parquet", "pairs.arrow", "stream.arrow"]


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_of_file_says_the_same(tmp_path, name):
    found = read(write(tmp_path / name, ROWS))
    splits = {split: texts(found, found.rows[split]) for split in SPLITS}
    assert set.union(*splits.values()) == {(row["source"], row["target"]) for row in ROWS}
    assert sum(map(len, splits.values())) == len(ROWS)
    assert found.symbols == ("<unk>", *sorted("w!0123456789"))
    alignments = np.concatenate([found.rows[split].columns["alignment"] for split in SPLITS])
    assert set(alignments.tolist()) == {1, NOWHERE}
    assert len(found.fingerprint) == 16


def test_a_source_is_in_the_same_split_whatever_else_is_in_the_file(tmp_path):
    few, all_rows = (read(write(tmp_path / "pairs.csv", rows)) for rows in (ROWS[:40], ROWS))
    for split in SPLITS:
        assert texts(few, few.rows[split]) <= texts(all_rows, all_rows.rows[split])


def test_the_file_may_say_the_split_and_name_its_columns_otherwise(tmp_path):
    rows = [{"word": f"{number}", "said": "a", "split": SPLITS[number % 3]} for number in range(9)]
    found = read(write(tmp_path / "pairs.csv", rows), columns=("word", "said"))
    assert texts(found, found.rows["train"]) == {("0", "a"), ("3", "a"), ("6", "a")}
    assert [len(found.rows[split]) for split in SPLITS] == [3, 3, 3]
    # A token that no training sequence has is the first symbol, whichever it is.
    assert found.symbols == ("<unk>", "0", "3", "6", "a")
    assert {int(row.source[0, 0]) for row in found.rows["test"]} == {FIRST_SYMBOL}


def test_a_folder_has_a_file_for_each_split(tmp_path):
    wanted = {"train": ROWS[:30], "validation": ROWS[30:40], "test": ROWS[40:]}
    for kind, (split, rows) in zip(("csv", "jsonl", "parquet"), wanted.items(), strict=True):
        write(tmp_path / f"{split}.{kind}", rows)
    (tmp_path / "README.md").write_text("not a table")
    found = read(tmp_path)
    for split, rows in wanted.items():
        assert texts(found, found.rows[split]) == {(row["source"], row["target"]) for row in rows}


def test_a_row_that_moves_from_one_file_to_the_next_is_noticed(tmp_path):
    # Cut elsewhere, the same rows are the same bytes one after the other.
    write(tmp_path / "train.jsonl", ROWS[:20])
    write(tmp_path / "validation.jsonl", ROWS[20:40])
    write(tmp_path / "test.jsonl", ROWS[40:])
    before = read(tmp_path).fingerprint
    write(tmp_path / "train.jsonl", ROWS[:21])
    write(tmp_path / "validation.jsonl", ROWS[21:40])
    assert read(tmp_path).fingerprint != before


def test_held_out_sources_that_are_trained_on_are_counted(tmp_path, caplog):
    for split, rows in {"train": ROWS[:40], "validation": ROWS[40:], "test": ROWS[38:]}.items():
        write(tmp_path / f"{split}.csv", rows)
    read(tmp_path)
    assert "2 sources of the test split are in the training split as well" in caplog.text
    assert "sources of the validation split" not in caplog.text


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({}, "no train.csv"),
        ({"train.csv": ROWS, "test.csv": ROWS}, "no validation.csv"),
        ({"train.csv": ROWS, "train.jsonl": ROWS}, "train.csv, train.jsonl"),
        (dict.fromkeys(("train.csv", "validation.csv"), ROWS) | {"test.csv": [*ROWS, {"source": "", "target": "a"}]},
         "test.csv row 61: source is empty"),
        (dict.fromkeys(("train.csv", "validation.csv"), ROWS) | {"test.jsonl": [ROWS[0] | {"split": "train"}]},
         "row 1: names the split train, in a file for test"),
    ],
    ids=["none", "one is missing", "two of a split", "a bad row", "another split"],
)  # fmt: skip
def test_a_bad_folder_is_told(tmp_path, files, said):
    for name, rows in files.items():
        write(tmp_path / name, rows)
    with pytest.raises(SettingError, match=r"data\.path") as refused:
        read(tmp_path)
    assert said in str(refused.value)


@pytest.mark.parametrize("name", ["pairs.parquet", "pairs.arrow", "stream.arrow"])
def test_a_damaged_table_is_told_and_never_ends_the_process(tmp_path, name):
    whole = write(tmp_path / name, ROWS).read_bytes()
    refused: list[str] = []
    for place in range(0, len(whole), 11):
        for damaged in (whole[:place], whole[:place] + bytes([whole[place] ^ 255]) + whole[place + 1 :]):
            (tmp_path / name).write_bytes(damaged)
            # Some bytes mean nothing, so that not every file is refused.
            try:
                read(tmp_path / name)
            except SettingError as error:
                refused.append(str(error))
    assert len(refused) > len(whole) / 11
    assert not any("\n" in said for said in refused)


def test_a_file_that_may_not_be_read_is_told(tmp_path, monkeypatch):
    path = write(tmp_path / "pairs.csv", ROWS)

    def denied(*_, **__):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "open", denied)
    with pytest.raises(SettingError, match="Permission denied"):
        read(path)


def test_tokens_are_characters_words_or_the_items_of_a_list(tmp_path):
    rows: list[dict[str, object]] = [
        {"source": "to be", "target": ["T", "OO"], "split": split, "alignment": [[0, 0], [1, 1]]} for split in SPLITS
    ]
    found = read(write(tmp_path / "pairs.jsonl", rows), Pairs(source_tokens="words"))
    assert found.symbols == ("<unk>", "OO", "T", "be", "to")
    assert found.rows["test"].columns["alignment"].tolist() == [0, 1]
    assert "␣" in token_labels([FIRST_SYMBOL], (" ",))


def test_longer_pairs_are_left_out_and_counted(tmp_path, caplog):
    found = read(write(tmp_path / "pairs.csv", [*ROWS, {"source": "x" * 9, "target": "y", "alignment": ""}]), most=8)
    assert "1 of 61 pairs are longer than data.max_length=8" in caplog.text
    assert "x" not in found.symbols


BAD = {
    "no column": ("a.csv", "source,goal\na,b\n", "row 1: has no target; it has source, goal"),
    "no cell": ("a.csv", "source,target\na,b\nc\n", "row 2: has no target"),
    "too many cells": ("a.csv", "source,target\na,b,c\n", "row 1: has more cells"),
    "empty cell": ("a.csv", "source,target\na,b\n,b\n", "row 2: source is empty"),
    "empty file": ("a.csv", "", "holds no rows"),
    "header alone": ("a.csv", "source,target\n", "holds no rows"),
    "empty line": ("a.jsonl", '{"source": "a", "target": "b"}\n\n', "row 2: Expecting value"),
    "no JSON": ("a.jsonl", '{"source": "a", "target": "b"}\n{oops\n', "row 2: Expecting property name"),
    "no object": ("a.jsonl", '{"source": "a", "target": "b"}\n[1]\n', "row 2: is no object"),
    "no list": ("a.json", '{"source": "a"}', "call it .jsonl"),
    "no text": ("a.jsonl", '{"source": {"a": 1}, "target": "b"}\n', "row 1: source is {'a': 1}, which is neither"),
    "ragged alignment": ("a.csv", "source,target,alignment\nab,cd,0-0 1\n", "row 1: has the alignment '0-0 1'"),
    "out of range": ("a.csv", "source,target,alignment\nab,cd,0-0 2-1\n", "row 1: links 2-1, but has 2 source tokens"),
    "negative": ("a.jsonl", '{"source": "ab", "target": "c", "alignment": [[-1, 0]]}\n', "row 1: links -1-0"),
    "several": ("a.csv", "source,target,alignment\nab,cd,0-0 1-0\n", "row 1: links target token 0 to several"),
    "other split": ("a.csv", "source,target,split\na,b,dev\n", "row 1: names the split 'dev'; there are train"),
    "few pairs": ("a.csv", "source,target\na,b\n", "leaves no pair for the"),
    "other kind": ("a.txt", "a b\n", "is none of the kinds that can be read: .csv, .tsv"),
    "broken": ("a.parquet", "PAR1", "row 1: "),
    "open quote": ("a.csv", 'source,target\na,b\n"c,d\n', "row 2: unexpected end of data"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_file_is_told_with_its_row(tmp_path, case):
    name, content, why = BAD[case]
    (tmp_path / name).write_text(content)
    with pytest.raises(SettingError) as refused:
        read(tmp_path / name)
    assert str(refused.value).startswith(f"data.path={tmp_path / name} ")
    assert why in str(refused.value)
    assert "\n" not in str(refused.value)


def test_bytes_that_are_no_text_are_told(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"source,target\na,b\n\xff,c\n")
    with pytest.raises(SettingError, match=r"is not UTF-8 .*0xff"):
        read(tmp_path / "a.csv")


def test_a_file_that_is_not_there_or_too_large_is_told(tmp_path):
    with pytest.raises(SettingError, match="is no file"):
        read(tmp_path / "a.csv")
    with (tmp_path / "a.csv").open("wb") as file:
        file.truncate(2**31)
    with pytest.raises(SettingError, match=r"has 2.0 GiB; it is read into memory, so 1 GiB is the most"):
        read(tmp_path / "a.csv")
