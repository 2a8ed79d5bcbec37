"""MindSpore's profiler files of a run made here: what opscope reads is what MindSpore's own tables add up to."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import polars as pl
import pytest

ms = pytest.importorskip("mindspore")

from mindspore import Tensor, nn  # noqa: E402
from mindspore.profiler import ProfilerActivity  # noqa: E402

import opscope  # noqa: E402
from opscope.errors import BadInput  # noqa: E402


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.c1 = nn.Conv2d(1, 4, 3)
        self.relu = nn.ReLU()

    def construct(self, x):
        return self.relu(self.c1(x))


@pytest.fixture(scope="module", params=["graph", "pynative"])
def output(request, tmp_path_factory) -> Path:
    """The folder of the process that MindSpore's profiler wrote."""
    folder = tmp_path_factory.mktemp(request.param)
    ms.set_context(mode=ms.GRAPH_MODE if request.param == "graph" else ms.PYNATIVE_MODE)
    handler = ms.profiler.tensorboard_trace_handler(str(folder))
    net, x = Net(), Tensor(np.ones((2, 1, 8, 8), np.float32))
    with ms.profiler.profile(activities=[ProfilerActivity.CPU], on_trace_ready=handler):
        for _ in range(3):
            net(x).asnumpy()
    return next(folder.glob("*_ascend_ms"))


def stated(output: Path) -> dict[str, tuple[int, float]]:
    """Executions and ms of each kind, as MindSpore adds them up."""
    path = next(output.glob("FRAMEWORK/cpu_op_type_info_*.csv"))
    with path.open(newline="") as file:
        return {
            one["op_type"]: (int(one["type_occurrences"]), float(one["total_compute_time"]))
            for one in csv.DictReader(file)
        }


@pytest.mark.parametrize("which", ["", "ASCEND_PROFILER_OUTPUT/trace_view.json"])
def test_operators_have_the_times_that_mindspore_adds_up(output, which):
    ops = opscope.load(output / which).ops()
    sums = ops.group_by("op").agg(pl.len(), pl.col("cpu_time").sum() / 1e6)
    found = {name: (many, ms_) for name, many, ms_ in sums.rows()}
    wanted = stated(output)
    assert set(found) == set(wanted)
    assert {"Conv2D", "ReLU"} <= set(found)
    for name, (many, ms_) in wanted.items():
        assert found[name][0] == many
        assert found[name][1] == pytest.approx(ms_, rel=1e-4, abs=2e-6 * many)


def test_the_parent_of_a_process_s_folder_opens_too(output):
    assert len(opscope.load(output.parent).ops()) == len(opscope.load(output).ops())


def test_a_truncated_timeline_is_refused_in_one_line(output, tmp_path):
    whole = (output / "ASCEND_PROFILER_OUTPUT" / "trace_view.json").read_bytes()
    path = tmp_path / "trace_view.json"
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(BadInput, match="truncated"):
        opscope.load(path)
