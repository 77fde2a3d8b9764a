"""Every config that can be composed is built, and nothing but our own classes can be named in one."""

import itertools
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from attention_lab.attention.multi_head import MultiHeadAttention
from attention_lab.attention.sliding_window import SlidingWindowAttention
from attention_lab.composition.build import build_data, build_network, build_task
from attention_lab.composition.compatibility import check_sequences
from attention_lab.data.module import SequenceData
from attention_lab.errors import SettingError, as_written
from attention_lab.models.encoder_decoder import EncoderDecoder
from attention_lab.models.model import SequenceModel
from attention_lab.models.recurrent import RecurrentSeq2Seq
from attention_lab.settings.checking import build
from attention_lab.settings.schema import Component, DataSettings, TrainSettings
from attention_lab.tasks.copy import Copy
from attention_lab.tasks.duplicate import Duplicate
from attention_lab.tasks.reverse import Reverse
from attention_lab.tasks.vocabulary import FIRST_SYMBOL, num_tokens

CONFIGS = Path(__file__).parents[2] / "configs"


GROUPS = ("task", "model", "attention", "position", "trainer")


def choices(group: str) -> list[tuple[str, ...]]:
    # What a file of pairs needs besides is in tests/commands/test_file.py.
    names = {path.stem for path in (CONFIGS / group).glob("*.yaml")} - {"file", "cmudict"}
    return [(f"{group}={name}",) for name in sorted(names)]


# Every choice by itself, and every task with every model; tests/test_matrix.py has models, attentions and positions.
COMBINATIONS = [choice for group in (*GROUPS, "experiment") for choice in choices(group)]
COMBINATIONS = [
    choice for choice in COMBINATIONS if choice not in (("attention=conv_mixed",), ("attention=linformer",))
]
# With the defaults each is built in plain runs; the other pairs are slow tests.
COMBINATIONS += [
    pytest.param((*task, *model), marks=pytest.mark.slow)
    for task, model in itertools.product(choices("task"), choices("model"))
    if (*task, *model) != ("task=duplicate", "model=encoder_only")
]

TASK: Component = {"_target_": "attention_lab.tasks.reverse.Reverse"}
MODEL: Component = {
    "_target_": "attention_lab.models.encoder_decoder.EncoderDecoder",
    "d_model": 15,
    "num_heads": 5,
    "num_layers": 2,
    "d_ff": 23,
    "dropout": 0.0,
}
ATTENTION: Component = {"_target_": "attention_lab.attention.multi_head.MultiHeadAttention"}
POSITION: Component = {"_target_": "attention_lab.positions.sinusoidal.PositionalEncoding", "max_len": 17}
DATA = DataSettings(
    min_length=2,
    max_length=13,
    vocab_size=11,
    unique_symbols=False,
    train_size=101,
    validation_size=19,
    test_size=23,
    batch_size=7,
    num_workers=0,
)


@pytest.fixture(scope="module")
def composed() -> Iterator[Callable[..., dict[str, Any]]]:
    def config(*overrides: str) -> dict[str, Any]:
        return OmegaConf.to_container(compose("train", list(overrides)), resolve=True, throw_on_missing=True)

    with initialize_config_dir(str(CONFIGS), version_base="1.3"):
        yield config


def network(**changed: Component) -> SequenceModel[Any]:
    parts = {"model": MODEL, "attention": ATTENTION, "position": POSITION, **changed}
    return build_network(parts["model"], parts["attention"], parts["position"], DATA)


def put(section: str, component: Component) -> object:
    return build_task(component) if section == "task" else network(**{section: component})


def data_of(max_length: int) -> DataSettings:
    return DATA.changed(max_length=max_length)


@pytest.mark.parametrize("overrides", COMBINATIONS, ids=" ".join)
def test_every_combination_of_configs_is_built(
    composed: Callable[..., dict[str, Any]], overrides: tuple[str, ...]
) -> None:
    # Small splits: what is drawn for the default sizes is the same, only more.
    settings = build(TrainSettings, composed(*overrides, "data.validation_size=7", "data.batch_size=5"), "")
    task = build_task(settings.task)
    built = build_network(settings.model, settings.attention, settings.position, settings.data)
    check_sequences(built, task, settings.data)
    batch = next(iter(build_data(task, settings.data, settings.seed).loader("validation")))
    with torch.no_grad():
        logits = built(batch.source, batch.target).logits
    assert logits.shape == (5, batch.labels.size(1), num_tokens(settings.data.vocab_size))
    assert logits.isfinite().all()


def test_the_choice_of_a_task_is_the_task(composed: Callable[..., dict[str, Any]]) -> None:
    assert type(build_task(composed("task=copy")["task"])) is Copy
    assert type(build_task(composed("task=reverse")["task"])) is Reverse


