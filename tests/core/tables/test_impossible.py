"""Impossible times: what is clipped, what is left out, and what is left alone."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opscope import readers
from opscope.cli import start as application
from opscope.core.tables.impossible import durations_unknown, lack_of_times, without_impossible
from opscope.core.tables.trace import Trace, conform
from opscope.profile import Profile
from opscope.readers.sound import sound_trace
from opscope.reports.next_steps import next_steps
from tests.device_traces import Ran, profiled

MS = 10**6
UNIX = 1_700_000_000 * 10**9


def kernel(start: int, end: int, stream: int | None = 7, **more: Any) -> dict[str, Any]:
    return {"process": 0, "device": 0, "stream": stream, "start": start, "end": end, "name": f"k{start}",
            "correlation": start, **more}  # fmt: skip


def traced(kernels: list[dict[str, Any]], format: str = "nsys", **tables: Any) -> Trace:
    return Trace.of(
        {"kernels": pl.DataFrame(kernels), **{name: pl.DataFrame(rows) for name, rows in tables.items()}},
        {"format": format},
    )  # fmt: skip


def row_of(count: int, first: int = 0) -> list[dict[str, Any]]:
    """Kernels of 1 ms that begin every 2 ms."""
    return [kernel(first + 2 * n * MS, first + (2 * n + 1) * MS) for n in range(count)]


def notes(trace: Trace) -> list[tuple[str, int]]:
    return list(zip(trace["notes"]["what"], trace["notes"]["how_many"], strict=True))


def calls_at(*starts: int) -> list[dict[str, Any]]:
    return [{"process": 0, "thread": 1, "start": start, "end": start + 1_000, "name": "cudaLaunchKernel",
             "correlation": start} for start in starts]  # fmt: skip


@pytest.mark.parametrize("format", ["nsys", "kineto", "rocm"])
def test_a_kernel_that_spans_others_of_its_stream_ends_where_the_next_begins(format: str) -> None:
    kernels = row_of(20)
    kernels[3]["end"] = 3_406 * MS
    trace = without_impossible(traced(kernels, format))
    assert trace["kernels"]["end"].to_list()[3] == kernels[4]["start"]
    assert (trace["kernels"]["end"] - trace["kernels"]["start"]).sum() == 21 * MS
    ((what, count),) = notes(trace)
    assert count == 1
    assert "stream 7 of device 0" in what
    assert "3.40 s" in what
    assert kernels[3]["name"] in what
    assert json.loads(trace["kernels"]["attrs"][3]) == {"clipped": True}


def test_what_the_attributes_of_a_clipped_kernel_say_stays() -> None:
    kernels = [{**one, "attrs": '{"a": 1}'} for one in row_of(20)]
    kernels[3]["end"] = 3_400 * MS
    trace = without_impossible(traced(kernels))
    assert json.loads(trace["kernels"]["attrs"][3]) == {"a": 1, "clipped": True}
    assert trace["kernels"]["attrs"][4] == '{"a": 1}'


def test_a_copy_that_spans_kernels_of_its_stream_is_clipped() -> None:
    copy = {"process": 0, "device": 0, "stream": 7, "start": 100, "end": 900 * MS, "kind": "HtoD"}
    trace = without_impossible(traced(row_of(20, MS), memops=[copy]))
    assert trace["memops"]["end"].to_list() == [MS]
    assert "HtoD" in notes(trace)[0][0]


@pytest.mark.parametrize(
    "spanning",
    [
        kernel(0, 40 * MS, stream=8),  # another stream
        kernel(0, 40 * MS, stream=None),  # of no known stream
        kernel(0, 40 * MS, device=1),
        kernel(0, MS + 500_000),  # it overlaps the next, as with programmatic launches
    ],
)
def test_work_that_may_run_at_the_same_time_stays(spanning: dict[str, Any]) -> None:
    trace = traced([spanning, *row_of(20, MS)])
    assert without_impossible(trace)["kernels"].equals(trace["kernels"])
    assert not len(trace["notes"])


def test_branches_of_a_cuda_graph_run_at_the_same_time() -> None:
    branches = [
        kernel(0, 30 * MS, correlation=5),
        *({**one, "correlation": 5} for one in row_of(15)),
    ]
    nodes = [kernel(0, 30 * MS, correlation=None, graph_node=1),
             *({**one, "correlation": None, "graph_node": n + 2} for n, one in enumerate(row_of(15)))]  # fmt: skip
    for kernels in (branches, nodes):
        trace = traced(kernels)
        assert without_impossible(trace)["kernels"].equals(trace["kernels"])


def test_a_kernel_of_a_cuda_graph_ends_before_the_next_launch() -> None:
    replayed = [{**one, "correlation": -1 - n // 5} for n, one in enumerate(row_of(20))]
    replayed[2]["end"] = 3_000 * MS
    trace = without_impossible(traced(replayed))
    assert trace["kernels"]["end"][2] == replayed[5]["start"]


def test_a_queue_whose_work_overlaps_is_no_order() -> None:
    kernels = [kernel(n * MS, (n + 3) * MS) for n in range(30)] + [kernel(2 * MS + 5, 20 * MS)]
    for format in ("nsys", "rocm"):
        trace = traced(kernels, format)
        assert without_impossible(trace)["kernels"].equals(trace["kernels"])


def test_a_collective_of_a_queue_that_is_not_cudas_may_run_beside_other_work() -> None:
    kernels = [{**kernel(1, 100 * MS), "name": "ncclDevKernel_Generic"}, *row_of(20, MS)]
    trace = traced(kernels, "rocm")
    assert without_impossible(trace)["kernels"].equals(trace["kernels"])


def test_a_loop_of_a_tpus_line_holds_its_operations() -> None:
    trace = traced([kernel(1, 1_000 * MS), *row_of(40, MS)], "xplane")
    assert without_impossible(trace)["kernels"].equals(trace["kernels"])


@pytest.mark.parametrize("zero", [0, UNIX - 90 * 24 * 3600 * 10**9])
def test_kernels_at_time_0_are_left_out(zero: int) -> None:
    kernels = [kernel(zero, zero + MS), kernel(zero, zero + MS), *row_of(10, UNIX)]
    trace = without_impossible(traced(kernels, calls=calls_at(*range(UNIX - 100, UNIX + 900, 100))))
    assert trace["kernels"]["start"].min() == UNIX
    ((what, count),) = notes(trace)
    assert count == 2
    assert "left out" in what


@pytest.mark.parametrize(("zeros", "left"), [(1, 11), (2, 10)])
def test_kernels_at_time_0_of_relative_times_are_left_out_if_the_host_began_later(
    zeros: int, left: int
) -> None:
    kernels = [*(kernel(0, 50) for _ in range(zeros)), *row_of(10, MS)]
    trace = without_impossible(traced(kernels, calls=calls_at(1_000)))
    assert len(trace["kernels"]) == left


def test_a_range_at_time_0_is_left_out_of_a_trace_in_unix_time() -> None:
    ranges = [{"process": 0, "thread": 1, "start": start, "end": start + 5, "text": "op"}
              for start in (0, UNIX, UNIX + 10)]  # fmt: skip
    trace = without_impossible(traced(row_of(3, UNIX), ranges=ranges))
    assert trace["ranges"]["start"].to_list() == [UNIX, UNIX + 10]


def test_times_that_begin_at_0_are_times() -> None:
    trace = traced(row_of(10))
    assert without_impossible(trace)["kernels"].equals(trace["kernels"])
    assert not len(trace["notes"])


def test_where_all_work_is_far_from_the_host_clocks_differ_and_nothing_is_left_out() -> None:
    trace = traced(row_of(10), calls=calls_at(UNIX))
    assert len(without_impossible(trace)["kernels"]) == 10


@pytest.mark.parametrize("last", [30 * 10**9, 50 * 24 * 3600 * 10**9])
def test_a_last_kernel_ends_with_the_trace(last: int) -> None:
    kernels = row_of(10)
    kernels[-1]["end"] = last
    trace = without_impossible(traced(kernels, calls=calls_at(0, 25 * MS)))
    assert trace["kernels"]["end"][9] == 25 * MS + 1_000
    ((what, count),) = notes(trace)
    assert count == 1
    assert "after the end of the trace" in what


@pytest.mark.parametrize("hours", [2, 24 * 300])
def test_a_range_that_ends_hours_after_all_else_ends_with_the_trace(hours: int) -> None:
    ranges = [{"process": 0, "thread": 1, "start": start, "end": end, "text": "op"}
              for start, end in ((1, 5), (6, hours * 3600 * 10**9), (9, 12))]  # fmt: skip
    trace = without_impossible(traced(row_of(5), ranges=ranges))
    assert trace["ranges"]["end"].to_list() == [5, 9 * MS, 12]
    ((what, count),) = notes(trace)
    assert count == 1
    assert "ranges that say" in what


@pytest.mark.parametrize("table", ["ranges", "calls"])
@pytest.mark.parametrize("thread", [1, 2])
def test_what_outlives_a_range_that_it_began_in_ends_with_the_trace(
    table: str, thread: int
) -> None:
    """What a thread does nests; another thread's range, and one that began before all, may go on."""
    step = {
        "process": 0,
        "thread": 1,
        "start": 1 * MS,
        "end": 9 * MS,
        "text": "step 1",
        "kind": "pushpop",
    }
    long = {"process": 0, "thread": thread, "start": 2 * MS, "end": 3_400_000 * MS}
    named = {"text": "op", "kind": "pushpop"} if table == "ranges" else {"name": "cudaLaunchKernel"}
    rows = {"ranges": [step], table: [long | named] if table == "calls" else [step, long | named]}
    trace = without_impossible(traced(row_of(3, 3 * MS), **rows))
    assert trace[table]["end"].max() == (9 * MS if thread == 1 else 3_400_000 * MS)
    assert len(trace["notes"]) == (thread == 1)


