"""One small run as each of AMD's profilers writes it: the same kernels, copies, calls, ranges and counters."""

from __future__ import annotations

import contextlib
import gzip
import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from opscope import readers
from opscope.core.perf.devices.identify import find
from opscope.core.tables.trace import Trace
from opscope.profile import Profile
from opscope.readers import BadInput

from . import made

WRITERS: dict[str, Callable[[Path], Path]] = {
    "rocpd 3.0": lambda folder: made.rocpd(folder / "4242_results.db"),
    "rocpd 4.1": lambda folder: made.rocpd(folder / "4242_results.db", "4.1"),
    "rocpd draft": lambda folder: made.rocpd(folder / "4242_results.db", "draft"),
    "rocprofv3 JSON": lambda folder: made.tool_json(folder / "4242_results.json"),
    "rocprofv3 CSV": lambda folder: made.v3_folder(folder / "host"),
}
FORMATS = list(WRITERS)


@pytest.fixture(params=FORMATS)
def trace(request: pytest.FixtureRequest, tmp_path: Path) -> Trace:
    return readers.open(WRITERS[request.param](tmp_path))


def test_each_format_gives_the_same_kernels(trace: Trace) -> None:
    kernels = trace["kernels"].sort("start")
    assert kernels.select("start", "end", "correlation", "device", "stream").rows() == [
        (made.T + 2000, made.T + 2500, 11, 2, 3),
        (made.T + 4000, made.T + 4600, 12, 2, 3),
    ]
    assert kernels["name"].cast(pl.String).to_list() == ["my_kernel(float*, int)"] * 2
    assert kernels["registers"].to_list() == [made.ARCH + made.ACCUM] * 2
    assert kernels["local_memory"].to_list() == [made.SCRATCH] * 2


def test_a_grid_in_work_items_becomes_one_in_blocks_rounded_up(trace: Trace) -> None:
    kernels = trace["kernels"].sort("start")
    assert kernels["grid"].cast(pl.String).to_list() == ["16,2,1", "2,1,1"]
    assert kernels["block"].cast(pl.String).to_list() == ["64,2,1", "256,1,1"]


def test_kernels_belong_to_the_ops_around_their_launches(trace: Trace) -> None:
    kernels = Profile(trace).kernels().sort("start")
    assert kernels["op"].to_list() == ["aten::mm", "aten::addmm"]
    assert kernels["inputs"].to_list()[1] is not None


def test_a_range_of_opscopes_own_text_has_its_flops(trace: Trace) -> None:
    kernels = Profile(trace).kernels().sort("start")
    assert kernels["flops"].to_list()[1] == 2 * 8 * 16 * 8


def test_steps_are_counted_where_the_texts_are_opscopes_own(trace: Trace) -> None:
    summary = Profile(trace).summary()
    assert summary["steps"].item() == 1


def test_marks_are_marks_and_pushes_nest(trace: Trace) -> None:
    ranges = trace["ranges"].with_columns(pl.col("text", "kind").cast(pl.String))
    kinds = dict(ranges.select("text", "kind").iter_rows())
    assert kinds == {
        made.OWN: "pushpop",
        made.TORCH: "pushpop",
        "step 0": "pushpop",
        "here": "mark",
    }


def test_a_copy_has_its_direction_and_its_device(trace: Trace) -> None:
    copy = trace["memops"].row(0, named=True)
    assert (copy["kind"], copy["device"], copy["correlation"]) == ("HtoD", 2, 13)
    size = None if trace.origin["paths"][0].endswith("host") else 4096  # the CSV has no sizes
    assert copy["bytes"] == size


def test_counters_join_their_dispatches_and_add_up_their_instances(trace: Trace) -> None:
    kernels = trace["kernels"].select("process", "correlation", "start")
    joined = trace["counters"].join(kernels, on=["process", "correlation"], how="left")
    found = {
        (name, start - made.T): value
        for name, start, value in joined.select(
            pl.col("name").cast(pl.String), "start", "value"
        ).iter_rows()
    }
    assert found == {("SQ_WAVES", 2000): 128.0, ("FETCH_SIZE", 2000): 10.5, ("SQ_WAVES", 4000): 7.0}


def test_counters_do_not_count_a_dispatch_twice(trace: Trace) -> None:
    assert len(trace["kernels"]) == 2


