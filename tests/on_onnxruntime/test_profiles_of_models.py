"""Every node of a real profile has the shapes, dtypes, weights and results that really ran."""

import json
import os
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402

import opscope  # noqa: E402
from opscope.core.onnx import dtypes  # noqa: E402
from opscope.core.onnx.model import nodes_of, read  # noqa: E402
from opscope.core.rangetext import parse  # noqa: E402
from opscope.core.schema import TensorSpec  # noqa: E402
from opscope.readers.errors import BadInput  # noqa: E402

from . import models  # noqa: E402

LEVELS = {
    "off": ort.GraphOptimizationLevel.ORT_DISABLE_ALL,
    "on": ort.GraphOptimizationLevel.ORT_ENABLE_ALL,
}
RUNS = 3


def recurrent():
    """An LSTM and a GRU, one after the other."""
    random = np.random.default_rng(3)
    t, b, i, h = 5, 2, 8, 6

    def weight(name, *shape):
        return numpy_helper.from_array(random.standard_normal(shape).astype(np.float32), name)

    made = [weight("W", 1, 4 * h, i), weight("R", 1, 4 * h, h), weight("B", 1, 8 * h)]
    made += [weight("W2", 1, 3 * h, h), weight("R2", 1, 3 * h, h)]
    made.append(numpy_helper.from_array(np.array([1], np.int64), "axis"))
    graph = helper.make_graph(
        [
            helper.make_node("LSTM", ["x", "W", "R", "B"], ["l", "", "c"], name="/enc/LSTM", hidden_size=h),
            helper.make_node("Squeeze", ["l", "axis"], ["s"], name="/enc/Squeeze"),
            helper.make_node("GRU", ["s", "W2", "R2"], ["y"], name="/dec/GRU", hidden_size=h),
        ],
        "recurrent",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [t, "batch", i])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None),
         helper.make_tensor_value_info("c", TensorProto.FLOAT, None)],
        made,
    )  # fmt: skip
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    flops = 2 * t * b * (4 * h * i + 4 * h * h) + 2 * t * b * 2 * 3 * h * h
    return models.Made(
        proto, {"x": random.standard_normal((t, b, i)).astype(np.float32)}, flops, "recurrent"
    )


def qoperator(folder):
    """The CNN quantised by ONNX Runtime itself: QLinearConv, QGemm …"""
    quantization = pytest.importorskip("onnxruntime.quantization")
    made = models.cnn()
    source = made.save(folder)

    class Reader(quantization.CalibrationDataReader):
        def __init__(self):
            self.left = [made.feed]

        def get_next(self):
            return self.left.pop() if self.left else None

    target = folder / "qoperator.onnx"
    quantization.quantize_static(
        str(source), str(target), Reader(), quant_format=quantization.QuantFormat.QOperator
    )
    return models.Made(onnx.load(target), made.feed, made.flops, "qoperator")


MODELS = {
    "cnn": lambda folder: models.cnn(),
    "transformer": lambda folder: models.transformer(),
    "qdq": lambda folder: models.quantised(),
    "qoperator": qoperator,
    "loop": lambda folder: models.loop(),
    "float16": lambda folder: models.float16(),
    "recurrent": lambda folder: recurrent(),
}


class Ran:
    """A model that ran under ONNX Runtime's profiler, with the files that it left."""

    def __init__(self, name, level, folder):
        self.made = MODELS[name](folder)
        self.folder = folder / "run"
        self.folder.mkdir()
        self.original = self.folder / "original.onnx"
        onnx.save(self.made.proto, self.original)
        self.optimised = self.folder / "optimised.onnx"
        options = ort.SessionOptions()
        options.enable_profiling = True
        options.profile_file_prefix = str(self.folder / "run")
        options.graph_optimization_level = LEVELS[level]
        options.optimized_model_filepath = str(self.optimised)
        options.log_severity_level = 3
        session = ort.InferenceSession(
            str(self.original), options, providers=["CPUExecutionProvider"]
        )
        for _ in range(RUNS):
            session.run(None, self.made.feed)
        self.profile = Path(session.end_profiling())
        self.events = json.loads(self.profile.read_text())

    def node_events(self):
        return [e for e in self.events if e["cat"] == "Node" and e["name"].endswith("_kernel_time")]


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    done = {}

    def of(name, level):
        if (name, level) not in done:
            done[name, level] = Ran(name, level, tmp_path_factory.mktemp(f"{name}_{level}"))
        return done[name, level]

    return of


