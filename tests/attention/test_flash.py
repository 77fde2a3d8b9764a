"""FlashAttention: which kernel runs, full attention's output, and what keeps the kernel from running."""

import re

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode

from attention_lab.attention.flash import FlashAttention, what_hides
from attention_lab.attention.key_values import KeyValues
from attention_lab.attention.mask import Mask, as_mask
from attention_lab.attention.multi_head import MultiHeadAttention
from attention_lab.positions.alibi import ALiBi
from attention_lab.positions.position import QueryKeyPositions
from attention_lab.positions.rotary import RotaryPosition

B, H, L, S, K = 2, 3, 5, 7, 22
D = H * K

FLASH = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default


class Recorded(TorchDispatchMode):
    """Writes down every operator that reaches a kernel."""

    def __init__(self):
        super().__init__()
        self.operators = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.operators.append(func)
        return func(*args, **(kwargs or {}))


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


@pytest.fixture
def flash() -> FlashAttention:
    return FlashAttention(D, H, dropout=0.0)


def inputs(num_queries: int = L, num_keys: int = S) -> tuple[Tensor, Tensor, Tensor]:
    return torch.randn(B, num_queries, D), torch.randn(B, num_keys, D), torch.randn(B, num_keys, D)


def padding() -> Tensor:
    real = torch.ones(B, S, dtype=torch.bool)
    real[0, 3:] = False
    real[1, :2] = False
    return real


MASKS = {
    "none": (lambda: None, L, S),
    "everything": (lambda: Mask(torch.ones(B, S, dtype=torch.bool)), L, S),
    "padding": (lambda: Mask(padding()), L, S),
    "causal": (lambda: Mask(causal=True), S, S),
    "causal, fewer queries": (lambda: Mask(causal=True), L, S),
    "causal, one query": (lambda: Mask(causal=True), 1, S),
    "causal and padding": (lambda: Mask(padding(), causal=True), S, S),
    "plain matrix": (lambda: torch.rand(B, 1, L, S) < 0.6, L, S),
    "plain matrix for all": (lambda: torch.rand(L, S) < 0.6, L, S),
    "a matrix a head": (lambda: torch.rand(H, L, S) < 0.6, L, S),
    "a closed head": (lambda: Mask(padding(), allowed=torch.tensor([True, False, True])[:, None, None]), L, S),
    "nothing real": (lambda: Mask(padding() & torch.tensor([[True], [False]])), L, S),
}
every_mask = pytest.mark.parametrize(("mask", "num_queries", "num_keys"), MASKS.values(), ids=MASKS)


