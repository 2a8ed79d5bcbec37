"""MindSpore's profiler files of kinds of which no real one is at hand, written as its sources write them."""

from __future__ import annotations

import json

import polars as pl
import pytest

import opscope
from opscope.core.analysis.ops.lost_kernels import idle_unknown, losses
from opscope.errors import BadInput
from opscope.readers.mindspore import tables
from opscope.readers.mindspore.nodes import dtype_of
from opscope.readers.rows import TWICE
from tests.readers.mindspore import made


def steps(profile):
    found = profile.trace["ranges"].filter(pl.col("category").cast(pl.String) == "step")
    return found.with_columns(pl.col("text").cast(pl.String)).select("text", "start", "end").rows()


# ----------------------------------------------------------------------------- Ascend, 2.5 to 2.10


def test_kernel_details_give_times_to_the_nanosecond_and_tensors(tmp_path):
    path = tmp_path / "kernel_details.csv"
    path.write_text(made.KERNEL_DETAILS)
    kernels = opscope.load(path).kernels()
    assert kernels["start"][0] == 1_700_000_000_000_000_125  # a double would give …000
    assert kernels["duration"].to_list() == [10_500, 4_000, 100_000, 7_250, 2_000]
    assert kernels["op"].to_list() == [
        "Conv2D",
        "Conv2DBackpropFilter",
        "hcom_allReduce_",
        "MatMulV2",
        "ApplyMomentum",
    ]
    assert kernels["direction"].to_list() == [
        "forward",
        "backward",
        "communication",
        "forward",
        "optimizer",
    ]
    assert kernels["inputs"][0] == "f16[4,1,8,8], f16[6,1,5,5]"
    assert kernels["outputs"][0] == "f16[4,6,4,4]"
    assert kernels["layer"][0] == kernels["layer"][1] == "LeNet.conv1"
    assert kernels["layer"][3] is None  # PyNative mode's launch is no cell
    assert kernels["stream"].to_list() == [2, 2, 3, 2, 2]
    assert kernels["step"].to_list() == [1, 1, 1, 2, 2]


def test_sizes_that_a_private_format_hides_are_unknown_and_not_multiplied(tmp_path):
    path = tmp_path / "kernel_details.csv"
    path.write_text(made.KERNEL_DETAILS)
    one = opscope.load(path).kernels().row(3, named=True)
    assert one["inputs"] == "bf16[32,400], bf16[?,?]"
    assert one["flops"] is None
    assert "FRACTAL_NZ[400,120]" in one["params"]


def test_flops_of_plain_tensors_are_known(tmp_path):
    path = tmp_path / "kernel_details.csv"
    path.write_text(made.KERNEL_DETAILS.replace("FRACTAL_NZ", "ND"))
    kernels = opscope.load(path).kernels()
    assert kernels["flops"][3] == 2 * 32 * 400 * 120
    assert kernels["flops"][0] == 2 * 4 * 6 * 4 * 4 * 25


def test_kernel_details_of_the_lowest_level_lack_the_tensors(tmp_path):
    path = tmp_path / "kernel_details.csv"
    path.write_text(
        "Name,Type,Accelerator Core,Start Time(us),Duration(us)\nDefault/Add-op1,Add,AI_VECTOR_CORE,5.001,2\n"
    )
    one = opscope.load(path).kernels().row(0, named=True)
    assert (one["op"], one["start"], one["duration"], one["inputs"]) == ("Add", 5001, 2000, None)


def test_cann_s_summary_is_read_as_kernel_details_are(tmp_path):
    path = tmp_path / "op_summary_20231114221320.csv"
    path.write_text(
        "Device_id,Op Name,OP Type,Task Type,Task Start Time(us),Task Duration(us),Input Shapes,Input Data Types\n"
        '5,Default/MatMul-op1,MatMul,AI_CORE,7.5,3,"""2,3;3,4""",FLOAT;FLOAT\n'
    )
    one = opscope.load(path).kernels().row(0, named=True)
    assert (one["device"], one["op"], one["inputs"], one["flops"]) == (
        5,
        "MatMul",
        "f32[2,3], f32[3,4]",
        48,
    )


