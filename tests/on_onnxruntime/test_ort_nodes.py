"""Nodes of a session in a recording: shapes, dtypes, weights, FLOPs and times, of five kinds of models."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")

import polars as pl

import opscope
from opscope.core.rangetext import parse
from opscope.core.schema import TensorSpec
from tests.on_onnxruntime import oracle
from tests.on_onnxruntime.conftest import assert_same
from tests.on_onnxruntime.models import MODELS, TURNS

#: Changes of layout, which ONNX Runtime names in another order each time that it loads a model.
REORDERS = ("ReorderInput", "ReorderOutput")
LEVELS = ("ORT_DISABLE_ALL", "ORT_ENABLE_ALL")
RUNS = 3


@pytest.fixture(
    params=[(name, level) for name in MODELS for level in LEVELS], ids=lambda one: "-".join(one)
)
def case(request, record, made, tmp_path):
    """(model, level, recording of three runs, outputs of the runs, outputs without opscope)."""
    name, level = request.param
    model = MODELS[name]()
    plain = made(model, level).run(None, model.feed)
    opscope.init(frameworks=["onnxruntime"])
    session = made(model, level)
    results = []

    def run():
        for _ in range(RUNS):
            results.append(session.run(None, model.feed))

    return model, level, record(run), results, plain


def nodes(recorded):
    """The ops that are nodes, in the order in which they began."""
    ops = recorded.ops.filter(~pl.col("op").str.starts_with("InferenceSession"))
    return ops.sort("start", "end", descending=[False, True])


def calls(recorded):
    """Name of node → its calls, of the texts of the ranges."""
    ranges = recorded.profile.trace["ranges"].filter(pl.col("domain") == "opscope.onnxruntime")
    found = {}
    for text in ranges.sort("start")["text"].cast(pl.String):
        call = parse(text)
        if call.param("node") is not None:
            found.setdefault(call.param("node"), []).append(call)
    return found


def shown(call):
    """The tensors that a call takes and gives: (dtype, sizes), None if absent."""
    both = [*call.input_leaves(), *call.output_leaves()]
    return [None if one is None else (one.dtype, one.shape) for one in both]


def expected(node, known):
    """What ``shown`` is of a node of the graph."""
    return [known[name] if name else None for name in (*node.input, *node.output)]


def events(recorded):
    """The node events of the JSON, in time order."""
    ran = [one for one in recorded.events() if one["name"].endswith("_kernel_time")]
    return sorted(ran, key=lambda one: (one["ts"], -one["dur"]))


def test_results_are_those_without_opscope(case):
    _, _, _, results, plain = case
    for result in results:
        assert_same(result, plain)


def test_every_node_event_is_an_op_inside_its_run(case):
    _, _, recorded, _, _ = case
    ran, ops = events(recorded), nodes(recorded)
    assert ops["op"].to_list() == [one["args"]["op_name"] for one in ran]
    assert ops["depth"].min() == 1
    runs = recorded.ops.filter(pl.col("op") == "InferenceSession.run").sort("start")
    assert len(runs) == RUNS
    top = ops.filter(pl.col("depth") == 1).join(
        runs.select("op_id", pl.col("start").alias("begun"), pl.col("end").alias("ended")),
        left_on="parent_id", right_on="op_id",
    )  # fmt: skip
    assert len(top) == int((ops["depth"] == 1).sum())
    assert (top["start"] >= top["begun"]).all()
    assert (top["end"] <= top["ended"]).all()


def test_every_nodes_shapes_and_dtypes_are_those_of_the_graph(case, tmp_path):
    model, level, recorded, _, _ = case
    graph = oracle.saved(model, level, tmp_path)
    known = oracle.tensors(graph, model.feed)
    told = calls(recorded)
    named = [node for node in graph.graph.node if node.name and node.op_type not in REORDERS]
    assert len(named) >= len(graph.graph.node) / 2
    for node in named:
        [call] = set(told[node.name])
        assert call.name == node.op_type
        assert shown(call) == expected(node, known), node.name
    reorders = [node for node in graph.graph.node if node.op_type in REORDERS]
    ours = {call for found in told.values() for call in found if call.name in REORDERS}
    assert sorted(map(shown, ours)) == sorted(expected(node, known) for node in reorders)
    # those without a name too, by what the profile and the model together tell
    every = [one for found in told.values() for one in found]
    for call in every:
        specs = [*call.input_leaves(), *call.output_leaves()]
        known_specs = [one for one in specs if one is not None]
        assert known_specs, call
        assert all(isinstance(one, TensorSpec) and one.numel is not None for one in known_specs), (
            call
        )
        assert all(one.dtype != "?" for one in known_specs)


def test_the_flops_are_those_of_the_graph(case):
    """Those of the model that was given: what a blocked layout pads is computed for nobody."""
    model, _, recorded, _, _ = case
    known = oracle.tensors(model.proto, model.feed)
    expected = sum(oracle.product_flops(node, known) for node in model.proto.graph.node)
    if model.name == "loop":  # the products in its body are in no graph that could be run alone
        expected += TURNS * expected
    assert expected == model.flops
    ops = nodes(recorded)
    products = ops.filter(pl.col("op").str.contains("MatMul|Gemm|Conv$"))
    assert not products["matrix_flops"].has_nulls()
    assert ops["matrix_flops"].sum() == RUNS * expected


def test_node_times_are_those_of_the_json(case):
    _, _, recorded, _, _ = case
    ran, ops = events(recorded), nodes(recorded)
    control = pl.Series([one["args"]["op_name"] in ("Loop", "If") for one in ran])
    written = pl.Series([one["dur"] * 1000 for one in ran])
    differ = ops["cpu_time"] - written
    assert (differ.filter(~control) == 0).all()
    # start and duration are rounded down, each on its own: what holds others may end a microsecond later
    assert differ.filter(control).is_in([0, 1000]).all()


def test_the_nodes_and_what_is_left_sum_to_the_run(case):
    _, _, recorded, _, _ = case
    ops = recorded.ops
    runs = ops.filter(pl.col("op") == "InferenceSession.run")
    inside = ops.filter(pl.col("depth") > 0)
    assert (ops["self_time"] >= 0).all()
    assert ops["self_time"].sum() == runs["cpu_time"].sum()
    top = ops.filter(pl.col("depth") == 1)["cpu_time"].sum()
    assert runs["self_time"].sum() + top == runs["cpu_time"].sum()
    assert 0 < inside["self_time"].sum() < runs["cpu_time"].sum()


def test_layers_lines_and_devices_of_nodes(case):
    _, level, recorded, _, _ = case
    ops = nodes(recorded)
    assert (ops["device"].drop_nulls() == "cpu").all()
    assert ops["source"].str.contains("test_ort_nodes.py:").all()
    for call in (one for found in calls(recorded).values() for one in found):
        name = str(call.param("node"))
        if name.startswith("/") and level == "ORT_DISABLE_ALL":
            layer = name.rpartition("/")[0].strip("/") or None
            assert call.param("layer") == layer


def test_fused_nodes_name_the_nodes_that_they_are_made_of(record, made):
    model = MODELS["cnn"]()
    opscope.init(frameworks=["onnxruntime"])
    session = made(model)
    recorded = record(lambda: session.run(None, model.feed))
    told = {call.param("origins"): call for found in calls(recorded).values() for call in found}
    fused = told["/net/conv1/Conv", "/net/act1/Relu"]
    assert fused.name == "Conv"
    assert fused.param("activation") == "Relu"
    assert fused.param("layer") == "net"


def test_the_body_of_a_loop_runs_inside_it_as_often_as_it_turns(record, made):
    model = MODELS["loop"]()
    opscope.init(frameworks=["onnxruntime"])
    session = made(model, "ORT_DISABLE_ALL")
    ops = nodes(record(lambda: session.run(None, model.feed)))
    [loop] = ops.filter(pl.col("op") == "Loop").iter_rows(named=True)
    body = ops.filter(pl.col("parent_id") == loop["op_id"])
    assert len(body.filter(pl.col("op") == "MatMul")) == TURNS
    branches = body.filter(pl.col("op") == "If")
    inner = ops.filter(pl.col("parent_id").is_in(branches["op_id"].implode()))
    assert len(branches) == TURNS
    # turns 0 and 1 are below the middle
    assert inner.sort("start")["op"].to_list() == ["Add", "Add", "Sub", "Sub", "Sub"]
    assert json.loads(f"[{inner['inputs'][0].replace('f32', '')}]")[0] == [8, 32]
