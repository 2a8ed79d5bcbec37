"""The models of HLO instructions against XLA's own cost analysis, over drawn shapes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402
from jax import lax  # noqa: E402

from opscope.core import perf  # noqa: E402
from opscope.core.schema import OpCall, TensorSpec  # noqa: E402

SIZE = st.integers(2, 9)


def xla(function, *shapes):
    operands = [jnp.ones(shape, jnp.float32) for shape in shapes]
    found = jax.jit(function).lower(*operands).compile().cost_analysis()
    found = found[0] if isinstance(found, list) else found
    shape = jax.eval_shape(function, *operands).shape
    return int(found.get("flops", 0)) + int(found.get("transcendentals", 0)), tuple(shape)


def ours(name, shapes, out, **params):
    call = OpCall(
        f"hlo::{name}",
        tuple(TensorSpec("f32", shape) for shape in shapes),
        (TensorSpec("f32", out),),
        tuple(params.items()),
    )
    found, why = perf.cost(call)
    assert found is not None, why
    return found.flops


@given(m=SIZE, k=SIZE, n=SIZE)
@settings(max_examples=10)
def test_dot(m, k, n):
    flops, out = xla(jnp.matmul, (m, k), (k, n))
    assert (
        ours("dot", [(m, k), (k, n)], out, lhs_contracting_dims=(1,), rhs_contracting_dims=(0,))
        == flops
    )


@given(
    size=st.integers(4, 9),
    inner=st.integers(1, 3),
    outer=st.integers(1, 3),
    stride=st.integers(1, 2),
)
@settings(max_examples=8)
def test_convolution(size, inner, outer, stride):
    shapes = (2, size, size, inner), (3, 3, inner, outer)
    flops, out = xla(
        lambda x, w: lax.conv_general_dilated(
            x, w, (stride, stride), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
        ),
        *shapes,
    )
    assert ours("convolution", shapes, out, dim_labels="b01f_01io->b01f") == flops


@given(rows=SIZE, columns=SIZE, axis=st.integers(0, 1))
@settings(max_examples=8)
def test_reduce(rows, columns, axis):
    flops, out = xla(lambda x: jnp.sum(x, axis), (rows, columns))
    assert ours("reduce", [(rows, columns)], out) == flops


@given(rows=SIZE, columns=SIZE)
@settings(max_examples=5)
def test_elementwise(rows, columns):
    flops, out = xla(jnp.multiply, (rows, columns), (rows, columns))
    assert ours("multiply", [(rows, columns)] * 2, out) == flops
    flops, out = xla(jnp.tanh, (rows, columns))
    assert ours("tanh", [(rows, columns)], out) == flops
