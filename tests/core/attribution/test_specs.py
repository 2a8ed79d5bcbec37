"""Names of graph nodes get the calls that specs tell, from the right graph, with their forward ops."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opscope.core.analysis.ops.op_frame import ops_frame
from opscope.core.analysis.ops.ops import Ops
from opscope.core.attribution.attribute import attribute
from opscope.core.attribution.specs import Specs
from opscope.core.rangetext import RangeTextError, format_call, format_spec, parse, parse_spec
from opscope.core.schema import OpCall, TensorSpec
from opscope.core.tables.interpret import interpret


def node(text, start, end=None, thread=1, domain="TSL", category=None, process=0):
    return {
        "process": process,
        "thread": thread,
        "start": start,
        "end": start + 5 if end is None else end,
        "domain": domain,
        "category": category,
        "text": text,
        "kind": "pushpop",
    }


def spec(text, time=0, domain="opscope.tensorflow", process=0):
    row = node(text, time, time, domain=domain, category="spec", process=process)
    return row | {"kind": "mark"}


def run(graph, start, end, thread=1, process=0):
    return node(graph, start, end, thread, "opscope.tensorflow", "graph", process)


def frame(trace):
    return ops_frame(Ops(attribute(trace))).sort("start")


def inputs(trace):
    return frame(trace)["inputs"].cast(pl.String).to_list()


@given(
    st.text(min_size=1).filter(lambda s: s.isprintable()),
    st.text(min_size=1).filter(lambda s: s.isprintable()),
)
def test_a_spec_reads_back_whatever_its_names(graph, key):
    call = OpCall("MatMul", (TensorSpec("f32", (2, 3)),), (TensorSpec("f32", (2, "?")),))
    assert parse_spec(format_spec(graph, key, call)) == (graph, key, format_call(call))


@pytest.mark.parametrize("text", ["", "g", "g/k", "g/k = ", "g/ = A()", '"g/k = A()', "g/k=A()"])
def test_what_is_no_spec_is_said(text):
    if text == "g/k = ":
        assert parse_spec(text)[2] == ""
        return
    with pytest.raises(RangeTextError):
        parse_spec(text)


def test_a_range_gets_shapes_attributes_and_source_from_its_spec(trace_of):
    trace = trace_of(
        ranges=[
            spec("f_1/net/conv/Conv2D = Conv2D(f32[8,9,9,1], f32[3,3,1,4]) -> f32[8,7,7,4] "
                 '{strides=[1, 1, 1, 1], padding="VALID"} @train.py:7'),
            run("f_1", 10, 100),
            node("StatefulPartitionedCall/net/conv/Conv2D:_MklNativeConv2D", 20),
        ]
    )  # fmt: skip
    # the adapter's key has the prefix of the call that was inlined; without it the name is found
    row = frame(trace).row(0, named=True)
    assert row["op"] == "_MklNativeConv2D"
    assert row["op_type"] == "conv"
    assert row["inputs"] == "f32[8,9,9,1], f32[3,3,1,4]"
    assert row["outputs"] == "f32[8,7,7,4]"
    assert row["layer"] == "net/conv"
    assert row["source"] == "train.py:7"
    assert row["matrix_flops"] == 2 * 8 * 7 * 7 * 4 * 9
    assert trace["notes"].is_empty()


def test_retraced_graphs_do_not_mix(trace_of):
    trace = trace_of(
        ranges=[
            spec("f_1/x/MatMul = MatMul(f32[2,3], f32[3,4])"),
            spec("f_2/x/MatMul = MatMul(f32[5,3], f32[3,4])", 1),
            run("f_2", 10, 20),
            node("x/MatMul:MatMul", 11, thread=7),
            run("f_1", 30, 40),
            node("x/MatMul:MatMul", 31, thread=7),
        ]
    )
    assert inputs(trace) == ["f32[5,3], f32[3,4]", "f32[2,3], f32[3,4]"]


def test_threads_of_concurrent_graphs_keep_their_own(trace_of):
    trace = trace_of(
        ranges=[
            spec("f_1/MatMul = MatMul(f32[2,3], f32[3,4])"),
            spec("f_2/MatMul = MatMul(f32[5,3], f32[3,4])"),
            run("f_1", 10, 50, thread=1),
            run("f_2", 12, 48, thread=2),
            node("MatMul:MatMul", 20, thread=1),
            node("MatMul:MatMul", 30, thread=2),
        ]
    )
    assert inputs(trace) == ["f32[2,3], f32[3,4]", "f32[5,3], f32[3,4]"]


def test_ops_on_other_threads_while_several_graphs_run(trace_of):
    """Node A is in one graph, C in both alike, B in both and not alike: nothing tells whose B is."""
    specs = [
        spec("g/A = MatMul(f32[2,3], f32[3,4])"),
        spec("g/B = Relu(f32[2,4])"),
        spec("g/C = Relu(f32[7])"),
        spec("h/B = Relu(f32[9,4])"),
        spec("h/C = Relu(f32[7])"),
    ]
    ranges = [
        run("g", 10, 100, thread=1),
        run("h", 20, 90, thread=2),
        node("A:MatMul", 30, thread=5),
        node("B:Relu", 40, thread=5),
        node("C:Relu", 50, thread=5),
        node("B:Relu", 60, thread=1),
        node("B:Relu", 70, thread=2),
        node("B:Relu", 95, thread=5),  # only g runs then
    ]
    trace = trace_of(ranges=[*specs, *ranges])
    assert inputs(trace) == [
        "f32[2,3], f32[3,4]",
        None,
        "f32[7]",
        "f32[2,4]",
        "f32[9,4]",
        "f32[2,4]",
    ]
    notes = trace["notes"].rows()
    assert [how_many for _, what, how_many in notes if "is not known" in what] == [1]


def test_without_a_run_the_latest_spec_explains_and_that_is_noted(trace_of):
    trace = trace_of(
        ranges=[
            spec("f_1/MatMul = MatMul(f32[2,3], f32[3,4])", 0),
            node("MatMul:MatMul", 10),
            spec("f_2/MatMul = MatMul(f32[5,3], f32[3,4])", 20),
            node("MatMul:MatMul", 30),
        ]
    )
    assert inputs(trace) == ["f32[2,3], f32[3,4]", "f32[5,3], f32[3,4]"]
    assert trace["notes"]["how_many"].to_list() == [2]


def test_processes_and_frameworks_are_apart(trace_of):
    trace = trace_of(
        ranges=[
            spec("f_1/MatMul = MatMul(f32[2,3], f32[3,4])", process=1),
            spec("f_1/MatMul = MatMul(f32[9,3], f32[3,4])", domain="opscope.onnxruntime"),
            node("MatMul:MatMul", 10),
            node("MatMul", 30, domain="opscope.onnxruntime", category="forward"),
        ]
    )
    assert inputs(trace) == [None, "f32[9,3], f32[3,4]"]


def test_the_table_of_specs_counts_as_the_marks_do(trace_of):
    trace = trace_of(
        ranges=[node("#name=jit(f)/net/dot_general,hlo_op=dot.3,hlo_module=jit_f#", 10)],
        specs=[
            {"process": 0, "framework": "jax", "graph": "jit_f", "key": "dot.3", "time": None,
             "text": "dot(f32[2,3], f32[3,4]) -> f32[2,4]"},
        ],
    )  # fmt: skip
    row = frame(trace).row(0, named=True)
    assert (row["op"], row["outputs"]) == ("dot_general", "f32[2,4]")
    assert trace["notes"].is_empty()


def test_a_fused_kernel_is_walked_back_to_what_it_begins_with(trace_of):
    trace = trace_of(
        ranges=[
            spec("f/d/MatMul = MatMul(f32[2,3], f32[3,4]) -> f32[2,4]"),
            spec("f/d/BiasAdd = BiasAdd(f32[2,4], f32[4]) -> f32[2,4]"),
            spec("f/d/BiasAdd:MatMul = MatMul(f32[2,3], f32[3,4], f32[4]) -> f32[2,4] "
                 '{fused=["d/MatMul"]}'),
            spec("f/gradient_tape/d/MatMul/MatMul_1 = MatMul(f32[2,3], f32[2,4]) -> f32[3,4] "
                 "{transpose_a=true}"),
            run("f", 10, 30),
            node("d/BiasAdd:_FusedMatMul", 11),
            node("gradient_tape/d/MatMul/MatMul_1:MatMul", 21, thread=2),
            run("f", 40, 60),
            node("d/BiasAdd:_FusedMatMul", 41),
            node("gradient_tape/d/MatMul/MatMul_1:MatMul", 51, thread=2),
            node("d/BiasAdd:BiasAdd", 56),
        ]
    )  # fmt: skip
    ops = frame(trace)
    assert ops["inputs"].cast(pl.String).to_list() == [
        "f32[2,3], f32[3,4], f32[4]", "f32[2,3], f32[2,4]",
        "f32[2,3], f32[3,4], f32[4]", "f32[2,3], f32[2,4]", "f32[2,4], f32[4]",
    ]  # fmt: skip
    assert ops["matrix_flops"].to_list() == [48, 48, 48, 48, 0]
    ids = ops["op_id"].to_list()
    # each run's backward op is the same run's forward op's
    assert ops["forward_op_id"].to_list()[:4] == [None, ids[0], None, ids[2]]
    assert ops["direction"].cast(pl.String).to_list()[:2] == ["forward", "backward"]
    assert ops["layer"].cast(pl.String).to_list()[1] == "d"


def test_nodes_of_one_fused_kernel_have_layers_of_their_own_by_number_too(trace_of):
    """What is grouped by layer counts with numbers of layers: equal where the layers are, and only there."""
    trace = trace_of(
        ranges=[
            spec("f/d/MatMul = MatMul(f32[2,3], f32[3,4]) -> f32[2,4]"),
            spec("f/e/BiasAdd = BiasAdd(f32[2,4], f32[4]) -> f32[2,4]"),
            spec("f/e/BiasAdd:MatMul = MatMul(f32[2,3], f32[3,4], f32[4]) -> f32[2,4] "
                 '{fused=["d/MatMul"]}'),
            spec("f/gradient_tape/d/MatMul/MatMul_1 = MatMul(f32[2,3], f32[2,4]) -> f32[3,4]"),
            run("f", 10, 40),
            node("e/BiasAdd:_FusedMatMul", 11),
            node("gradient_tape/d/MatMul/MatMul_1:MatMul", 21, thread=2),
            node("gradient_tape/e/BiasAdd/BiasAddGrad:BiasAddGrad", 31, thread=2),
        ]
    )  # fmt: skip
    ops = Ops(attribute(trace))
    rows = np.flatnonzero(ops.attribution.is_op)
    forward = ops.forward_of(rows)
    assert (ops.of_several[ops.attribution.meaning.reading[forward[forward >= 0]]]).any()
    layers = ops.layers(rows).cast(pl.String).to_list()
    numbers = ops.layer_numbers(rows, forward).tolist()
    assert layers == ["e", "d/MatMul", "e/BiasAdd"]
    assert len({*numbers}) == 3


def test_loops_branches_and_optimised_nodes_are_recognised(trace_of):
    trace = trace_of(
        ranges=[
            spec("f/while/body/_/while/MatMul = MatMul(f32[2,3], f32[3,4])"),
            spec("f/while/body/_/while/matmul_1 = MatMul(f32[2,4], f32[4,4])"),
            spec("f/StatefulPartitionedCall/mul = Mul(f32[2,4], f32[])"),
            spec("f/StatefulPartitionedCall_1/mul = Mul(f32[8,4], f32[])"),
            run("f", 10, 100),
            node("while/body/_17/while/MatMul:MatMul", 20),
            node("while/body/_1/while/ArithmeticOptimizer/FoldTransposeIntoMatMul_matmul_1:MatMul",
                 30),
            node("StatefulPartitionedCall_1/mul:Mul", 40),
            node("mul:Mul", 50),
        ]
    )  # fmt: skip
    assert inputs(trace) == [
        "f32[2,3], f32[3,4]", "f32[2,4], f32[4,4]", "f32[8,4], f32[]", None,
    ]  # fmt: skip


def test_specs_can_be_asked_for_anything_that_names_its_op(trace_of):
    trace = trace_of(
        ranges=[
            spec("m/dot.3 = dot(f32[2,3], f32[3,4])", 5, domain="opscope.jax"),
            spec("n/dot.3 = dot(f32[7,3], f32[3,4])", 6, domain="opscope.jax"),
        ]
    )
    specs = Specs.of(trace, interpret(trace))
    row, inferred = specs.find(
        np.array([0, 0, 0, 3]),
        np.array([50, 50, 50, 50]),
        pl.Series(["jax", "XLA", "jax", "jax"]),
        pl.Series(["m", None, "n", "m"]),
        pl.Series(["dot.3", "dot.3", "dot.9", "dot.3"]),
    )
    assert [None if r < 0 else specs.calls[r].tensor(0).shape for r in row] == [
        (2, 3), (7, 3), None, None,
    ]  # fmt: skip
    assert inferred.tolist() == [False, True, False, False]


def test_a_text_that_is_no_call_explains_nothing(trace_of):
    trace = trace_of(
        ranges=[spec("f/MatMul = not a call"), spec("nonsense"), node("MatMul:MatMul", 10)]
    )
    assert inputs(trace) == [None]
    assert parse("MatMul()").name == "MatMul"


def test_a_layer_that_the_spec_tells_goes_before_the_names(trace_of):
    specs = [
        spec('g/net_1/dense_1/MatMul = MatMul(f32[2,3], f32[3,4]) {layer="net/dense"}'),
        spec('g/Add/ReadVariableOp = ReadVariableOp(f32[3]) {layer=""}'),
    ]
    ranges = [
        run("g", 10, 100),
        node("net_1/dense_1/MatMul:MatMul", 20),
        node("Add/ReadVariableOp:ReadVariableOp", 30),
    ]
    found = frame(trace_of(ranges=[*specs, *ranges]))
    assert found["layer"].cast(pl.String).to_list() == ["net/dense", None]
    assert found["params"].cast(pl.String).fill_null("").str.contains("layer").sum() == 0


def test_an_operation_of_xla_has_the_path_and_the_forward_op_of_its_node(trace_of):
    module = "a_f(3)"
    specs = [
        spec(
            f'"{module}"/dot.1 = hlo::dot(f32[2,3], f32[3,4]) -> f32[2,4] '
            '{lhs_contracting_dims=[1], rhs_contracting_dims=[0], op_name="net/MatMul"}'
        ),
        spec(
            f'"{module}"/dot.2 = hlo::dot(f32[2,3], f32[2,4]) -> f32[3,4] '
            "{lhs_contracting_dims=[0], rhs_contracting_dims=[0], "
            'op_name="gradient_tape/net/MatMul/MatMul"}'
        ),
    ]
    ranges = [
        node(f"{key}#hlo_op={key},hlo_module={module}#", start)
        for turn in (0, 100)
        for key, start in (("dot.1", turn + 10), ("dot.2", turn + 20))
    ]
    found = frame(trace_of(ranges=[*specs, *ranges])).to_dicts()
    assert [row["op"] for row in found] == ["hlo::dot"] * 4
    assert [row["direction"] for row in found] == ["forward", "backward"] * 2
    assert [row["layer"] for row in found] == ["net"] * 4
    ids = [row["op_id"] for row in found]
    assert [row["forward_op_id"] for row in found] == [None, ids[0], None, ids[2]]


@given(calls=st.lists(st.booleans(), max_size=30))
def test_runs_of_a_gradient_go_back_over_those_of_its_function(trace_of, calls):
    """Against a stack: a run differentiates the latest that is not differentiated yet."""
    specs = [
        spec("f/MatMul = MatMul(f32[2,3], f32[3,4])"),
        spec(
            "b/gradients/MatMul_grad/MatMul = MatMul(f32[2,4], f32[3,4]) "
            '{forward="MatMul", forward_graph="f"}'
        ),
    ]
    rows, stack, expected = [], [], []
    for number, forward in enumerate(calls):
        start = 100 * number
        if forward:
            stack.append(start + 10)
            rows += [run("f", start, start + 50), node("MatMul:MatMul", start + 10)]
        else:
            expected.append((start + 10, stack.pop() if stack else None))
            rows += [
                run("b", start, start + 50),
                node("gradients/MatMul_grad/MatMul:MatMul", start + 10),
            ]
    found = frame(trace_of(ranges=[*specs, *rows])).to_dicts()
    start_of = {row["op_id"]: row["start"] for row in found}
    linked = [
        (row["start"], start_of.get(row["forward_op_id"]))
        for row in found
        if row["direction"] == "backward"
    ]
    assert linked == expected