def test_the_framework_is_told_only_where_the_names_are_mindspore_s(tmp_path):
    path = tmp_path / "op_summary_0_1_1.csv"
    head = "Op Name,OP Type,Task Type,Task Start Time(us),Task Duration(us)\n"
    for node, framework in (("Default/MatMul-op1", "mindspore"), ("aclnnMatmul_MatMulV2", None)):
        path.write_text(f"{head}{node},MatMul,AI_CORE,7.5,3\n")
        assert opscope.load(path).trace["processes"]["framework"].to_list() == [framework]


def test_a_trace_view_has_tasks_collectives_steps_and_ranges_of_the_program(tmp_path):
    path = tmp_path / "trace_view.json"
    path.write_text(json.dumps(made.trace_view()))
    profile = opscope.load(path)
    trace = profile.trace
    kernels = profile.kernels().sort("start")
    assert kernels["op"].to_list() == ["Conv2D", "hcom_allReduce__101_0_1"]
    assert kernels["start"][0] == 1_700_000_000_000_010_125
    assert kernels["name"].to_list() == ["Conv2D-op13", "SDMA_SQE"]
    assert kernels["direction"][1] == "communication"
    assert trace["memops"]["kind"].cast(pl.String).to_list() == ["memcpy_async"]
    assert trace["syncs"]["kind"].cast(pl.String).to_list() == ["event_wait"]
    assert steps(profile) == [("step 7", 1_700_000_000_000_000_000, 1_700_000_000_000_150_500)]
    texts = trace["ranges"]["text"].cast(pl.String).to_list()
    assert {"forward", "Default/Cast-op1"} <= set(texts)
    notes = trace["notes"]["what"].to_list()
    assert sum("which are no work of the device, left out" in note for note in notes) == 2
    assert not profile.cpu_only


def test_a_folder_has_the_kernels_of_the_table_and_the_steps_of_the_timeline(tmp_path):
    profile = opscope.load(made.ascend_folder(tmp_path))
    assert len(profile.kernels()) == 5  # told once, though the timeline has them too
    assert [one[0] for one in steps(profile)] == ["step 7"]
    assert profile.trace["devices"].select("device", "name").rows() == [(3, "Ascend NPU")]


def test_the_folder_of_several_ranks_has_a_process_for_each(tmp_path):
    made.ascend_folder(tmp_path)
    other = tmp_path / "second"
    other.mkdir()
    second = made.ascend_folder(other).rename(tmp_path / "host_4001_20231114221320001_ascend_ms")
    (second / "profiler_info_3.json").rename(second / "profiler_info_2.json")
    assert len(opscope.load(tmp_path).trace["processes"]) == 2


def test_totals_of_types_give_their_sums_and_say_that_their_times_are_made_up(tmp_path):
    path = tmp_path / "op_statistic.csv"
    path.write_text(made.OP_STATISTIC)
    profile = opscope.load(path)
    kernels = profile.kernels()
    assert dict(kernels.group_by("op").agg(pl.col("duration").sum()).rows()) == {
        "Conv2D": 30_500,
        "GetNext": 10_000,
    }
    assert len(kernels) == 4
    assert profile.trace.origin["times"] == "made up"


# ------------------------------------------------------------------------------------------ GPUs


