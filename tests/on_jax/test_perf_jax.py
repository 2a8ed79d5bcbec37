"""The models of HLO instructions against XLA's own cost analysis, over drawn shapes."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.draws import dear

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402
from jax import lax  # noqa: E402

from opscope.core import perf  # noqa: E402
from opscope.core.hlo.calls import calls  # noqa: E402
from opscope.core.hlo.module import Module  # noqa: E402
from opscope.core.perf import Cost  # noqa: E402
from opscope.core.rangetext import parse  # noqa: E402
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
@dear
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
@dear
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
@dear
def test_reduce(rows, columns, axis):
    flops, out = xla(lambda x: jnp.sum(x, axis), (rows, columns))
    assert ours("reduce", [(rows, columns)], out) == flops


@given(rows=SIZE, columns=SIZE)
@dear
def test_elementwise(rows, columns):
    flops, out = xla(jnp.multiply, (rows, columns), (rows, columns))
    assert ours("multiply", [(rows, columns)] * 2, out) == flops
    flops, out = xla(jnp.tanh, (rows, columns))
    assert ours("tanh", [(rows, columns)], out) == flops


#: HLO's elementwise instructions, by what makes one of them.
ELEMENTWISE = {
    "abs": jnp.abs, "negate": jnp.negative, "sign": jnp.sign, "floor": jnp.floor, "ceil": jnp.ceil,
    "exponential": jnp.exp, "log": jnp.log, "sqrt": jnp.sqrt, "rsqrt": lax.rsqrt, "sine": jnp.sin,
    "cosine": jnp.cos, "tanh": jnp.tanh, "cbrt": jnp.cbrt, "logistic": None,
}  # fmt: skip
PAIRS = {
    "add": jnp.add, "subtract": jnp.subtract, "multiply": jnp.multiply, "divide": jnp.divide,
    "maximum": jnp.maximum, "minimum": jnp.minimum, "atan2": jnp.arctan2, "power": lax.pow,
    "remainder": lax.rem,
}  # fmt: skip


@pytest.mark.parametrize("name", sorted({**ELEMENTWISE, **PAIRS}))
def test_every_elementwise_instruction(name):
    function = {**ELEMENTWISE, **PAIRS}[name] or lax.logistic
    shapes = [(6, 7)] * (2 if name in PAIRS else 1)
    flops, out = xla(function, *shapes)
    if name == "logistic":  # CPU's compiler writes it out as 1 / (1 + exp(−x)): four for our one
        flops //= 4
    assert ours(name, shapes, out) == flops


@given(b=SIZE, m=SIZE, k=SIZE, n=SIZE)
@dear
def test_batched_dot(b, m, k, n):
    flops, out = xla(jnp.matmul, (b, m, k), (b, k, n))
    dims = {"lhs_contracting_dims": (2,), "rhs_contracting_dims": (1,), "lhs_batch_dims": (0,),
            "rhs_batch_dims": (0,)}  # fmt: skip
    assert ours("dot", [(b, m, k), (b, k, n)], out, **dims) == flops


@given(groups=st.integers(1, 3), inner=st.integers(1, 2), outer=st.integers(1, 2), dilation=st.integers(1, 2),
       rank=st.integers(1, 2))  # fmt: skip
@dear
def test_grouped_and_dilated_convolution(groups, inner, outer, dilation, rank):
    spatial, kernel = (7,) * rank, (3,) * rank
    shapes = (2, *spatial, inner * groups), (*kernel, inner, outer * groups)
    letters = "".join(str(n) for n in range(rank))
    numbers = lax.conv_dimension_numbers(*shapes, (f"N{letters}C", f"{letters}IO", f"N{letters}C"))
    flops, out = xla(
        lambda x, w: lax.conv_general_dilated(
            x, w, (1,) * rank, "VALID", rhs_dilation=(dilation,) * rank,
            dimension_numbers=numbers, feature_group_count=groups,
        ),
        *shapes,
    )  # fmt: skip
    labels = f"b{letters}f_{letters}io->b{letters}f"
    assert ours("convolution", shapes, out, dim_labels=labels, feature_group_count=groups) == flops


def compiled(function, *shapes):
    """Every call of the compiled program, and XLA's own count of it."""
    program = jax.jit(function).lower(*(jnp.ones(shape) for shape in shapes)).compile()
    count = program.cost_analysis()
    count = count[0] if isinstance(count, list) else count
    (hlo,) = program.runtime_executable().hlo_modules()
    module = Module.of_module(hlo.as_serialized_hlo_module_proto())
    return [call for _, call in calls(module)], int(count["flops"])


@given(rank=st.integers(1, 2), size=st.integers(4, 8), kernel=st.integers(1, 3), stride=st.integers(1, 3),
       dilation=st.integers(1, 2), groups=st.integers(1, 2), low=st.integers(0, 2),
       high=st.integers(0, 2), side=st.integers(0, 1))  # fmt: skip
