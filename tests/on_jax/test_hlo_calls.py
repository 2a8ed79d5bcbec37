"""Compiled programs as calls: shapes, FLOPs and paths against XLA's own figures and brute force."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from opscope.core import perf
from opscope.core.hlo.calls import calls
from opscope.core.hlo.module import Module
from opscope.core.hlo.wire import WireError
from opscope.core.rangetext import format_call, parse
from opscope.core.schema import OpCall
from tests.made_library import install, line
from tests.readers.protobuf import damaged, encoded, tree

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402
from hypothesis import example, given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from tests.draws import dear  # noqa: E402


def compiled(function, *args):
    """The compiled program's module and XLA's own FLOPs of it."""
    program = jax.jit(function).lower(*args).compile()
    (hlo,) = program.runtime_executable().hlo_modules()
    return Module.of_module(hlo.as_serialized_hlo_module_proto()), program.cost_analysis()


def named(module: Module) -> dict[str, OpCall]:
    return dict(calls(module))


def flops(module: Module) -> tuple[int, int]:
    """Matrix and vector FLOPs of everything that runs in the program."""
    costs = []
    for call in named(module).values():
        cost, why = perf.cost(call)
        assert cost is not None, f"{call}: {why}"
        costs.append(cost)
    return sum(c.matrix_flops for c in costs), sum(c.vector_flops for c in costs)


def test_shapes_dtypes_and_layout_are_those_of_the_hlo_text():
    function = lambda a, b: jnp.tanh(a.T @ b).astype(jnp.bfloat16)  # noqa: E731
    args = jnp.ones((5, 3)), jnp.ones((5, 4))
    module, _ = compiled(function, *args)
    text = jax.jit(function).lower(*args).compile().as_text()
    for name, call in named(module).items():
        line = next(
            row
            for row in text.splitlines()
            if row.strip().removeprefix("ROOT ").startswith(f"%{name} = ")
        )
        out = call.output_leaves()[0]
        kind = {"bool": "pred", "i32": "s32"}.get(out.dtype, out.dtype)
        assert f" = {kind}[{','.join(map(str, out.shape))}]" in line
        assert parse(format_call(call)) == call


@dear
@example(1, 3, 3, (3, 3, 3), 3, 1, "VALID")
@given(
    st.integers(1, 3), st.integers(3, 7), st.integers(3, 7),
    st.sampled_from([(1, 2, 4), (2, 4, 6), (3, 3, 3)]), st.integers(2, 3), st.integers(1, 2), st.sampled_from(["VALID", "SAME"]),
)  # fmt: skip
def test_convolutions_are_brute_forces(batch, height, width, channels, kernel, stride, padding):
    groups, into, out = channels
    x, w = jnp.ones((batch, height, width, into)), jnp.ones((kernel, kernel, into // groups, out))

    def function(x, w):
        return jax.lax.conv_general_dilated(
            x, w, (stride, stride), padding, dimension_numbers=("NHWC", "HWIO", "NHWC"),
            feature_group_count=groups,
        )  # fmt: skip

    shape = jax.eval_shape(function, x, w).shape
    counted = 0
    for _ in itertools.product(
        *map(range, shape)
    ):  # each result sums over the kernel and its group
        counted += 2 * kernel * kernel * (into // groups)
    matrix, vector = flops(compiled(function, x, w)[0])
    if "convolution(" in jax.jit(function).lower(x, w).compile().as_text():
        assert matrix == counted
    else:  # XLA made it a product and a sum of one window, which adds once less
        assert matrix == 0
        # the sum's own addition stands in a computation of its own, and is one more
        assert vector == counted - math.prod(shape) + 1


@dear
@given(st.lists(st.integers(1, 5), min_size=3, max_size=3), st.integers(0, 2), st.booleans())
def test_products_are_brute_forces(sizes, batches, transposed):
    m, k, n = sizes
    lead = (2, 3)[:batches]
    a = jnp.ones((*lead, k, m) if transposed else (*lead, m, k))
    b = jnp.ones((*lead, k, n))

    def function(a, b):
        return jnp.matmul(jnp.swapaxes(a, -1, -2) if transposed else a, b) + 1.0

    module, _ = compiled(function, a, b)
    names = {call.name.rsplit(":", 1)[-1] for call in named(module).values()}
    expected = 2 * int(np.prod(lead)) * m * k * n
    # XLA makes sums and multiplications of the smallest products
    assert flops(module)[0] == expected if "dot" in names else sum(flops(module)) >= expected / 2


def test_figures_are_cost_analysis_on_a_layer_and_its_gradient():
    """XLA's ``flops`` of a program: products, elementwise, reductions (its transcendentals apart)."""

    def loss(w, x):
        return jnp.maximum(x @ w, 0.0).sum()

    for function, products in ((loss, 1), (jax.grad(loss), 2)):
        module, theirs = compiled(function, jnp.ones((64, 32)), jnp.ones((128, 64)))
        matrix, vector = flops(module)
        # the fused products are alike to the last digit; XLA may count a scalar more or less
        assert matrix == products * 2 * 128 * 64 * 32
        assert matrix + vector == pytest.approx(theirs["flops"], rel=0.02)


