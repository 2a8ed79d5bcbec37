"""Records whose times cannot be, in the files of each reader: one set of rules, whatever wrote them.

Each file holds 40 kernels of 1 ms, one every 2 ms, launched 0.1 ms before, five seconds into the recording.
"""

from __future__ import annotations

import gzip
import json
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import opscope
from opscope.core.advice.detectors import ON_HOST
from opscope.core.analysis.ops.lost_kernels import idle_unknown
from opscope.core.analysis.summary.doubts import doubts
from opscope.core.analysis.summary.summary import outside_ops
from opscope.readers import BadInput
from opscope.readers.rows import TWICE
from tests.readers.cupti_xplane import H200, Cupti
from tests.readers.rocm import made as rocm
from tests.script import module_at

fuzz_seeds = module_at("scripts/fuzz_seeds.py")
MS, S = 10**6, 10**9
COUNT, FIRST = 40, 5 * S
HOUR = 3600 * S
Times = list[list[int]]
TIMES: Times = [[FIRST + 2 * n * MS, FIRST + (2 * n + 1) * MS] for n in range(COUNT)]
CALLED = [start - 100_000 for start, _ in TIMES]


def rows_of(path: Path, table: str, columns: Sequence[str], rows: Sequence[Sequence[int]]) -> None:
    """Replace the rows of a table by copies of its first with these values."""
    with sqlite3.connect(path) as db:
        names = [name for _, name, *_ in db.execute(f'PRAGMA table_info("{table}")')]
        first = db.execute(f'SELECT * FROM "{table}"').fetchone()
        db.execute(f'DELETE FROM "{table}"')
        for number, values in enumerate(rows):
            row = {
                **dict(zip(names, first, strict=True)),
                **dict(zip(columns, values, strict=True)),
            }
            for key in ("id", "_id_"):
                if key in row:
                    row[key] = number + 1
            marks = ", ".join("?" * len(names))
            db.execute(f'INSERT INTO "{table}" VALUES ({marks})', [row[name] for name in names])
    db.close()


def numbered(times: Times) -> list[list[int]]:
    return [[*pair, number + 1] for number, pair in enumerate(times)]


CALLS = numbered([[start, start + 1_000] for start in CALLED])


def emptied(path: Path, *tables: str) -> Path:
    with sqlite3.connect(path) as db:
        for table in tables:
            db.execute(f'DELETE FROM "{table}"')
    db.close()
    return path


def nsys(folder: Path, times: Times) -> Path:
    path = fuzz_seeds.nsys_sqlite(folder / "a.sqlite")
    columns = ("start", "end", "correlationId")
    rows_of(path, "CUPTI_ACTIVITY_KIND_KERNEL", columns, numbered(times))
    rows_of(path, "CUPTI_ACTIVITY_KIND_RUNTIME", columns, CALLS)
    kinds = ("MEMCPY", "MEMSET", "SYNCHRONIZATION", "GRAPH_TRACE")
    more = ("NVTX_EVENTS", "SCHED_EVENTS", "DIAGNOSTIC_EVENT", "ANALYSIS_DETAILS")
    return emptied(path, *(f"CUPTI_ACTIVITY_KIND_{kind}" for kind in kinds), *more)


def nvprof(folder: Path, times: Times) -> Path:
    path = fuzz_seeds.nvprof(folder / "a.sqlite")
    columns = ("start", "end", "correlationId")
    rows_of(path, "CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL", columns, numbered(times))
    rows_of(path, "CUPTI_ACTIVITY_KIND_RUNTIME", columns, CALLS)
    kinds = ("MEMCPY", "MEMSET", "SYNCHRONIZATION", "MARKER")
    return emptied(path, *(f"CUPTI_ACTIVITY_KIND_{kind}" for kind in kinds))


