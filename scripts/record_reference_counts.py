"""Record the counts of TensorFlow's and XLA's own cost models for single ops, as a test's reference.

Usage: python scripts/record_reference_counts.py tensorflow|jax   (in an environment with that framework)

Writes tests/core/perf/counts_<framework>.json: range texts of the ops and the framework's FLOPs.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from opscope.core.rangetext import format_call
from opscope.core.schema import OpCall, TensorSpec

FOLDER = Path(__file__).resolve().parents[1] / "tests" / "core" / "perf"
NAMES = {"float32": "f32", "int32": "i32", "int64": "i64", "bool": "bool", "bfloat16": "bf16"}


def tensorflow_counts() -> Iterator[tuple[OpCall, int]]:
    """Yield ops, each alone in a graph, with the float_operation count of ``tf.compat.v1.profiler``."""
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    import tensorflow as tf

    raw, v1 = tf.raw_ops, tf.compat.v1
    options = v1.profiler.ProfileOptionBuilder

    def place(*shape: int) -> Any:
        return v1.placeholder(tf.float32, shape)

    def count(build: Callable[[], Any], *attributes: str) -> tuple[OpCall, int]:
        graph = tf.Graph()
        with graph.as_default():
            build()
            op = graph.get_operations()[-1]
            chosen = options(options.float_operation()).with_empty_output().build()
            found = v1.profiler.profile(graph, options=chosen).total_float_ops
        tensors = [TensorSpec(NAMES[t.dtype.name], tuple(t.shape)) for t in op.inputs]
        outputs = tuple(TensorSpec(NAMES[t.dtype.name], tuple(t.shape)) for t in op.outputs)
        values = []
        for key in attributes:
            value = op.get_attr(key)
            text = value.decode() if isinstance(value, bytes) else value
            values.append((key, tuple(text) if isinstance(text, list) else text))
        return OpCall(op.type, tuple(tensors), outputs, tuple(values)), found

    for m, k, n in ((4, 5, 6), (1, 7, 3), (8, 8, 8)):
        yield count(
            lambda m=m, k=k, n=n: raw.MatMul(a=place(m, k), b=place(k, n)),
            "transpose_a",
            "transpose_b",
        )
        yield count(lambda m=m, k=k, n=n: raw.MatMul(a=place(k, m), b=place(n, k), transpose_a=True, transpose_b=True), "transpose_a", "transpose_b")  # fmt: skip
        yield count(
            lambda m=m, k=k, n=n: raw.BatchMatMulV2(x=place(2, m, k), y=place(2, k, n)),
            "adj_x",
            "adj_y",
        )
    for size, stride, padding in ((8, 1, "VALID"), (9, 2, "SAME"), (7, 3, "VALID")):

        def conv(kind: str, *shape: int, size=size, stride=stride, padding=padding) -> Any:
            dims = len(shape) - 2
            x = place(2, *(size,) * dims, 3)
            strides = [1, *(stride,) * dims, 1]
            return getattr(raw, kind)(
                input=x, filter=place(*shape), strides=strides, padding=padding
            )

        keys = ("strides", "padding", "data_format")
        yield count(lambda conv=conv: conv("Conv2D", 3, 3, 3, 4), *keys)
        yield count(lambda conv=conv: conv("Conv3D", 2, 2, 2, 3, 4), *keys)
        yield count(lambda conv=conv: conv("DepthwiseConv2dNative", 3, 3, 3, 2), *keys)
        window = {"ksize": [1, 2, 2, 1], "strides": [1, stride, stride, 1], "padding": padding}
        yield count(
            lambda w=window, s=size: raw.MaxPool(input=place(2, s, s, 3), **w), "ksize", "padding"
        )
        yield count(
            lambda w=window, s=size: raw.AvgPool(value=place(2, s, s, 3), **w), "ksize", "padding"
        )
    back = {"out_backprop": lambda: place(2, 6, 6, 4), "strides": [1, 1, 1, 1], "padding": "VALID"}
    yield count(lambda: raw.Conv2DBackpropInput(input_sizes=[2, 8, 8, 3], filter=place(3, 3, 3, 4), out_backprop=back["out_backprop"](), strides=back["strides"], padding="VALID"))  # fmt: skip
    for name in ("Neg", "Square", "Reciprocal", "Log", "Rsqrt"):
        yield count(lambda name=name: getattr(raw, name)(x=place(4, 5)))
    for name in ("Add", "AddV2", "Sub", "Mul", "RealDiv", "Maximum", "Minimum", "Pow",
                 "SquaredDifference", "Greater", "Equal"):  # fmt: skip
        yield count(lambda name=name: getattr(raw, name)(x=place(4, 5), y=place(1, 5)))
    for name in ("Sum", "Mean"):
        for axis in ([1], [0], [0, 1]):
            yield count(
                lambda name=name, axis=axis: getattr(raw, name)(input=place(4, 5), axis=axis)
            )
    yield count(lambda: raw.BiasAdd(value=place(4, 5), bias=place(5)))
    yield count(lambda: raw.BiasAddGrad(out_backprop=place(4, 5)))
    yield count(lambda: raw.AddN(inputs=[place(4, 5) for _ in range(3)]))
    yield count(lambda: raw.Softmax(logits=place(4, 5)))
    yield count(lambda: raw.L2Loss(t=place(4, 5)))


def jax_counts() -> Iterator[tuple[OpCall, int]]:
    """Yield ops, each alone in a jitted function, with FLOPs + transcendentals of ``cost_analysis()``."""
    import jax
    import jax.numpy as jnp
    from jax import lax

    def count(
        name: str, function: Callable[..., Any], *shapes: tuple[int, ...], **params: Any
    ) -> tuple[OpCall, int]:
        operands = [jnp.ones(shape, jnp.float32) for shape in shapes]
        found = jax.jit(function).lower(*operands).compile().cost_analysis()
        found = found[0] if isinstance(found, list) else found
        out = jax.eval_shape(function, *operands)
        flops = int(found.get("flops", 0)) + int(found.get("transcendentals", 0))
        tensors = tuple(TensorSpec("f32", shape) for shape in shapes)
        result = TensorSpec(NAMES[out.dtype.name], tuple(out.shape))
        return OpCall(f"hlo::{name}", tensors, (result,), tuple(params.items())), flops

    for m, k, n in ((4, 5, 6), (1, 7, 3), (16, 8, 2)):
        yield count(
            "dot", jnp.matmul, (m, k), (k, n), lhs_contracting_dims=(1,), rhs_contracting_dims=(0,)
        )
        yield count("dot", jnp.matmul, (3, m, k), (3, k, n), lhs_contracting_dims=(2,), rhs_contracting_dims=(1,),
                    lhs_batch_dims=(0,), rhs_batch_dims=(0,))  # fmt: skip
    for stride in (1, 2):
        for groups in (1, 2):
            yield count(
                "convolution",
                lambda x, w, s=stride, g=groups: lax.conv_general_dilated(
                    x, w, (s, s), "VALID", feature_group_count=g,
                    dimension_numbers=("NHWC", "HWIO", "NHWC")),
                (2, 9, 9, 4), (3, 3, 4 // groups, 6),
                dim_labels="b01f_01io->b01f", feature_group_count=groups,
            )  # fmt: skip
    for name, function in (("add", jnp.add), ("multiply", jnp.multiply), ("subtract", jnp.subtract),
                           ("divide", jnp.divide), ("maximum", jnp.maximum), ("atan2", jnp.arctan2)):  # fmt: skip
        yield count(name, function, (4, 5), (4, 5))
    for name, function in (("negate", jnp.negative), ("exponential", jnp.exp), ("log", jnp.log),
                           ("tanh", jnp.tanh), ("sine", jnp.sin), ("sqrt", jnp.sqrt), ("rsqrt", lax.rsqrt),
                           ("abs", jnp.abs), ("floor", jnp.floor)):  # fmt: skip
        yield count(name, function, (4, 5))
    for axes in ((0,), (1,), (0, 1)):
        yield count("reduce", lambda x, a=axes: jnp.sum(x, a), (6, 7))
        yield count("reduce", lambda x, a=axes: jnp.max(x, a), (6, 7))
    yield count(
        "reduce-window",
        lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (2, 2), (2, 2), "VALID"),
        (8, 8),
        window=(2, 2),
    )
    yield count("transpose", jnp.transpose, (4, 5))
    yield count("broadcast", lambda x: jnp.broadcast_to(x, (3, 4, 5)), (4, 5))


def main() -> int:
    """Write the file of the named framework."""
    framework = sys.argv[1] if len(sys.argv) == 2 else ""
    if framework not in ("tensorflow", "jax"):
        print(__doc__, file=sys.stderr)
        return 2
    counts = tensorflow_counts() if framework == "tensorflow" else jax_counts()
    rows = [{"op": format_call(call, None), "flops": flops} for call, flops in counts]
    module = sys.modules[framework]
    text = json.dumps({"version": module.__version__, "counts": rows}, indent=1) + "\n"
    (FOLDER / f"counts_{framework}.json").write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