def test_heads_that_do_not_divide_the_width_are_named(composed: Callable[..., dict[str, Any]]) -> None:
    settings = build(TrainSettings, composed("model.num_heads=7"), "")
    with pytest.raises(SettingError, match=r"^model\.num_heads=7 does not divide d_model=128; use one of \[1, 2, 4"):
        build_network(settings.model, settings.attention, settings.position, settings.data)


def test_settings_reach_the_network() -> None:
    built = network(model={**MODEL, "dropout": 0.3})
    assert isinstance(built, EncoderDecoder)
    assert len(built.encoder) == len(built.decoder) == 2
    attentions = [module for module in built.modules() if isinstance(module, MultiHeadAttention)]
    assert len(attentions) == 2 + 2 * 2
    assert {(one.d_model, one.num_heads, one.dropout.p) for one in attentions} == {(15, 5, 0.3)}
    assert built.encoder[0].ffn[0].out_features == 23
    assert built.output.out_features == num_tokens(11)
    assert built.max_length == 17


LSTM: Component = {"_target_": "attention_lab.models.recurrent.RecurrentSeq2Seq", "cell": "lstm", "d_model": 17}


def test_a_network_without_use_for_attention_and_position_gets_neither() -> None:
    built = network(model=LSTM)
    assert isinstance(built, RecurrentSeq2Seq)
    assert built.decoder.hidden_size == 17
    assert built.output.out_features == num_tokens(11)
    # Neither can be smuggled in, and what is wrong with them is told all the same.
    with pytest.raises(SettingError, match=r"^model\.attention\._target_=.* is not a setting"):
        network(model={**LSTM, "attention": ATTENTION})
    with pytest.raises(SettingError, match=r"^position\.d_model=15 is not a setting"):
        network(model=LSTM, position={**POSITION, "d_model": 15})
    # What is not the default was asked for, and would be left out in silence.
    linear = {"_target_": "attention_lab.attention.linear.LinearAttention"}
    chosen = {"model": "lstm", "attention": "linear", "position": "sinusoidal"}
    with pytest.raises(SettingError, match=r"^attention=linear does not go with model=lstm, which has none"):
        build_network(LSTM, linear, POSITION, DATA, choices=chosen)
    rotary = {"_target_": "attention_lab.positions.rotary.RotaryPosition"}
    with pytest.raises(SettingError, match=r"^position=RotaryPosition does not go with model=RecurrentSeq2Seq"):
        network(model=LSTM, position=rotary)


def test_a_setting_that_a_network_does_not_have_is_named() -> None:
    with pytest.raises(SettingError, match=r"^model\.max_len=5 is not a setting"):
        network(model={**LSTM, "max_len": 5})
    with pytest.raises(SettingError, match=r"^model\.cell=gru is not one of rnn, lstm$"):
        network(model={**LSTM, "cell": "gru"})


def test_a_network_starts_with_the_weights_of_its_seed() -> None:
    def weights(seed: int) -> torch.Tensor:
        torch.manual_seed(seed)
        return network().output.weight

    assert torch.equal(weights(3), weights(3))
    assert not torch.equal(weights(3), weights(5))


def test_settings_reach_the_data() -> None:
    data = build_data(Copy(), DATA, seed=3)
    assert {split: len(data.rows(split)) for split in ("train", "validation", "test")} == {
        "train": 101,
        "validation": 19,
        "test": 23,
    }
    assert (data.batch_size, data.seed, data.num_workers) == (7, 3, 0)
    batch = next(iter(data.loader("test")))
    assert torch.equal(batch.labels, batch.source)
    assert set(data.rows("train").source_lengths.tolist()) == set(range(2, 14))
    assert isinstance(data, SequenceData)
    distinct = build_data(Copy(), DATA.changed(max_length=7, unique_symbols=True), seed=3)
    for source in next(iter(distinct.loader("test"))).source:
        symbols = source[source >= FIRST_SYMBOL].tolist()
        assert len(set(symbols)) == len(symbols)
        assert set(symbols) <= set(range(FIRST_SYMBOL, FIRST_SYMBOL + 11))


def test_what_the_code_gives_cannot_be_set() -> None:
    with pytest.raises(SettingError, match=r"^model\.num_tokens=7 is not a setting"):
        network(model={**MODEL, "num_tokens": 7})
    with pytest.raises(SettingError, match=r"^attention\.num_heads=5 is not a setting"):
        network(attention={**ATTENTION, "num_heads": 5})
    with pytest.raises(SettingError, match=r"^position\.d_model=15 is not a setting"):
        network(position={**POSITION, "d_model": 15})


