"""Runs of sessions are ranges: every method, with what it takes and gives, its model, device and line."""

from __future__ import annotations

import threading

import numpy as np
import pytest

ort = pytest.importorskip("onnxruntime")
onnx = pytest.importorskip("onnx")

import polars as pl  # noqa: E402
from onnx import TensorProto, helper  # noqa: E402

import opscope  # noqa: E402
from opscope.core.rangetext import parse  # noqa: E402
from tests.on_onnxruntime.conftest import assert_same  # noqa: E402
from tests.on_onnxruntime.models import BATCH, CLASSES, IR, OPSET, SIZE, cnn, loop, transformer  # noqa: E402

X = ("f32", (BATCH, 3, SIZE, SIZE))
Y = ("f32", (BATCH, CLASSES))


def runs(recorded):
    """The calls of the runs, in order."""
    ranges = recorded.profile.trace["ranges"].filter(pl.col("domain") == "opscope.onnxruntime")
    calls = [parse(text) for text in ranges.sort("start")["text"].cast(pl.String)]
    return [call for call in calls if call.name.startswith("InferenceSession.")]


def specs(args):
    return [(one.dtype, one.shape) for one in args]


def small(op, inputs, outputs, **attributes):
    """A model of one node. ``inputs``, ``outputs``: name → (type, sizes)."""
    values = [
        [helper.make_tensor_value_info(name, *one) for name, one in each.items()]
        for each in (inputs, outputs)
    ]
    node = helper.make_node(op, list(inputs), list(outputs), **attributes)
    graph = helper.make_graph([node], "small", *values)
    opset = [helper.make_opsetid("", OPSET)]
    return helper.make_model(graph, opset_imports=opset, ir_version=IR).SerializeToString()


@pytest.fixture
def session(made):
    opscope.init()
    return made(cnn())


@pytest.mark.parametrize("named", [True, False])
def test_run(record, session, named):
    feed = cnn().feed
    names = ["y"] if named else None
    [call] = runs(record(lambda: session.run(names, feed)))
    assert call.name == "InferenceSession.run"
    assert specs(call.inputs) == [X]
    assert specs(call.outputs) == [Y]
    assert call.device == "cpu"
    assert call.param("model") == "cnn"
    assert call.param("session") == 1
    assert call.param("inputs") == ("x",)
    assert call.param("outputs") == ("y",)
    assert call.frames[0][0].endswith("test_ort_runs.py")


def test_arguments_by_name_are_arguments(record, session):
    feed = cnn().feed
    [call] = runs(record(lambda: session.run(input_feed=feed, output_names=["y"])))
    assert (specs(call.inputs), specs(call.outputs)) == ([X], [Y])


def test_run_with_ort_values(record, session):
    value = ort.OrtValue.ortvalue_from_numpy(cnn().feed["x"])
    [call] = runs(record(lambda: session.run_with_ort_values(["y"], {"x": value})))
    assert call.name == "InferenceSession.run_with_ort_values"
    assert (specs(call.inputs), specs(call.outputs)) == ([X], [Y])


def test_run_with_iobinding(record, session):
    array = cnn().feed["x"]
    binding = session.io_binding()
    binding.bind_cpu_input("x", array)
    binding.bind_output("y")
    by_value = session.io_binding()
    by_value.bind_ortvalue_input("x", ort.OrtValue.ortvalue_from_numpy(array))
    by_value.bind_output("y")
    by_buffer = session.io_binding()
    by_buffer.bind_input("x", "cpu", 0, np.float32, array.shape, array.ctypes.data)
    result = np.empty((BATCH, CLASSES), np.float32)
    by_buffer.bind_output("y", "cpu", 0, np.float32, result.shape, result.ctypes.data)

    def run():
        for one in (binding, by_value, by_buffer):
            session.run_with_iobinding(one)

    calls = runs(record(run))
    assert [call.name for call in calls] == ["InferenceSession.run_with_iobinding"] * 3
    for call in calls:
        assert (specs(call.inputs), specs(call.outputs)) == ([X], [Y])
    assert_same([result], session.run(None, {"x": array}))


def test_inputs_that_were_cleared_are_no_inputs(record, session):
    binding = session.io_binding()
    binding.bind_cpu_input("x", np.zeros((9, 3, SIZE, SIZE), np.float32))
    binding.clear_binding_inputs()
    binding.bind_cpu_input("x", cnn().feed["x"])
    binding.bind_output("y")
    [call] = runs(record(lambda: session.run_with_iobinding(binding)))
    assert specs(call.inputs) == [X]


