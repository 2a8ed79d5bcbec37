"""The cost models against TensorFlow's own profiler (``float_operation``), for every op that it counts.

One case for each op of TensorFlow's registry of statistics, and a test that they are the same set. Where
TensorFlow's count is another, the difference is a function here, with who is right and why.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.draws import dear

tf = pytest.importorskip("tensorflow")
from tensorflow.python.framework import ops as tf_ops  # noqa: E402

from opscope.core import perf  # noqa: E402
from opscope.core.schema import OpCall, TensorSpec  # noqa: E402

raw, v1 = tf.raw_ops, tf.compat.v1
SIZE = st.integers(1, 6)
NAMES = {"float32": "f32", "int32": "i32", "int64": "i64", "bool": "bool", "float32_ref": "f32"}


def place(*shape):
    return v1.placeholder(tf.float32, shape)


def counted(build, attributes):
    """The op as a call, and TensorFlow's count of it alone in a graph."""
    graph = tf.Graph()
    with graph.as_default():
        build()
        op = graph.get_operations()[-1]
        options = v1.profiler.ProfileOptionBuilder
        chosen = options(options.float_operation()).with_empty_output().build()
        total = v1.profiler.profile(graph, options=chosen).total_float_ops

    def spec(tensor):
        return TensorSpec(NAMES[tensor.dtype.name], tuple(tensor.shape))

    values = []
    for key in attributes:
        value = op.get_attr(key)
        text = value.decode() if isinstance(value, bytes) else value
        values.append((key, tuple(text) if isinstance(text, list) else text))
    outputs = tuple(map(spec, op.outputs))
    return OpCall(op.type, tuple(map(spec, op.inputs)), outputs, tuple(values)), total


# ---------------------------------------------------------------------------------- cases


def unary(name, key="x"):
    def case(draw):
        shape = (draw(SIZE), draw(SIZE))
        return lambda: getattr(raw, name)(**{key: place(*shape)}), ()

    return case


def binary(name):
    def case(draw):
        rows, columns = draw(SIZE), draw(SIZE)
        other = draw(st.sampled_from([(rows, columns), (1, columns), (columns,)]))
        return lambda: getattr(raw, name)(x=place(rows, columns), y=place(*other)), ()

    return case


def reduction(name):
    def case(draw):
        shape, axis = (draw(SIZE), draw(SIZE)), draw(st.sampled_from([[0], [1], [0, 1]]))
        return lambda: getattr(raw, name)(input=place(*shape), axis=axis), ()

    return case


def matmul(draw):
    m, n, k = draw(SIZE), draw(SIZE), draw(SIZE)
    first, second = draw(st.booleans()), draw(st.booleans())
    a = (k, m) if first else (m, k)
    b = (n, k) if second else (k, n)
    keys = ("transpose_a", "transpose_b")
    return lambda: raw.MatMul(a=place(*a), b=place(*b), transpose_a=first, transpose_b=second), keys


def batched(name):
    def case(draw):
        b, m, n, k = (draw(SIZE) for _ in range(4))
        adjoint = draw(st.booleans())
        right = (b, n, k) if adjoint else (b, k, n)
        more = {"Tout": tf.float32} if name.endswith("V3") else {}
        return (
            lambda: getattr(raw, name)(x=place(b, m, k), y=place(*right), adj_y=adjoint, **more),
            ("adj_x", "adj_y"),
        )

    return case


def window(draw):
    stride, padding = draw(st.integers(1, 3)), draw(st.sampled_from(["VALID", "SAME"]))
    return draw(st.integers(4, 9)), draw(st.integers(1, 3)), stride, padding


def convolution(name, rank):
    def case(draw):
        size, kernel, stride, padding = window(draw)
        inner, outer = draw(SIZE), draw(SIZE)
        x = (2, *(size,) * rank, inner)
        strides = [1, *(stride,) * rank, 1]
        return (
            lambda: getattr(raw, name)(
                input=place(*x), filter=place(*(kernel,) * rank, inner, outer),
                strides=strides, padding=padding,
            ),
            ("strides", "padding", "data_format"),
        )  # fmt: skip

    return case


def conv_backprop(name):
    def case(draw):
        size, kernel, inner, outer = (
            draw(st.integers(4, 8)),
            draw(st.integers(1, 3)),
            draw(SIZE),
            draw(SIZE),
        )
        out = size - kernel + 1
        grad, x, w = (2, out, out, outer), (2, size, size, inner), (kernel, kernel, inner, outer)
        common = {"strides": [1, 1, 1, 1], "padding": "VALID"}
        if name.endswith("Input"):
            return (
                lambda: raw.Conv2DBackpropInput(
                    input_sizes=list(x), filter=place(*w), out_backprop=place(*grad), **common
                ),
                ("data_format",),
            )
        return (
            lambda: raw.Conv2DBackpropFilter(
                input=place(*x), filter_sizes=list(w), out_backprop=place(*grad), **common
            ),
            ("data_format",),
        )  # fmt: skip

    return case


def pool(name, key):
    def case(draw):
        size, kernel, stride, padding = window(draw)
        options = {"ksize": [1, kernel, kernel, 1], "strides": [1, stride, stride, 1]}
        return (
            lambda: getattr(raw, name)(
                **{key: place(2, size, size, 3)}, padding=padding, **options
            ),
            ("ksize", "padding"),
        )

    return case


def pool_grad(name):
    def case(draw):
        size, kernel = draw(st.integers(4, 8)), draw(st.integers(1, 3))
        out = size - kernel + 1
        options = {"ksize": [1, kernel, kernel, 1], "strides": [1, 1, 1, 1], "padding": "VALID"}
        x, y = (2, size, size, 3), (2, out, out, 3)
        if name == "MaxPoolGrad":
            return (
                lambda: raw.MaxPoolGrad(
                    orig_input=place(*x), orig_output=place(*y), grad=place(*y), **options
                ),
                ("ksize",),
            )
        return (
            lambda: raw.AvgPoolGrad(orig_input_shape=list(x), grad=place(*y), **options),
            ("ksize",),
        )

    return case