@pytest.mark.parametrize(
    "more", [{"_partial_": True}, {"_args_": [3]}, {"_recursive_": False}, {"__class__": "x"}], ids=str
)
def test_no_hydra_magic_gets_through(more: dict[str, object]) -> None:
    (name,) = more
    with pytest.raises(SettingError, match=rf"^task\.{name}=.* is not a setting"):
        build_task({**TASK, **more})


FOREIGN = [
    None,
    7,
    ["attention_lab.tasks.copy.Copy"],
    "",
    "Copy",
    "attention_lab",
    "attention_lab.Copy",
    "torch.load",
    "builtins.open",
    "shutil.copy",
    "os.system",
    "subprocess.Popen",
    "attention_lab_evil.tasks.copy.Copy",
    "attention_lab.composition.build.importlib.import_module",
    "attention_lab.composition.build.build_task",
    "attention_lab.tasks.copy.np.load",
    "attention_lab.tasks.copy.np",
    "attention_lab.tasks.copy",
    "attention_lab.tasks.nowhere.Copy",
    "attention_lab.tasks.copy.Nowhere",
    "attention_lab.tasks.copy.Copy.alignment",
    "attention_lab.tasks.copy.Copy ",
    "attention_lab.tasks.copy.Copy\n",
    "attention_lab..tasks.copy.Copy",
    # Nothing that can be built.
    "attention_lab.tasks.task.Task",
    "attention_lab.models.model.SequenceModel",
    # Imported there, but not from there.
    "attention_lab.tasks.copy.Task",
    "attention_lab.composition.build.Task",
    "attention_lab.data.sampling.SourceSpace",
]


@pytest.mark.parametrize("target", FOREIGN, ids=repr)
@pytest.mark.parametrize("section", ["task", "model", "attention", "position"])
def test_nothing_foreign_is_built(section: str, target: object) -> None:
    with pytest.raises(SettingError) as refusal:
        put(section, {"_target_": target})
    assert str(refusal.value).startswith(f"{section}._target_={as_written(target)} is not a ")


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("attention_lab.tasks.rotat.Rotate", "there is no module attention_lab.tasks.rotat"),
        ("attention_lab.tasks.rotate.Rotates", "attention_lab.tasks.rotate has no Rotates"),
        ("attention_lab.tasks.task.Task", "it does not define alignment"),
    ],
)
def test_a_class_that_is_not_there_is_told_from_one_that_is_not_finished(target: str, reason: str) -> None:
    with pytest.raises(SettingError, match=reason):
        build_task({"_target_": target})


KINDS = {
    "task": (TASK, "Task"),
    "model": (MODEL, "SequenceModel"),
    "attention": (ATTENTION, "MultiHeadAttention"),
    "position": (POSITION, "Position"),
}


@pytest.mark.parametrize(("section", "other"), list(itertools.permutations(KINDS, 2)))
def test_a_component_fits_into_its_own_place_only(section: str, other: str) -> None:
    stranger = {"_target_": KINDS[other][0]["_target_"]}
    expected = rf"^{section}\._target_={stranger['_target_']} is not a {KINDS[section][1]} of attention_lab$"
    with pytest.raises(SettingError, match=expected):
        put(section, stranger)


def test_a_component_without_a_class_is_refused() -> None:
    with pytest.raises(SettingError, match=r"^task\._target_=null is not a Task"):
        build_task({})


def test_a_foreign_module_is_not_even_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "attention_lab_intruder.py").write_text("raise RuntimeError('imported')\n")
    monkeypatch.syspath_prepend(tmp_path)
    for target in ("attention_lab_intruder.Copy", "attention_lab.attention_lab_intruder.Copy"):
        with pytest.raises(SettingError):
            build_task({"_target_": target})
    assert "attention_lab_intruder" not in sys.modules


@pytest.mark.parametrize("task", [Copy(), Reverse()])
def test_the_longest_sequence_with_its_end_just_fits_the_positions(task: Copy | Reverse) -> None:
    check_sequences(network(), task, data_of(16))


def test_an_attention_with_fewer_places_than_the_positions_is_named() -> None:
    linformer = {"_target_": "attention_lab.attention.linformer.LinformerAttention", "max_len": 7}
    encoder = {**MODEL, "_target_": "attention_lab.models.encoder_only.EncoderOnly"}
    built = network(model=encoder, attention=linformer)
    assert built.max_length == 7
    with pytest.raises(SettingError, match=r"attention\.max_len=7 holds no more than 7$"):
        check_sequences(built, Reverse(), data_of(13))


def test_a_causal_stack_shares_its_places_between_source_and_target() -> None:
    causal = {**MODEL, "_target_": "attention_lab.models.decoder_only.DecoderOnly"}
    with pytest.raises(
        SettingError, match=r"position\.max_len=17, which source and target share, holds no more than 8$"
    ):
        check_sequences(network(model=causal), Reverse(), data_of(13))