def test_the_device_is_the_one_of_the_table_of_devices(trace: Trace) -> None:
    row = trace["devices"].row(0, named=True)
    assert (row["name"], row["cc"], row["sm_count"], row["clock_khz"]) == (
        "AMD Instinct MI300X", "gfx942", 304, 2_100_000,
    )  # fmt: skip
    assert row["max_threads_per_sm"] == 2048
    device, why = find(
        *(row[name] for name in ("name", "cc", "sm_count", "memory", "clock_khz", "mem_bandwidth"))
    )
    assert device is not None, why
    assert (device.name, device.note) == ("MI300X", "")


def test_one_process_has_its_pid_and_thread(trace: Trace) -> None:
    assert trace["processes"]["pid"].to_list() == [made.PID]
    assert trace["threads"]["thread"].to_list() == [made.TID]


@pytest.mark.parametrize("version", ["3.0", "4.1", "draft"])
def test_rocpd_keeps_static_and_dynamic_memory_apart_and_reads_allocations(
    tmp_path: Path, version: str
) -> None:
    trace = readers.open(made.rocpd(tmp_path / "a.db", version))
    kernel = trace["kernels"].row(0, named=True)
    assert (kernel["shared_static"], kernel["shared_dynamic"]) == (
        made.LDS_STATIC,
        made.LDS - made.LDS_STATIC,
    )
    assert trace["allocations"].select("bytes", "device").rows() == [(1 << 20, 2), (-(1 << 20), 2)]


def test_rocpds_environment_stays_where_it_is_and_secrets_of_the_command_go(tmp_path: Path) -> None:
    trace = readers.open(made.rocpd(tmp_path / "a.db"))
    told = str(trace.origin) + "".join(str(trace[name].rows()) for name in trace.present)
    assert "train.py" in told
    assert "SECRET" not in told


@pytest.mark.parametrize("pid", [4243, made.PID])
def test_a_merged_rocpd_database_has_a_process_for_each_session(tmp_path: Path, pid: int) -> None:
    """Two programs in containers may have the same pid."""
    one, two = made.rocpd(tmp_path / "a.db"), made.rocpd(tmp_path / "b.db", uuid="_0002", pid=pid)
    with sqlite3.connect(one) as db:
        db.execute(f"ATTACH '{two}' AS other")
        names = db.execute("SELECT name FROM other.sqlite_master WHERE type = 'table'").fetchall()
        for (name,) in names:
            db.execute(f'CREATE TABLE main."{name}" AS SELECT * FROM other."{name}"')
        db.execute("UPDATE rocpd_info_node_0002 SET hostname = 'node-b'")
    db.close()
    trace = readers.open(one)
    assert trace["processes"].select("pid", "host").rows() == [(4242, "node-a"), (pid, "node-b")]
    by_process = trace["kernels"].group_by("process").len()
    assert by_process["len"].to_list() == [2, 2]
    kernels = Profile(trace).kernels()
    assert sorted(kernels["op"].to_list()) == ["aten::addmm"] * 2 + ["aten::mm"] * 2


def test_views_without_tables_are_no_trace(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "a.db") as db:
        db.execute("CREATE VIEW rocpd_kernel_dispatch AS SELECT 1 AS start")
    db.close()
    with pytest.raises(BadInput, match="not a trace"):
        readers.open(tmp_path / "a.db")


def test_one_format_of_a_run_is_read_where_there_are_several(tmp_path: Path) -> None:
    made.v3_folder(tmp_path)
    made.tool_json(tmp_path / "4242_results.json")
    made.rocpd(tmp_path / "4242_results.db")
    trace = readers.open(tmp_path)
    assert len(trace["kernels"]) == 2
    assert trace["memops"]["bytes"].to_list() == [4096]  # the database's
    assert any("another format" in what for what in trace["notes"]["what"])


def test_runs_of_two_processes_in_a_folder_are_two_processes(tmp_path: Path) -> None:
    made.v3_folder(tmp_path, "1_")
    other = made.v3_folder(tmp_path / "other", "2_")
    for path in sorted(other.iterdir()):
        text = path.read_text().replace(f",{made.PID},", ",5000,")
        (tmp_path / path.name).write_text(text)
        path.unlink()
    other.rmdir()
    trace = readers.open(tmp_path)
    assert sorted(trace["processes"]["pid"]) == [4242, 5000]
    assert len(trace["kernels"]) == 4