def dilation(draw):
    size, kernel = draw(st.integers(4, 8)), draw(st.integers(1, 3))
    return (
        lambda: raw.Dilation2D(
            input=place(2, size, size, 3), filter=place(kernel, kernel, 3), strides=[1, 1, 1, 1],
            rates=[1, 1, 1, 1], padding="VALID",
        ),
        (),
    )  # fmt: skip


def bias_add(draw):
    rows, columns = draw(SIZE), draw(SIZE)
    return lambda: raw.BiasAdd(value=place(rows, columns), bias=place(columns)), ()


def add_n(draw):
    shape, many = (draw(SIZE), draw(SIZE)), draw(st.integers(2, 4))
    return lambda: raw.AddN(inputs=[place(*shape) for _ in range(many)]), ()


def rsqrt_grad(draw):
    shape = (draw(SIZE), draw(SIZE))
    return lambda: raw.RsqrtGrad(y=place(*shape), dy=place(*shape)), ()


def arg(name):
    def case(draw):
        shape, axis = (draw(SIZE), draw(st.integers(2, 6))), draw(st.integers(0, 1))
        return lambda: getattr(raw, name)(input=place(*shape), dimension=axis), ()

    return case


def assign(name):
    def case(draw):
        shape = (draw(SIZE), draw(SIZE))

        def build():
            variable = raw.VariableV2(shape=shape, dtype=tf.float32)
            getattr(raw, name)(ref=variable, value=place(*shape))

        return build, ()

    return case


CASES = {
    **{name: unary(name) for name in ("Neg", "Square", "Reciprocal", "Log", "Rsqrt")},
    **{
        name: binary(name)
        for name in ("Add", "AddV2", "Sub", "Mul", "RealDiv", "Maximum", "Minimum", "Pow",
                     "SquaredDifference", "Greater", "GreaterEqual", "Less", "LessEqual", "Equal", "NotEqual")
    },
    **{name: reduction(name) for name in ("Sum", "Mean")},
    **{name: batched(name) for name in ("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3")},
    **{name: conv_backprop(name) for name in ("Conv2DBackpropInput", "Conv2DBackpropFilter")},
    **{name: pool_grad(name) for name in ("MaxPoolGrad", "AvgPoolGrad")},
    **{name: arg(name) for name in ("ArgMax", "ArgMin")},
    **{name: assign(name) for name in ("AssignAdd", "AssignSub")},
    "MatMul": matmul,
    "Conv2D": convolution("Conv2D", 2),
    "Conv3D": convolution("Conv3D", 3),
    "DepthwiseConv2dNative": convolution("DepthwiseConv2dNative", 2),
    "MaxPool": pool("MaxPool", "input"),
    "AvgPool": pool("AvgPool", "value"),
    "BiasAdd": bias_add,
    "BiasAddGrad": unary("BiasAddGrad", "out_backprop"),
    "AddN": add_n,
    "Softmax": unary("Softmax", "logits"),
    "L2Loss": unary("L2Loss", "t"),
    "Dilation2D": dilation,
    "RsqrtGrad": rsqrt_grad,
}  # fmt: skip


def elements(call):
    return call.outputs[0].numel


def places(tensor):
    """Positions of all images."""
    return tensor.shape[0] * tensor.shape[1] * tensor.shape[2]


def taps(call):
    kernel = call.param("ksize")
    return kernel[1] * kernel[2]


#: TensorFlow's count from ours, where they are not equal. Ours is by the definition: the loops of
#: tests/core/perf/test_perf_brute_force.py, and XLA's own count of the same.
DIFFERENT = {
    # k comparisons for a window of k elements, where k − 1 find the largest
    "MaxPool": lambda call, ours: ours + elements(call),
    # each position of the data with each weight, as if the gradient had the data's size; an element
    # of the gradient meets each weight once
    "Conv2DBackpropInput": lambda call, ours: ours // places(call.inputs[2]) * places(call.outputs[0]),
    "Conv2DBackpropFilter": lambda call, ours: ours // places(call.inputs[2]) * places(call.inputs[0]),
    # each element of the window scaled and added, where scaling the gradient once is enough: its
    # source says so itself ("more optimal implementation - if division is done after")
    "AvgPoolGrad": lambda call, ours: ours // (taps(call) + 1) * 2 * taps(call),
    # two an element for the root and the reciprocal, which is one function (XLA: one)
    "Rsqrt": lambda call, ours: 2 * ours,
    # 5 an element; the maximum and the sum of a row take one fewer
    "Softmax": lambda call, ours: ours + 2 * call.outputs[0].shape[0],
    # square, halve and add an element, where halving the sum once is enough
    "L2Loss": lambda call, ours: ours + call.inputs[0].numel - 1,
}  # fmt: skip


def test_every_op_that_tensorflow_counts_has_a_case():
    counted_by_tensorflow = {
        name.split(",")[0] for name in tf_ops._stats_registry.list() if name.endswith(",flops")
    }
    assert counted_by_tensorflow == set(CASES)
    assert set(DIFFERENT) <= set(CASES)


@pytest.mark.parametrize("name", sorted(CASES))
@given(data=st.data())
@dear
def test_equal(name, data):
    call, theirs = counted(*CASES[name](data.draw))
    assert call.name == name
    found, why = perf.cost(call)
    assert found is not None, why
    assert DIFFERENT.get(name, lambda _, ours: ours)(call, found.flops) == theirs
    assert found.bytes is not None
