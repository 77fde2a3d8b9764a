"""Encoder-decoder Transformers of the same shape: ours, and those of other libraries, each as its library is used."""

import importlib.util
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import torch
from jaxtyping import Bool, Float, Integer
from torch import Tensor, nn

from attention_lab.models.blocks import draw_xavier
from attention_lab.models.embedding import Embedding
from attention_lab.models.encoder_decoder import EncoderDecoder
from attention_lab.models.inference import greedy_decode
from attention_lab.models.model import Tokens
from attention_lab.models.transformer import PACKED_PARTS
from attention_lab.positions.sinusoidal import PositionalEncoding
from attention_lab.tasks.vocabulary import BOS, EOS, PAD

Decode = Callable[[Tensor, int], Tensor]
"""Says so many tokens for every source, the likeliest at each step."""


@dataclass(frozen=True)
class NetworkShape:
    """What all contenders have in common.

    Attributes:
        num_tokens: token ids, specials included (V).
        d_model: model width D.
        num_heads: attention heads.
        num_layers: layers of the encoder, and of the decoder.
        d_ff: width of the feed-forward layers.
        max_tokens: longest sequence, specials included.
    """

    num_tokens: int
    d_model: int
    num_heads: int
    num_layers: int
    d_ff: int
    max_tokens: int


class Contender(nn.Module, ABC):
    """A network that can be trained and that can decode.

    Attributes:
        package: what has to be installed; None where nothing else has.
        batch_parts: parts of like lengths that its training batches are cut into on a CPU.
        decodes: whether it takes part in decoding.
    """

    package: ClassVar[str | None] = None
    batch_parts: ClassVar[int] = 1
    decodes: ClassVar[bool] = True

    @abstractmethod
    def forward(self, source: Integer[Tensor, "B S"], target: Integer[Tensor, "B T"]) -> Float[Tensor, "B T V"]:
        """Returns logits of what follows each target token, given the true ones before it."""

    @abstractmethod
    def decoders(self) -> dict[str, Decode]:
        """Returns its ways to decode greedily, `cached` or `uncached`; none of them ever stops early."""

    @property
    def num_weights(self) -> int:
        """How many weights it has."""
        return sum(weights.numel() for weights in self.parameters())


class Ours(Contender):
    """The network and the batches that `train.py` makes by default."""

    batch_parts = PACKED_PARTS

    def __init__(self, shape: NetworkShape) -> None:
        super().__init__()
        self.network = EncoderDecoder(
            shape.num_tokens, shape.d_model, shape.num_heads, shape.num_layers, shape.d_ff, dropout=0.0
        )

    def forward(self, source: Tokens, target: Tokens) -> Float[Tensor, "B T V"]:
        return self.network.logits(source, target)

    def decoders(self) -> dict[str, Decode]:
        with torch.no_grad():
            self.network.output.bias[EOS] = -1e9

        def uncached(source: Tensor, length: int) -> Tensor:
            begun = self.network.begin(source)

            def predict(target: Tensor) -> Tensor:
                # Reading fills a state's caches: who is to read everything again needs empty ones.
                caches = [block.self_attn.new_cache() for block in self.network.decoder_layers]
                empty = begun._replace(history=caches)
                return self.network.step(target, empty)[0].logits

            return _uncached(predict, source, length)

        return {"cached": lambda source, length: greedy_decode(self.network, source, length), "uncached": uncached}


class OursPadded(Ours):
    """The same network on the padded batches that the others get."""

    batch_parts = 1
    decodes = False


class TorchTransformer(Contender):
    """`torch.nn.Transformer` between our embeddings, positions and output. It has no cache.

    Targets are padded on the right, where nothing that counts can see them, so they need no mask of their own.
    """

    def __init__(self, shape: NetworkShape) -> None:
        super().__init__()
        self.source_embedding, self.target_embedding = (
            Embedding(shape.num_tokens, shape.d_model, 0.0, PositionalEncoding(shape.d_model, shape.max_tokens))
            for _ in range(2)
        )
        self.network = nn.Transformer(
            shape.d_model,
            shape.num_heads,
            shape.num_layers,
            shape.num_layers,
            shape.d_ff,
            dropout=0.0,
            batch_first=True,
        )
        # In evaluation mode it would pack padded sources into nested tensors, with a warning that these may change.
        self.network.encoder.use_nested_tensor = False
        self.output = nn.Linear(shape.d_model, shape.num_tokens)
        draw_xavier(self)

    def forward(self, source: Integer[Tensor, "B S"], target: Integer[Tensor, "B T"]) -> Float[Tensor, "B T V"]:
        padding = source == PAD
        return self._said(target, self._read(source, padding), padding)

    def decoders(self) -> dict[str, Decode]:
        def uncached(source: Tensor, length: int) -> Tensor:
            padding = source == PAD
            memory = self._read(source, padding)
            return _uncached(lambda target: self._said(target, memory, padding), source, length)

        return {"uncached": uncached}

    def _read(self, source: Tensor, padding: Bool[Tensor, "B S"]) -> Float[Tensor, "B S D"]:
        return self.network.encoder(self.source_embedding(source), src_key_padding_mask=padding)

    def _said(self, target: Tensor, memory: Tensor, padding: Bool[Tensor, "B S"]) -> Float[Tensor, "B T V"]:
        length = target.size(1)
        future = torch.ones(length, length, dtype=torch.bool, device=target.device).triu(1)
        said = self.network.decoder(
            self.target_embedding(target),
            memory,
            tgt_mask=future,
            memory_key_padding_mask=padding,
            tgt_is_causal=True,
        )
        return self.output(said)


