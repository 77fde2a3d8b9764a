"""What stands on the axes of an attention map."""

from attention_lab.data.batches import Batch
from attention_lab.plotting.attention import MapLabels
from attention_lab.tasks.vocabulary import token_labels

_SCALE = "white = 0, dark = 1"


def map_labels(attention: str, layer: int, example: Batch) -> MapLabels:
    """Returns the labels for an attention of an encoder-decoder.

    In cross-attention a row is named after the token that it must say, so that on a right alignment row and column
    carry the same name; in self-attention rows and columns are the tokens that are read.

    Args:
        attention: `encoder_self`, `decoder_self` or `decoder_cross`.
        layer: from 0.
        example: a batch of one, without padding.
    """
    title = f"{attention}, layer {layer}: {_SCALE}"
    source = token_labels(example.source[0].tolist())
    if attention == "encoder_self":
        return MapLabels(title, source, source, None, "source", "attends to source")
    if attention == "decoder_self":
        target = token_labels(example.target[0].tolist())
        return MapLabels(title, target, target, None, "target read", "attends to target")
    gold = [position if position >= 0 else None for position in example.alignment[0].tolist()]
    said = token_labels(example.labels[0].tolist())
    title += ", outlined = the token it comes from"
    return MapLabels(title, said, source, gold, "target to say", "attends to source")