def test_a_gpu_s_kernels_have_times_grids_ops_and_steps(tmp_path):
    profile = opscope.load(made.gpu_folder(tmp_path))
    kernels = profile.kernels()
    assert kernels["name"].to_list() == ["void conv<float, 3>(float*, int)"] * 2 + [
        "momentum(float*)"
    ]
    assert kernels["duration"].to_list() == [11_000, 10_000, 4_500]
    assert kernels["op"].to_list() == ["Conv2D", "Conv2D", "ApplyMomentum"]
    assert kernels["grid"][0] == "4,2,1"
    assert kernels["step"].to_list() == [1, 2, 2]
    assert any("one op for each kernel name" in one for one in profile.trace["notes"]["what"])
    assert profile.trace["clocks"]["kind"].to_list() == ["unix"]


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("gpu_op_detail_info_0.csv", {"Conv2D": 21_000, "ApplyMomentum": 4_500}),
        ("gpu_activity_data_0.csv", {"Conv2D": 21_000, "ApplyMomentum": 4_500}),
        ("gpu_op_type_info_0.csv", {"Conv2D": 50_500, "ApplyMomentum": 10_000}),
    ],
)
def test_totals_of_a_gpu_are_those_of_the_file(tmp_path, name, wanted):
    profile = opscope.load(made.gpu_folder(tmp_path) / name)
    assert dict(profile.kernels().group_by("op").agg(pl.col("duration").sum()).rows()) == wanted
    assert profile.trace.origin["times"] == "made up"


def test_a_gpu_s_steps_may_be_told_by_op(tmp_path):
    folder = made.gpu_folder(tmp_path)
    # the form without asynchronous launches: an op a line, start and end of each step in 10 ns
    (folder / "step_trace_profiling_0.txt").write_text(
        f"{made.CONV} 100,110 200,210 \n{made.GRAD} 150,160 250,260 \n{made.APPLY} 170,180 270,280 \n"
    )
    profile = opscope.load(folder)
    assert steps(profile) == [("step 1", 1000, 1800), ("step 2", 2000, 2800)]
    told = profile.step_trace().select("forward_start", "backward_end", "seen_on").rows()
    assert told == [(1000, 1600, "the source"), (2000, 2600, "the source")]


def test_two_of_the_ops_that_tell_a_gpu_s_steps_may_be_one(tmp_path):
    path = tmp_path / "step_trace_profiling_0.txt"
    path.write_text("a 100,110 200,210\na 100,110 200,210\nb 170,180 270,280\n")
    notes = []
    assert tables.gpu_steps(path, notes) == [(1, 1000, 1800), (2, 2000, 2800)]
    assert tables.gpu_points(path) == {(1, 1000, 1800): (1000, 1100), (2, 2000, 2800): (2000, 2100)}
    assert notes == []


def test_a_gpu_s_steps_state_where_forward_begins_and_backward_ends(tmp_path):
    path = tmp_path / "step_trace_profiling_0.txt"
    path.write_text("a,1000 b,1010 c,1100 d,1150\na,2000 b,2020 c,2100 d,2150\n")
    assert tables.gpu_points(path) == {(1, 1000, 1150): (1010, 1100), (2, 2000, 2150): (2020, 2100)}


@pytest.mark.parametrize(
    "name",
    [
        "op_statistic.csv",
        "gpu_op_detail_info_0.csv",
        "gpu_activity_data_0.csv",
        "step_trace_profiling_0.txt",
        "step_trace_raw_0_detail_time.csv",
        "device_queue_profiling_0.txt",
    ],
)
def test_lines_that_a_table_of_statistics_holds_again_are_counted_once(tmp_path, name):
    queued = {"device_queue_profiling_0.txt", "step_trace_profiling_0.txt"}
    folder = made.dataset_folder(made.gpu_folder(tmp_path))
    texts = {
        "op_statistic.csv": made.OP_STATISTIC,
        "step_trace_raw_0_detail_time.csv": "step_num,start_point,end_point,total,fp_point,bp_point\n"
        "1,100,200,100,110,190\n2,200,300,100,210,290\n",
    }
    if name in texts:
        (folder / name).write_text(texts[name])
    file = folder / name
    opened = folder if name in queued else file
    once = opscope.load(opened).trace
    head, _, rows = file.read_text().partition("\n" if name.endswith(".csv") else "\r")
    again = f"{head}\n{rows}{rows}" if name.endswith(".csv") else head + head
    file.write_text(again)
    trace = opscope.load(opened).trace
    for table in ("kernels", "ranges", "samples"):
        assert len(trace[table]) == len(once[table]), table
    assert trace["notes"].filter(pl.col("what") == TWICE)["how_many"].sum() == len(
        set(again.splitlines()) - ({head} if name.endswith(".csv") else set())
    )


