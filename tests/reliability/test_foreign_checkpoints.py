"""A checkpoint may be anybody's file: damaged, swapped or malicious, it is refused and nothing in it runs."""

import copy
import io
import os
import pickle
import random
import resource
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hydra import compose, initialize_config_dir
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf
from torch import Tensor

from attention_lab.composition.build import build_network
from attention_lab.errors import SettingError
from attention_lab.runs.checkpoint import CHECKPOINT_FORMAT
from attention_lab.runs.trained import load_trained
from attention_lab.settings.checking import build
from attention_lab.settings.schema import TrainSettings

ROOT = Path(__file__).parents[2]
SMALL = ["experiment=smoke", "model.d_model=8", "model.d_ff=8", "position.max_len=20", "data.max_length=5"]
# 900 files altogether with --hypothesis-profile=full.
EXAMPLES = settings().max_examples
WITHOUT_WORDS = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]


def saved(content: Any) -> bytes:
    file = io.BytesIO()
    torch.save(content, file)
    return file.getvalue()


@pytest.fixture(scope="module")
def content() -> dict[str, Any]:
    with initialize_config_dir(str(ROOT / "configs"), version_base="1.3"):
        config = OmegaConf.to_container(compose("train", SMALL), resolve=True)
    chosen = build(TrainSettings, config, "")
    network = build_network(chosen.model, chosen.attention, chosen.position, chosen.data)
    return {
        "attention_lab": {"format": CHECKPOINT_FORMAT, "config": config, "solved": None, "seconds": 1.5},
        "state_dict": {f"network.{name}": value for name, value in network.state_dict().items()},
        "global_step": 17,
    }


@pytest.fixture(scope="module")
def whole(content) -> bytes:
    return saved(content)


@pytest.fixture
def answer(tmp_path, monkeypatch) -> Callable[[bytes], dict[str, Tensor] | None]:
    """Loads a file; returns the network's weights, or None where it is refused as it should be."""
    monkeypatch.chdir(tmp_path)
    path = Path("some.ckpt")

    def load(file: bytes) -> dict[str, Tensor] | None:
        path.write_bytes(file)
        try:
            trained = load_trained(path)
        except SettingError as error:
            message = str(error)
            assert message.startswith("checkpoint=some.ckpt ")
            assert "\n" not in message
            assert len(message) < 2000
            return None
        finally:
            assert os.listdir() == ["some.ckpt"], "something ran"
        return trained.network.state_dict()

    return load


def same(weights: dict[str, Tensor], content: dict[str, Any]) -> bool:
    return all(torch.equal(value, content["state_dict"][f"network.{name}"]) for name, value in weights.items())


@st.composite
def damage(draw: st.DrawFn) -> Callable[[bytes], bytes]:
    """Cuts, flips, overwrites, repeats, moves or swaps some bytes."""
    kind = draw(st.sampled_from(["cut", "flip", "zero", "noise", "repeat", "lose", "swap", "append"]))
    chance = random.Random(draw(st.integers(0, 2**32)))

    def damaged(file: bytes) -> bytes:
        a, b = sorted(chance.randrange(len(file)) for _ in range(2))
        size = min(b - a, chance.choice([1, 7, 512, 65536])) + 1
        b = a + size
        middle = file[a:b]
        match kind:
            case "cut":
                return file[:a]
            case "flip":
                bits = bytearray(file)
                for _ in range(chance.choice([1, 2, 50])):
                    bits[chance.randrange(len(bits))] ^= 1 << chance.randrange(8)
                return bytes(bits)
            case "zero":
                middle = bytes(size)
            case "noise":
                middle = chance.randbytes(size)
            case "repeat":
                middle *= 2
            case "lose":
                middle = b""
            case "swap":
                return file[b:] + file[:b]
            case _:
                return file + middle
        return file[:a] + middle + file[b:]

    return damaged


@settings(max_examples=3 * EXAMPLES, suppress_health_check=WITHOUT_WORDS)
@given(damage())
def test_a_damaged_file_is_refused_or_is_still_what_it_was(answer, content, whole, damaged):
    weights = answer(damaged(whole))
    assert weights is None or same(weights, content)


def rewritten(file: bytes, change: Callable[[bytes], bytes]) -> bytes:
    """Returns the archive with another pickle, all checksums right."""
    target = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(file)) as archive, zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as made:
        for entry in archive.infolist():
            inside = archive.read(entry)
            made.writestr(entry.filename, change(inside) if entry.filename.endswith("data.pkl") else inside)
    return target.getvalue()


@settings(max_examples=2 * EXAMPLES, suppress_health_check=WITHOUT_WORDS)
@given(damage())
def test_a_damaged_pickle_with_right_checksums_runs_nothing(answer, whole, damaged):
    weights = answer(rewritten(whole, damaged))
    assert weights is None or all(value.isfinite().all() for value in weights.values())


NASTY = st.sampled_from(
    [
        10**9,
        2**63,
        -1,
        0,
        10**400,
        float("nan"),
        float("inf"),
        1e308,
        "",
        "x" * 10**6,
        "torch.load",
        "builtins.open",
        "attention_lab.composition.build.build_task",
        "attention_lab.runs.checkpoint.read_checkpoint",
        "../../../etc/passwd",
        None,
        True,
        [],
        {},
        [[[[]]]],
        {"_target_": "os.system", "command": "touch ran"},
        torch.zeros(3),
    ]
)