def test_global_tokens_are_refused_where_padding_takes_their_place() -> None:
    causal = {**MODEL, "_target_": "attention_lab.models.decoder_only.DecoderOnly"}
    window = {"_target_": "attention_lab.attention.sliding_window.SlidingWindowAttention", "window": 3}
    check_sequences(network(model=causal, attention=window), Reverse(), data_of(5))
    with pytest.raises(SettingError, match=r"^attention\.num_global=2 does not go with model=decoder_only"):
        check_sequences(network(model=causal, attention={**window, "num_global": 2}), Reverse(), data_of(5))
    check_sequences(network(attention={**window, "num_global": 2}), Reverse(), data_of(5))


def test_a_window_leaves_the_way_to_the_source_to_full_attention() -> None:
    window = {"_target_": "attention_lab.attention.sliding_window.SlidingWindowAttention", "window": 3}
    built = network(attention=window)
    assert isinstance(built, EncoderDecoder)
    assert type(built.decoder[0].self_attn) is type(built.encoder[0].attn) is SlidingWindowAttention
    assert type(built.decoder[0].cross_attn) is MultiHeadAttention


def test_what_says_one_token_for_each_is_not_asked_for_more() -> None:
    encoder = {**MODEL, "_target_": "attention_lab.models.encoder_only.EncoderOnly"}
    with pytest.raises(
        SettingError, match=r"^task=duplicate has targets of 10 symbols for sources of 5, but model=EncoderOnly"
    ):
        check_sequences(network(model=encoder), Duplicate(), data_of(5))


@pytest.mark.parametrize("max_length", [17, 101])
def test_sequences_beyond_the_positions_are_refused(max_length: int) -> None:
    with pytest.raises(SettingError) as refusal:
        check_sequences(network(), Reverse(), data_of(max_length))
    assert str(refusal.value).startswith(f"data.max_length={max_length} ")
    assert f"{max_length + 1} tokens" in str(refusal.value)
    assert "position.max_len=17" in str(refusal.value)


@pytest.mark.parametrize("name", ["encoder_decoder", "encoder_only", "lstm_attention"])
def test_a_sketch_has_the_shapes_of_the_network_and_takes_nothing(name, composed):
    settings = build(TrainSettings, composed(f"model={name}"), "")
    state = torch.get_rng_state()
    sketch = build_network(settings.model, settings.attention, settings.position, settings.data, sketch=True)
    assert torch.equal(torch.get_rng_state(), state)
    made = build_network(settings.model, settings.attention, settings.position, settings.data)
    assert {part.device.type for part in sketch.state_dict().values()} == {"meta"}
    shapes = [{name: part.shape for name, part in each.state_dict().items()} for each in (sketch, made)]
    assert shapes[0] == shapes[1]


@pytest.mark.parametrize(
    ("section", "changed"),
    [
        ("model", {**MODEL, "d_model": 5 * 2**60}),
        ("position", {**POSITION, "max_len": 2**62}),
        ("position", {"_target_": "attention_lab.positions.learned.LearnedPosition", "max_len": 2**62}),
        (
            "position",
            {
                "_target_": "attention_lab.positions.relative_t5.RelativeT5",
                "num_buckets": 2**61,
                "max_distance": 2**62,
            },
        ),
    ],
)
def test_sizes_beyond_any_machine_are_refused(section: str, changed: Component) -> None:
    with pytest.raises(SettingError, match=r"^(model|position\.max_len|position\.max_distance|model\.d_model)\b"):
        network(**{section: changed})


@pytest.mark.parametrize(
    "target",
    [
        "attention_lab" + "." * 400 + "Copy",
        "attention_lab" + ".a" * 400 + ".Copy",
        "attention_lab.t\u00e4sks.copy.Copy",
        "attention_lab.\ud800.Copy",
        "attention_lab.__init__.Copy",
        "attention_lab.tasks.__init__.Copy",
        "attention_lab.benchmark.__main__.Copy",
        "attention_lab." + "x" * 10**6,
        "mine.__class__",
        "\0.Copy",
    ],
    ids=lambda target: ascii(target[:40]),
)
@pytest.mark.parametrize("trust", [(), ("mine",), None])
def test_what_is_no_name_of_a_class_gets_one_line_at_once(target: str, trust: tuple[str, ...] | None) -> None:
    began = time.perf_counter()
    with pytest.raises(SettingError) as refusal:
        build_task({"_target_": target}, trust)
    assert time.perf_counter() - began < 1
    assert len(str(refusal.value)) < 600
    assert refusal.value.setting == "task._target_"


def test_a_network_that_no_memory_holds_is_refused():
    with pytest.raises(SettingError, match=r"^model takes .* GiB to be trained"):
        network(model={**MODEL, "d_model": 5 * 10**8})