def test_a_kernel_trace_alone_has_the_process_of_its_files_name(tmp_path: Path) -> None:
    made.v3_folder(tmp_path)
    (tmp_path / "4242_hip_api_trace.csv").unlink()
    trace = readers.open(tmp_path / "4242_kernel_trace.csv")
    assert len(trace["kernels"]) == 2
    assert trace["devices"]["name"].to_list() == [None]
    assert any("agent_info.csv" in what for what in trace["notes"]["what"])


# ------------------------------------------------------------------------------ rocprofv2, v1, rpd


def test_rocprofv2s_tables_are_read_with_their_blank_lines(tmp_path: Path) -> None:
    trace = readers.open(made.v2_folder(tmp_path / "v2"))
    kernels = trace["kernels"].sort("start")
    assert kernels["correlation"].to_list() == [11, 12]
    assert kernels["grid"].cast(pl.String).to_list() == ["32,1,1", "2,1,1"]  # products, rounded up
    assert kernels["name"].cast(pl.String).unique().to_list() == ["my_kernel(float*, int)"]
    assert trace["counters"]["value"].to_list() == [7.0, 7.0]
    ranges = trace["ranges"].with_columns(pl.col("text", "kind").cast(pl.String))
    assert {row[0]: row[1:] for row in ranges.select("text", "end", "kind").iter_rows()} == {
        "step 0": (made.T + 9000, "pushpop"),
        "inner": (made.T + 3000, "pushpop"),
        "other": (made.T + 9100, "startend"),  # it crosses the end of step 0
    }
    assert len(trace["calls"]) == 3


def test_kernels_of_two_tables_of_rocprofv2_count_once(tmp_path: Path) -> None:
    folder = made.v2_folder(tmp_path / "v2")
    (folder / "hcc_ops_trace_4242.csv").write_text(
        "Domain,Operation,Kernel_Name,Start_Timestamp,Stop_Timestamp,Correlation_ID\n\n"
        f'HIP_OPS_DOMAIN,"KernelExecution","my_kernel(float*, int)",{made.T + 2000},{made.T + 2500},11\n'
        f'HIP_OPS_DOMAIN,"CopyHostToDevice",,{made.T + 4700},{made.T + 4900},13\n'
        f'HIP_OPS_DOMAIN,"Marker",,{made.T + 5000},{made.T + 5100},14\n'
    )
    trace = readers.open(folder)
    assert len(trace["kernels"]) == 2
    assert trace["memops"]["kind"].cast(pl.String).to_list() == ["HtoD"]
    alone = readers.open(folder / "hcc_ops_trace_4242.csv")
    assert (alone["kernels"]["end"] - alone["kernels"]["start"]).to_list() == [500]


def test_traces_of_other_tools_beside_a_run_are_told(tmp_path: Path) -> None:
    made.v3_folder(tmp_path)
    (tmp_path / "torch.json").write_text('{"traceEvents": []}')
    (tmp_path / "notes.json").write_text('{"loss": 1}')
    whats = [what for what in readers.open(tmp_path)["notes"]["what"] if "other tools" in what]
    assert len(whats) == 1
    assert "torch.json" in whats[0]


def test_the_folder_around_a_hosts_folder_is_opened_too(tmp_path: Path) -> None:
    made.v3_folder(tmp_path / "out" / "node-a")
    assert len(readers.open(tmp_path / "out")["kernels"]) == 2


def test_rocprof_v1s_database_ties_ops_to_calls(tmp_path: Path) -> None:
    trace = readers.open(made.v1_database(tmp_path / "results.db"))
    kernels = Profile(trace).kernels().sort("start")
    assert kernels["op"].to_list() == ["aten::mm", "aten::addmm"]
    assert trace["memops"]["kind"].cast(pl.String).to_list() == ["HtoD"]
    assert any("barriers" in what for what in trace["notes"]["what"])


def test_a_grid_of_rpd_counts_blocks_or_work_items_as_its_call_does(tmp_path: Path) -> None:
    trace = readers.open(made.rpd(tmp_path / "trace.rpd"))
    assert trace["kernels"]["grid"].cast(pl.String).to_list() == ["16,1,1", "16,1,1"]