@settings(max_examples=3 * EXAMPLES, suppress_health_check=WITHOUT_WORDS)
@given(st.data(), NASTY)
def test_a_config_with_something_else_in_it_is_refused_or_means_no_harm(answer, content, data, nasty):
    changed = copy.deepcopy(content)
    config = changed["attention_lab"]["config"]
    section = data.draw(st.sampled_from(sorted(config)))
    if isinstance(config[section], dict) and config[section]:
        config[section][data.draw(st.sampled_from([*sorted(config[section]), "new"]))] = nasty
    else:
        config[section] = nasty
    answer(saved(changed))


@settings(max_examples=EXAMPLES, suppress_health_check=WITHOUT_WORDS)
@given(st.data())
def test_weights_of_another_shape_or_kind_are_refused(answer, content, data):
    weights = dict(content["state_dict"])
    name = data.draw(st.sampled_from(sorted(weights)))
    wrong: list[Any] = [
        torch.zeros(1).expand(10**12),
        torch.zeros((*weights[name].shape, 1)),
        weights[name].double(),
        torch.zeros(1).expand(weights[name].shape),
        weights[name].to_sparse(),
        weights[name].half(),
        torch.full_like(weights[name], torch.nan),
        torch.empty(weights[name].shape, device="meta"),
        weights[name].tolist(),
        None,
    ]
    weights[name] = wrong[data.draw(st.integers(0, len(wrong) - 1))]
    assert answer(saved({**content, "state_dict": weights})) is None


def test_a_list_that_is_longer_than_any_memory_is_refused(answer, content):
    laughs: list[Any] = ["ha"]
    for _ in range(40):
        laughs = [laughs, laughs]
    for name in ("task", "seed", "model"):
        changed = copy.deepcopy(content)
        changed["attention_lab"]["config"][name] = laughs
        assert answer(saved(changed)) is None


class Bomb:
    def __reduce__(self) -> tuple[Any, ...]:
        return (os.system, ("touch ran",))


def tensor_of_a_terabyte(file: bytes) -> bytes:
    """Claims 250 thousand million numbers where there are four."""
    many = b"\x8a\x05" + (250 * 10**9).to_bytes(5, "little")
    changed = rewritten(
        file, lambda inside: inside.replace(b"K\x04t", many + b"t").replace(b"K\x04\x85", many + b"\x85")
    )
    assert changed != rewritten(file, lambda inside: inside)
    return changed


def bytes_of_a_terabyte() -> bytes:
    """Returns a pickle that calls a harmless function with a harmful number."""
    return b"\x80\x02c__builtin__\nbytearray\n\x8a\x06" + (10**12).to_bytes(6, "little") + b"\x85R."


def with_config(content: dict[str, Any], section: str, **values: Any) -> bytes:
    changed = copy.deepcopy(content)
    changed["attention_lab"]["config"][section] |= values
    return saved(changed)


@pytest.fixture(scope="module")
def files(content) -> dict[str, bytes]:
    zeros = io.BytesIO()
    with zipfile.ZipFile(zeros, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", bytes(2**28))
    old = io.BytesIO()
    torch.save(content, old, _use_new_zipfile_serialization=False)
    return {
        "pickle bomb": pickle.dumps(Bomb()),
        "pickle bomb in a checkpoint": saved({**content, "bomb": Bomb()}),
        "foreign target": with_config(content, "model", _target_="torch.load"),
        "terabyte": tensor_of_a_terabyte(saved({"x": torch.arange(4.0)})),
        "terabyte of memory": rewritten(
            saved({}),
            lambda _: b"\x80\x02c__builtin__\nbytearray\n\x8a\x06" + (10**12).to_bytes(6, "little") + b"\x85R.",
        ),
        "zip bomb": zeros.getvalue(),
        "format of old": old.getvalue(),
        "page": b"<!DOCTYPE html><html><body>404</body></html>",
        "width of a thousand million": with_config(content, "model", d_model=10**9, num_heads=10**9),
        "thousand million layers": with_config(content, "model", num_layers=10**9),
        "thousand million sequences": with_config(content, "data", test_size=10**9, max_length=10**9),
        "nothing": b"",
    }


NAMES = [
    pytest.param("pickle bomb", marks=pytest.mark.slow),
    "pickle bomb in a checkpoint",
    pytest.param("foreign target", marks=pytest.mark.slow),
    pytest.param("terabyte", marks=pytest.mark.slow),
    pytest.param("terabyte of memory", marks=pytest.mark.slow),
    pytest.param("zip bomb", marks=pytest.mark.slow),
    pytest.param("format of old", marks=pytest.mark.slow),
    pytest.param("page", marks=pytest.mark.slow),
    pytest.param("width of a thousand million", marks=pytest.mark.slow),
    pytest.param("thousand million layers", marks=pytest.mark.slow),
    pytest.param("thousand million sequences", marks=pytest.mark.slow),
    pytest.param("nothing", marks=pytest.mark.slow),
]


@pytest.mark.parametrize("name", NAMES)
def test_evaluation_refuses_it_in_one_line_with_little_memory(files, name, tmp_path):
    (tmp_path / "some.ckpt").write_bytes(files[name])
    command = [sys.executable, str(ROOT / "evaluate.py"), "checkpoint=some.ckpt", "hydra.run.dir=results"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        # Enough for PyTorch's libraries to be mapped; what is claimed beyond is not there.
        resource.prlimit(process.pid, resource.RLIMIT_DATA, (2**30, 2**30))
        said, complaints = process.communicate(timeout=60)
    assert (process.returncode, said) == (2, ""), complaints
    assert len(complaints.splitlines()) == 1
    assert complaints.startswith("error: checkpoint=some.ckpt ")
    assert os.listdir(tmp_path) == ["some.ckpt"]
