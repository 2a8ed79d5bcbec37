"""What MindSpore's dataset tells of itself: queues, ops of the pipeline, processors, and waits of the device."""

from __future__ import annotations

import csv
import json
import shutil

import polars as pl
import pytest

import opscope
from opscope.core.schema import MACHINE_CPU, PROCESS_CPU
from opscope.readers.errors import SeveralRuns
from opscope.readers.mindspore import minddata
from tests import traces
from tests.readers.mindspore import made


def notes(profile) -> str:
    return " ".join(profile.notes()["what"])


# ------------------------------------------------------------------------------------ processors


def test_user_and_system_time_are_added_and_hold_from_the_sample_before(tmp_path):
    path = tmp_path / "minddata_cpu_utilization_0.json"
    path.write_text(json.dumps(made.CPU))
    frame, _, note = minddata.processors(path)
    assert note is None
    of = {
        name: frame.filter(pl.col("name").cast(pl.String) == name)
        for name in (MACHINE_CPU, PROCESS_CPU)
    }
    assert of[MACHINE_CPU].select("time", "value").rows() == [
        (1_000_000_000, None), (1_100_000_000, 25.0), (1_300_000_000, 50.0)]  # fmt: skip
    assert of[PROCESS_CPU]["value"].to_list() == [None, 120.0, 300.0]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"time_stamp": [1e99]}',
        json.dumps({**made.CPU, "time_stamp": [1, 2]}),
        "[" * 9999,
    ],
)
def test_a_damaged_file_gives_no_samples_and_a_note(tmp_path, text):
    path = tmp_path / "minddata_cpu_utilization_0.json"
    path.write_text(text)
    frame, _, note = minddata.processors(path)
    assert frame.is_empty()
    assert "cannot be read" in note[1]


def test_a_real_folder_has_its_samples(shared):
    profile = opscope.load(shared / "mindspore" / "mindinsight_run2_ascend910")
    row = profile.cpu_utilization().row(0, named=True)
    # the file: user and sys are 10, 20, 30 each, 10 time units apart
    assert (row["samples"], row["machine"], row["cores"]) == (2, 0.5, 0.5)
    assert row["processors"] == 100
    assert "another clock" in notes(profile)


# ------------------------------------------------------------------------------- queues and ops


def test_an_ops_queue_workers_and_processor_time_are_told(tmp_path):
    profile = opscope.load(made.dataset_folder(tmp_path))
    stages = {row["stage"]: row for row in profile.input_pipeline().to_dicts()}
    op = stages["MapOp"]
    assert (op["op_number"], op["parent"], op["workers"]) == (1, 0, 4)
    assert (op["samples"], op["capacity"], op["empty"], op["full"]) == (3, 16, 1, 1)
    assert (op["ready"], op["used"]) == (pytest.approx(20 / 3), pytest.approx(20 / 3 / 16))
    # one processor for 100 ms, then 0.3 of one for 200 ms
    assert op["processor_time"] == 160_000_000
    assert op["op_cores"] == pytest.approx(0.16 / 0.3)
    none = stages["EpochCtrlOp"]
    assert (none["samples"], none["empty"], none["full"], none["op_cores"]) == (0, None, None, None)


def test_a_queue_of_batches_has_its_depths_and_what_each_batch_took(tmp_path):
    profile = opscope.load(made.dataset_folder(tmp_path))
    (queue,) = profile.data_preparation().to_dicts()
    assert (queue["loader"], queue["calls"], queue["prefetch"]) == ("device queue", 3, 8)
    assert (queue["total"], queue["mean"], queue["max"]) == (6_000_000, 2_000_000, 5_000_000)
    assert (queue["queue_depth"], queue["empty"], queue["full"]) == (3, 1, 1)
    assert queue["verdict"] == "cannot tell"
    assert "another clock" in queue["reason"]
    (stage,) = [row for row in profile.input_pipeline().to_dicts() if row["op_number"] is None]
    assert (stage["get"], stage["push"]) == (2_000_000, 2_000_000)
    depth = profile.trace["samples"].filter(
        pl.col("name").cast(pl.String) == "input pipeline, device queue: ready"
    )
    assert depth.select("time", "value").rows() == [
        (100_000_000, 0), (110_000_000, 8), (125_000_000, 3)]  # fmt: skip