def test_rpds_pytorch_ops_have_their_shapes_and_its_barriers_are_no_work(tmp_path: Path) -> None:
    trace = readers.open(made.rpd(tmp_path / "trace.rpd"))
    profile = Profile(trace)
    kernels = profile.kernels().sort("start")
    assert kernels["op"].to_list() == ["aten::mm", None]
    assert kernels["seq"].to_list()[0] == 1
    assert kernels["inputs"].to_list()[0] == "?[2,3], ?[3,4]"
    assert profile.summary()["device_time"].item() == 500 + 600 + 200
    assert len(trace["syncs"]) == 1
    assert trace["memops"].select(pl.col("kind").cast(pl.String), "bytes").rows() == [
        ("HtoD", 4096)
    ]
    assert trace["samples"]["value"].to_list() == [2100.0]
    assert any("tracer itself" in what for what in trace["notes"]["what"])


# ------------------------------------------------------------------------------ what CSV may look like


def variant(
    tmp_path: Path, change: Callable[[str], bytes], name: str = "kernel_trace.csv"
) -> Trace:
    """The trace of ``kernel_trace.csv`` after a change to its text."""
    made.v3_folder(tmp_path / "plain", "")
    text = (tmp_path / "plain" / "kernel_trace.csv").read_text()
    target = tmp_path / name
    target.write_bytes(change(text))
    return readers.open(target)


def separated(text: str) -> bytes:
    """Numbers of nine digits and more with thousands separators, in quotes."""
    rows = [line.split(",", 7) for line in text.splitlines()]
    out = []
    for row in rows:
        head, rest = row[:7], row[7]
        if rest.startswith('"'):
            name, _, numbers = rest[1:].partition('",')
            cells = [f'"{int(one):,}"' for one in numbers.split(",")]
            rest = f'"{name}",' + ",".join(cells)
        out.append(",".join([*head, rest]))
    return "\n".join(out).encode()


def reordered(text: str) -> bytes:
    import csv
    import io

    rows = list(csv.reader(io.StringIO(text)))
    made_of = io.StringIO()
    csv.writer(made_of, quoting=csv.QUOTE_ALL).writerows([row[::-1] for row in rows])
    return made_of.getvalue().encode()


VARIANTS: dict[str, Callable[[str], bytes]] = {
    "a byte-order mark": lambda text: b"\xef\xbb\xbf" + text.encode(),
    "Windows' line ends": lambda text: text.replace("\n", "\r\n").encode(),
    "a preamble": lambda text: f'epoch 1, loss 0.5, "quoted\nW2026 rocprofv3: wrote\n\n{text}'.encode(),
    "thousands separators": separated,
    "another order of columns, all in quotes": reordered,
    "semicolons": lambda text: text.replace("float*, int", "float* int").replace(",", ";").encode(),
    "older names": lambda text: text.replace("LDS_Block_Size", "Group_Segment_Size")
    .replace("Scratch_Size", "Private_Segment_Size").encode(),
    "bytes that are no UTF-8": lambda text: text.encode().replace(b"my_kernel", b"my_kernel", 1),
    "gzip": lambda text: gzip.compress(text.encode()),
}  # fmt: skip


@pytest.mark.parametrize("which", list(VARIANTS))
def test_a_csv_reads_the_same_with(tmp_path: Path, which: str) -> None:
    trace = variant(
        tmp_path, VARIANTS[which], "kernel_trace.csv" + (".gz" if which == "gzip" else "")
    )
    kernels = trace["kernels"].sort("start")
    assert (kernels["end"] - kernels["start"]).to_list() == [500, 600]
    assert kernels["grid"].cast(pl.String).to_list() == ["16,2,1", "2,1,1"]
    assert kernels["shared_static"].to_list() == [512, 512]
    assert kernels["local_memory"].to_list() == [made.SCRATCH] * 2


def test_quotes_and_commas_in_a_name_stay(tmp_path: Path) -> None:
    name = 'void f<&(operator"" _kb), int>(char const*, {lambda(int)#1})'
    trace = variant(
        tmp_path,
        lambda text: text.replace("my_kernel(float*, int)", name.replace('"', '""')).encode(),
    )
    assert trace["kernels"]["name"].cast(pl.String).unique().to_list() == [name]