def dlprof(folder: Path, times: Times) -> Path:
    path = fuzz_seeds.dlprof(folder / "a.sqlite")
    columns = ("gpu_start", "gpu_stop", "api_start", "api_stop")
    rows = [[*pair, *call[:2]] for pair, call in zip(times, CALLS, strict=True)]
    rows_of(path, "read_only_kernels", columns, rows)
    with sqlite3.connect(path) as db:
        names = [
            name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        ]
    db.close()
    timed = ("read_only_memsets", "read_only_memcpys", "read_only_cuda_syncs", "read_only_cuda_calls",
             "read_only_op_instances")  # fmt: skip
    return emptied(path, *(name for name in timed if name in names))


def rocprof_v3(folder: Path, times: Times) -> Path:
    rows = [
        [
            "KERNEL_DISPATCH",
            2,
            1,
            7,
            number,
            16,
            "gemm",
            number,
            start,
            end,
            0,
            0,
            64,
            1,
            1,
            1024,
            1,
            1,
        ]
        for start, end, number in numbered(times)
    ]
    header = (
        "Kind,Agent_Id,Queue_Id,Thread_Id,Dispatch_Id,Kernel_Id,Kernel_Name,Correlation_Id,"
        "Start_Timestamp,End_Timestamp,Private_Segment_Size,Group_Segment_Size,Workgroup_Size_X,"
        "Workgroup_Size_Y,Workgroup_Size_Z,Grid_Size_X,Grid_Size_Y,Grid_Size_Z"
    )
    return rocm.lines(folder / "1_kernel_trace.csv", header, rows)


def rocpd(folder: Path, times: Times) -> Path:
    """Kernels alone, in rocprofv3's database."""
    path = rocm.rocpd(folder / "a_results.db")
    columns = ("start", "end", "dispatch_id", "event_id")
    rows = [[*row, row[-1]] for row in numbered(times)]
    rows_of(path, "rocpd_kernel_dispatch_0001", columns, rows)
    rows_of(path, "rocpd_event_0001", ("stack_id",), [[row[-1]] for row in rows])
    timed = ("region", "sample", "pmc_event", "memory_copy", "memory_allocate")
    return emptied(path, *(f"rocpd_{name}_0001" for name in timed))


def rocprof_v1(folder: Path, times: Times) -> Path:
    path = rocm.v1_database(folder / "results.db")
    columns = ("BeginNs", "EndNs", "Index")
    rows_of(path, "OPS", columns, numbered(times))
    rows_of(path, "HIP", columns, CALLS)
    return emptied(path, "rocTX")


def event(
    cat: str, name: str, pid: object, tid: int, start: int, end: int, **args: Any
) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": start / 1000,
            "dur": (end - start) / 1000, "args": args}  # fmt: skip


def kineto(folder: Path, times: Times) -> Path:
    events = [
        event("kernel", "gemm", 0, 7, start, end, device=0, stream=7, correlation=number)
        for start, end, number in numbered(times)
    ]
    events += [
        event("cuda_runtime", "cudaLaunchKernel", 1, 1, start, end, correlation=number)
        for start, end, number in CALLS
    ]
    path = folder / "a.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    return path