def test_paths_of_what_xla_rewrote_are_those_of_its_forward():
    """The weights' gradient of a convolution loses its path in XLA's rewriting."""

    def net(w, x):
        with jax.named_scope("block"):
            y = jax.lax.conv_general_dilated(
                x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
            )
        return jnp.tanh(y).sum()

    module, _ = compiled(jax.value_and_grad(net), jnp.ones((3, 3, 2, 4)), jnp.ones((2, 8, 8, 2)))
    convs = [call for call in named(module).values() if "convolution" in call.name]
    # JAX 0.6 has one more function around it
    paths = sorted(str(call.param("op_name")).replace("jit(main)/", "") for call in convs)
    assert len(paths) == 2
    assert paths[0] == "jit(net)/jvp(block)/conv_general_dilated"
    assert paths[1] == "jit(net)/transpose(jvp(block))/conv_general_dilated"
    assert all(call.frames and call.frames[0][0].endswith("test_hlo_calls.py") for call in convs)


def test_an_operation_of_a_library_s_model_has_its_line_and_the_user_s(tmp_path, monkeypatch):
    install(tmp_path, monkeypatch)
    from modelzoo.jaxnet import block

    def net(w, x):
        return block(w, x).sum()

    module, _ = compiled(jax.value_and_grad(net), jnp.ones((3, 4)), jnp.ones((2, 3)))
    dots = [call for call in named(module).values() if call.name.startswith("hlo::dot")]
    assert dots
    place = ("modelzoo/jaxnet.py", line("modelzoo/jaxnet.py", "jnp.tanh"))
    for call in dots:
        assert call.frames[0] == place
        assert call.frames[1][0].endswith("test_hlo_calls.py")


def test_a_product_that_lost_its_path_has_the_one_on_its_results_new_shape():
    """A single column: XLA rewrites the product, and leaves its path on what reads it."""

    def net(w, x, y):
        with jax.named_scope("dense"):
            h = x @ w
        with jax.named_scope("mse"):
            return ((h - y) ** 2).mean()

    def step(w, x, y):
        gradient = jax.grad(net)(w, x, y)
        with jax.named_scope("sgd"):
            return w - 0.1 * gradient

    module, _ = compiled(step, jnp.ones((4, 1)), jnp.ones((8, 4)), jnp.ones((8, 1)))
    paths = {call.param("op_name") for call in named(module).values() if call.name.endswith("dot")}
    # JAX 0.6 has one more function around it
    assert {str(path).replace("jit(main)/", "").split("/", 1)[1] for path in paths} == {
        "jvp(dense)/dot_general",
        "transpose(jvp(dense))/dot_general",
    }