def test_the_first_rocprofs_table_has_four_times_and_no_more(tmp_path: Path) -> None:
    # bin/tblextr.py as first written: a comma ends every line
    path = tmp_path / "results.csv"
    path.write_text(
        "Index,KernelName,DispatchNs,BeginNs,EndNs,CompleteNs,\n"
        '0,"SimpleConvolution",1048928000311041,1048928006154674,1048928006168274,1048928006170503,\n'
    )
    kernels = readers.open(path)["kernels"]
    assert (kernels["end"] - kernels["start"]).to_list() == [13_600]


def test_a_table_of_rocm_5_5_is_read(tmp_path: Path) -> None:
    # ROCm/rocprofiler, CHANGELOG.md: SIG and OBJ hold other columns' values there, so the times are wrong too
    path = tmp_path / "results_1.csv"
    path.write_text(
        "Dispatch_ID,GPU_ID,Queue_ID,Queue_Index,PID,TID,GRD,WGR,LDS,SCR,Arch_VGPR,ACCUM_VGPR,SGPR,Wave_Size,SIG,OBJ,"
        "Kernel_Name,Start_Timestamp,End_Timestamp,Correlation_ID,GRBM_COUNT\n\n"
        '1,4,1,1,77,77,1024,64,0,0,8,0,16,64,140464978048000,1,"hello(char*) (.kd)",1000,3500,33,12637.000000\n'
    )
    trace = readers.open(path)
    kernel = trace["kernels"].row(0, named=True)
    assert (kernel["grid"], kernel["block"], kernel["end"] - kernel["start"]) == (
        "16,1,1",
        "64,1,1",
        2500,
    )
    assert trace["counters"].select(pl.col("name").cast(pl.String), "value").rows() == [
        ("GRBM_COUNT", 12637.0)
    ]


def test_rccl_calls_are_communication(tmp_path: Path) -> None:
    made.v3_folder(tmp_path)
    made.lines(
        tmp_path / "4242_rccl_api_trace.csv",
        made.V3_API,
        [("RCCL_API", "ncclAllReduce", made.PID, made.TID, 40, made.T + 3550, made.T + 3750)],
    )
    kernels = Profile(readers.open(tmp_path)).kernels().sort("start")
    assert kernels["op"].to_list() == ["aten::mm", "ncclAllReduce"]
    assert kernels["direction"].to_list()[1] == "communication"


def test_a_range_that_crosses_another_is_not_a_push(tmp_path: Path) -> None:
    rows: list[tuple[Any, ...]] = [
        ("MARKER_CORE_API", "outer", 1, 1, 1, 100, 200),
        ("MARKER_CORE_API", "crosses", 1, 1, 2, 150, 250),
        ("MARKER_CORE_API", "inner", 1, 1, 3, 110, 120),
        ("MARKER_CORE_API", "touches", 1, 1, 4, 120, 140),
        ("MARKER_CORE_API", "on thread 0", 1, 0, 5, 300, 400),
    ]
    path = made.lines(tmp_path / "marker_api_trace.csv", made.V3_API, rows)
    ranges = readers.open(path)["ranges"].with_columns(pl.col("text", "kind").cast(pl.String))
    assert dict(ranges.select("text", "kind").iter_rows()) == {
        "outer": "pushpop", "crosses": "startend", "inner": "pushpop", "touches": "pushpop",
        "on thread 0": "startend",
    }  # fmt: skip


def test_a_users_text_that_looks_like_a_call_is_no_op(tmp_path: Path) -> None:
    rows: list[tuple[Any, ...]] = [("MARKER_CORE_API", "forward()", 1, 1, 1, 100, 200)]
    path = made.lines(tmp_path / "marker_api_trace.csv", made.V3_API, rows)
    domain = readers.open(path)["ranges"]["domain"].cast(pl.String).to_list()
    assert domain == [""]


def test_statistics_beside_a_table_that_differs_are_told(tmp_path: Path) -> None:
    made.v3_folder(tmp_path)
    made.lines(
        tmp_path / "4242_kernel_stats.csv",
        "Name,Calls,TotalDurationNs,AverageNs,Percentage",
        [("my_kernel(float*, int)", 3, 1100, 366.0, 100.0)],
    )
    assert any("own statistics" in what for what in readers.open(tmp_path)["notes"]["what"])
    (tmp_path / "4242_kernel_stats.csv").write_text(
        'Name,Calls,TotalDurationNs\n"my_kernel(float*, int)",2,1100\n'
    )
    assert not any("own statistics" in what for what in readers.open(tmp_path)["notes"]["what"])


