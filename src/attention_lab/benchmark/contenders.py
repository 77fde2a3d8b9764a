"""Encoder-decoder Transformers of the same shape: ours, and those of other libraries, each as its library is used."""

import importlib.util
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from attention_lab.benchmark.machine import Machine
from attention_lab.benchmark.plain_loop import PlainLoop
from attention_lab.benchmark.settings import DeviceSettings
from attention_lab.composition.build import build_data, build_network, build_task
from attention_lab.data.batches import Batch
from attention_lab.data.module import SequenceData
from attention_lab.models.blocks import draw_xavier
from attention_lab.models.embedding import Embedding
from attention_lab.models.encoder_decoder import EncoderDecoder
from attention_lab.models.inference import greedy_decode
from attention_lab.positions.sinusoidal import PositionalEncoding
from attention_lab.settings.schema import TrainSettings
from attention_lab.tasks.vocabulary import BOS, EOS, PAD, num_tokens

Predict = Callable[..., Tensor]
"""From a source (B, S) and a target (B, L): logits (B, L, V) of what follows each target token, given those before it;
ours takes the parts of a batch as well, as `SequenceModel.logits` does."""

Decode = Callable[[Tensor, int], Tensor]
"""From sources (B, S): so many tokens (B, L), the likeliest at each step. It never stops early."""


class Contender(NamedTuple):
    """A network that can be trained and that can decode.

    Attributes:
        network: holds all weights.
        predict: runs it on a batch.
        decoders: its ways to decode, `cached` or `uncached`.
        batch_parts: parts of like lengths that its training batches are cut into on a CPU.
    """

    network: nn.Module
    predict: Predict
    decoders: Mapping[str, Decode]
    batch_parts: int = 1


def ours(settings: TrainSettings) -> Contender:
    """Returns the network that `train.py` makes, with the batches that it makes."""
    network = build_network(settings.model, settings.attention, settings.position, settings.data)
    assert isinstance(network, EncoderDecoder)

    def never_end() -> None:
        with torch.no_grad():
            network.output.bias[EOS] = -1e9

    def cached(source: Tensor, length: int) -> Tensor:
        never_end()
        return greedy_decode(network, source, length)

    def uncached(source: Tensor, length: int) -> Tensor:
        never_end()
        # Without a history, a step reads all tokens that it is given, and keeps nothing of them.
        begun = network.begin(source)._replace(history=())
        return _uncached(lambda target: network.step(target, begun)[0].logits, source, length)

    decoders = {"cached": cached, "uncached": uncached}
    return Contender(network, network.logits, decoders, network.batch_parts)


def ours_padded(settings: TrainSettings) -> Contender:
    """Returns the same network with the padded batches that the others get; it decodes as `ours` does."""
    return ours(settings)._replace(decoders={}, batch_parts=1)


def torch_transformer(settings: TrainSettings) -> Contender:
    """Returns `torch.nn.Transformer` between our embeddings, positions and output. It has no cache.

    Targets are padded on the right, where nothing that counts can see them, so they need no mask of their own.
    """
    shape, width, layers = settings.model, settings.model["d_model"], settings.model["num_layers"]
    tokens, most = num_tokens(settings.data.vocab_size), settings.position["max_len"]
    sources, targets = (Embedding(tokens, width, 0.0, PositionalEncoding(width, most)) for _ in range(2))
    transformer = nn.Transformer(
        width, shape["num_heads"], layers, layers, shape["d_ff"], dropout=0.0, batch_first=True
    )
    # In evaluation mode it would pack padded sources into nested tensors, with a warning that these may change.
    transformer.encoder.use_nested_tensor = False
    output = nn.Linear(width, tokens)
    network = nn.ModuleList([sources, targets, transformer, output])
    draw_xavier(network)

    def encode(source: Tensor) -> Callable[[Tensor], Tensor]:
        padding = source == PAD
        memory = transformer.encoder(sources(source), src_key_padding_mask=padding)

        def decode(target: Tensor) -> Tensor:
            future = torch.ones(target.size(1), target.size(1), dtype=torch.bool, device=target.device).triu(1)
            masks = {"tgt_mask": future, "memory_key_padding_mask": padding}
            return output(transformer.decoder(targets(target), memory, **masks, tgt_is_causal=True))

        return decode

    def uncached(source: Tensor, length: int) -> Tensor:
        return _uncached(encode(source), source, length)

    def predict(source: Tensor, target: Tensor) -> Tensor:
        return encode(source)(target)

    return Contender(network, predict, {"uncached": uncached})