def true_tensors(path, feed):
    """The dtype and shape of every tensor of the main graph, as a session returns it."""
    proto = onnx.load(path)
    known = {}
    for tensor in proto.graph.initializer:
        known[tensor.name] = TensorSpec(dtypes.of_number(tensor.data_type), tuple(tensor.dims))
    names = [name for node in proto.graph.node for name in node.output if name]
    there = {one.name for one in proto.graph.output}
    for name in names:
        if name not in there:
            proto.graph.output.append(onnx.ValueInfoProto(name=name))
    options = ort.SessionOptions()
    options.graph_optimization_level = LEVELS["off"]
    options.log_severity_level = 4
    session = ort.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    outputs = [one.name for one in session.get_outputs()]
    arrays = dict(zip(outputs, session.run(outputs, feed), strict=True)) | feed
    word = {"float32": "float", "float64": "double"}
    for name, array in arrays.items():
        array = np.asarray(array)
        kind = array.dtype.name
        known[name] = TensorSpec(dtypes.of_word(word.get(kind, kind)), array.shape)
    return known


def node_of(row):
    """The node's name among the parameters of an op's row."""
    return parse("x() {" + row["params"] + "}").param("node")


CASES = [pytest.param(name, level, id=f"{name}-{level}") for name in MODELS for level in LEVELS]


@pytest.mark.parametrize(("name", "level"), CASES)
def test_each_node_that_ran_has_its_inputs_weights_and_outputs(ran, name, level):
    one = ran(name, level)
    truth = true_tensors(one.optimised, one.made.feed)
    nodes = {node.key: node for node in nodes_of(one.optimised) if not node.holder}
    ops = opscope.load(one.profile, model=one.optimised).ops()
    seen = set()
    for row in ops.iter_rows(named=True):
        node = nodes.get(node_of(row))
        if node is None:
            continue  # of a subgraph: its tensors are no outputs of the model
        seen.add(node.key)
        call = parse(f"x({row['inputs']}) -> ({row['outputs']})")
        inputs = call.input_leaves()
        assert [*inputs] == [truth[n] if n else None for n in node.inputs], node.key
        made = [*call.output_leaves()]
        # an output that nobody reads is in no profile of some versions
        assert made == [truth[n] if n else None for n in node.outputs], node.key
    assert seen == set(nodes)


@pytest.mark.parametrize(("name", "level"), CASES)
def test_every_op_has_shapes_and_dtypes_and_no_size_is_unknown(ran, name, level):
    one = ran(name, level)
    ops = opscope.load(one.profile, model=one.optimised).ops()
    for row in ops.iter_rows(named=True):
        tensors = parse(f"x({row['inputs']}) -> ({row['outputs']})")
        for tensor in (*tensors.input_leaves(), *tensors.output_leaves()):
            assert tensor is None or (tensor.dtype != "?" and tensor.numel is not None)


@pytest.mark.parametrize(("name", "level"), CASES)
def test_times_are_those_of_the_file_and_add_up_to_the_runs(ran, name, level):
    one = ran(name, level)
    profile = opscope.load(one.profile, model=one.optimised)
    ours, theirs = Counter(), Counter()
    ops = profile.ops()
    for row in ops.iter_rows(named=True):
        ours[node_of(row)] += row["cpu_time"]
    for event in one.node_events():
        theirs[event["name"].removesuffix("_kernel_time")] += event["dur"] * 1000
    moved = profile.notes().filter(profile.notes()["what"].str.contains("moved by 1 µs"))
    slack = 1000 * int(moved["how_many"].sum())
    for key in ours | theirs:
        assert theirs[key] <= ours[key] <= theirs[key] + slack
    runs = sum(event["dur"] for event in one.events if event["name"] == "model_run") * 1000
    summary = profile.summary().row(0, named=True)
    assert summary["steps"] == RUNS
    assert runs <= summary["device_time"] <= runs + slack
    assert summary["attributed_time"] + summary["unattributed_time"] == summary["device_time"]
    assert summary["attributed_time"] == ops["self_time"].sum()


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", list(MODELS))
def test_the_flops_of_a_run_are_those_of_the_model(ran, name, level):
    one = ran(name, level)
    ops = opscope.load(one.profile, model=one.optimised).ops()
    assert ops["matrix_flops"].sum() == RUNS * one.made.flops


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", ["cnn", "transformer", "qdq", "float16"])
def test_fused_nodes_name_the_nodes_that_they_stand_for(ran, name, level):
    one = ran(name, level)
    original = {node.name: node for node in nodes_of(one.original)}
    found = nodes_of(one.optimised, one.original)
    stands_for = Counter(origin for node in found for origin in node.origins)
    products = {n for n, node in original.items() if node.op in ("Conv", "MatMul", "Gemm")}
    # each product of the original is in one node of the optimised model
    assert {n: stands_for[n] for n in products} == dict.fromkeys(products, 1)
    for node in found:
        if products & set(node.origins):
            assert "Conv" in node.op or "MatMul" in node.op or "Gemm" in node.op, node
        if node.name not in original and node.op in ("Transpose", "Cast", "ReorderOutput"):
            assert node.origins == ()
    for node in found:
        for origin in node.origins:
            assert origin in original