def test_times_that_are_made_up_make_no_steps(tmp_path):
    profile = opscope.load(made.gpu_folder(tmp_path) / "gpu_op_detail_info_0.csv")
    assert len(profile.kernels())
    assert profile.steps().is_empty()


# ------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("name", "data", "what"),
    [
        ("trace_view.json", '[{"ph": "X", "name": "a", "pid": 1', "truncated"),
        ("trace_view.json", "[]", "no op, no step and no task"),
        ("trace_view.json", '[{"ph": "X", "name": "a", "pid": 1, "ts": {}}]', "not a timeline"),
        ("msprof_0_2_1.json", '[{"ph": "X", "name": "a-op1", "ts": "x", "dur": "y"}]', "no event has a time"),
        ("trace_view.json", "[" * 5000, "not a timeline"),
        ("kernel_details.csv", "Name,Start Time(us)\na,1\n", "no column Duration(us)"),
        ("kernel_details.csv", "Name,Start Time(us),Duration(us)\na,b,c\n", "no row has a start"),
        ("kernel_details.csv", 'Name,Start Time(us),Duration(us)\n"a,1', "not CSV"),
        ("gpu_op_detail_info_0.csv", "op_side,op_type,op_name,op_full_name,op_occurrences,op_total_time(us)\n,,,a,b,c\n", "no number"),
        ("activity_execute_timestamp_0.txt", "a;1;123456789;5\nb;c\n", "not a line of a kernel's times"),
        ("step_trace_raw_0_detail_time.csv", "step_num,start_point,end_point,total,fp_point,bp_point\n-,1,2,3,4,5\n", "no op"),
        ("dynamic_shape_info_0.json", '{"operator": {"1": [{"op_side": "gpu"}]}}', "no operator with a duration"),
        ("aicpu_intermediate_1.csv", "serial_number,kernel_type,total_time\n", "open the folder"),
        ("hccl_raw_0.csv", "step_num,communication_cost,wait_cost\n", "totals of communication"),
    ],
)  # fmt: skip
def test_a_damaged_file_is_refused_in_one_line(tmp_path, name, data, what):
    path = tmp_path / name
    path.write_text(data)
    with pytest.raises(BadInput, match=what.replace("(", r"\(").replace(")", r"\)")) as error:
        opscope.load(path)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


def test_a_folder_of_an_unknown_version_is_refused_in_one_line(tmp_path):
    folder = tmp_path / "host_4000_20231114221320000_ascend_ms"
    (folder / "FRAMEWORK").mkdir(parents=True)
    (folder / "FRAMEWORK" / "mindspore.op_range").write_bytes(b"\0" * 64)
    with pytest.raises(BadInput, match="without a file of ops that opscope knows"):
        opscope.load(folder)


def test_a_chrome_trace_of_another_tool_is_not_taken(tmp_path):
    path = tmp_path / "trace.json"
    path.write_text(
        '{"traceEvents": [{"ph": "X", "name": "a", "ts": 1, "dur": 1, "pid": 1, "tid": 1}]}'
    )
    with pytest.raises(BadInput) as error:
        opscope.load(path)
    assert "MindSpore" not in str(error.value)
    table = tmp_path / "table.csv"
    table.write_text("Name,Time\na,1\n")
    with pytest.raises(BadInput, match="not a trace"):
        opscope.load(table)


