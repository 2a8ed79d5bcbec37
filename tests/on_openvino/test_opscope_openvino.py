"""The adapter of another package, examples/opscope_openvino, installed and on a model that is run."""

from __future__ import annotations

import inspect
import logging

import pytest

openvino = pytest.importorskip("openvino", reason="OpenVINO is not installed")
pytest.importorskip("opscope_openvino", reason="examples/opscope_openvino is not installed")

import numpy as np  # noqa: E402
import polars as pl  # noqa: E402

import opscope  # noqa: E402
from tests.script import module_at  # noqa: E402

example = module_at("examples/openvino_mlp.py")
BATCHES = (8, 32)
RUNS = 12
#: Multiplications of one row in both products.
PRODUCTS = 2 * (256 * 512 + 512 * 10)


@pytest.fixture(autouse=True)
def _shut_down():
    yield
    opscope.shutdown()


def ran(request, rows):
    return request.infer({0: np.ones((rows, 256), np.float32)})


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """Runs of two requests of one model, and the µs of each node by OpenVINO: runs times its mean."""
    target = tmp_path_factory.mktemp("openvino") / "run.opscope"
    opscope.init("openvino")
    compiled = openvino.Core().compile_model(example.network(), "CPU")
    requests = [compiled.create_infer_request() for _ in range(2)]
    with opscope.capture(target, backend="recorder"):
        for number in range(RUNS):
            ran(requests[number % 2], BATCHES[number % 2])
    counted = {
        node.node_name: RUNS * node.real_time.total_seconds() * 1e6
        for node in requests[0].profiling_info
        if node.status == openvino.ProfilingInfo.Status.EXECUTED
    }
    opscope.shutdown()
    return opscope.load(target).ops(), counted


def test_a_run_has_its_tensors_line_and_model(recorded):
    runs = recorded[0].filter(pl.col("op") == "InferRequest.infer")
    assert len(runs) == RUNS
    assert set(runs["inputs"]) == {f"f32[{rows},256]" for rows in BATCHES}
    assert set(runs["outputs"]) == {f"f32[{rows},10]" for rows in BATCHES}
    assert runs["source"].str.contains(r"test_opscope_openvino\.py:\d+").all()
    assert set(runs["device"]) == {"cpu"}
    assert runs["params"].str.contains('model="network"').all()


def test_the_nodes_of_all_runs_add_up_to_openvino_s_counters(recorded):
    ops, counted = recorded
    nodes = ops.filter(pl.col("op").str.starts_with("openvino::"))
    name = pl.col("params").cast(pl.String).str.extract(r'name="([^"]+)"')
    found = nodes.group_by(name).agg(pl.len(), pl.col("cpu_time").sum() / 1000)
    assert {row[0]: row[1] for row in found.iter_rows()} == dict.fromkeys(counted, RUNS)
    for node, _, time in found.iter_rows():
        assert counted[node] - 1 <= time <= counted[node] + RUNS


def test_nodes_lie_in_their_runs_with_the_sizes_of_the_run(recorded):
    nodes = recorded[0].filter(pl.col("op") == "openvino::FullyConnected")
    runs = recorded[0].filter(pl.col("op") == "InferRequest.infer")
    assert set(nodes["parent_id"]) == set(runs["op_id"])
    rows = {str(rows) for rows in BATCHES}
    assert set(nodes["inputs"].cast(pl.String).str.extract(r"\[(\d+),")) == rows
    assert nodes["matrix_flops"].sum() == PRODUCTS * sum(BATCHES) * RUNS // 2


def test_runs_in_the_background_have_no_times_of_nodes(tmp_path):
    opscope.init("openvino")
    compiled = openvino.Core().compile_model(example.network(), "CPU")
    with opscope.capture(tmp_path / "run.opscope", backend="recorder"):
        queue = openvino.AsyncInferQueue(compiled, 2)
        for _ in range(4):
            queue.start_async({0: np.ones((8, 256), np.float32)})
        queue.wait_all()
        ran(compiled.create_infer_request(), 8)
    ops = opscope.load(tmp_path / "run.opscope").ops()
    assert ops["op"].to_list() == [
        *["AsyncInferQueue.start_async"] * 4,
        "AsyncInferQueue.wait_all",
        "InferRequest.infer",
    ]
    assert ops.filter(pl.col("op") == "InferRequest.infer")["flops"].to_list() == [None]


def test_a_model_with_several_streams_has_no_times_of_nodes(tmp_path):
    opscope.init("openvino")
    compiled = openvino.Core().compile_model(example.network(), "CPU", {"NUM_STREAMS": 2})
    with opscope.capture(tmp_path / "run.opscope", backend="recorder"):
        ran(compiled.create_infer_request(), 8)
    assert opscope.load(tmp_path / "run.opscope").ops()["op"].to_list() == ["InferRequest.infer"]


def test_a_program_that_asks_for_no_times_has_none_and_its_choice_stays():
    opscope.init()
    compiled = openvino.Core().compile_model(example.network(), "CPU")
    assert compiled.get_property("PERF_COUNT") in (False, "NO")
    opscope.shutdown()
    opscope.init("openvino")
    compiled = openvino.Core().compile_model(example.network(), "CPU", {"PERF_COUNT": False})
    assert compiled.get_property("PERF_COUNT") in (False, "NO")


def hooks():
    owners = (
        openvino.Core,
        openvino.CompiledModel,
        openvino.InferRequest,
        openvino.AsyncInferQueue,
    )
    return [
        (owner, name, value) for owner in owners for name, value in inspect.getmembers_static(owner)
    ]


def test_shutdown_restores_everything_and_results_are_the_same(tmp_path):
    before = hooks()
    compiled = openvino.Core().compile_model(example.network(), "CPU")
    (plain,) = ran(compiled.create_infer_request(), 8).values()
    opscope.init("openvino")
    compiled = openvino.Core().compile_model(example.network(), "CPU")
    with opscope.capture(tmp_path / "run.opscope", backend="recorder"):
        (observed,) = ran(compiled.create_infer_request(), 8).values()
    opscope.shutdown()
    assert hooks() == before
    assert np.array_equal(plain, observed)


def test_an_error_of_the_program_passes_and_ends_the_times(tmp_path):
    opscope.init("openvino")
    compiled = openvino.Core().compile_model(example.network(), "CPU")
    request = compiled.create_infer_request()
    with opscope.capture(tmp_path / "run.opscope", backend="recorder"):
        with pytest.raises(RuntimeError):
            request.infer({0: np.ones((8, 255), np.float32)})
        ran(request, 8)
    ops = opscope.load(tmp_path / "run.opscope").ops()
    assert ops["op"].to_list() == ["InferRequest.infer"] * 2


def test_a_fault_of_ours_is_logged_once_and_never_reaches_the_program(
    tmp_path, caplog, monkeypatch
):
    import opscope_openvino

    monkeypatch.setattr(opscope_openvino, "specs", None)
    opscope.init("openvino")
    compiled = openvino.Core().compile_model(example.network(), "CPU")
    request = compiled.create_infer_request()
    with (
        caplog.at_level(logging.ERROR),
        opscope.capture(tmp_path / "run.opscope", backend="recorder"),
    ):
        ran(request, 8)
        ran(request, 8)
    assert [record.message for record in caplog.records] == [
        "opscope: a run's tensors or nodes could not be described; OpenVINO is no longer observed"
    ]