def onnxruntime(folder: Path, times: Times) -> Path:
    """The nodes of a run on the CPU."""
    last = TIMES[-1][1]
    events = [
        event("Session", "model_loading_uri", 1, 1, 4_000, 300 * MS),
        event("Session", "model_run", 1, 1, FIRST - MS, last + MS),
        event("Session", "SequentialExecutor::Execute", 1, 1, FIRST - MS // 2, last + MS // 2),
    ]
    events += [
        event("Node", f"n{number}_kernel_time", 1, 1, start, end, op_name="Gemm",
              provider="CPUExecutionProvider", node_index=str(number))
        for start, end, number in numbered(times)
    ]  # fmt: skip
    path = folder / "onnxruntime_profile_1.json"
    path.write_text(json.dumps(events))
    return path


def xplane(folder: Path, times: Times) -> Path:
    made = Cupti(H200)
    for (start, end, number), (called, returned, _) in zip(numbered(times), CALLS, strict=True):
        made.launch("gemm", number, called, returned)
        made.kernel("gemm", number, start, end)
    path = folder / "a.xplane.pb"
    path.write_bytes(made.space())
    return path


Make = Callable[[Path, Times], Path]
LINKED: dict[str, Make] = {
    "nsys": nsys,
    "nvprof": nvprof,
    "dlprof": dlprof,
    "rocprof": rocprof_v1,
    "kineto": kineto,
    "xplane": xplane,
}
FILES: dict[str, Make] = {
    **LINKED,
    "rocprofv3": rocprof_v3,
    "rocpd": rocpd,
    "onnxruntime": onnxruntime,
}
SOME = range(3, COUNT, 8)


def times_with(change: Callable[[int, int, int], list[int]], rows: Sequence[int] = SOME) -> Times:
    return [change(n, *pair) if n in rows else list(pair) for n, pair in enumerate(TIMES)]


IMPOSSIBLE = {
    "spans others": times_with(lambda _, start, end: [start, start + 3_400 * MS], [15]),
    "at time 0": times_with(lambda _, start, end: [0, end - start]),
    "one at time 0": times_with(lambda _, start, end: [0, end - start], [15]),
    "starts at 0": times_with(lambda _, start, end: [0, end], [15]),
    "ends before": times_with(lambda _, start, end: [end, start]),
    "no end": times_with(lambda _, start, end: [start, 0]),
    "minus one": times_with(lambda _, start, end: [start, start - 1_000]),
    "all minus one": times_with(lambda _, start, end: [start, start - 1_000], range(COUNT)),
    "beyond the trace": times_with(lambda _, start, end: [start, end + 3 * HOUR], [COUNT - 1]),
    "rounded": times_with(lambda *_: [811 * 10**12] * 2),
    "all rounded": times_with(lambda *_: [811 * 10**12] * 2, range(COUNT)),
    "all at time 0": times_with(lambda _, start, end: [0, end - start], range(COUNT)),
    "no number": times_with(lambda _, start, end: [start, (1 << 63) - 1], [15]),
}


#: Nothing else is in the file.
REFUSED = {("rocprofv3", "all minus one"), ("rocpd", "all minus one")}


@pytest.mark.parametrize("wrong", IMPOSSIBLE)
@pytest.mark.parametrize("reader", FILES)
def test_no_time_that_cannot_be_is_in_any_total_and_each_is_told(
    tmp_path: Path, reader: str, wrong: str
) -> None:
    if reader == "xplane" and wrong == "no number":
        pytest.skip("XPlane counts in ps, of which 64 bits hold no such time")
    path = FILES[reader](tmp_path, IMPOSSIBLE[wrong])
    if (reader, wrong) in REFUSED:
        with pytest.raises(BadInput, match="left out: their times were not recorded"):
            opscope.load(path)
        return
    profile = opscope.load(path)
    wall = profile.summary()["wall_time"][0]
    assert wall is None or 70 * MS < wall < 6 * S
    table = profile.trace["ranges" if reader == "onnxruntime" else "kernels"]
    if reader == "onnxruntime":
        table = table.filter(domain="opscope.onnxruntime", category="forward")
    # a kernel that is clipped ends at the latest where the next begins
    assert (table["end"] - table["start"]).sum() <= (COUNT + 1) * MS
    assert doubts(profile)
    clipped = wrong in ("spans others", "beyond the trace") or (reader, wrong) == (
        "kineto",
        "no number",
    )
    if reader == "onnxruntime":
        assert clipped or profile.diagnosis()["finding"][0] == "cannot tell"
    else:  # one of forty is 2.5 %
        assert (profile.of(idle_unknown) is None) == clipped


@pytest.mark.parametrize("reader", [name for name in FILES if name != "onnxruntime"])
def test_kernels_that_all_last_over_an_hour_are_in_no_total(tmp_path: Path, reader: str) -> None:
    path = FILES[reader](tmp_path, times_with(lambda _, a, b: [a, b + 2 * HOUR], range(COUNT)))
    profile = opscope.load(path)
    assert profile.summary()["kernel_time"].to_list() == [None]
    assert any("kernels that last over an hour, left out" in text for text in doubts(profile))


@pytest.mark.parametrize("table", ["kernel_dispatch", "region", "memory_copy"])
@pytest.mark.parametrize("start", [0, -5])
def test_what_begins_at_0_and_ends_among_the_others_is_left_out(tmp_path, table, start) -> None:
    """As where a database has no start; the others began 83 minutes after the machine did."""
    path = rocm.rocpd(tmp_path / "a_results.db")
    whole = opscope.load(path).summary()["wall_time"][0]
    with sqlite3.connect(path) as db:
        db.execute(f"UPDATE rocpd_{table}_0001 SET start = {start}")
    db.close()
    profile = opscope.load(path)
    assert profile.summary()["wall_time"][0] <= whole
    assert any("from time 0 on, left out" in text for text in doubts(profile))


@pytest.mark.parametrize("reader", FILES)
def test_of_the_same_files_without_a_wrong_time_nothing_is_doubted(
    tmp_path: Path, reader: str
) -> None:
    profile = opscope.load(FILES[reader](tmp_path, TIMES))
    assert doubts(profile) == []
    verdict = profile.diagnosis().row(0, named=True)
    if reader in (
        "rocprofv3",
        "rocpd",
    ):  # the file has kernels alone: that is the one thing that is not known
        assert (verdict["finding"], verdict["share"]) == ("cannot tell", pytest.approx(39 / 79))
        assert "the trace has no launches" in verdict["text"]
    else:
        assert verdict["finding"] != "cannot tell"


@pytest.mark.parametrize("reader", LINKED)
def test_kernels_before_their_launches_have_no_cause(tmp_path: Path, reader: str) -> None:
    early = times_with(lambda _, start, end: [start - 1_500_000, end - 1_500_000], range(COUNT))
    profile = opscope.load(LINKED[reader](tmp_path, early))
    assert any("begin before their launches, by up to 1.40 ms" in text for text in doubts(profile))
    assert "host-bound" not in profile.diagnosis()["finding"].to_list()
    assert profile.idle()["host_wait"].to_list() == [None]


def test_kernels_without_a_name_count_and_are_told(tmp_path: Path) -> None:
    path = nsys(tmp_path, TIMES)
    with sqlite3.connect(path) as db:
        db.execute("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET demangledName = 999, shortName = 999")
    db.close()
    profile = opscope.load(path)
    assert ("warning", "kernels without a name", COUNT) in profile.trace["notes"].rows()
    assert profile.summary()["kernel_time"].to_list() == [COUNT * MS]


def test_ranges_whose_text_is_cut_off_are_told(tmp_path: Path) -> None:
    folder = fuzz_seeds.recording(tmp_path / "recording")
    texts = folder / "part-machine-4000-1" / "strings.jsonl"
    texts.write_bytes(b"".join(texts.read_bytes().splitlines(keepends=True)[:2]))
    notes = opscope.load(folder).trace["notes"].filter(severity="warning")
    assert "records whose text was lost" in notes["what"].to_list()


NO_SIZES = (-1, 2**31 - 1, 2**32 - 1, 2**63 - 1, 2**64 - 1)


def warnings(profile: opscope.Profile) -> list[str]:
    notes = profile.trace["notes"].filter(severity="warning")
    return [str(text) for text in notes["what"].to_list()]


@pytest.mark.parametrize("size", NO_SIZES[:4])
@pytest.mark.parametrize(("make", "table"), [(nsys, "KERNEL"), (nvprof, "CONCURRENT_KERNEL")])
def test_a_grid_and_registers_that_are_none_are_not_known(tmp_path, make, table, size):
    path = make(tmp_path, TIMES)
    with sqlite3.connect(path) as db:
        db.execute(
            f"UPDATE CUPTI_ACTIVITY_KIND_{table} SET gridX = {size}, registersPerThread = {size}"
        )
    db.close()
    profile = opscope.load(path)
    for column in ("grid", "registers"):
        assert profile.trace["kernels"][column].null_count() == COUNT
        assert any(f"values of kernels.{column} out of range" in text for text in warnings(profile))


def with_sizes(path: Path, size: int, **sizes: Any) -> Path:
    """The made trace of torch.profiler with a matrix product around each launch, and a copy."""
    document = json.loads(kineto(path.parent, TIMES).read_text())
    events = document["traceEvents"]
    for one in events:
        if one["cat"] == "kernel":
            one["args"] |= {"grid": [8, 8, 1], "block": [128, 1, 1]} | sizes
    dims = {
        "Input Dims": [[size if "dims" in sizes else 64, 64], [64, 64]],
        "Input type": ["float", "float"],
    }
    events += [
        event("cpu_op", "aten::mm", 1, 1, start - 1_000, end + 1_000, **dims)
        for start, end, _ in CALLS
    ]
    args = {"device": 0, "stream": 7, "bytes": sizes.get("bytes", 4096)}
    last = TIMES[-1][1]
    events.append(event("gpu_memcpy", "Memcpy HtoD", 0, 7, last + MS, last + 2 * MS, **args))
    path.write_text(json.dumps(document))
    return path


@pytest.mark.parametrize("size", NO_SIZES)
@pytest.mark.parametrize(
    "of", ["grid", "block", "registers per thread", "shared memory", "bytes", "dims"]
)
def test_sizes_of_torch_s_profiler_that_are_none_are_not_known(tmp_path, of, size):
    value = [size, 1, 1] if of in ("grid", "block") else size
    profile = opscope.load(with_sizes(tmp_path / "a.json", size, **{of: value}))
    assert all(row["detector"] for row in profile.advice().iter_rows(named=True))
    told = " ".join(warnings(profile))
    if of == "dims":
        assert profile.summary()["flops_share"].to_list() == [0.0]
        assert ("ops with sizes that are none" in told) == (size > 0)
        return
    where = {"registers per thread": "registers", "shared memory": "shared_dynamic"}.get(of, of)
    table = "memops" if of == "bytes" else "kernels"
    assert profile.trace[table][where].null_count() == len(profile.trace[table])
    assert f"values of {table}.{where} out of range" in told
    assert warnings(opscope.load(with_sizes(tmp_path / "b.json", 64))) == []


@pytest.mark.parametrize("size", ["4,294,967,295", "18,446,744,073,709,551,615", "1e30"])
def test_counters_and_durations_of_nsight_compute_that_are_none_are_left_out(
    shared, tmp_path, size
):
    text = (shared / "ncu/roofline_rtx5070/gemm_tiled.csv").read_text()
    path = tmp_path / "a.csv"
    for real, column in (
        ("53,261,312", "dram__bytes_op_read.sum"),
        ("10,195,552", "gpu__time_duration.sum"),
    ):
        assert real in text
        path.write_text(text.replace(real, size))
        profile = opscope.load(path)
        assert column not in profile.trace["counters"]["name"].to_list()
        assert any(
            "counters that are no measurement, left out" in text for text in warnings(profile)
        )
    assert not len(profile.trace["kernels"])
    path.write_text(text.replace('"(64, 64, 1)"', '"(4294967295, 64, 1)"'))
    assert opscope.load(path).trace["kernels"]["grid"].to_list() == [None]


@pytest.mark.parametrize("size", [2**31 - 1, 2**32 - 1, 2**63 - 1, 2**64 - 1])
def test_layers_of_tensorrt_with_sizes_and_times_that_are_none(shared, tmp_path, size):
    for path in (shared / "tensorrt/trex").glob("resnet_pt_a100_fp16*"):
        (tmp_path / path.name).write_text(path.read_text())
    whole = opscope.load(tmp_path)
    graph = tmp_path / "resnet_pt_a100_fp16.graph.json"
    text = graph.read_text()
    graph.write_text(text.replace("[32,3,224,224]", f"[{size},3,224,224]"))
    known = opscope.load(tmp_path).summary()["flops_share"][0]
    assert known < whole.summary()["flops_share"][0]
    graph.write_text(text)
    profile = tmp_path / "resnet_pt_a100_fp16.profile.json"
    layers = json.loads(profile.read_text())
    layers[1] |= dict.fromkeys(("timeMs", "averageMs", "medianMs"), size)
    profile.write_text(json.dumps(layers))
    left = opscope.load(tmp_path)
    assert left.summary()["kernel_time"][0] < whole.summary()["kernel_time"][0]
    assert any(text.startswith("layers") and "left out" in text for text in warnings(left))


@pytest.mark.parametrize(
    ("factor", "says"), [(1000, "four others of their stream"), (0.001, "less than 100 ns")]
)
def test_durations_in_another_unit_carry_no_cause(shared, tmp_path, factor, says):
    """ns written for µs, or ms: the starts are right."""
    with gzip.open(shared / "kineto/nccl_meta.json.gz") as file:
        document = json.load(file)
    for one in document["traceEvents"]:
        if "dur" in one:
            one["dur"] = float(one["dur"]) * factor
    (tmp_path / "t.json").write_text(json.dumps(document))
    profile = opscope.load(tmp_path / "t.json")
    assert any(says in text for text in warnings(profile))
    assert profile.diagnosis()["finding"].to_list()[0] == "cannot tell"
    assert says in str(profile.of(idle_unknown))
    advice = profile.advice()
    kept = advice.filter(pl.col("outcome") == "found")["detector"].to_list()
    assert not set(kept) - ON_HOST
    assert says in advice.filter(detector="slow_gemms")["reason"][0]


def torch_trace(path: Path, factor: float, *, ids_of_ops: bool = True) -> opscope.Profile:
    """Write 30 ops with a launch and a kernel each, in us; the ops are in another unit."""
    events = []
    for n in range(30):
        at = 1_000 + 100 * n
        op = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 7, "tid": 7, "ts": at * factor,
              "dur": 40 * factor, "args": {"External id": 500 + n}}  # fmt: skip
        ids = {"correlation": n + 1, "External id": 500 + n if ids_of_ops else n + 1}
        call = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 7, "tid": 7, "ts": at + 10,
                "dur": 6, "args": ids}  # fmt: skip
        kernel = {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": at + 30, "dur": 50,
                  "args": {"device": 0, "stream": 7, **ids}}  # fmt: skip
        events += [op, call, kernel]
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    return opscope.load(path)