def test_an_event_of_another_kind_is_left_out_and_the_rest_is_read(tmp_path):
    path = tmp_path / "trace_view.json"
    view = made.trace_view()
    odd = made.event("Default/Add-op1", None, 2, "5.000", "2.000")
    path.write_text(json.dumps([*view, odd, 7, None, {"ph": "X", "name": []}]))
    profile = opscope.load(path)
    assert len(profile.kernels()) == 2
    notes = profile.trace["notes"].select("what", "how_many").rows()
    assert (
        "events whose time or duration is not a number, left out: their times were not recorded",
        2,
    ) in notes


def test_huge_numbers_are_left_out_and_take_no_memory(tmp_path):
    path = tmp_path / "trace_view.json"
    good = made.event(
        "Default/Add-op1", 6, 2, "5.000", "2.000", **{"Task Type": "AI_CORE", "Stream Id": 2}
    )
    bad = [
        good | {"ts": "1" * 5000},
        good | {"ts": 1e300},
        good | {"dur": None},
        good | {"ts": -1e30},
    ]
    path.write_text(json.dumps([*made.lane(6, "Ascend Hardware"), good, *bad]))
    profile = opscope.load(path)
    assert len(profile.kernels()) == 1
    assert (
        "events whose time or duration is not a number, left out: their times were not recorded",
        4,
    ) in profile.trace["notes"].select("what", "how_many").rows()
    table = tmp_path / "gpu_op_type_info_0.csv"
    table.write_text(
        "op_type,type_occurrences,total_time(us),total_proportion,avg_time(us)\nAdd,999999999999,5,1,1\n"
    )
    assert len(opscope.load(table).kernels()) == 1


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("NUMBER_TYPE_FLOAT16", "f16"), ("FLOAT", "f32"), ("DT_BF16", "bf16"), ("INT64", "i64"), ("BOOL", "bool"),
     ("NUMBER_TYPE_END", "?"), ("UNKNOWN", "?"), ("DOUBLE", "f64"), ("UINT8", "u8"), ("kNumberTypeInt32", "i32"),
     ("FP16", "f16"), ("BFLOAT16", "bf16")],
)  # fmt: skip
def test_dtypes_of_all_spellings_are_known(name, dtype):
    assert dtype_of(name) == dtype


@pytest.mark.parametrize(("ran", "missing"), [("123", 0), ("1", 2)])
def test_ops_of_the_totals_that_no_task_ran_are_lost(tmp_path, ran, missing):
    lines = [f"Default/Mul-op{n},519,{n}.5,0.25" for n in ran]
    head = "op_name, stream_id, start_time(ms), duration(ms)"
    (tmp_path / "output_timeline_data_0.txt").write_text("\n".join([head, *lines]) + "\n")
    totals = "".join(f"Default/Mul-op{n},0.25\n" for n in "123")
    (tmp_path / "aicore_intermediate_0_detail.csv").write_text(
        f"full_op_name,execution_time\n{totals}"
    )
    profile = opscope.load(tmp_path)
    lost = [text for text in losses(profile) if "table of totals" in text]
    assert [text.endswith("which no task ran (2)") for text in lost] == [True] * bool(missing)
    assert (profile.of(idle_unknown) is None) == (missing == 0)


def test_tasks_are_read_though_the_totals_beside_them_are_damaged(tmp_path):
    (tmp_path / "output_timeline_data_0.txt").write_text(
        "op_name, stream_id, start_time(ms), duration(ms)\nDefault/Mul-op1,519,1.5,0.25\n"
    )
    (tmp_path / "aicore_intermediate_0_detail.csv").write_text(
        "full_op_name,execution_time\nDefault/Mul-op1,N/A\n"
    )
    profile = opscope.load(tmp_path)
    assert len(profile.kernels()) == 1
    assert "aicore_intermediate_0_detail.csv cannot be read" in " ".join(
        profile.trace["notes"]["what"].cast(pl.String)
    )