def x_transformers(settings: TrainSettings) -> Contender:
    """Returns `XTransformer` with its defaults (pre-norm, no biases, learned positions) and fused attention."""
    from x_transformers import XTransformer

    shape = settings.model
    stack: dict[str, Any] = {
        "num_tokens": num_tokens(settings.data.vocab_size),
        "max_seq_len": settings.position["max_len"],
        "depth": shape["num_layers"],
        "heads": shape["num_heads"],
        "attn_dim_head": shape["d_model"] // shape["num_heads"],
        "attn_flash": True,
        "ff_mult": shape["d_ff"] / shape["d_model"],
    }
    cross: dict[str, Any] = {"dec_cross_attn_dim_head": stack["attn_dim_head"], "dec_cross_attn_flash": True}
    both = {f"{side}_{name}": value for side in ("enc", "dec") for name, value in stack.items()}
    network: Any = XTransformer(dim=shape["d_model"], **both, **cross)

    def predict(source: Tensor, target: Tensor) -> Tensor:
        real = source != PAD
        memory = network.encoder(source, mask=real, return_embeddings=True)
        # Past the wrapper that would read one token more, and whose loss is the same.
        return network.decoder.net(target, context=memory, context_mask=real)

    def cached(source: Tensor, length: int) -> Tensor:
        start = source.new_full((len(source), 1), BOS)
        return network.generate(source, start, length, mask=source != PAD, temperature=0.0)

    return Contender(network, predict, {"cached": cached})


def bart(settings: TrainSettings) -> Contender:
    """Returns Hugging Face's BART, built from a small config: post-norm, learned positions, shared embeddings."""
    from transformers import BartConfig, BartForConditionalGeneration

    shape = settings.model
    stack = {"layers": shape["num_layers"], "attention_heads": shape["num_heads"], "ffn_dim": shape["d_ff"]}
    both: dict[str, Any] = {f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in stack.items()}
    config = BartConfig(
        vocab_size=num_tokens(settings.data.vocab_size),
        max_position_embeddings=settings.position["max_len"],
        d_model=shape["d_model"],
        **both,
        activation_function="relu",
        dropout=0.0,
        scale_embedding=True,
        pad_token_id=PAD,
        bos_token_id=BOS,
        eos_token_id=EOS,
        decoder_start_token_id=BOS,
        forced_eos_token_id=None,
    )
    network: Any = BartForConditionalGeneration(config)
    # Without an EOS nothing stops early, and nothing has to look for it at every token either.
    network.generation_config.eos_token_id = None

    def predict(source: Tensor, target: Tensor) -> Tensor:
        real = (source != PAD).long()
        return network(input_ids=source, attention_mask=real, decoder_input_ids=target, use_cache=False).logits

    def cached(source: Tensor, length: int) -> Tensor:
        given = {"input_ids": source, "attention_mask": (source != PAD).long(), "max_new_tokens": length}
        return network.generate(**given, do_sample=False, num_beams=1, use_cache=True)[:, 1:]

    return Contender(network, predict, {"cached": cached})


CONTENDERS: Mapping[str, Callable[[TrainSettings], Contender]] = {
    "ours": ours,
    "ours, padded": ours_padded,
    "torch.nn.Transformer": torch_transformer,
    "x-transformers": x_transformers,
    "BART (transformers)": bart,
}
"""Who takes part, under the name that tables show."""

PACKAGES: Mapping[str, str] = {"x-transformers": "x_transformers", "BART (transformers)": "transformers"}
"""What has to be installed for some of them."""


def installed() -> list[str]:
    """Returns the names of the contenders whose packages are there."""
    return [name for name in CONTENDERS if name not in PACKAGES or importlib.util.find_spec(PACKAGES[name])]


def build_contender(name: str, settings: TrainSettings) -> Contender:
    """Builds a contender of the shape of ours; `position.max_len` says how many tokens a sequence may have.

    Raises:
        SettingError: the network refuses the shape.
    """
    torch.manual_seed(0)
    return CONTENDERS[name](settings)


def training_data(settings: TrainSettings, parts: int, machine: Machine) -> SequenceData:
    """Returns what is learned, in batches without end: of so many parts on a CPU, whole ones on a GPU.

    Raises:
        SettingError: there is no such data.
    """
    parts = 1 if machine.is_gpu else parts
    data = build_data(build_task(settings.task), settings.data, settings.seed, splits=("train",), parts=parts)
    data.endless = True
    return data


def train(loop: PlainLoop, batches: Iterator[Sequence[Batch]], machine: Machine, steps: int) -> int:
    """Takes so many steps and returns how many real target tokens they saw."""
    tokens = 0
    for batch in itertools.islice(batches, steps):
        tokens += sum(int((part.labels != PAD).sum()) for part in batch)
        loop.step([Batch(*(column.to(machine.device) for column in part)) for part in batch])
    return tokens


def measure_memory(name: str, learned: TrainSettings, settings: DeviceSettings, steps: int) -> int:
    """Returns the peak bytes of a contender's training.

    A first step on one sequence brings about the gradients, the optimiser's moments and all that libraries set up.
    """
    machine = Machine(settings)
    contender = build_contender(name, learned)
    loop = PlainLoop(contender.network, contender.predict, learned, machine)
    data = training_data(learned, contender.batch_parts, machine)
    train(loop, iter([[data.rows("train")[0]]]), machine, 1)
    batches = iter(data.train_dataloader())
    return machine.peak_bytes(lambda: train(loop, batches, machine, steps))


def _uncached(predict: Callable[[Tensor], Tensor], source: Tensor, length: int) -> Tensor:
    """Decodes by reading all tokens so far again for each further one."""
    target = source.new_full((len(source), 1), BOS)
    for _ in range(length):
        target = torch.cat([target, predict(target)[:, -1:].argmax(dim=-1)], dim=1)
    return target[:, 1:]