@dear
def test_gradients_of_strided_convolutions(
    rank, size, kernel, stride, dilation, groups, low, high, side
):
    """A gradient over holes has the forward's multiply-adds; none has fewer than XLA counts on elements."""
    if size + low + high < dilation * (kernel - 1) + 1:
        return
    letters = "".join(str(n) for n in range(rank))
    shapes = (2, *[size] * rank, 2 * groups), (*[kernel] * rank, 2, 3 * groups)
    numbers = lax.conv_dimension_numbers(*shapes, (f"N{letters}C", f"{letters}IO", f"N{letters}C"))

    def loss(*operands):
        return lax.conv_general_dilated(
            *operands, (stride,) * rank, [(low, high)] * rank, rhs_dilation=(dilation,) * rank,
            dimension_numbers=numbers, feature_group_count=groups,
        ).sum()  # fmt: skip

    found, flops = compiled(jax.grad(loss, side), *shapes)
    convolutions = [call for call in found if call.name == "hlo::convolution"]
    if len(convolutions) != 1:  # small ones become products
        return
    (call,) = convolutions
    ours, why = perf.cost(call)
    assert ours is not None, why
    alone = [
        other for other in found
        if other is not call and other.inputs and (perf.cost(other)[0] or Cost()).flops
    ]  # fmt: skip
    if not any(len(getattr(t, "shape", ())) for other in alone for t in other.input_leaves()):
        assert ours.flops >= flops, call
    if side == 0 and groups == 1 and call.param("base_dilation") == (stride,) * rank:
        results = (size + low + high - dilation * (kernel - 1) - 1) // stride + 1
        assert ours.flops == 2 * 2 * results**rank * kernel**rank * 2 * 3, call


@given(n=st.integers(1, 5), k=st.integers(1, 5), batch=st.integers(1, 2))
@dear
def test_linear_algebra_is_lapack_s(n, k, batch):
    """A library's function under XLA has the count of the same one under PyTorch."""
    square, wide, side = (batch, n, n), (batch, n + k, n), (batch, n, k)
    cases = {
        "aten::linalg_cholesky": ((jnp.linalg.cholesky,), (square,)),
        "aten::linalg_lu_factor": ((jax.scipy.linalg.lu_factor,), (square,)),
        "aten::linalg_eigh": ((jnp.linalg.eigh,), (square,)),
        "aten::linalg_eig": ((jnp.linalg.eig,), (square,)),
        "aten::linalg_qr": ((jnp.linalg.qr,), (wide,)),
        "aten::linalg_svd": ((lambda x: jnp.linalg.svd(x, full_matrices=False),), (wide,)),
        "aten::linalg_solve_triangular": ((jax.scipy.linalg.solve_triangular,), (square, side)),
    }
    for name, ((function,), shapes) in cases.items():
        libraries = [
            perf.cost(call)
            for call in compiled(function, *shapes)[0]
            if call.name == "hlo::custom-call"
        ]
        assert all(cost is not None for cost, _ in libraries), libraries
        expected, _ = perf.cost(
            OpCall(name, tuple(TensorSpec("f32", shape) for shape in shapes), None,
                   (("full_matrices", False),))
        )  # fmt: skip
        # thirds are rounded once or twice
        assert abs(sum(cost.flops for cost, _ in libraries) - expected.flops) <= batch, name


def test_a_library_that_is_not_known_is_named():
    call = OpCall("hlo::custom-call", (TensorSpec("f32", (3, 3)),), None, (("target", "mine"),))
    assert perf.cost(call) == (None, "no cost model for this library call: mine")


@given(size=st.integers(4, 9), window=st.integers(1, 3), stride=st.integers(1, 2))
@dear
def test_reduce_window(size, window, stride):
    assume(window > 1 or stride > 1)  # XLA makes that one a copy, or a maximum: no window is left

    def pool(x):
        return lax.reduce_window(x, -jnp.inf, lax.max, (window, window), (stride, stride), "VALID")

    flops, out = xla(pool, (size, size))
    assert ours("reduce-window", [(size, size)], out, window=(window, window)) == flops


MESH = """
import jax, jax.numpy as jnp
from jax.sharding import PartitionSpec as P
from opscope.core.hlo.calls import calls
from opscope.core.hlo.module import Module
from opscope.core.rangetext import format_call
mesh = jax.make_mesh((2, 2), ("a", "b"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
def body(x):
    return jax.lax.psum(x, "a"), jax.lax.all_gather(x, ("a", "b"))
try:
    from jax import shard_map
    unchecked = {"check_vma": False}
except ImportError:  # JAX 0.6.0
    from jax.experimental.shard_map import shard_map
    unchecked = {"check_rep": False}
step = jax.jit(shard_map(body, mesh=mesh, in_specs=P("a", "b"), out_specs=P(None, None), **unchecked))
(hlo,) = step.lower(jnp.ones((8, 8))).compile().runtime_executable().hlo_modules()
for _, call in calls(Module.of_module(hlo.as_serialized_hlo_module_proto())):
    if "all-" in call.name:
        print(format_call(call))
"""


def test_collectives_tell_how_many_ranks():
    """Two of four in the sum over one axis, all in the gathering over both: the bytes on the wire
    follow."""
    env = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=4"}
    done = subprocess.run(
        [sys.executable, "-c", MESH], capture_output=True, text=True, env=env, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = {}
    for line in done.stdout.splitlines():
        call = parse(line)
        found[call.name] = (call.param("group_size"), perf.cost(call)[0])
    ranks, cost = found["hlo::all-reduce"]
    assert ranks == 2
    assert cost.bytes_read == 4 * 4 * 4  # 2·(n − 1)/n of a shard of 4 × 4
    ranks, cost = found["hlo::all-gather"]
    assert ranks == 4
    assert cost.bytes_read == 3 * 4 * 4 * 4