def test_run_with_ortvaluevector(record, session):
    state = ort.capi._pybind_state
    device = state.OrtDevice(state.OrtDevice.cpu(), state.OrtDevice.default_memory(), 0)
    feeds, fetches = state.OrtValueVector(), state.OrtValueVector()
    array = cnn().feed["x"]  # a value on the CPU does not hold it
    feeds.push_back(state.OrtValue.ortvalue_from_numpy(array, device))

    def run():
        session.run_with_ortvaluevector(ort.RunOptions(), ["x"], feeds, ["y"], fetches, [device])

    [call] = runs(record(run))
    assert call.name == "InferenceSession.run_with_ortvaluevector"
    assert (specs(call.inputs), specs(call.outputs)) == ([X], [Y])
    assert_same([fetches[0].numpy()], session.run(None, cnn().feed))


def test_an_asynchronous_run_is_a_range_on_the_thread_that_ran_it(record):
    model = cnn()
    opscope.init(frameworks=["onnxruntime"])
    options = ort.SessionOptions()
    options.intra_op_num_threads = 2
    session = ort.InferenceSession(model.proto.SerializeToString(), options)
    done, given = threading.Event(), []

    def callback(results, user_data, error):
        given.append((results, user_data, error))
        done.set()

    def run():
        session.run_async(["y"], model.feed, callback, "mine")
        assert done.wait(60)

    recorded = record(run)
    asked, ran = runs(recorded)
    assert asked.name == "InferenceSession.run_async"
    assert ran.name == "InferenceSession.run"
    assert (specs(ran.inputs), specs(ran.outputs)) == ([X], [Y])
    ops = recorded.ops
    one, other = (ops.filter(pl.col("op") == call.name) for call in (asked, ran))
    assert one["thread"].item() != other["thread"].item()
    assert other["end"].item() >= one["end"].item() - 1_000_000_000
    nodes = ops.filter(~pl.col("op").str.starts_with("InferenceSession"))
    assert len(nodes)
    assert (nodes["parent_id"] == other["op_id"].item()).all()
    [(results, user_data, error)] = given
    assert (user_data, error) == ("mine", "")
    opscope.shutdown()
    assert_same(results, session.run(None, model.feed))


def test_an_error_of_a_run_reaches_the_program_and_ends_its_range(record, session):
    def run():
        with pytest.raises(ort.capi.onnxruntime_pybind11_state.InvalidArgument):
            session.run(None, {"x": np.zeros((1, 4, SIZE, SIZE), np.float32)})
        with pytest.raises(ValueError, match="missing"):
            session.run(None, {})
        session.run(None, cnn().feed)

    recorded = record(run)
    first, second, last = runs(recorded)
    assert first.outputs is None
    assert second.inputs == ()
    assert specs(last.outputs) == [Y]
    assert recorded.ops["depth"].max() == 0


def test_outputs_that_depend_on_the_data_are_those_of_each_run(record, made):
    opscope.init()
    model = small(
        "NonZero", {"x": (TensorProto.FLOAT, ["n"])}, {"y": (TensorProto.INT64, [1, "m"])}
    )
    session = ort.InferenceSession(model)

    def run():
        for many in (1, 3, 1):
            values = np.zeros(4, np.float32)
            values[:many] = 1
            session.run(None, {"x": values})

    assert [specs(call.outputs) for call in runs(record(run))] == [
        [("i64", (1, many))] for many in (1, 3, 1)
    ]


def test_values_that_are_not_arrays_have_what_the_model_declares(record):
    opscope.init()
    strings = small(
        "Identity", {"x": (TensorProto.STRING, ["n"])}, {"y": (TensorProto.STRING, ["n"])}
    )
    floats = small("Relu", {"x": (TensorProto.FLOAT, [2])}, {"y": (TensorProto.FLOAT, [2])})
    made = small(
        "SequenceConstruct",
        {"a": (TensorProto.FLOAT, [2]), "b": (TensorProto.FLOAT, [2])},
        {"y": (TensorProto.FLOAT, [2])},
    )
    proto = onnx.ModelProto.FromString(made)
    proto.graph.output[0].CopyFrom(
        helper.make_tensor_sequence_value_info("y", TensorProto.FLOAT, None)
    )
    several = [ort.InferenceSession(one) for one in (strings, floats, proto.SerializeToString())]
    array = np.ones(2, np.float32)
    feeds = [{"x": np.array(["a", "b"], object)}, {"x": [1.0, 2.0]}, {"a": array, "b": array}]
    given = []

    def run():
        for session, feed in zip(several, feeds, strict=True):
            given.append(session.run(None, feed))

    first, second, third = runs(record(run))
    assert (specs(first.inputs), specs(first.outputs)) == ([("string", (2,))], [("string", (2,))])
    assert (specs(second.inputs), specs(second.outputs)) == ([("f32", (2,))], [("f32", (2,))])
    assert specs(third.inputs) == [("f32", (2,))] * 2
    assert third.outputs == (None,)
    assert isinstance(given[2][0], list)