def test_a_range_around_a_program_that_goes_on_after_the_capture_stays() -> None:
    ranges = [{"process": 0, "thread": 1, "start": 0, "end": 1_000 * 10**9, "text": "main"}]
    trace = traced(row_of(5), ranges=ranges)
    assert without_impossible(trace)["ranges"].equals(trace["ranges"])


def test_a_long_last_kernel_of_a_trace_without_host_events_stays() -> None:
    trace = traced([*row_of(10), kernel(20 * MS, 60_000 * MS)])
    assert without_impossible(trace)["kernels"].equals(trace["kernels"])


@given(
    st.lists(
        st.tuples(st.integers(3_000, 10**6), st.integers(0, 10**5), st.integers(7, 9)), min_size=8
    ),
    st.data(),
)
def test_work_of_an_ordered_stream_adds_up_to_no_more_than_its_span(rows, data) -> None:
    now, kernels = 1, []
    for lasted, gap, stream in rows:
        kernels.append(kernel(now, now + lasted, stream))
        now += lasted + gap
    intact = traced([dict(one) for one in kernels])
    assert without_impossible(intact)["kernels"].equals(intact["kernels"])
    wrong = data.draw(st.integers(0, len(kernels) - 5))
    kernels[wrong]["stream"] = 7
    for one in kernels[wrong + 1 :]:
        one["stream"] = 7
    kernels[wrong]["end"] = now + 3600 * 10**9
    trace = without_impossible(traced(kernels))
    assert len(trace["kernels"]) == len(kernels)
    for part in trace["kernels"].partition_by("stream"):
        part = part.sort("start")
        assert (part["end"] - part["start"]).sum() <= part["end"].max() - part["start"].min()
        assert (part["end"].shift(1).fill_null(0) <= part["start"]).all()