@pytest.mark.parametrize("factor", [1000, 0.001, 1])
def test_ops_that_lie_apart_from_the_calls_that_they_made_carry_no_cause(tmp_path, factor):
    profile = torch_trace(tmp_path / "t.json", factor)
    apart = [text for text in profile.of(doubts) if text.startswith("ranges lie at other times")]
    assert bool(apart) == (factor != 1)
    assert (profile.of(idle_unknown) is None) == (factor == 1)
    assert (profile.diagnosis()["finding"][0] == "cannot tell") == (factor != 1)


def test_an_id_that_is_the_calls_own_shows_no_op(tmp_path):
    profile = torch_trace(tmp_path / "t.json", 1000, ids_of_ops=False)
    assert profile.of(doubts) == []


def onnxruntime(path: Path, of_session: float, of_node: float, runs: int = 4) -> opscope.Profile:
    """Write runs of six nodes each; times of nodes and of the session are multiplied."""

    def one(cat: str, name: str, ts: int, dur: int, factor: float, **args: str) -> dict[str, Any]:
        times = {"ts": ts * factor, "dur": dur * factor}
        times = {key: int(value) if value == int(value) else value for key, value in times.items()}
        return {"cat": cat, "pid": 1, "tid": 1, **times, "ph": "X", "name": name, "args": args}

    events = []
    for run in range(runs):
        begin = 5_001 + 2_000 * run
        for n in range(6):
            events.append(one("Node", f"n{n}_kernel_time", begin + 300 * n, 201, of_node, op_name="Relu",
                              provider="CPUExecutionProvider"))  # fmt: skip
        events.append(one("Session", "model_run", begin, 1_900, of_session))
    path.write_text(json.dumps(events))
    return opscope.load(path)


