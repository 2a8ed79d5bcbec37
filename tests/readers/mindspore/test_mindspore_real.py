"""MindSpore's profiler files on the real ones: what they state is what opscope says."""

from __future__ import annotations

import csv
import json
import shutil
from collections import Counter
from pathlib import Path

import polars as pl
import pytest

import opscope
from opscope.errors import BadInput
from tests import traces


@pytest.fixture(scope="module")
def files(shared: Path) -> Path:
    folder = shared / "mindspore"
    if not folder.is_dir():
        pytest.skip("no real files of MindSpore's profiler")
    return folder


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def slices(path: Path) -> list[dict]:
    return [event for event in json.loads(path.read_bytes()) if event["ph"] == "X"]


def durations(frame: pl.DataFrame) -> int:
    return int((frame["end"] - frame["start"]).sum())


# ------------------------------------------------------------------------------ Ascend 910, 1.x


def test_every_execution_of_the_timeline_is_a_kernel_of_its_op(files: Path):
    folder = files / "mindinsight_run2_ascend910"
    summary = json.loads((folder / "ascend_timeline_summary_1.json").read_bytes())
    profile = traces.load(folder)
    kernels = profile.kernels()
    assert len(kernels) == summary["op_exe_times"] == 112
    assert kernels["stream"].n_unique() == summary["num_of_streams"] == 2
    assert kernels["op"].null_count() == kernels["stream"].null_count() == 0
    events = slices(folder / "ascend_timeline_display_1.json")
    assert kernels["duration"].sum() == sum(round(event["dur"] * 1000) for event in events)
    # the stated total has the AI CPU's 9.694 ms added to the AI Core's us
    core = kernels.filter(kernels["stream"] != 0)["duration"].sum() / 1000
    assert core + 9.694 == pytest.approx(summary["total_time"], abs=1e-3)
    assert profile.trace.origin["format"] == "mindspore"


def test_totals_of_types_and_of_ops_are_those_stated(files: Path):
    folder = files / "mindinsight_run2_ascend910"
    types = rows(folder / "aicore_intermediate_1_type.csv")
    for name in ("aicore_intermediate_1_type.csv", "aicore_intermediate_1_detail.csv"):
        profile = traces.load(folder / name)
        kernels = profile.kernels()
        assert kernels["duration"].sum() == 23_088_095  # ns; the file states ms of six digits
        assert len(kernels) == 105
        assert profile.trace.origin["times"] == "made up"
        assert any("totals and no times" in one for one in profile.trace["notes"]["what"])
        if name.endswith("_type.csv"):
            of_type = dict(kernels.group_by("op").agg(pl.col("duration").sum()).iter_rows())
            assert of_type == {
                one["op_type"]: round(float(one["execution_time"]) * 1e6) for one in types
            }


def test_tensors_of_an_op_are_those_of_the_framework_file(files: Path):
    folder = files / "mindinsight_run2_ascend910"
    kernels = traces.load(folder).kernels()
    one = kernels.filter(kernels["name"] == "AssignAdd-op142").row(0, named=True)
    assert (one["inputs"], one["outputs"], one["dtypes"]) == ("u8[1], u8[1]", "u8[1]", "u8")
    # NC1HWC0 has 16 channels for 3: what is not known is not multiplied
    conv = kernels.filter(kernels["op"] == "Conv2D")
    assert conv["flops"].null_count() == len(conv) == 5
    assert all("?" in text for text in conv["inputs"])
    backward = kernels.filter(kernels["direction"] == "backward")
    gradients = [
        one for one in rows(folder / "framework_raw_1.csv") if one["subgraph"] == "Gradients"
    ]
    assert len(backward) == len(gradients)
    filters = backward.filter(pl.col("op") == "Conv2DBackpropFilter")["layer"]
    # the file has conv4 twice and no conv3
    assert [one.rpartition(".")[2] for one in filters] == [
        "conv5",
        "conv4",
        "conv4",
        "conv2",
        "conv1",
    ]


def test_steps_and_ops_are_on_one_clock(files: Path, tmp_path: Path):
    folder = files / "mindinsight_run2_ascend910"
    kernels = traces.load(folder).kernels()
    inside = kernels.filter(pl.col("step") == 1)
    step = rows(folder / "step_trace_raw_1_detail_time.csv")[0]
    start, end = (int(step[f"{name}_point"]) / 1e5 for name in ("start", "end"))  # 10 ns → ms
    times = [
        line.split(",")
        for line in (folder / "output_timeline_data_1.txt").read_text().split("\n")[1:-1]
    ]
    theirs = [name.split("/")[-1] for name, _, at, _ in times if start <= float(at) < end]
    assert len(theirs) == 103
    assert sorted(inside.filter(pl.col("stream") != 0)["name"]) == sorted(theirs)
    for name in (
        "ascend_timeline_display_1.json",
        "step_trace_raw_1_detail_time.csv",
        "aicpu_intermediate_1.csv",
    ):
        shutil.copy(folder / name, tmp_path)
    assert len(opscope.load(tmp_path).kernels().filter(pl.col("step") == 1)) == len(inside)
    (tmp_path / "aicpu_intermediate_1.csv").unlink()
    profile = opscope.load(tmp_path)
    assert any("steps left out" in one for one in profile.trace["notes"]["what"])
    assert profile.kernels()["step"].null_count() == 112


# --------------------------------------------------------------------------------- CANN's timelines