# ------------------------------------------------------------------------------ files


def event(cat: str, name: str, ts: float, dur: float, tid: int = 7, **args: Any) -> dict[str, Any]:
    return {
        "ph": "X",
        "cat": cat,
        "name": name,
        "pid": 0,
        "tid": tid,
        "ts": ts,
        "dur": dur,
        "args": args,
    }


@pytest.mark.parametrize("endless", [3_400_000.0, 9.2e15])
def test_the_report_of_a_file_says_which_kernel_was_clipped(tmp_path: Path, endless: float) -> None:
    events = []
    for n in range(12):
        events.append(event("cuda_runtime", "cudaLaunchKernel", 10 + n, 0.5, correlation=n + 1))
        events.append(event("kernel", f"k{n}", 100 + 20 * n, endless if n == 2 else 10.0, device=0, stream=7,
                            correlation=n + 1))  # fmt: skip
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    trace = readers.open(path)
    assert (trace["kernels"]["end"] - trace["kernels"]["start"]).sum() == 130_000
    assert any("k2" in what and "clipped" in what for what, _ in notes(trace))


def test_unfinished_events_are_told_from_rounded_times(tmp_path: Path) -> None:
    durations = {"a": -1.0, "b": 9.2e15, "c": -0.001, "d": 5.0}
    path = tmp_path / "trace.json"
    events = [
        event("cpu_op", name, 10 * n + 1, dur) for n, (name, dur) in enumerate(durations.items())
    ]
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    trace = readers.open(path)
    assert sorted((trace["ranges"]["end"] - trace["ranges"]["start"]).to_list()) == [0, 0, 0, 5_000]
    said = {what.partition(",")[0].partition("(")[0].strip(): count for what, count in notes(trace)}
    for part in ("impossible duration", "of a microsecond or more", "negative duration"):
        assert any(part in what and count == 1 for what, count in said.items()), said