def test_statistics_alone_have_the_tools_sums_and_say_that_their_times_are_made_up(
    tmp_path: Path,
) -> None:
    path = made.lines(
        tmp_path / "results.stats.csv", "Name,Calls,TotalDurationNs,AverageNs,Percentage",
        [("a.kd", 3, 1000, 333, 90.0), ("b", 1, 7, 7, 10.0)],
    )  # fmt: skip
    trace = readers.open(path)
    kernels = trace["kernels"].with_columns((pl.col("end") - pl.col("start")).alias("took"))
    sums = dict(
        kernels.group_by(pl.col("name").cast(pl.String)).agg(pl.col("took").sum()).iter_rows()
    )
    assert sums == {"a": 1000, "b": 7}
    use = Profile(trace).device_use()
    assert use["gpu_utilization"].to_list() == [None]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ('"Name","Calls","TotalDurationNs"\n"hipMalloc",1,2\n', "totals of calls"),
        ("Sample_Timestamp,Exec_Mask,Dispatch_Id\n1,2,3\n", "samples of the program counter"),
        ("Node_Id,Logical_Node_Id,Agent_Type\n0,0,CPU\n", "what the devices are"),
        ("Dispatch_ID,Kernel_Name,GPU_ID\n0,k,2\n", "names of kernels"),
    ],
)
def test_files_without_anything_that_ran_say_what_they_have(
    tmp_path: Path, text: str, what: str
) -> None:
    path = tmp_path / "file.csv"
    path.write_text(text)
    with pytest.raises(BadInput, match=what):
        readers.open(path)


def test_rows_without_times_are_left_out_and_told(tmp_path: Path) -> None:
    trace = variant(tmp_path, lambda text: text.replace(str(made.T + 2000), "").encode())
    assert len(trace["kernels"]) == 1
    assert any("without a time" in what for what in trace["notes"]["what"])


# ------------------------------------------------------------------------------ occupancy


def occupied(tmp_path: Path, sgpr: int) -> dict[str, Any]:
    """The use of an MI300X by two kernels of 40 vector registers and as many scalar ones."""
    made.v3_folder(tmp_path)
    path = tmp_path / "4242_kernel_trace.csv"
    before, after = (f",{made.ACCUM},{number}," for number in (made.SGPR, sgpr))
    path.write_text(path.read_text().replace(before, after))
    return Profile(readers.open(tmp_path)).device_use().row(0, named=True)


def test_occupancy_on_an_mi300x_follows_from_what_its_kernels_use(tmp_path: Path) -> None:
    use = occupied(tmp_path, 48)
    assert use["theoretical_occupancy"] == 1.0
    # 32 groups of 2 wavefronts for 500 ns, 2 of 4 for 600 ns, of 304 units with 32 wavefronts
    assert use["achieved_occupancy"] == pytest.approx(
        (32 * 2 * 500 + 2 * 4 * 600) / (304 * 32 * 1100)
    )
    assert use["sm_efficiency"] is not None


