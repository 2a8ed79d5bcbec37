"""Every formula of torch.utils.flop_counter, forward and backward, against the model of that op.

The table has one case for each op of the counter's registry, and a test holds them to be the same: an
op that a newer torch counts fails here until it has a case.
"""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.draws import dear

torch = pytest.importorskip("torch")
with contextlib.suppress(ImportError):  # a torch before it
    from torch.nn.attention import varlen  # noqa: F401 - registers its formulas
from torch.utils.flop_counter import flop_registry  # noqa: E402

from opscope.core import perf  # noqa: E402
from opscope.core.schema import OpCall, TensorSpec  # noqa: E402

VERSION = tuple(map(int, torch.__version__.split(".")[:2]))
#: Nothing is a size too.
SIZE = st.integers(0, 6)
#: Query heads to one key head; older versions' formulas refuse more than one.
RATIO = st.integers(1, 4 if VERSION >= (2, 13) else 1)
#: Cases by the op's name; each draws the arguments of the counter's formula, the call, and a factor.
CASES = {}


def name_of(target):
    return getattr(target, "_qualified_op_name", None) or f"higher_order::{target._name}"


def case(*names):
    def keep(function):
        for name in names:
            assert name not in CASES, name
            CASES[name] = function
        return function

    return keep


def meta(*shape):
    return torch.empty(*shape, device="meta")


def half(*shape):
    return TensorSpec("bf16", shape)


# ------------------------------------------------------------------------------- products


@case("aten::mm")
def mm(draw, name):
    m, n, k = draw(SIZE), draw(SIZE), draw(SIZE)
    return (meta(m, k), meta(k, n)), {}, OpCall(name, (half(m, k), half(k, n)))


@case("aten::addmm")
def addmm(draw, name):
    m, n, k = draw(SIZE), draw(SIZE), draw(SIZE)
    add = draw(st.sampled_from([(n,), (m, n), (1,)]))
    call = OpCall(name, (half(*add), half(m, k), half(k, n)))
    return (meta(*add), meta(m, k), meta(k, n)), {}, call


@case("aten::bmm")
def bmm(draw, name):
    b, m, n, k = (draw(SIZE) for _ in range(4))
    return (meta(b, m, k), meta(b, k, n)), {}, OpCall(name, (half(b, m, k), half(b, k, n)))


@case("aten::baddbmm")
def baddbmm(draw, name):
    b, m, n, k = (draw(SIZE) for _ in range(4))
    call = OpCall(name, (half(b, m, n), half(b, m, k), half(b, k, n)))
    return (meta(b, m, n), meta(b, m, k), meta(b, k, n)), {}, call


@case("aten::_scaled_mm")
def scaled_mm(draw, name):
    m, n, k = draw(SIZE), draw(SIZE), draw(SIZE)
    scale, one = TensorSpec("f32", ()), torch.empty(())
    narrow = TensorSpec("f8e4m3fn", (m, k)), TensorSpec("f8e4m3fn", (k, n))
    return (meta(m, k), meta(k, n), one, one), {}, OpCall(name, (*narrow, scale, scale))


# --------------------------------------------------------------------------- convolutions