def test_the_name_of_a_model_is_that_of_its_file_else_that_of_its_graph(record, tmp_path):
    opscope.init()
    path = loop().save(tmp_path)
    several = [
        ort.InferenceSession(str(path)),
        ort.InferenceSession(loop().proto.SerializeToString()),
    ]
    calls = runs(record(lambda: [one.run(None, loop().feed) for one in several]))
    assert [call.param("model") for call in calls] == ["loop", "loop"]
    renamed = path.rename(tmp_path / "other name.onnx")
    session = ort.InferenceSession(renamed)
    [call] = runs(record(lambda: session.run(None, loop().feed), "again"))
    assert call.param("model") == "other name"


def test_threads_and_sessions_have_their_own_runs(record, made):
    opscope.init(frameworks=["onnxruntime"])
    models = [cnn(), loop()]
    sessions = [made(model) for model in models]

    def work(number):
        for _ in range(20):
            sessions[number % 2].run(None, models[number % 2].feed)

    def run():
        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()

    recorded = record(run)
    ops = recorded.ops
    whole = ops.filter(pl.col("op") == "InferenceSession.run")
    assert len(whole) == 80
    assert whole["thread"].n_unique() == 4
    nodes = ops.filter(pl.col("depth") == 1)
    for number, has in ((1, "Gemm"), (2, "Loop")):
        mine = whole.filter(pl.col("params").str.contains(f"session={number},"))
        assert len(mine) == 40
        inside = nodes.filter(pl.col("parent_id").is_in(mine["op_id"].implode()))
        assert len(inside.filter(pl.col("op") == has)) == 40
        events = [one for one in recorded.events(number) if one["name"].endswith("_kernel_time")]
        within = ops.filter(pl.col("depth") > 0).filter(
            pl.col("thread").is_in(mine["thread"].unique().implode())
        )
        assert len(events) == len(within)


def test_nodes_of_a_session_that_runs_them_side_by_side_are_on_its_threads(record):
    model = transformer()
    opscope.init(frameworks=["onnxruntime"])
    options = ort.SessionOptions()
    options.execution_mode = ort.ExecutionMode.ORT_PARALLEL
    options.inter_op_num_threads = 3
    session = ort.InferenceSession(model.proto.SerializeToString(), options)

    def run():
        opscope.step()
        for _ in range(3):
            session.run(None, model.feed)
            opscope.step()

    ops = record(run).ops
    whole = ops.filter(pl.col("op") == "InferenceSession.run")
    inside = ops.filter(pl.col("op") != "InferenceSession.run")
    assert inside["matrix_flops"].sum() == 3 * model.flops
    assert inside["step"].to_list() == sorted(inside["step"].to_list())
    assert set(inside["step"]) == {0, 1, 2}
    assert inside["source"].str.contains("test_ort_runs.py:").all()
    assert len(whole) == 3


def test_steps_that_the_program_counts_hold_its_runs(record, session):
    def run():
        opscope.step()
        for _ in range(3):
            session.run(None, cnn().feed)
            session.run(None, cnn().feed)
            opscope.step()

    recorded = record(run)
    ops = recorded.ops.filter(pl.col("op") == "InferenceSession.run")
    assert ops["step"].to_list() == [0, 0, 1, 1, 2, 2]


def test_without_shapes_and_source_a_run_has_its_name_alone(record, made):
    opscope.init(frameworks=["onnxruntime"], shapes=False, source=False)
    session = made(cnn())
    [call] = runs(record(lambda: session.run(None, cnn().feed)))
    assert call.inputs == ()
    assert not call.outputs
    assert call.frames == ()