def test_of_paths_made_one_the_first_counts():
    """XLA joins the paths of what it folds: ``…/mul;…/broadcast_in_dim``."""

    def net(w, x):
        with jax.named_scope("mse"):
            return ((x @ w) ** 2).mean()

    module, _ = compiled(jax.grad(net), jnp.ones((4, 3)), jnp.ones((8, 4)))
    assert not [call for call in named(module).values() if ";" in str(call.param("op_name") or "")]


def test_loops_name_what_runs_in_them():
    module, _ = compiled(
        lambda x: jax.lax.fori_loop(0, 5, lambda _, y: jnp.sin(y) * y, x), jnp.ones(300)
    )
    found = named(module)
    assert any(call.name == "hlo::while" for call in found.values())
    assert any(call.name == "hlo::fusion" for call in found.values())
    assert module.name.startswith("jit_")


def test_a_region_reads_the_slices_that_it_takes():
    """A loop over stacked weights reads one layer a turn, not the stack."""
    layers, width = 50, 64

    def net(stack, x):
        def layer(kept, at):
            return jnp.tanh(kept * stack[at]) + 1.0, None

        return jax.lax.scan(layer, x, jnp.arange(layers))[0]

    module, _ = compiled(net, jnp.ones((layers, width)), jnp.ones(width))
    taking = [c for c in named(module).values() if c.param("touched") is not None]
    assert taking
    stack = width * layers
    for call in taking:
        cost, why = perf.cost(call)
        assert cost is not None, why
        whole = sum(leaf.nbytes for leaf in call.input_leaves())
        assert cost.bytes_read < whole
        sizes = [leaf.numel for leaf in call.input_leaves()]
        if stack in sizes and call.param("touched")[sizes.index(stack)] >= 0:
            assert call.param("touched")[sizes.index(stack)] == width
    assert any(stack in [leaf.numel for leaf in c.input_leaves()] for c in taking)


@given(st.integers(0, 10**6), st.binary(min_size=1, max_size=3), st.integers(0, 2))
def test_damaged_modules_are_read_or_refused(place, junk, how):
    data = bytearray(DAMAGED)
    at = place % len(data)
    data[at : at + (0, len(junk), 1)[how]] = junk
    try:
        for _, call in calls(Module.of_module(bytes(data))):
            parse(format_call(call))
    except (WireError, KeyError):
        pass


@given(
    st.lists(
        st.tuples(st.integers(0, 10**6), st.integers(0, 4), st.integers(0, 10**6)),
        min_size=1,
        max_size=8,
    )
)
def test_well_formed_nonsense_is_read_or_refused(damage):
    nodes = tree(DAMAGED)
    for one in damage:
        damaged(nodes, *one)
    try:
        for _, call in calls(Module.of_module(encoded(nodes))):
            parse(format_call(call))  # what is written is read again
    except (WireError, KeyError):
        pass


@pytest.mark.parametrize("line", [-1, 2**31, 2**63])
def test_lines_that_are_none_are_left_out(line):
    nodes = tree(DAMAGED)
    index = [value for number, _, value in nodes if number == 17]
    if not index or not any(number == 4 for number, _, _ in index[-1]):
        pytest.skip("this JAX writes one line an instruction, and no stacks")
    for number, _, location in index[-1]:
        if number == 3 and isinstance(location, list):
            location[:] = [field for field in location if field[0] != 3] + [[3, 0, line]]
    for metadata in of_instructions(nodes):  # JAX 0.6 writes the line here too
        metadata[:] = [field for field in metadata if field[0] != 4] + [[4, 0, line]]
    found = [call for _, call in calls(Module.of_module(encoded(nodes)))]
    assert found
    assert not any(call.frames for call in found)
    assert any(call.frames for _, call in calls(Module.of_module(DAMAGED)))
    assert all(parse(format_call(call)) == call for call in found)


def of_instructions(nodes):
    """The metadata of each instruction of each computation."""
    for number, _, computation in nodes:
        if number == 3 and isinstance(computation, list):
            for place, _, instruction in computation:
                if place == 2 and isinstance(instruction, list):
                    yield from (
                        one for at, _, one in instruction if at == 7 and isinstance(one, list)
                    )