class XTransformers(Contender):
    """`x_transformers.XTransformer` with its defaults (pre-norm, no biases, learned positions) and fused attention."""

    package = "x_transformers"

    def __init__(self, shape: NetworkShape) -> None:
        super().__init__()
        from x_transformers import XTransformer

        stack: dict[str, Any] = {
            "num_tokens": shape.num_tokens,
            "max_seq_len": shape.max_tokens,
            "depth": shape.num_layers,
            "heads": shape.num_heads,
            "attn_dim_head": shape.d_model // shape.num_heads,
            "attn_flash": True,
            "ff_mult": shape.d_ff / shape.d_model,
        }
        cross: dict[str, Any] = {"dec_cross_attn_dim_head": stack["attn_dim_head"], "dec_cross_attn_flash": True}
        each = {f"{side}_{name}": value for side in ("enc", "dec") for name, value in stack.items()}
        self.network: Any = XTransformer(dim=shape.d_model, **each, **cross)

    def forward(self, source: Integer[Tensor, "B S"], target: Integer[Tensor, "B T"]) -> Float[Tensor, "B T V"]:
        real = source != PAD
        memory = self.network.encoder(source, mask=real, return_embeddings=True)
        # Past the wrapper that would read one token more, and whose loss is the same.
        return self.network.decoder.net(target, context=memory, context_mask=real)

    def decoders(self) -> dict[str, Decode]:
        def cached(source: Tensor, length: int) -> Tensor:
            start = source.new_full((len(source), 1), BOS)
            return self.network.generate(source, start, length, mask=source != PAD, temperature=0.0)

        return {"cached": cached}


class Bart(Contender):
    """Hugging Face's BART, built from a small config: post-norm, learned positions, shared embeddings."""

    package = "transformers"

    def __init__(self, shape: NetworkShape) -> None:
        super().__init__()
        from transformers import BartConfig, BartForConditionalGeneration

        config = BartConfig(
            vocab_size=shape.num_tokens,
            max_position_embeddings=shape.max_tokens,
            d_model=shape.d_model,
            encoder_layers=shape.num_layers,
            decoder_layers=shape.num_layers,
            encoder_attention_heads=shape.num_heads,
            decoder_attention_heads=shape.num_heads,
            encoder_ffn_dim=shape.d_ff,
            decoder_ffn_dim=shape.d_ff,
            activation_function="relu",
            dropout=0.0,
            scale_embedding=True,
            pad_token_id=PAD,
            bos_token_id=BOS,
            eos_token_id=EOS,
            decoder_start_token_id=BOS,
            forced_eos_token_id=None,
        )
        self.network: Any = BartForConditionalGeneration(config)
        # Without an EOS nothing stops early, and nothing has to look for it at every token either.
        self.network.generation_config.eos_token_id = None

    def forward(self, source: Integer[Tensor, "B S"], target: Integer[Tensor, "B T"]) -> Float[Tensor, "B T V"]:
        return self.network(
            input_ids=source, attention_mask=(source != PAD).long(), decoder_input_ids=target, use_cache=False
        ).logits

    def decoders(self) -> dict[str, Decode]:
        def cached(source: Tensor, length: int) -> Tensor:
            said = self.network.generate(
                input_ids=source,
                attention_mask=(source != PAD).long(),
                max_new_tokens=length,
                do_sample=False,
                num_beams=1,
                use_cache=True,
            )
            return cast(Tensor, said)[:, 1:]

        return {"cached": cached}


CONTENDERS: Mapping[str, type[Contender]] = {
    "ours": Ours,
    "ours, padded": OursPadded,
    "torch.nn.Transformer": TorchTransformer,
    "x-transformers": XTransformers,
    "BART (transformers)": Bart,
}
"""Who takes part, under the name that tables show."""


def installed() -> list[str]:
    """Returns the names of the contenders whose packages are there."""
    return [name for name, made in CONTENDERS.items() if made.package is None or importlib.util.find_spec(made.package)]


def _uncached(predict: Callable[[Tensor], Tensor], source: Tensor, length: int) -> Integer[Tensor, "B T"]:
    """Decodes by reading everything said so far again for each further token."""
    target = source.new_full((len(source), 1), BOS)
    for _ in range(length):
        target = torch.cat([target, predict(target)[:, -1:].argmax(dim=-1)], dim=1)
    return target[:, 1:]