def test_every_task_is_a_kernel_a_copy_or_a_synchronisation(files: Path):
    folder = files / "msprof_device0"
    tasks = slices(folder / "task_time_0_2_1.json")
    assert len(tasks) == 490
    for name in ("msprof_0_2_1.json", "task_time_0_2_1.json", ""):
        trace = traces.load(folder / name).trace
        have = [trace[table] for table in ("kernels", "memops", "syncs")]
        assert sum(len(one) for one in have) == 490, name
        assert sum(durations(one) for one in have) == sum(round(one["dur"] * 1000) for one in tasks)
    types = Counter(one["args"]["Task Type"] for one in tasks)
    syncs = sum(many for what, many in types.items() if what.startswith(("EVENT_", "NOTIFY_")))
    assert len(trace["syncs"]) == syncs == 292


def test_tasks_of_a_collective_have_its_op(files: Path):
    folder = files / "msprof_device0"
    planes = [
        one for one in slices(folder / "hccl_0_2_1.json") if "task type" in one.get("args", {})
    ]
    assert len(planes) == 338 - 1  # and the collective as a whole
    moved = [one for one in planes if not one["name"].lower().startswith("notify")]
    for name in ("msprof_0_2_1.json", "hccl_0_2_1.json"):
        profile = traces.load(folder / name)
        kernels = profile.kernels()
        theirs = kernels.filter(pl.col("op") == "AllReduce")
        assert len(theirs) == len(moved), name
        assert theirs["duration"].sum() == sum(round(one["dur"] * 1000) for one in moved)
        assert set(theirs["direction"]) == {"communication"}
        assert set(theirs["stream"]) == {one["args"]["stream id"] for one in moved}


def test_iterations_are_steps(files: Path):
    folder = files / "msprof_device0"
    stated = [
        one for one in slices(folder / "step_trace_0_2_1.json") if one["cat"] == "Iteration Time"
    ]
    profile = traces.load(folder)
    steps = profile.trace["ranges"].filter(pl.col("category").cast(pl.String) == "step")
    assert steps["text"].cast(pl.String).to_list() == [
        one["name"].replace("Iteration", "step") for one in stated
    ]
    assert durations(steps) == sum(one["args"]["Iteration Time(ns)"] for one in stated)
    assert profile.summary()["steps"].item() == 10
    assert set(profile.kernels()["step"]) == {1}  # the timeline is of one iteration
    assert profile.trace["devices"]["name"].to_list() == ["Ascend NPU (32 AI cores)"]
    alone = traces.load(folder / "step_trace_0_2_1.json")
    assert not alone.cpu_only


# ---------------------------------------------------------------------------------------- ranks


def test_ranks_of_a_cluster_are_processes_with_their_steps_and_collectives(files: Path):
    folder = files / "mindinsight_cluster"
    profile = traces.load(folder)
    assert profile.trace["processes"]["rank"].to_list() == [0, 2]
    for process, rank in enumerate((0, 2)):
        stated = [
            one
            for one in rows(folder / f"step_trace_raw_{rank}_detail_time.csv")
            if one["step_num"] != "-"
        ]
        steps = profile.trace["ranges"].filter(pl.col("process") == process)
        assert durations(steps) == sum(int(one["total"]) * 10 for one in stated)
        kernels = profile.kernels().filter(pl.col("process") == process)
        names = [
            name for name in stated[0] if name.startswith("stream_") and not name.endswith("_point")
        ]
        assert len(kernels) == len(names) * len(stated)
        assert kernels["duration"].sum() == sum(
            int(one[name]) * 10 for one in stated for name in names
        )
        receives = kernels.filter(pl.col("op") == "Receive")
        assert len(receives) == sum("Receive" in name for name in names) * len(stated)


def test_durations_of_dynamic_shapes_are_those_stated(files: Path):
    path = files / "mindinsight_profiler_misc" / "dynamic_shape_info_0.json"
    stated = json.loads(path.read_bytes())["operator"]
    kernels = traces.load(path).kernels()
    by_step = dict(kernels.group_by("step").agg(pl.col("duration").sum()).iter_rows())
    assert by_step == {
        int(n): sum(round(one["dur"] * 1000) for one in ops) for n, ops in stated.items()
    }
    add = kernels.filter(pl.col("op") == "Add")
    assert set(add["inputs"]) == {"?[32,1], ?[32,1]"}


def test_a_gpu_s_kernel_has_its_op_grid_and_block(files: Path):
    profile = traces.load(files / "mindinsight_profiler_misc" / "gpu_timeline_display_0.json")
    one = profile.kernels().row(0, named=True)
    assert (one["op"], one["direction"], one["grid"], one["block"], one["stream"]) == (
        "ApplyMomentum", "optimizer", "8,1,1", "1024,1,1", 17
    )  # fmt: skip
    assert profile.trace["devices"]["name"].to_list() == [None]
    assert profile.trace["clocks"]["kind"].to_list() == ["unix"]


# ------------------------------------------------------------------------------------ every file


def test_every_file_is_read_or_refused_in_one_line_that_says_what_to_open(files: Path):
    read, refused = [], []
    for path in sorted(files.rglob("*")):
        if path.is_dir() or path.suffix == ".0":
            continue
        try:
            traces.load(path)
            read.append(path.name)
        except BadInput as error:
            refused.append(str(error))
    assert len(read) == 17
    assert len(refused) == 33
    assert all("open the folder" in one and "\n" not in one for one in refused), refused
