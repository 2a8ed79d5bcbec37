"""op_analyse of a profile beside MindSpore's own, over the files that its profiler wrote here."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

ms = pytest.importorskip("mindspore")
own = pytest.importorskip("mindspore.profiler.common.profiler_op_analyse")

from mindspore import Tensor, nn  # noqa: E402
from mindspore.profiler import ProfilerActivity  # noqa: E402

import opscope  # noqa: E402

STEPS = 3
COUNTS = ("op_side", "op_occurrences", "op_total_time(us)", "op_avg_time(us)")


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, pad_mode="valid")
        self.relu = nn.ReLU()
        self.flatten = nn.Flatten()
        self.head = nn.Dense(4 * 6 * 6, 10)

    def construct(self, x):
        return self.head(self.flatten(self.relu(self.conv(x))))


def profiled(folder: Path, function) -> Path:
    """Call ``function`` three times under MindSpore's profiler; return the folder that it wrote."""
    handler = ms.profiler.tensorboard_trace_handler(str(folder))
    with ms.profiler.profile(activities=[ProfilerActivity.CPU], on_trace_ready=handler):
        for _ in range(STEPS):
            function()
    return next(folder.glob("*_ascend_ms"))


@pytest.fixture(scope="module")
def inferred(tmp_path_factory) -> Path:
    ms.set_context(mode=ms.GRAPH_MODE)
    net, x = Net(), Tensor(np.ones((2, 1, 8, 8), np.float32))
    return profiled(tmp_path_factory.mktemp("inferred"), lambda: net(x).asnumpy())


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    ms.set_context(mode=ms.GRAPH_MODE)
    net, x, y = Net(), Tensor(np.ones((2, 1, 8, 8), np.float32)), Tensor(np.zeros(2, np.int32))
    loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
    optimizer = nn.Momentum(net.trainable_params(), 0.1, 0.9)
    step = nn.TrainOneStepCell(nn.WithLossCell(net, loss), optimizer)
    return profiled(tmp_path_factory.mktemp("trained"), lambda: step(x, y).asnumpy())


def table(folder: Path, name: str) -> list[dict[str, str]]:
    with next((folder / "FRAMEWORK").glob(f"{name}_*.csv")).open(newline="") as file:
        return list(csv.DictReader(file))


def test_it_is_mindspores_own_where_no_two_nodes_share_a_name(inferred):
    kinds = [row["op_type"] for row in table(inferred, "cpu_op_type_info")]
    assert {"Conv2D", "ReLU", "MatMul", "BiasAdd"} <= set(kinds)
    theirs = json.loads(own.OpAnalyser(str(inferred / "FRAMEWORK"), 0, kinds).parse())
    found = json.loads(opscope.load(inferred).op_analyse(kinds))
    assert found.pop("device_id") == theirs.pop("device_id") == 0
    assert list(found) == list(theirs) == kinds
    for kind in kinds:
        (mine,), (its,) = found[kind], theirs[kind]
        assert list(mine) == list(its)
        assert mine["op_side"] == its["op_side"] == "cpu"
        assert mine["op_occurrences"] == its["op_occurrences"] == STEPS
        for name in COUNTS[2:]:
            # its file has six digits of each time in ms
            assert mine[name] == pytest.approx(its[name], rel=1e-4, abs=0.01), (kind, name)


def test_its_shapes_are_those_that_mindspores_file_has(inferred):
    """MindSpore's own answer keeps what follows the last bracket: nothing, or ``,input_3:NoShape``."""
    path = next((inferred / "FRAMEWORK").glob("cpu_framework_*.txt"))
    wanted = {}
    for line in path.read_text().splitlines():
        kind, _, _, *shapes = line.strip().strip(";").split(";")
        wanted[kind] = ",".join(shape for shape in shapes if not shape.endswith(":NoShape"))
    profile = opscope.load(inferred)
    for kind, shapes in wanted.items():
        (found,) = json.loads(profile.op_analyse(kind))[kind]
        assert found["input_shape"] == shapes


def test_a_node_has_its_own_time_and_not_that_of_another_of_its_short_name(trained):
    """A network and its gradients both have a ``MatMul-op0``; MindSpore's own takes the first's time for
    both, so that it does not add up to the total of the type that MindSpore itself states."""
    (stated,) = [row for row in table(trained, "cpu_op_type_info") if row["op_type"] == "MatMul"]
    profile = opscope.load(trained)
    found = json.loads(profile.op_analyse("MatMul"))["MatMul"]
    total = float(stated["total_compute_time"]) * 1000
    assert sum(one["op_total_time(us)"] for one in found) == pytest.approx(total, rel=1e-4)
    assert sum(one["op_occurrences"] for one in found) == int(stated["type_occurrences"])
    nodes = [row for row in table(trained, "cpu_op_detail_info") if row["op_type"] == "MatMul"]
    assert sorted(one["op_total_time(us)"] for one in found) == pytest.approx(
        sorted(float(row["op_total_time(ms)"]) * 1000 for row in nodes), rel=1e-4, abs=0.01
    )
    assert len({row["op_name"] for row in nodes}) < len(nodes)  # two share a short name


def test_statistics_by_type_and_by_operator_are_those_of_mindspores_tables(trained):
    profile = opscope.load(trained)
    types = {row["op"]: row for row in profile.operator_statistics().to_dicts()}
    stated = table(trained, "cpu_op_type_info")
    assert {op for op in types if op} == {row["op_type"] for row in stated}
    for row in stated:
        mine = types[row["op_type"]]
        assert mine["calls"] == int(row["type_occurrences"])
        assert mine["total"] / 1e6 == pytest.approx(float(row["total_compute_time"]), rel=1e-4)
        assert mine["mean"] / 1e6 == pytest.approx(float(row["avg_time(ms)"]), rel=1e-4)
    operators = {row["operator"]: row for row in profile.operator_statistics("operator").to_dicts()}
    for row in table(trained, "cpu_op_detail_info"):
        mine = operators[row["full_op_name"]]
        assert mine["calls"] == int(row["op_occurrences"])
        assert mine["total"] / 1e6 == pytest.approx(
            float(row["op_total_time(ms)"]), rel=1e-4, abs=1e-5
        )