def test_the_table_that_mindspore_makes_of_the_pipeline_is_read_where_it_is_alone(shared, tmp_path):
    path = shared / "mindspore" / "mindinsight_profiler_misc" / "minddata_pipeline_raw_0.csv"
    shutil.copy(path, tmp_path)
    stages = opscope.load(tmp_path).input_pipeline()
    with path.open(newline="") as file:
        stated = list(csv.DictReader(file))
    assert stages["stage"].to_list() == [row["op_type"] for row in stated]
    for mine, row in zip(stages.to_dicts(), stated, strict=True):
        assert mine["workers"] == int(row["num_workers"])
        assert mine["parent"] == (int(row["parent_id"]) if row["parent_id"] else None)
        if row["output_queue_length"]:
            assert mine["ready"] == float(row["output_queue_average_size"])
            assert mine["used"] == float(row["output_queue_usage_rate"])
            assert mine["capacity"] == int(row["output_queue_length"])


def test_the_real_pipeline_and_queues_are_those_of_their_files(shared):
    folder = shared / "mindspore" / "mindinsight_run2_ascend910"
    profile = traces.load(folder)
    stages = profile.input_pipeline()
    ops = json.loads((folder / "pipeline_profiling_1.json").read_bytes())["op_info"]
    for op in ops:
        (mine,) = stages.filter(pl.col("op_number") == op["op_id"]).to_dicts()
        assert (mine["stage"], mine["workers"]) == (op["op_type"], op["num_workers"])
        sizes = op["metrics"]["output_queue"]["size"] if op["metrics"] else []
        assert mine["samples"] == len(sizes)
        assert mine["empty"] == (sizes.count(0) if sizes else None)
    assert stages.filter(pl.col("op_number").is_not_null()).height == len(ops)
    queues = {row["loader"]: row for row in profile.data_preparation().to_dicts()}
    lines = (folder / "device_queue_profiling_1.txt").read_text().split("\n")
    ready = [int(line.split()[3]) for line in lines if line.startswith("1 ")]
    get = [int(line.split()[3]) for line in lines if line.startswith("0 0 ")]
    queue = queues["device queue"]
    assert (queue["calls"], queue["empty"]) == (len(ready), ready.count(0))
    assert queue["total"] == sum(get) * 1_000_000
    assert queues["dataset iterator"]["queue_depth"] == 3
    assert queues["dataset iterator"]["total"] is None  # its file has no times
    assert "has no times" in notes(profile)


def test_the_devices_waits_for_a_batch_are_waits_of_its_steps(shared):
    folder = shared / "mindspore" / "mindinsight_run2_ascend910"
    lines = [line.split() for line in (folder / "minddata_aicpu_1.txt").read_text().splitlines()]
    profile = traces.load(folder)
    waits = profile.data_preparation().row(0, named=True)
    assert waits["loader"] == "GetNext of the device queue"
    assert waits["calls"] == len(lines)
    assert waits["total"] == sum(int(line[2]) - int(line[1]) for line in lines) * 1000
    assert waits["empty"] == sum(line[3] == "0" for line in lines)
    (step,) = profile.input_waits().to_dicts()
    assert (step["input_wait"], step["queue_depth"]) == (waits["total"], 1)


def test_a_gpus_waits_for_a_batch_are_read_in_ns(shared, tmp_path):
    """``minddata_getnext_profiling_N.txt`` has the form of an Ascend's file, in another unit."""
    folder = shared / "mindspore" / "mindinsight_run2_ascend910"
    shutil.copy(folder / "step_trace_raw_1_detail_time.csv", tmp_path)
    lines = [line.split() for line in (folder / "minddata_aicpu_1.txt").read_text().splitlines()]
    (tmp_path / "minddata_getnext_profiling_1.txt").write_text(
        "".join(f"GetNext {start}007 {end}009 {ready}\n" for _, start, end, ready in lines)
        + f"GetNext {'9' * 19} {'9' * 19} 1\n"
    )
    profile = opscope.load(tmp_path)
    (waits,) = profile.data_preparation().to_dicts()
    assert waits["calls"] == len(lines)
    assert waits["total"] == sum(1000 * (int(line[2]) - int(line[1])) + 2 for line in lines)
    assert "no record" in notes(profile)


