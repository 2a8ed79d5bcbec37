"""Steps of real traces: against brute force over the file's own events, and MindInsight's own figures."""

from __future__ import annotations

import csv
import gzip
import json

import numpy as np
import polars as pl
import pytest

from opscope.core.analysis.steps.step_times import OTHER, PARTS
from tests import traces

RESNET = ("resnet50_nw0_step_span1", "resnet50_nw4_step_span1")


def by_brute_force(path, steps):
    """Return µs per part and step, a µs at a time: what has the highest priority then."""
    with gzip.open(path, "rt") as file:
        events = [e for e in json.load(file)["traceEvents"] if e.get("ph") == "X"]
    low = min(start for start, _ in steps)
    code = np.full(max(end for _, end in steps) - low, 7, np.int8)
    order = {"Kernel": 1, "Memcpy": 2, "Memset": 3, "Runtime": 4, "Operator": 6}
    for event in events:
        number = order.get(event.get("cat", ""))
        name = event["name"]
        if number is None or name.startswith("ProfilerStep"):
            continue
        number = 5 if name.startswith("enumerate(DataLoader)") else number
        number = 0 if "nccl" in name.lower() and number == 1 else number
        part = code[max(event["ts"] - low, 0) : max(event["ts"] + event["dur"] - low, 0)]
        np.minimum(part, number, out=part)
    return [np.bincount(code[a - low : b - low], minlength=8).tolist() for a, b in steps]


@pytest.mark.parametrize("name", RESNET)
def test_each_part_of_each_step_is_what_a_count_of_microseconds_gives(shared, name):
    path = shared / "kineto" / f"{name}.pt.trace.json.gz"
    table = traces.load(path).steps()
    steps = [(start // 1000, end // 1000) for start, end in table.select("start", "end").rows()]
    ours = [[(value or 0) // 1000 for value in row] for row in table.select(*PARTS, OTHER).rows()]
    assert ours == by_brute_force(path, steps)


@pytest.mark.parametrize(
    "name", ["ddp_rank3of8_a100_stacks", "vision_transformer_rank0", "nccl_meta", "ddp_memory_v100"]
)
def test_parts_and_phases_add_up_on_real_traces(shared, name):
    profile = traces.load(shared / "kineto" / f"{name}.json.gz")
    table = profile.steps().with_columns(pl.col(pl.Int64).fill_null(0))
    phases = ("input_phase", "forward_phase", "backward_phase", "optimizer_phase", "outside_phases")
    assert len(table)
    assert (
        table.select(pl.sum_horizontal(*PARTS, OTHER)).to_series().to_list()
        == table["time"].to_list()
    )
    assert table.select(pl.sum_horizontal(*phases)).to_series().to_list() == table["time"].to_list()
    share = table["communication_part"].sum()
    whole = profile.communication()["communication_time"].item()
    assert abs(whole - share) / whole < 0.01, "gaps between steps are some µs"


@pytest.mark.parametrize("rank", [0, 2])
def test_the_step_trace_is_mindinsight_s_own(shared, rank):
    folder = shared / "mindspore" / "mindinsight_cluster"
    table = traces.load(folder).step_trace().filter(pl.col("rank") == rank)
    with (folder / f"step_trace_raw_{rank}_detail_time.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["step_num"].isdigit()]
    names = ("total", "iteration_interval", "fp_and_bp", "tail")
    theirs = [[10 * int(row[name]) for name in names] for row in rows]  # in units of 10 ns
    ours = table.select("time", "iteration_interval", "forward_backward", "step_tail").rows()
    assert [list(row) for row in ours] == theirs


def test_the_step_trace_is_cann_s_own(shared):
    folder = shared / "mindspore" / "msprof_device0"
    events = json.loads((folder / "step_trace_0_2_1.json").read_text())
    table = traces.load(folder).step_trace()
    for name, column in (("FP_BP Time", "forward_backward"), ("Iteration Refresh", "step_tail")):
        theirs = [round(1000 * e["dur"]) for e in events if e.get("cat") == name]
        assert len(theirs) == 10
        assert np.abs(table[column].to_numpy() - np.array(theirs)).max() <= 10
    # the tasks of the first step alone are in the trace
    assert table["seen_on"].unique().to_list() == ["the source"]
    parts = traces.load(folder).steps()["kernel_part"].to_list()
    assert parts[0] == 5_914_580
    assert parts[1:] == [None] * 9


def test_the_first_step_of_a_pipeline_s_stage_is_slow_because_it_receives(shared):
    slow = traces.load(shared / "mindspore" / "mindinsight_cluster").slow_steps()
    assert slow.select("rank", "step", "part", "op").rows() == [(2, 1, "communication", "Receive")]
    assert slow["op_excess"].item() > 0.9 * slow["excess"].item()