def test_a_fused_convolution_has_both_origins_and_their_layer(ran):
    one = ran("cnn", "on")
    node = next(n for n in nodes_of(one.optimised, one.original) if "/net/conv1/Conv" in n.origins)
    assert "/net/act1/Relu" in node.origins
    assert node.layer in ("net", "net/conv1")


def test_a_product_and_its_bias_keep_the_layer_that_they_had(ran):
    one = ran("loop", "on")
    for node in nodes_of(one.optimised):
        if node.op in ("MatMul", "Gemm"):
            assert node.layer in ("stem", "cell")


def test_a_loop_holds_the_nodes_of_its_body_and_their_time(ran):
    one = ran("loop", "off")
    ops = opscope.load(one.profile, model=one.optimised).ops()
    parents = dict(zip(ops["op_id"], ops["op"], strict=True))
    inside = ops.filter((ops["op"] == "MatMul") & ops["parent_id"].is_not_null())
    assert len(inside) == RUNS * models.TURNS
    assert {parents[parent] for parent in inside["parent_id"]} == {"Loop"}
    branch = ops.filter(ops["op"].is_in(["Add", "Sub"]))
    assert {parents[parent] for parent in branch["parent_id"]} == {"If"}
    whole = ops.filter(ops["op"] == "Loop")
    assert (whole["self_time"] < whole["cpu_time"]).all()


def test_the_original_model_explains_an_optimised_run(ran):
    one = ran("cnn", "on")
    ops = opscope.load(one.profile, model=one.original).ops()
    fused = ops.filter(ops["op"] == "Conv")
    assert len(fused) == 2 * RUNS
    assert all("/net/act" in params for params in fused["params"])
    assert ops["matrix_flops"].sum() == RUNS * one.made.flops


def test_the_model_beside_a_profile_is_found_if_it_is_its_own(ran, tmp_path):
    one, other = ran("cnn", "off"), ran("transformer", "off")
    beside = tmp_path / one.profile.name
    beside.write_bytes(one.profile.read_bytes())
    (tmp_path / "other.onnx").write_bytes(other.optimised.read_bytes())
    assert opscope.load(beside).ops()["matrix_flops"].sum() != RUNS * one.made.flops
    (tmp_path / "own.onnx").write_bytes(one.optimised.read_bytes())
    profile = opscope.load(beside)
    assert profile.trace.origin["model"] == str(tmp_path / "own.onnx")
    assert profile.notes()["what"].str.contains("own.onnx", literal=True).any()
    assert profile.ops()["matrix_flops"].sum() == RUNS * one.made.flops


def test_a_model_of_another_profile_is_refused_with_the_nodes_that_it_lacks(ran):
    one, other = ran("cnn", "off"), ran("transformer", "off")
    with pytest.raises(BadInput, match=r"not the model of .*'/net/conv1/Conv'"):
        opscope.load(one.profile, model=other.optimised)


def test_a_model_whose_nodes_have_the_same_names_and_other_shapes_is_refused(ran, tmp_path):
    one = ran("cnn", "off")
    proto = onnx.load(one.optimised)
    for tensor in proto.graph.initializer:
        wider = np.repeat(numpy_helper.to_array(tensor), 2, axis=0)
        tensor.CopyFrom(numpy_helper.from_array(wider, tensor.name))
    for node in list(proto.graph.node):
        if node.op_type not in ("Conv", "Gemm"):
            proto.graph.node.remove(node)
    onnx.save(proto, tmp_path / "wide.onnx")
    with pytest.raises(BadInput, match="not the model of"):
        opscope.load(one.profile, model=tmp_path / "wide.onnx")


def test_nodes_without_names_are_matched(tmp_path):
    made = models.transformer()
    for node in made.proto.graph.node:
        node.name = ""
    for level in LEVELS:
        folder = tmp_path / level
        folder.mkdir()
        MODELS["nameless"] = lambda folder: made
        try:
            one = Ran("nameless", level, folder)
        finally:
            del MODELS["nameless"]
        for path in (one.optimised, *([one.original] if level == "off" else [])):
            ops = opscope.load(one.profile, model=path).ops()
            assert ops["matrix_flops"].sum() == RUNS * made.flops, (level, path.name)


def test_weights_in_another_file_are_not_opened(ran, tmp_path):
    one = ran("cnn", "off")
    proto = onnx.load(one.optimised)
    onnx.save(
        proto,
        tmp_path / "out.onnx",
        save_as_external_data=True,
        location="gone.bin",
        size_threshold=0,
    )
    os.remove(tmp_path / "gone.bin")
    ops = opscope.load(one.profile, model=tmp_path / "out.onnx").ops()
    assert ops["matrix_flops"].sum() == RUNS * one.made.flops
    assert read(tmp_path / "out.onnx").weights["w1"] == TensorSpec("f32", (8, 3, 3, 3))