def test_waits_of_another_clock_are_left_out_and_told(shared, tmp_path):
    folder = shared / "mindspore" / "mindinsight_run2_ascend910"
    for name in ("step_trace_raw_1_detail_time.csv", "minddata_aicpu_1.txt"):
        shutil.copy(folder / name, tmp_path)
    assert opscope.load(tmp_path).data_preparation()["calls"].to_list() == [3]
    (tmp_path / "minddata_aicpu_1.txt").write_text("GetNext_dequeue_wait 5 9 1\nGetNext broken\n")
    profile = opscope.load(tmp_path)
    assert profile.data_preparation().is_empty()
    assert "outside the time of its steps" in notes(profile)
    assert "no record" in notes(profile)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("pipeline_profiling_0.json", "[" * 99_999),
        ("pipeline_profiling_0.json", '{"sampling_interval": 1e400, "op_info": [{"op_id": 1}]}'),
        ("pipeline_profiling_0.json", '{"sampling_interval": 1, "op_info": [{"op_id": -1}]}'),
        ("pipeline_profiling_0.json", '{"sampling_interval": 1, "op_info": [{"op_id": 1, "children": 7}]}'),
        ("pipeline_profiling_0.json", json.dumps({"sampling_interval": 1, "op_info": [{"op_id": 1}] * 10_001})),
        ("minddata_pipeline_raw_0.csv", "op_id,op_type\n1,2\n"),
        ("device_queue_profiling_0.txt", "\x00\xff"),
    ],
)  # fmt: skip
def test_a_damaged_file_of_the_dataset_is_a_note_and_the_rest_is_read(tmp_path, name, data):
    folder = made.gpu_folder(tmp_path)
    before = opscope.load(folder).kernels()
    (folder / name).write_bytes(data.encode("latin-1"))
    profile = opscope.load(folder)
    assert profile.kernels().equals(before)
    assert f"{name} cannot be read" in notes(profile)


def test_an_ops_name_that_is_no_name_is_not_shown(tmp_path):
    hostile = json.loads(json.dumps(made.PIPELINE).replace("MapOp", "Map\\u001b[31m: ready"))
    (tmp_path / "pipeline_profiling_0.json").write_text(json.dumps(hostile))
    assert set(opscope.load(tmp_path).input_pipeline()["stage"]) == {"op", "EpochCtrlOp"}


def test_a_rank_with_a_dataset_alone_does_not_hide_the_totals_of_another(tmp_path):
    made.dataset_folder(tmp_path)
    (tmp_path / "aicore_intermediate_1_type.csv").write_text(
        "op_type,execution_time,execution_frequency,percent\nMatMul,2.5,2,100\n"
    )
    profile = opscope.load(tmp_path)
    assert profile.kernels()["duration"].sum() == 2_500_000
    assert len(profile.input_pipeline()) == 3


# ---------------------------------------------------------------------------------- several runs


def test_a_folder_of_runs_with_the_same_rank_is_a_list_and_ranks_are_one_job(tmp_path):
    for run in ("first", "second"):
        (tmp_path / run).mkdir()
        made.dataset_folder(tmp_path / run)
    with pytest.raises(SeveralRuns, match="2 runs") as refused:
        opscope.load(tmp_path)
    assert refused.value.runs == [tmp_path / "first", tmp_path / "second"]
    for path in (tmp_path / "second").iterdir():
        path.rename(path.with_name(path.name.replace("_0.", "_1.")))
    assert len(opscope.load(tmp_path).trace["processes"]) == 2


def test_the_outputs_of_two_runs_of_one_host_are_a_list(tmp_path):
    made.ascend_folder(tmp_path)
    (tmp_path / "below").mkdir()
    made.ascend_folder(tmp_path / "below").rename(tmp_path / "host_5_20231114221320001_ascend_ms")
    with pytest.raises(SeveralRuns, match="rank 3"):
        opscope.load(tmp_path)


# ------------------------------------------------------------------------------------ op_analyse


def test_op_analyse_of_a_gpus_files_has_the_times_that_they_state(tmp_path):
    folder = made.gpu_folder(tmp_path)
    with (folder / "gpu_op_detail_info_0.csv").open(newline="") as file:
        stated = {row["op_type"]: row for row in csv.DictReader(file)}
    entries = json.loads(opscope.load(folder).op_analyse([*stated]))
    assert entries.pop("device_id") == 0
    assert list(entries) == [*stated]
    for name, row in stated.items():
        (entry,) = entries[name]
        spent, count = float(row["cuda_activity_cost_time(us)"]), int(row["op_occurrences"])
        assert (entry["op_side"], entry["op_occurrences"]) == ("gpu", count)
        assert entry["op_total_time(us)"] == spent
        assert entry["op_avg_time(us)"] == spent / count


def test_op_analyse_of_an_ascends_files_has_the_times_that_they_state(shared):
    folder = shared / "mindspore" / "mindinsight_run2_ascend910"
    with (folder / "aicore_intermediate_1_type.csv").open(newline="") as file:
        stated = {row["op_type"]: row for row in csv.DictReader(file)}
    events = json.loads((folder / "ascend_timeline_display_1.json").read_bytes())
    spent = [
        event for event in events if event["ph"] == "X" and event["name"].startswith("MatMul-op")
    ]
    entries = json.loads(traces.load(folder).op_analyse("MatMul", 1))["MatMul"]
    assert sum(entry["op_occurrences"] for entry in entries) == len(spent)
    assert len(spent) == int(stated["MatMul"]["execution_frequency"])
    total = sum(entry["op_total_time(us)"] for entry in entries)
    assert total == pytest.approx(sum(event["dur"] for event in spent), abs=0.01)