def test_occupancy_is_null_where_scalar_registers_may_limit_it(tmp_path: Path) -> None:
    use = occupied(tmp_path, 96)
    assert use["theoretical_occupancy"] is None
    assert "scalar registers" in use["occupancy_reason"]


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where the whole numbers are in a JSON document."""
    if isinstance(value, int):
        return [path]
    children = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    return [place for key, child in children for place in _places(child, (*path, key))]


def test_a_number_beyond_64_bits_anywhere_in_the_json_leaves_no_traceback(tmp_path: Path) -> None:
    path = made.tool_json(tmp_path / "4242_results.json")
    whole = path.read_text()
    for place in _places(json.loads(whole)):
        document = json.loads(whole)
        holder = document
        for key in place[:-1]:
            holder = holder[key]
        holder[place[-1]] = 1 << 70
        path.write_text(json.dumps(document))
        with contextlib.suppress(BadInput):
            readers.open(path)


def test_a_range_that_began_at_no_known_time_says_nothing_of_the_others():
    from opscope.readers.rocm.marks import ranges_of

    spans = [(None, 5), (0, 10), (5, 20), (None, None)]
    rows = [
        {"process": 0, "thread": 1, "start": start, "end": end, "text": "a"} for start, end in spans
    ]
    ranges = ranges_of(pl.DataFrame(rows))
    kinds = dict(ranges.select("end", pl.col("kind").cast(pl.String)).drop_nulls().rows())
    assert (kinds[10], kinds[20]) == ("pushpop", "startend")


def counter_rows(folder: Path, dispatches: int) -> list[str]:
    """A table of counters of as many dispatches: the header, and a row for each of two counters."""
    head = "Correlation_Id,Dispatch_Id,Agent_Id,Queue_Id,Process_Id,Thread_Id,Grid_Size,Kernel_Id,Kernel_Name,Workgroup_Size,LDS_Block_Size,Scratch_Size,VGPR_Count,SGPR_Count,Counter_Name,Counter_Value"
    rows = [
        f'{n},{n},1,1,7,7,1024,16,"k",64,0,0,8,16,"{name}",{value * n}'
        for n in range(1, dispatches + 1)
        for name, value in (("SQ_WAVES", 16), ("FETCH_SIZE", 9))
    ]
    return [head, *rows]


def read_rows(folder: Path, rows: list[str]) -> tuple[list[float], list[tuple[str, int]]]:
    path = folder / "counter_collection.csv"
    path.write_text("\n".join(rows) + "\n")
    trace = readers.open(path)
    told = trace["notes"].filter(pl.col("what").cast(pl.String).str.contains(": counted "))
    return trace["counters"]["value"].to_list(), told.select("what", "how_many").rows()


def test_a_dispatch_whose_counters_are_there_twice_is_told_and_counted_each(tmp_path: Path) -> None:
    """No column tells its rows from instances of a counter."""
    head, *rows = counter_rows(tmp_path, 1)
    assert read_rows(tmp_path, [head, *rows]) == ([16.0, 9.0], [])
    for again in ([*rows, *rows], [rows[0], rows[0], rows[1], rows[1]]):
        values, [(what, count)] = read_rows(tmp_path, [head, *again])
        assert (values, count) == ([32.0, 18.0], 1)
        assert what.startswith("dispatches whose counters")
        assert what.endswith("counted each")
    # one counter of two has equal rows: its instances did the same
    assert read_rows(tmp_path, [head, *rows, rows[0]]) == ([32.0, 9.0], [])


def test_one_of_several_dispatches_twice_is_told_and_a_file_twice_is_counted_once(
    tmp_path: Path,
) -> None:
    head, *rows = counter_rows(tmp_path, 3)
    values, [(what, count)] = read_rows(tmp_path, [head, *rows, *rows[-2:]])
    assert (values[-2:], count, what.endswith("counted each")) == ([96.0, 54.0], 1, True)
    values, [(what, count)] = read_rows(tmp_path, [head, *rows, *rows])
    assert (values[-2:], count, what.endswith("counted once")) == ([48.0, 27.0], 6, True)


@pytest.mark.parametrize("name", ["rocpd_pmc_event", "rocpd_kernel_dispatch"])
def test_a_table_of_rocpd_that_holds_its_rows_twice_counts_them_once(
    name: str, tmp_path: Path
) -> None:
    path = made.rocpd(tmp_path / "a.db")
    once = readers.open(path)
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        [table] = [
            one for (one,) in db.execute("SELECT name FROM sqlite_master") if one.startswith(name)
        ]
        db.execute(f"INSERT INTO {table} SELECT * FROM {table}")
    twice = readers.open(path)
    assert twice["counters"].rows() == once["counters"].rows()
    assert len(twice["kernels"]) == len(once["kernels"])
    assert twice["notes"]["what"].cast(pl.String).str.contains("counted once").any()


def test_a_dispatch_that_the_json_holds_twice_is_told(tmp_path: Path) -> None:
    path = made.tool_json(tmp_path / "a.json")
    once = readers.open(path)
    document = json.loads(path.read_text())
    for process in document["rocprofiler-sdk-tool"]:
        process["callback_records"]["counter_collection"] *= 2
    path.write_text(json.dumps(document))
    twice = readers.open(path)
    assert twice["counters"].rows() == once["counters"].rows()
    assert twice["notes"]["what"].cast(pl.String).str.contains("counted once").any()