def test_a_stack_that_calls_itself_ends():
    nodes = tree(DAMAGED)
    index = [value for number, _, value in nodes if number == 17]
    if not index or not any(number == 4 for number, _, _ in index[-1]):
        pytest.skip("this JAX writes one line an instruction, and no stacks")
    places = [node for node in index[-1] if node[0] == 4]
    for number, node in enumerate(places, start=1):
        node[2] = [[1, 0, 10**6], [2, 0, number]]  # a location that is none, its own caller
    assert dict(calls(Module.of_module(encoded(nodes))))


def _damaged() -> bytes:
    program = (
        jax.jit(lambda a, b: jnp.tanh(a @ b).sum())
        .lower(jnp.ones((4, 4)), jnp.ones((4, 4)))
        .compile()
    )
    data: bytes = program.runtime_executable().hlo_modules()[0].as_serialized_hlo_module_proto()
    return data


DAMAGED = _damaged()


def scanned(weights, carry, rows):
    return jax.lax.scan(lambda h, x: (jnp.tanh(h @ weights + x), h.sum()), carry, rows)


def test_a_loop_that_is_compiled_as_one_function_has_the_flops_of_its_turns():
    module, _ = compiled(scanned, jnp.ones((6, 6)), jnp.zeros(6), jnp.ones((10, 6)))
    (call,) = (one for one in named(module).values() if one.name.startswith("hlo::call"))
    cost, _ = perf.cost(call)
    assert call.name == "hlo::call:compiled"
    assert cost.matrix_flops == 10 * 2 * 6 * 6
    assert (
        10 * (6 + 6 + 5) <= cost.vector_flops <= 10 * (6 + 6 + 6 + 2)
    )  # add, tanh, sum, the count
    assert cost.bytes_read is None
    assert parse(format_call(call)) == call


def test_a_loop_in_a_loop_and_one_whose_turns_nobody_knows():
    def twice(weights, carry, rows):
        return jax.lax.scan(lambda h, _: (scanned(weights, h, rows)[0], 0), carry, None, length=3)

    def until(weights, limit):
        return jax.lax.while_loop(lambda w: w.sum() < limit, lambda w: w @ weights, weights)

    module, _ = compiled(twice, jnp.ones((6, 6)), jnp.zeros(6), jnp.ones((10, 6)))
    found = [one for one in named(module).values() if one.name == "hlo::call:compiled"]
    assert 3 * 10 * 2 * 6 * 6 in {perf.cost(call)[0].matrix_flops for call in found}
    module, _ = compiled(until, jnp.ones((3, 3)), 9.0)
    (call,) = (one for one in named(module).values() if one.name == "hlo::call:compiled")
    assert perf.cost(call) == (
        None,
        "in the called computation: a loop with an unknown number of iterations",
    )


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (jnp.fft.rfft, 46_080),
        (lambda x: jnp.fft.irfft(jnp.fft.rfft(x)), 92_160),
        (jnp.fft.fft, 92_160),
    ],
)
def test_a_transform_of_real_numbers_has_half_of_a_complex_one(function, expected):
    module, _ = compiled(function, jnp.ones((4, 512)))
    each = [perf.cost(call)[0] for call in named(module).values() if call.name == "hlo::fft"]
    assert sum(one.flops for one in each) == expected


def test_a_convolution_and_its_transpose_count_every_weight_as_torch_does():
    x, w = jnp.ones((2, 16, 16, 3)), jnp.ones((3, 3, 3, 8))
    dims = ("NHWC", "HWIO", "NHWC")
    same = compiled(
        lambda x, w: jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=dims),
        x,
        w,
    )
    spread = compiled(
        lambda x, w: jax.lax.conv_transpose(x, w, (2, 2), "SAME", dimension_numbers=dims), x, w
    )
    assert [flops(module)[0] for module, _ in (same, spread)] == [221_184, 221_184]
    assert int(same[1]["flops"]) == 203_136  # XLA leaves out the padding