def test_an_op_whose_kernel_was_clipped_has_no_roof(tmp_path: Path) -> None:
    events = []
    for n in range(12):
        at = 100 + 20 * n
        shapes = {"Input Dims": [[64, 64], [64, 64]], "Input type": ["float", "float"]}
        events += [
            event("cpu_op", "aten::mm", at, 10, **shapes, **{"Concrete Inputs": ["", ""]}),
            event("cuda_runtime", "cudaLaunchKernel", at + 1, 2, correlation=n + 1),
            event("kernel", "gemm", at + 5, 900_000.0 if n == 2 else 10.0, device=0, stream=7,
                  correlation=n + 1),
        ]  # fmt: skip
    path = tmp_path / "trace.json"
    device = {
        "id": 0,
        "name": "NVIDIA H100 80GB HBM3",
        "computeMajor": 9,
        "computeMinor": 0,
        "numSms": 132,
    }
    path.write_text(
        json.dumps({"schemaVersion": 1, "deviceProperties": [device], "traceEvents": events})
    )
    rows = Profile(readers.open(path)).efficiency()
    assert rows["incomplete"].sum() == 1
    assert rows.filter("incomplete")["efficiency"].null_count() == 1
    assert rows.filter(~pl.col("incomplete"))["efficiency"].null_count() == 0


def test_times_that_rocprofiler_compute_rounded_are_none(tmp_path: Path) -> None:
    header = "Dispatch_ID,Kernel_Name,GPU_ID,Grid_Size,Workgroup_Size,wave_size,SQ_WAVES,Start_Timestamp,End_Timestamp"
    path = tmp_path / "pmc_perf.csv"
    rounded = [f"{n},vecCopy,2,1048576,256,64,16384,8.1097E+14,8.1097E+14" for n in range(3)]
    path.write_text("\n".join([header, *rounded]) + "\n")
    trace = readers.open(path)
    assert not trace.has("kernels")
    assert trace["counters"]["value"].to_list() == [16384.0] * 3
    assert any(
        "how long they took is not known" in what and count == 3 for what, count in notes(trace)
    )
    exact = "3,vecCopy,2,1048576,256,64,16384,8.10970000001234E+14,8.10970000001999E+14"
    path.write_text("\n".join([header, *rounded, exact]) + "\n")
    kernels = readers.open(path)["kernels"]
    assert (kernels["end"] - kernels["start"]).to_list() == [765]


# ------------------------------------------------------------------------------ clocks


def late_clock(early: range, count: int = 30) -> Profile:
    """Kernels of 1 ms every 2 ms, each launched 0.1 ms before; those of ``early`` begin 1.5 ms before."""
    work = []
    for n in range(count):
        start = 2 * n * MS + 10 * MS
        work.append(Ran(start, start + MS, start + 1_500_000 if n in early else start - 100_000))
    return profiled(work)


def test_no_wait_has_a_cause_where_kernels_begin_before_their_launches() -> None:
    profile = late_clock(range(30))
    row = profile.idle().row(0, named=True)
    assert row["host_wait"] is None
    assert row["unknown_wait"] == row["idle_time"]
    assert "before their launches" in row["reason"]
    assert profile.launches().is_empty()
    assert "before their launches" in profile.queue()["reason"][0]
    assert "host-bound" not in profile.diagnosis()["finding"].to_list()
    said = profile.advice().filter(pl.col("detector").is_in(["host_bound", "launch_bound"]))
    assert set(said["outcome"]) == {"cannot tell"}
    warning = profile.notes().filter(pl.col("what").str.contains("begin before their launches"))
    assert warning["how_many"].to_list() == [30]
    assert "1.50 ms" in warning["what"][0]
    assert profile.critical_path().is_empty()