@pytest.mark.parametrize(
    ("of_session", "of_node", "says"),
    [
        (1, 1, None),
        (1000, 1000, "all times are whole milliseconds"),
        (0.001, 0.001, "times have fractions of a microsecond"),
        (1, 1000, "ranges lie at other times"),
        (1000, 1, "ranges lie at other times"),
    ],
)
def test_times_of_onnxruntime_in_another_unit_are_told(tmp_path, of_session, of_node, says):
    profile = onnxruntime(tmp_path / "a.json", of_session, of_node)
    told = profile.of(doubts)
    assert [text for text in told if text.startswith(says or "")] == told
    assert bool(told) == (says is not None)
    apart = of_session != of_node
    assert (profile.diagnosis()["text"][0].startswith("what bounds the run: ranges lie")) == apart


def test_runs_of_onnxruntime_that_a_file_holds_again_are_steps_once(tmp_path):
    path = tmp_path / "a.json"
    whole = onnxruntime(path, 1, 1)
    path.write_text(json.dumps(json.loads(path.read_text()) * 2))
    twice = opscope.load(path)
    assert twice.summary()["steps"].to_list() == whole.summary()["steps"].to_list() == [4]
    assert twice.of(doubts) == [f"{TWICE} (28)"]


@pytest.mark.parametrize(
    ("name", "head", "rows"),
    [
        ("results.stats.csv", '"Name","Calls","TotalDurationNs","AverageNs","Percentage"',
         ['"k1(int)",10,5000,500,50', '"k2(int)",10,5000,500,50']),
        ("aicore_intermediate_0_detail.csv", "full_kernel_name,execution_time",
         ["Default/a/MatMul-op1,0.002", "Default/a/MatMul-op2,0.002"]),
    ],
)  # fmt: skip
def test_totals_that_a_file_holds_again_count_once(tmp_path, name, head, rows):
    sums = []
    for copies in (1, 2):
        folder = tmp_path / str(copies)
        folder.mkdir()
        (folder / name).write_text("\n".join([head, *rows * copies]) + "\n")
        profile = opscope.load(folder / name)
        sums.append(profile.summary()["kernel_time"][0])
        assert profile.of(doubts) == ([f"{TWICE} (2)"] if copies == 2 else [])
    assert sums[0] == sums[1] > 0