@every_mask
def test_equals_full_attention(flash, mask, num_queries, num_keys):
    mask = mask()
    full = MultiHeadAttention(D, H, dropout=0.0)
    full.load_state_dict(flash.state_dict(), strict=True)
    qkv = [x.requires_grad_() for x in inputs(num_queries, num_keys)]
    wanted = torch.randn(B, num_queries, D)
    outputs, gradients = [], []
    for attention, need_weights in ((full, True), (flash, True), (flash, False)):
        outputs.append(attention(*qkv, mask, need_weights=need_weights).output)
        loss = (outputs[-1] - wanted).square().sum()
        gradients.append(torch.autograd.grad(loss, [*qkv, *attention.parameters()]))
    assert torch.equal(outputs[1], outputs[0])
    torch.testing.assert_close(outputs[2], outputs[0], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(gradients[2], gradients[0], rtol=1e-4, atol=1e-4)
    assert all(gradient.isfinite().all() for gradient in gradients[2])


@every_mask
def test_the_flash_kernel_runs_and_no_other(flash, mask, num_queries, num_keys):
    full = MultiHeadAttention(D, H, dropout=0.0)
    ran = {}
    # Who leaves the choice to PyTorch gets the kernel that is asked for outside.
    with sdpa_kernel(SDPBackend.MATH):
        for attention in (flash, full):
            with Recorded() as recorded:
                attention(*inputs(num_queries, num_keys), mask(), need_weights=False)
            ran[attention] = recorded.operators
    assert ran[flash].count(FLASH) == 1
    # The other kernels multiply matrices by themselves; nothing else in attention does without the weights.
    products = {torch.ops.aten.bmm.default, torch.ops.aten._softmax.default, torch.ops.aten._safe_softmax.default}
    assert not products & set(ran[flash])
    assert FLASH not in ran[full]
    assert products & set(ran[full])


def test_the_choice_of_a_kernel_ends_with_the_call(flash):
    flash(*inputs(), need_weights=False)
    qkv = [x.unflatten(-1, (H, K)).transpose(1, 2) for x in inputs()]
    # Dropout is what flash cannot do on a CPU.
    torch.nn.functional.scaled_dot_product_attention(*qkv, dropout_p=0.5)


def test_weights_come_from_the_explicit_equation(flash):
    output, weights = flash(*inputs(), Mask(padding()))
    assert weights.shape == (B, H, L, S)
    torch.testing.assert_close(weights.sum(-1), torch.ones(B, H, L))
    assert output.shape == (B, L, D)
    assert flash(*inputs(), need_weights=False).weights is None


def test_rotary_positions_turn_queries_and_keys(flash):
    here = torch.arange(S)[None]
    placed = QueryKeyPositions(RotaryPosition(D, num_heads=H), here, here)
    qkv = inputs(S, S)
    output = flash(*qkv, need_weights=False, positions=placed).output
    torch.testing.assert_close(output, flash(*qkv, positions=placed).output, rtol=1e-5, atol=1e-5)
    assert not torch.allclose(output, flash(*qkv, need_weights=False).output, atol=1e-3)


@pytest.mark.parametrize("need_weights", [True, False], ids=["explicit", "fused"])
def test_refuses_positions_that_add_to_the_scores(flash, need_weights):
    here = torch.arange(S)[None]
    with pytest.raises(ValueError, match="ALiBi needs a bias, but the flash kernel adds nothing to its scores"):
        flash(*inputs(S, S), need_weights=need_weights, positions=QueryKeyPositions(ALiBi(D, num_heads=H), here, here))


def test_refuses_dropout_on_a_cpu_in_training_only():
    flash = FlashAttention(D, H, dropout=0.5)
    with pytest.raises(RuntimeError, match=r"drops no weights on a CPU \(dropout=0\.5; use 0\); attention=full works$"):
        flash(*inputs(), need_weights=False)
    flash(*inputs(), need_weights=True)
    flash.eval()(*inputs(), need_weights=False)


def refusal(flash: FlashAttention, device: str, dtype: torch.dtype, mask: Mask, num_queries: int) -> str | None:
    """What is said on another device, which need not be there: fake tensors have one, but no numbers."""
    with FakeTensorMode():
        queries, keys = (torch.empty(B, H, n, K, device=device, dtype=dtype) for n in (num_queries, S))
        try:
            flash.mix(queries, KeyValues(keys, keys), mask, None, False)
        except RuntimeError as error:
            return re.sub(r"^PyTorch's flash kernel (.*); attention=full works$", r"\1", str(error))
    return None


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_says_which_types_work_on_a_gpu(flash, dtype):
    expected = f"takes float16 and bfloat16 on a GPU (as with trainer.precision=bf16-mixed), not {dtype}"
    assert refusal(flash, "cuda", dtype, Mask(), S) == expected


def test_says_which_masks_work_on_a_gpu(flash):
    expected = "takes no mask on a GPU but a square causal one, so that no batch may be padded"
    assert refusal(flash, "cuda", torch.bfloat16, Mask(causal=True), L) == expected


def test_says_which_devices_work(flash):
    assert refusal(flash, "meta", torch.float32, Mask(), S) == "runs on cpu and cuda devices, not on meta"


@pytest.mark.filterwarnings("ignore")
def test_says_so_where_only_the_kernel_knows_that_it_cannot_run(flash, monkeypatch):
    # Dropout, which nobody looked at before, stands for whatever a kernel refuses by itself.
    monkeypatch.setattr("attention_lab.attention.flash._obstacle", lambda *_: None)
    flash.dropout.p = 0.5
    expected = "does not run with queries (2, 3, 5, 22), keys (2, 3, 7, 22), mask (2, 1, 1, 7) of torch.float32"
    with pytest.raises(RuntimeError, match=f"{re.escape(expected)} on this cpu device; attention=full works"):
        flash(*inputs(), Mask(padding()), need_weights=False)


def test_other_errors_stay_as_they_are(flash):
    queries, keys, _ = (x.unflatten(-1, (H, K)).transpose(1, 2) for x in inputs())
    with pytest.raises(RuntimeError, match="same dtype"):
        flash.mix(queries, KeyValues(keys.double(), keys), Mask(), None, False)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("causal", [False, True])
def test_equals_full_attention_on_a_gpu_where_no_token_is_padding(causal):
    flash = FlashAttention(D, H, dropout=0.0).to("cuda", torch.bfloat16)
    qkv = [x.to("cuda", torch.bfloat16) for x in inputs(S, S)]
    mask = Mask(torch.ones(B, S, dtype=torch.bool, device="cuda"), causal)
    torch.testing.assert_close(
        flash(*qkv, mask, need_weights=False).output, flash(*qkv, mask).output, rtol=5e-2, atol=5e-2
    )
    hidden = mask._replace(keys=padding().cuda())
    with pytest.raises(RuntimeError, match="no batch may be padded; attention=full works"):
        flash(*qkv, hidden, need_weights=False)


ALL = torch.ones(B, S, dtype=torch.bool)


@pytest.mark.parametrize(
    ("mask", "num_queries"),
    [
        (Mask(), L),
        (Mask(ALL), L),
        (Mask(allowed=ALL[:, None, None]), L),
        (Mask(causal=True), 1),
        (Mask(ALL, causal=True, allowed=ALL[0]), 1),
    ],
    ids=["empty", "keys", "allowed", "causal, one query", "all of it"],
)
def test_what_hides_nothing_is_dropped(mask, num_queries):
    left = what_hides(mask, num_queries)
    assert (left.keys, left.causal, left.allowed) == (None, False, None)


@every_mask
def test_what_hides_something_stays(mask, num_queries, num_keys):
    mask = as_mask(mask(), num_keys)
    left = what_hides(mask, num_queries).matrix(num_queries, num_keys)
    whole = mask.matrix(num_queries, num_keys)
    shape = (B, H, num_queries, num_keys)
    everything = torch.tensor(True)
    left, whole = ((everything if one is None else one).expand(shape) for one in (left, whole))
    assert torch.equal(left, whole)