def window(draw, transposed, groups):
    rank = draw(st.integers(1, 3))
    kernel = [draw(st.integers(1, 3)) for _ in range(rank)]
    dilation = [draw(st.integers(1, 2)) for _ in range(rank)]
    spatial = [draw(st.integers(d * (k - 1) + 1, 9)) for k, d in zip(kernel, dilation, strict=True)]
    stride = [draw(st.integers(1, 3)) for _ in range(rank)]
    padding = [
        draw(st.integers(0, min(2, d * (k - 1) // 2) if transposed else 2))
        for k, d in zip(kernel, dilation, strict=True)
    ]
    batch, inner, outer = draw(SIZE), draw(st.integers(1, 3)), draw(st.integers(1, 3))
    x = (batch, inner * groups, *spatial)
    w = (inner * groups, outer, *kernel) if transposed else (outer * groups, inner, *kernel)
    options = [None, stride, padding, dilation, transposed, [0] * rank, groups]
    out = torch.ops.aten.convolution(meta(*x), meta(*w), *options)
    names = ("stride", "padding", "dilation", "transposed", "output_padding", "groups")
    params = tuple(
        (key, tuple(value) if isinstance(value, list) else value)
        for key, value in zip(names, options[1:], strict=True)
    )
    return x, w, tuple(out.shape), options, params


@case("aten::convolution", "aten::_convolution", "aten::convolution_overrideable")
def convolution(draw, name):
    transposed, groups = draw(st.booleans()), draw(st.sampled_from([1, 2, 3]))
    x, w, out, options, params = window(draw, transposed, groups)
    call = OpCall(name, (half(*x), half(*w)), None, params)
    return (meta(*x), meta(*w), *options[:5]), {"out_val": meta(*out)}, call


@case("aten::cudnn_convolution", "aten::_slow_conv2d_forward")
def plain_convolution(draw, name):
    """Their schemas have no ``transposed``: the counter takes what stands in its place."""
    x, w, out, options, params = window(draw, False, 1)
    call = OpCall(name, (half(*x), half(*w)), None, (*params[:3], params[5]))
    return (meta(*x), meta(*w), *options[:4], False), {"out_val": meta(*out)}, call


@case("aten::convolution_backward")
def convolution_backward(draw, name):
    """Without groups: with them the counter multiplies the weight gradient by their number, see
    test_perf_torch.test_grouped_weight_gradient_is_counted_once."""
    transposed = draw(st.booleans())
    mask = [draw(st.booleans()), draw(st.booleans()), draw(st.booleans())]
    x, w, out, options, params = window(draw, transposed, 1)
    given_mask = ("output_mask", tuple(mask))
    call = OpCall(name, (half(*out), half(*x), half(*w)), None, (*params, given_mask))
    results = (meta(*x), meta(*w), meta(w[1] if transposed else w[0]))
    arguments = (meta(*out), meta(*x), meta(*w), None, *options[1:], mask)
    return arguments, {"out_val": results}, call


# ------------------------------------------------------------------------------ attention


def heads(draw):
    b, nq, nk, d, dv = (draw(st.integers(0, 4)) for _ in range(5))
    kv, ratio = draw(st.integers(1, 4)), draw(RATIO)  # the counter divides by heads
    return (b, kv * ratio, nq, d), (b, kv, nk, d), (b, kv, nk, dv), (b, kv * ratio, nq, dv)


@case(
    *(f"aten::_scaled_dot_product_{kind}_attention" for kind in ("flash", "efficient", "cudnn")),
    "higher_order::flex_attention",
)
def attention(draw, name):
    """All pairs count, whatever is masked: that is in ``masked_flops``."""
    q, k, v, _ = heads(draw)
    causal = () if "flex" in name else (("is_causal", draw(st.booleans())),)
    call = OpCall(name, tuple(half(*shape) for shape in (q, k, v)), None, causal)
    return tuple(meta(*shape) for shape in (q, k, v)), {}, call


@case(
    *(
        f"aten::_scaled_dot_product_{kind}_attention_backward"
        for kind in ("flash", "efficient", "cudnn")
    )
)
def attention_backward(draw, name):
    q, k, v, grad = heads(draw)
    call = OpCall(name, tuple(half(*shape) for shape in (grad, q, k, v)))
    return tuple(meta(*shape) for shape in (grad, q, k, v)), {}, call


@case("higher_order::flex_attention_backward")
def flex_backward(draw, name):
    q, k, v, grad = heads(draw)
    shapes = (q, k, v, grad, q[:3], grad)
    return (
        tuple(meta(*shape) for shape in shapes),
        {},
        OpCall(name, tuple(half(*s) for s in shapes)),
    )


def packed(draw):
    """Sequences of one length, end to end: the only ones whose lengths the sizes tell."""
    count, length_q, length_k = draw(SIZE), draw(SIZE), draw(SIZE)
    kv, ratio, d = draw(st.integers(1, 3)), draw(RATIO), draw(SIZE)
    q, k = (count * length_q, kv * ratio, d), (count * length_k, kv, d)
    offsets = [torch.arange(count + 1, dtype=torch.int32) * n for n in (length_q, length_k)]
    return q, k, offsets, (length_q, length_k), TensorSpec("i32", (count + 1,))


def longest(first, second, lengths):
    return ((first, lengths[0]), (second, lengths[1]))


@case("aten::_flash_attention_forward", "torch_attn::_varlen_attn")
def flash(draw, name):
    q, k, offsets, lengths, spec = packed(draw)
    call = OpCall(
        name,
        (half(*q), half(*k), half(*k), spec, spec),
        None,
        longest("max_q", "max_k", lengths),
    )
    return (torch.empty(q), torch.empty(k), torch.empty(k), *offsets, *lengths), {}, call


@case("torch_attn::_varlen_attn_out")
def varlen_out(draw, name):
    q, k, offsets, lengths, spec = packed(draw)
    call = OpCall(
        name,
        (half(*q), half(*q), half(*k), half(*k), spec, spec),
        None,
        longest("max_q", "max_k", lengths),
    )
    shapes = (q, q, k, k)
    return (*(torch.empty(s) for s in shapes), *offsets, *lengths), {}, call


@case("aten::_flash_attention_backward", "torch_attn::_varlen_attn_backward")
def flash_backward(draw, name):
    q, k, offsets, lengths, spec = packed(draw)
    kept = TensorSpec("f32", (q[1], q[0]))
    call = OpCall(
        name,
        (half(*q), half(*q), half(*k), half(*k), half(*q), kept, spec, spec),
        None,
        longest("max_q", "max_k", lengths),
    )
    shapes = (q, q, k, k, q, (q[1], q[0]))
    return (*(torch.empty(s) for s in shapes), *offsets, *lengths), {}, call


@case("aten::_efficient_attention_forward")
def efficient(draw, name):
    q, k, offsets, lengths, spec = packed(draw)
    q, k = (1, *q), (1, *k)
    call = OpCall(
        name,
        (half(*q), half(*k), half(*k), None, spec, spec),
        None,
        longest("max_seqlen_q", "max_seqlen_k", lengths),
    )
    arguments = (torch.empty(q), torch.empty(k), torch.empty(k), None, *offsets, *lengths)
    return arguments, {}, call


@case("aten::_efficient_attention_backward")
def efficient_backward(draw, name):
    q, k, offsets, lengths, spec = packed(draw)
    q, k = (1, *q), (1, *k)
    call = OpCall(
        name,
        (half(*q), half(*q), half(*k), half(*k), None, half(*q), spec, spec),
        None,
        longest("max_seqlen_q", "max_seqlen_k", lengths),
    )
    tensors = [torch.empty(shape) for shape in (q, q, k, k, q)]
    return (*tensors[:4], None, tensors[4], *offsets, *lengths), {}, call


# ---------------------------------------------------------------------------------- tests

TARGETS = {name_of(target): target for target in flop_registry}


def test_every_op_of_the_counter_has_a_case():
    assert set(TARGETS) <= set(CASES)
    if VERSION >= (2, 13):
        assert set(CASES) <= set(TARGETS)  # older ones count fewer


@pytest.mark.parametrize("name", sorted(TARGETS))
@given(data=st.data())
@dear
def test_equal(name, data):
    arguments, options, call = CASES[name](data.draw, name)
    found, why = perf.cost(call)
    assert found is not None, why
    assert found.matrix_flops == flop_registry[TARGETS[name]](*arguments, **options)


BACKWARD = {
    "aten::mm": 2,
    "aten::addmm": 2,
    "aten::bmm": 2,
    "aten::baddbmm": 2,
    "aten::_scaled_mm": 2,
    "aten::convolution": 2,
    "aten::_convolution": 2,
    "aten::cudnn_convolution": 2,
}


@pytest.mark.parametrize("name", sorted(BACKWARD))
@given(data=st.data())
@dear
def test_gradients_of_the_forward(name, data):
    """Each of the two gradients has the forward's multiply-adds, from the forward's call alone."""
    _, _, call = CASES[name](data.draw, name)
    forward, _ = perf.cost(call)
    gradients, why = perf.backward_costs(call)
    assert gradients is not None, why
    assert gradients.matrix_flops == 2 * forward.matrix_flops


@pytest.mark.parametrize("kind", ["flash", "efficient", "cudnn"])
@given(data=st.data())
@dear
def test_gradient_of_attention(kind, data):
    """From the forward's call: as the backward op's own."""
    name = f"aten::_scaled_dot_product_{kind}_attention"
    q, k, v, grad = heads(data.draw)
    theirs = flop_registry[TARGETS[f"{name}_backward"]](*(meta(*s) for s in (grad, q, k, v)))
    found, why = perf.backward_costs(OpCall(name, tuple(half(*s) for s in (q, k, v))))
    assert found is not None, why
    assert found.matrix_flops == theirs