def _counters_of(profile):
    return profile.counters()["SQ_WAVES"].to_list()


def _seen_runs(profile):
    return profile.engine_runs()["runs"].to_list()


_DISPATCH = '"{0}",{0},"Agent 1",1,7,7,{0},"k{0}(int)",0,0,0,0,0,32,"SQ_WAVES",{0}.5,{0}00,{0}50'
_RUN = '{{"startEnqMs": {0}, "startComputeMs": {0}, "endComputeMs": {0}.5, "computeMs": 0.{0}, "latencyMs": 0.{0}}}'
_PYPROF = (
    "{{'kShortName': 'k', 'kLongName': 'k', 'kDuration': {0}, 'tid': 1, 'device': 0, 'stream': 7, 'grid': (1, 1, 1),"
    " 'block': (1, 1, 1), 'marker': [], 'seqMarker': [], 'seqId': [{0}], 'subSeqId': 0, 'altSeqId': [], 'dir': 'fprop',"
    " 'mod': ['torch'], 'op': ['mm'], 'params': ['na'], 'sil': {0}}}"
)


@pytest.mark.parametrize(
    ("name", "text", "row", "between", "seen"),
    [
        ("counter_collection.csv",
         '"Correlation_Id","Dispatch_Id","Agent_Id","Queue_Id","Process_Id","Thread_Id","Grid_Size","Kernel_Name",'
         '"Workgroup_Size","LDS_Block_Size","Scratch_Size","VGPR_Count","Accum_VGPR_Count","SGPR_Count","Counter_Name",'
         '"Counter_Value","Start_Timestamp","End_Timestamp"\n{}\n', _DISPATCH, "\n", _counters_of),
        ("runs.json", "[{}]", _RUN, ",", _seen_runs),
        ("net.dict", "{}\n", _PYPROF, "\n", lambda profile: profile.summary()["kernel_time"].to_list()),
    ],
)  # fmt: skip
def test_a_file_that_was_appended_to_itself_counts_once(tmp_path, name, text, row, between, seen):
    answers = []
    for copies in (1, 2):
        path = tmp_path / str(copies) / name
        path.parent.mkdir()
        path.write_text(text.format(between.join([row.format(n) for n in range(1, 5)] * copies)))
        profile = opscope.load(path)
        answers.append(seen(profile))
        assert [text for text in profile.of(doubts) if TWICE in text] == [f"{TWICE} (4)"] * (
            copies - 1
        )
    assert answers[0] == answers[1]


