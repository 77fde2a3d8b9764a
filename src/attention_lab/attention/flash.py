"""FlashAttention: the same attention, by the one kernel that never holds a matrix of scores."""

from collections.abc import Mapping
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from attention_lab.attention.key_values import KeyValues
from attention_lab.attention.mask import Mask, boolean
from attention_lab.attention.multi_head import MultiHeadAttention, fused
from attention_lab.positions.position import QueryKeyPositions


class FlashAttention(MultiHeadAttention):
    """Multi-head attention by PyTorch's FlashAttention kernel, or not at all (Dao et al. 2022, Dao 2023).

    The equation is full attention's; the kernel goes through the keys block by block and keeps a running softmax, so
    that its memory grows with L instead of with L · S. Where full attention lets PyTorch choose among its kernels and
    silently falls back, this one says what keeps the kernel from running. Weights, where asked for, come from the
    explicit equation: no kernel returns them.

    A mask is looked at first, since the kernel takes none on a GPU but the causal one: what hides nothing, such as the
    padding of a batch without any, is dropped. On a GPU that look waits for the mask's numbers.
    """

    unsupported: ClassVar[Mapping[str, str]] = {"bias": "the flash kernel adds nothing to its scores"}

    def mix(
        self,
        queries: Float[Tensor, "B H L K"],
        memory: KeyValues,
        mask: Mask,
        positions: QueryKeyPositions | None,
        need_weights: bool,
    ) -> tuple[Float[Tensor, "B H L K"], Float[Tensor, "B H L S"] | None]:
        """Mixes values, head by head.

        Raises:
            RuntimeError: the flash kernel cannot run on this device or type, or with this mask or dropout.
            ValueError: the position code adds to the scores.
        """
        if positions is not None:
            raise ValueError(f"{type(positions.code).__name__} needs a bias, but {self.unsupported['bias']}")
        if need_weights:
            return super().mix(queries, memory, mask, positions, need_weights)
        dropout = self.dropout.p if self.training else 0.0
        mask = what_hides(mask, queries.size(-2))
        obstacle = _obstacle(queries, memory.keys, mask, dropout)
        if obstacle is not None:
            raise RuntimeError(f"PyTorch's flash kernel {obstacle}; attention=full works")
        try:
            with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
                return fused(queries, memory, mask, dropout), None
        except RuntimeError as error:
            if "No available kernel" not in str(error):
                raise
            matrix = mask.matrix(queries.size(-2), memory.keys.size(-2))
            tried = {"queries": queries, "keys": memory.keys} | ({} if matrix is None else {"mask": matrix})
            shapes = ", ".join(f"{name} {tuple(part.shape)}" for name, part in tried.items())
            where = f"{queries.dtype} on this {queries.device.type} device"
            raise RuntimeError(
                f"PyTorch's flash kernel does not run with {shapes} of {where}; attention=full works"
            ) from error


def what_hides(mask: Mask, num_queries: int) -> Mask:
    """Returns the mask without those of its parts that hide nothing."""
    keys, allowed = mask.keys, mask.allowed
    if keys is not None and boolean(keys).all():
        keys = None
    if allowed is not None:
        # The kernel wants all four dimensions, or two.
        allowed = None if boolean(allowed).all() else allowed[(None,) * (4 - allowed.dim())]
    return Mask(keys, mask.causal and num_queries > 1, allowed)


def _obstacle(queries: Tensor, keys: Tensor, mask: Mask, dropout: float) -> str | None:
    """Returns what is known to keep the kernel from running, as the rest of a sentence about it."""
    device = queries.device.type
    if device == "cpu":
        return f"drops no weights on a CPU (dropout={dropout}; use 0)" if dropout else None
    if device != "cuda":
        return f"runs on cpu and cuda devices, not on {device}"
    if queries.dtype not in {torch.float16, torch.bfloat16}:
        return f"takes float16 and bfloat16 on a GPU (as with trainer.precision=bf16-mixed), not {queries.dtype}"
    # The kernel aligns `is_causal` at the top left; that is ours only where there are as many queries as keys.
    skewed = mask.causal and queries.size(-2) != keys.size(-2)
    if skewed or mask.keys is not None or mask.allowed is not None:
        return "takes no mask on a GPU but a square causal one, so that no batch may be padded"
    return None