@pytest.mark.parametrize("shift", [20 * 10**9, 24 * 3600 * 10**9])
def test_kernels_long_after_all_that_the_host_did_have_no_idle_time(shift: int) -> None:
    starts = [2 * n * MS + 10 * MS for n in range(30)]
    profile = profiled([Ran(shift + start, shift + start + MS, start) for start in starts])
    assert profile.idle()["idle_time"].null_count() == 1
    said = [what for what, _ in notes(profile.trace)]
    assert any("begin long after all that the host did" in what for what in said)
    first = profile.diagnosis().row(0, named=True)
    assert (first["finding"], "clocks" in first["text"]) == ("cannot tell", True)
    assert "clocks that agree" in first["to_try"]
    assert not any("too late" in line or "missing" in line for line in next_steps(profile))


def test_kernels_that_queue_behind_a_long_kernel_are_not_late() -> None:
    long = Ran(0, 5_000 * MS, -MS)
    queued = [Ran((5_000 + 2 * n) * MS, (5_001 + 2 * n) * MS, n * MS) for n in range(30)]
    profile = profiled([long, *queued])
    assert profile.idle()["idle_time"].null_count() == 0


def test_of_a_few_early_kernels_only_their_own_gaps_have_no_cause() -> None:
    profile = late_clock(range(1, 2), 300)
    row = profile.idle().row(0, named=True)
    assert row["host_wait"] == 298 * MS
    assert row["unknown_wait"] == MS
    assert len(profile.notes().filter(pl.col("what").str.contains("begin before"))) == 1


def test_kernels_that_follow_their_launches_have_no_warning() -> None:
    assert profiled([Ran(0, 10, -5), Ran(50, 60, 51)]).notes().is_empty()


def test_advice_says_first_what_cannot_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kernels = [
        event(
            cat, f"cuda{n}", (100 if cat == "cuda_runtime" else 50) + 20 * n, 5, correlation=n + 1
        )
        for n in range(12)
        for cat in ("cuda_runtime", "kernel")
    ]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": kernels}))
    monkeypatch.setattr("sys.argv", ["opscope", "advise", str(path)])
    with contextlib.suppress(SystemExit):
        application.run()
    said = capsys.readouterr().out
    assert "begin before their launches, by up to 50.0 µs" in said.partition("\nAdvice\n")[0]


def test_of_a_device_s_name_a_bounded_part_stays() -> None:
    """Each pattern of the device table is tried on it: 25 names of 1 MB took a minute."""
    devices = pl.DataFrame(
        {"process": [0], "device": [0], "name": ["NVIDIA H100 " + "Aa0-" * 250_000]}
    )
    trace = sound_trace({"kernels": pl.DataFrame(row_of(3)), "devices": devices}, {})
    assert trace["devices"]["name"].str.len_chars().to_list() == [256]


@pytest.mark.parametrize("format", ["nsys", "kineto", "rocm"])
def test_kernels_without_a_duration_are_named_and_leave_no_cause(format: str) -> None:
    """They took some time: with them the device was busy for an unknown part of the run."""
    kernels = row_of(20)
    for each in kernels[5:7]:
        each["end"] = each["start"]
    starts = [each["start"] - 10_000 for each in kernels]
    calls = [{**call, "correlation": start + 10_000} for call, start in zip(calls_at(*starts), starts, strict=True)]  # fmt: skip
    trace = without_impossible(traced(kernels, format, calls=calls))
    assert notes(trace) == [
        (f"kernels have no duration: how long they took is not known (k{kernels[5]['start']})", 2)
    ]
    why = Profile(trace).diagnosis()["text"].to_list()
    assert any("kernels have no duration" in text for text in why)
    assert not {"host_bound", "underutilized_gpu", "launch_bound"} & set(
        Profile(trace).advice().filter(outcome="found")["detector"]
    )


def test_rounded_times_make_short_kernels_of_no_duration() -> None:
    kernels = row_of(20)
    for each in kernels[5:7]:
        each["end"] = each["start"]
    trace = traced(kernels, "kineto")
    trace.origin["resolution_ns"] = 1000
    assert not notes(without_impossible(trace))
    for each in kernels:
        each["end"] = each["start"]
    trace = traced(kernels, "kineto")
    trace.origin["resolution_ns"] = 1000
    assert notes(without_impossible(trace))[0][1] == 20


