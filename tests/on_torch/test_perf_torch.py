"""The cost models against torch.utils.flop_counter, for every op that it knows, and against torch's names."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.draws import dear

torch = pytest.importorskip("torch")
from torch.utils.flop_counter import FlopCounterMode, flop_registry  # noqa: E402

from opscope.core import perf  # noqa: E402
from opscope.core.schema import OpCall, TensorSpec  # noqa: E402

from .dispatched import Recorder, spec  # noqa: E402

#: Nothing is a size too.
SIZE = st.integers(0, 6)
VERSION = tuple(map(int, torch.__version__.split(".")[:2]))
#: Whether the counter's formula of attention knows queries that share keys.
GROUPED_QUERIES = VERSION >= (2, 9)


def both(function):
    """(our matrix FLOPs, the flop counter's) of running ``function``."""
    counter = FlopCounterMode(display=False)
    with counter, Recorder() as recorder:
        function()
    ours = 0
    for call in recorder.calls:
        cost, why = perf.cost(call)
        assert cost is not None, f"{call.name}: {why}"
        ours += cost.matrix_flops
    return ours, counter.get_total_flops(), recorder.calls


def meta(*shape, dtype=torch.float32, grad=False):
    return torch.empty(*shape, device="meta", dtype=dtype, requires_grad=grad)


def test_every_aten_op_of_the_flop_counter_is_known():
    names = {
        target._qualified_op_name
        for target in flop_registry
        if hasattr(target, "_qualified_op_name")
    }
    assert len(names) > 15
    missing = {name for name in names if perf.entry_of(name) is None}
    assert not missing


@given(m=SIZE, n=SIZE, k=SIZE, b=SIZE)
def test_matrix_products(m, n, k, b):
    def run():
        torch.mm(meta(m, k), meta(k, n))
        torch.addmm(meta(n), meta(m, k), meta(k, n))
        torch.bmm(meta(b, m, k), meta(b, k, n))
        torch.baddbmm(meta(b, m, n), meta(b, m, k), meta(b, k, n))
        torch.matmul(meta(b, 1, m, k), meta(n, k, 3))
        torch.nn.functional.linear(meta(b, m, k), meta(n, k), meta(n))

    ours, theirs, _ = both(run)
    assert ours == theirs


@given(m=SIZE, n=SIZE, k=SIZE)
@dear
def test_linear_forward_and_backward(m, n, k):
    x, w, bias = meta(m, k, grad=True), meta(n, k, grad=True), meta(n, grad=True)
    ours, theirs, _ = both(lambda: torch.nn.functional.linear(x, w, bias).sum().backward())
    assert ours == theirs == 3 * 2 * m * n * k
    gradients, why = perf.backward_costs(OpCall("aten::linear", (spec(x), spec(w), spec(bias))))
    assert gradients is not None, why
    assert gradients.matrix_flops == theirs - 2 * m * n * k


@st.composite
def convolutions(draw):
    rank = draw(st.integers(1, 3))
    kernel = [draw(st.integers(1, 3)) for _ in range(rank)]
    dilation = [draw(st.integers(1, 2)) for _ in range(rank)]
    spatial = [draw(st.integers(d * (k - 1) + 1, 9)) for k, d in zip(kernel, dilation, strict=True)]
    stride = [draw(st.integers(1, 3)) for _ in range(rank)]
    padding = [draw(st.integers(0, 2)) for _ in range(rank)]
    groups = draw(st.sampled_from([1, 1, 2, 3]))
    batch, inner, outer = draw(SIZE), draw(st.integers(1, 3)), draw(st.integers(1, 3))
    return rank, kernel, dilation, spatial, stride, padding, groups, batch, inner, outer


def _convolution(case, transposed, dtype=torch.float32):
    rank, kernel, dilation, spatial, stride, padding, groups, batch, inner, outer = case
    x = meta(batch, inner * groups, *spatial, grad=True)
    shape = (inner * groups, outer, *kernel) if transposed else (outer * groups, inner, *kernel)
    w = meta(*shape, grad=True)
    name = f"conv{'_transpose' if transposed else ''}{rank}d"
    options = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    if transposed:
        options["padding"] = [
            min(p, d * (k - 1) // 2) for p, d, k in zip(padding, dilation, kernel, strict=True)
        ]
    return x, w, lambda: getattr(torch.nn.functional, name)(x, w, **options)


@given(case=convolutions(), transposed=st.booleans())
def test_convolutions_forward(case, transposed):
    ours, theirs, calls = both(_convolution(case, transposed)[2])
    assert ours == theirs
    # without its outputs the call gives the same cost: parameters are enough
    for call in calls:
        if call.name == "aten::convolution":
            bare, _ = perf.cost(OpCall(call.name, call.inputs, None, call.params))
            assert bare == perf.cost(call)[0]


@given(case=convolutions(), transposed=st.booleans())
def test_convolutions_backward(case, transposed):
    """Equal where there are no groups. With groups the counter is wrong: see below."""
    case = (*case[:6], 1, *case[7:])
    _, _, run = _convolution(case, transposed)
    ours, theirs, _ = both(lambda: run().sum().backward())
    assert ours == theirs


def test_grouped_weight_gradient_is_counted_once():
    """The counter multiplies the weight gradient by the groups: it swaps batch and channels and takes
    all input channels for each output channel, where each has only its group's. A weight gradient has
    as many multiply-adds as the forward: each pairs an output gradient with an input once for each
    weight (the brute-force loops of tests/core/perf count the same)."""
    x, w = meta(2, 8, 5, 5, grad=True), meta(12, 2, 3, 3, grad=True)
    forward, _, _ = both(lambda: torch.nn.functional.conv2d(x, w, groups=4))
    ours, theirs, _ = both(lambda: torch.nn.functional.conv2d(x, w, groups=4).sum().backward())
    assert ours == 3 * forward
    assert theirs == (1 + 1 + 4) * forward


@given(b=SIZE, kv=st.integers(1, 3), ratio=st.integers(1, 3), nq=SIZE, nk=SIZE, d=SIZE, dv=SIZE)
def test_attention_kernels(b, kv, ratio, nq, nk, d, dv):
    aten = torch.ops.aten
    ratio = ratio if GROUPED_QUERIES else 1
    q, k, v = (b, kv * ratio, nq, d), (b, kv, nk, d), (b, kv, nk, dv)
    grad = (b, kv * ratio, nq, dv)
    for kind in ("flash", "efficient", "cudnn"):
        if not hasattr(aten, f"_scaled_dot_product_{kind}_attention"):
            continue
        forward = getattr(aten, f"_scaled_dot_product_{kind}_attention")
        backward = getattr(aten, f"_scaled_dot_product_{kind}_attention_backward")
        operands = tuple(TensorSpec("bf16", shape) for shape in (q, k, v))
        ours, _ = perf.cost(OpCall(forward._qualified_op_name, operands))
        assert ours.matrix_flops == flop_registry[forward](meta(*q), meta(*k), meta(*v))
        ours, _ = perf.cost(
            OpCall(backward._qualified_op_name, (TensorSpec("bf16", grad), *operands))
        )
        theirs = flop_registry[backward](meta(*grad), meta(*q), meta(*k), meta(*v))
        assert ours.matrix_flops == theirs


@given(b=SIZE, h=SIZE, nq=SIZE, nk=SIZE, d=SIZE)
@dear
def test_flash_forward_and_backward_have_tokens_before_heads(b, h, nq, nk, d):
    aten = torch.ops.aten
    q, k = meta(b, nq, h, d), meta(b, nk, h, d)
    # the counter's formula takes [B, H, N, d] for these too; H and N trade places in its product,
    # so that it agrees where the heads are one
    one_q, one_k = meta(b, nq, 1, d), meta(b, nk, 1, d)
    theirs = flop_registry[aten._flash_attention_forward](
        one_q.transpose(1, 2), one_k.transpose(1, 2), one_k.transpose(1, 2), None, None, nq, nk
    )
    ours, _ = perf.cost(OpCall("aten::_flash_attention_forward", tuple(map(spec, (q, k, k)))))
    assert ours.matrix_flops == h * theirs
    back, _ = perf.cost(OpCall("aten::_flash_attention_backward", tuple(map(spec, (q, q, k, k)))))
    theirs = flop_registry[aten._flash_attention_backward](
        one_q.transpose(1, 2),
        one_q.transpose(1, 2),
        one_k.transpose(1, 2),
        one_k.transpose(1, 2),
        None,
        None,
        None,
        None,
        nq,
        nk,
    )
    assert back.matrix_flops == h * theirs


def test_packed_sequences_of_one_length():
    """Where every sequence is as long as the longest, the lengths follow from the sizes."""
    q = TensorSpec("f16", (12, 2, 8))
    offsets = TensorSpec("i32", (4,))
    params = (("max_q", 4), ("max_k", 4))
    ours, _ = perf.cost(
        OpCall("aten::_flash_attention_forward", (q, q, q, offsets, offsets), None, params)
    )
    packed = torch.empty(12, 2, 8, dtype=torch.float16)
    cumulative = torch.tensor([0, 4, 8, 12], dtype=torch.int32)
    theirs = flop_registry[torch.ops.aten._flash_attention_forward](
        packed, packed, packed, cumulative, cumulative, 4, 4
    )
    assert ours.matrix_flops == theirs
    ragged = (("max_q", 5), ("max_k", 5))
    cost, why = perf.cost(
        OpCall("aten::_flash_attention_forward", (q, q, q, offsets, offsets), None, ragged)
    )
    assert cost is None
    assert "lengths" in why


@given(m=SIZE, n=SIZE, k=SIZE)
@dear
def test_scaled_mm(m, n, k):
    if torch.ops.aten._scaled_mm not in flop_registry:
        pytest.skip("this torch has no formula for _scaled_mm")
    scale = TensorSpec("f32", ())
    call = OpCall(
        "aten::_scaled_mm",
        (TensorSpec("f8e4m3fn", (m, k)), TensorSpec("f8e4m3fn", (k, n)), scale, scale),
    )
    ours, _ = perf.cost(call)
    one = torch.empty(())
    theirs = flop_registry[torch.ops.aten._scaled_mm](meta(m, k), meta(k, n), one, one)
    assert ours.matrix_flops == theirs
    assert ours.bytes is None, "the result's dtype is a parameter that was not recorded"


def test_flex_attention():
    flex = next((t for t in flop_registry if getattr(t, "_name", "") == "flex_attention"), None)
    if flex is None:
        pytest.skip("this torch has no formula for flex_attention")
    q, k = (2, 4, 16, 8), (2, 2, 24, 8)
    theirs = flop_registry[flex](meta(*q), meta(*k), meta(*k))
    ours, _ = perf.cost(OpCall("flex_attention", tuple(TensorSpec("bf16", s) for s in (q, k, k))))
    assert ours.matrix_flops == theirs


def test_whole_model():
    """A convolutional network and a transformer, forward and backward, to the last digit."""
    with torch.device("meta"):
        net = torch.nn.Sequential(
            torch.nn.Conv2d(3, 8, 3, padding=1),
            torch.nn.BatchNorm2d(8),
            torch.nn.ReLU(),
            torch.nn.MaxPool2d(2),
            torch.nn.ConvTranspose2d(8, 4, 2, stride=2),
            torch.nn.Flatten(),
            torch.nn.Linear(4 * 16 * 16, 10),
            torch.nn.LogSoftmax(1),
        )
        block = torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, dropout=0.0)
    ours, theirs, _ = both(lambda: net(meta(2, 3, 16, 16, grad=True)).sum().backward())
    assert ours == theirs
    ours, theirs, _ = both(lambda: block(meta(2, 7, 32, grad=True)).sum().backward())
    assert ours == theirs


def test_outputs_inferred_are_those_that_torch_gives():
    """Models work without outputs; what they infer must cost the same as what is recorded."""
    x, y = meta(4, 6, 8, 8), meta(6, 1, 8)
    index = torch.zeros(3, dtype=torch.int64, device="meta")

    def run():
        x + y, x * 2.0, x > y, torch.where(x > 0, x, y), x.sum((0, 2), keepdim=True), x.mean(-1)
        x.amax(1), x.argmax(1), torch.softmax(x, 1), torch.nn.functional.gelu(x)
        torch.nn.functional.max_pool2d(x, 3, 2, 1), torch.nn.functional.avg_pool2d(x, 2)
        torch.nn.functional.adaptive_avg_pool2d(x, (3, 5)), x.index_select(1, index), x.cumsum(1)
        torch.nn.functional.layer_norm(x, (8,)), x.var(1), torch.cat([x, x], 1), x.to(torch.float16)
        x.transpose(1, 2).contiguous(), torch.nn.functional.embedding(index, meta(10, 4))
        x.int() + 1.5, x.half() * x, torch.fft.rfft(x), x.sort(1)
        torch.nn.functional.pad(x, (1, 2)), x.repeat(2, 1, 1, 1), x.topk(2, 1)

    counter = Recorder()
    with counter:
        run()
    checked = 0
    for call in counter.calls:
        full, why = perf.cost(call)
        assert full is not None, f"{call.name}: {why}"
        bare, reason = perf.cost(OpCall(call.name, call.inputs, None, call.params))
        if call.name.partition(".")[0] in ("aten::complex", "aten::_fft_r2c"):
            continue
        assert bare is not None, f"{call.name}: {reason}"
        assert bare.flops == full.flops, call.name
        if bare.bytes is not None and full.bytes is not None and "_to_copy" not in call.name:
            assert bare.bytes == full.bytes, call.name
            checked += 1
    assert checked > 20


#: ATen ops of older versions that traces still hold, by their prefixes, with the last that had them.
RETIRED = (
    "aten::cudnn_convolution", "aten::miopen_", "aten::mkldnn_convolution_backward", "aten::thnn_conv",
    "aten::_thnn_", "aten::slow_conv", "aten::_cat", "aten::max_values", "aten::kl_div_backward",
    "aten::binary_cross_entropy_with_logits_backward", "aten::prelu_backward", "aten::_batch_norm_",
    "aten::_cast_", "aten::fbgemm_", "aten::_masked_scale", "aten::_fused_dropout", "aten::_lu_with",
    "aten::align_", "aten::refine_names", "aten::rename",
)  # fmt: skip


def test_names_are_real():
    """Every aten:: name is an op of this torch, one of its Python functions, or one that it had."""
    if VERSION < (2, 13):
        pytest.skip("names of later versions are not in this torch")
    real = {name.partition(".")[0] for name in torch._C._dispatch_get_all_op_names()}
    places = (torch, torch.nn.functional, torch.Tensor, torch._C._nn)
    strange = []
    for name in perf.entries():
        if not name.startswith("aten::"):
            continue
        word = name.removeprefix("aten::")
        if name in real or f"{name}_" in real or any(hasattr(place, word) for place in places):
            continue
        if not name.startswith(RETIRED):
            strange.append(name)
    assert not strange


def test_elementwise_bytes_of_real_tensors():
    a, b = torch.empty(4, 1, 5), torch.empty(3, 5, dtype=torch.float64)
    recorder = Recorder()
    with recorder:
        out = a + b
    cost, _ = perf.cost(recorder.calls[0])
    assert cost.bytes == sum(t.numel() * t.element_size() for t in (a, b, out))
    assert cost.vector_flops == math.prod(out.shape)