def test_counters_instances_of_one_dispatch_are_no_copies(tmp_path):
    head = "Correlation_Id,Dispatch_Id,Agent_Id,Process_Id,Kernel_Name,Counter_Name,Counter_Value\n"
    path = tmp_path / "counter_collection.csv"
    path.write_text(head + "".join(f"1,1,1,7,k,C{n},8\n" for n in range(3)) * 2)
    counters = opscope.load(path).trace["counters"]
    assert counters["value"].to_list() == [16, 16, 16]


def test_operators_of_mindspore_that_a_file_holds_again_are_told(tmp_path):
    folder = tmp_path / "profiler"
    folder.mkdir()
    (folder / "cpu_op_execute_timestamp_0.txt").write_text(
        "Default/Add-op1;HostCpuOps;1000,0.5,1 9000,0.5,1\n" * 2
    )
    (folder / "cpu_framework_0.txt").write_text("Add;Add-op1;g;input_1:[2, 2];\n" * 2)
    (folder / "cpu_op_detail_info_0.csv").write_text(
        "op_side,op_type,op_name,full_op_name,op_occurrences,op_total_time(ms),op_avg_time(ms),total_proportion,subgraph,pid\n"
        + "HostCpuOps,Add,Add-op1,Default/Add-op1,2,1.0,0.5,1,Default,7\n" * 2
    )
    profile = opscope.load(folder)
    assert profile.summary()["kernel_time"].to_list() == [1_000_000]
    assert profile.trace["notes"]["what"].to_list() == [TWICE]


def test_time_outside_ops_of_steps_whose_thread_is_not_known(trace_of):
    step = {
        "process": 0,
        "thread": None,
        "start": 0,
        "end": 100,
        "kind": "pushpop",
        "category": "step",
        "text": "step 0",
    }
    trace = trace_of(ranges=[step], processes=[{"process": 0}])
    ops = pl.DataFrame({"process": [0], "thread": [None], "parent_id": [None], "start": [10], "end": [30]},
                       schema={"process": pl.Int32, "thread": pl.Int64, "parent_id": pl.Int64, "start": pl.Int64,
                               "end": pl.Int64})  # fmt: skip
    [(process, _, (start, end))] = outside_ops(trace, ops)
    assert (process, list(start), list(end)) == (0, [0, 30], [10, 100])