def test_kernels_that_all_begin_at_time_0_ran_at_an_unknown_time() -> None:
    calls = calls_at(*range(MS, 21 * MS, MS))
    trace = without_impossible(
        traced([kernel(0, MS, correlation=MS * (n + 1)) for n in range(20)], "kineto", calls=calls)
    )
    assert ("kernels begin at time 0: when they ran is not known", 20) in notes(trace)
    assert any("kernels begin at time 0" in text for text in Profile(trace).diagnosis()["text"])


def test_a_grid_that_no_device_has_is_null_and_told() -> None:
    texts = ["900,1,1", "64, 1, 1", "99999999999999999999,1,1", "²,1,1", "x", "1,2,3,4", None]
    kernels = [dict(row, grid=text) for row, text in zip(row_of(7), texts, strict=True)]
    trace = sound_trace({"kernels": pl.DataFrame(kernels)}, {})
    assert trace["kernels"]["grid"].cast(pl.String).to_list() == [*texts[:2], *[None] * 5]
    assert ("values of kernels.grid out of range, read as null", 4) in notes(trace)


def test_a_table_without_a_known_time_says_nothing_of_the_others() -> None:
    timed = without_impossible(traced(row_of(3)))
    lost = pl.DataFrame(
        [{"process": 0, "time": None, "bytes": 1}], schema_overrides={"time": pl.Int64}
    )
    both = without_impossible(traced(row_of(3)).replace(allocations=conform("allocations", lost)))
    assert both["kernels"].equals(timed["kernels"])


@pytest.mark.parametrize("format", ["nsys", "kineto", "rocm", "mindspore"])
@pytest.mark.parametrize("every", [2 * MS, 40 * MS])
def test_durations_a_thousand_times_too_long_are_told_of_any_vendor(
    format: str, every: int
) -> None:
    """Close together or far apart; a queue that is not known shows no order."""
    rows = [kernel(n * every, n * every + 1_000 * MS) for n in range(30)]
    assert durations_unknown(without_impossible(traced(rows, format))) is not None
    right = [dict(row, end=row["start"] + MS) for row in rows]
    assert durations_unknown(without_impossible(traced(right, format))) is None
    unknown = [dict(row, stream=None) for row in rows]
    assert durations_unknown(without_impossible(traced(unknown, format))) is None


def nested(of_call: int, of_op: int, domain: str = "kineto") -> Trace:
    """Thirty ops of 40 us, each with a launch of 5 us, whose durations are multiplied."""
    starts = [100_000 * n for n in range(30)]
    calls = [dict(row, end=row["start"] + 5_000 * of_call // 1000) for row in calls_at(*starts)]
    ranges = [{"id": start, "process": 0, "thread": 1, "start": start - 9_000, "text": "aten::add", "domain": domain,
               "end": start - 9_000 + 40_000 * of_op // 1000 + n, "kind": "pushpop"}
              for n, start in enumerate(starts)]  # fmt: skip
    return without_impossible(traced(row_of(30), calls=calls, ranges=ranges))


@pytest.mark.parametrize(
    ("of_call", "of_op", "says"),
    [
        (10**6, 1000, ["calls end within the next"]),
        (1000, 10**6, ["ranges end within the next"]),
        (1, 1000, ["calls take less than 100 ns"]),
        (1000, 1000, []),
    ],
)
def test_of_a_host_whose_durations_are_in_another_unit_nothing_is_concluded(
    of_call: int, of_op: int, says: list[str]
) -> None:
    trace = nested(of_call, of_op)
    told = [what for what, _ in notes(trace) if "in another unit" in what]
    assert [bool(what.startswith(begin)) for what, begin in zip(told, says, strict=True)] == [
        True
    ] * len(says)
    lack = lack_of_times(trace, "kernels", "memops")
    assert lack == (told[0].partition(":")[0] if told else None)


@pytest.mark.parametrize("thread", [None, 1])
def test_calls_that_name_no_thread_may_cross(thread: int | None) -> None:
    """rocprofv2's name none: they are of several threads."""
    calls = [
        dict(row, thread=thread, end=row["start"] + 8_000)
        for row in calls_at(*range(0, 300_000, 5_000))
    ]
    trace = without_impossible(traced(row_of(60), calls=calls))
    assert (lack_of_times(trace, "kernels") is None) == (thread is None)


def test_ranges_of_the_user_may_cross() -> None:
    assert notes(nested(1000, 10**6, "user")) == []
