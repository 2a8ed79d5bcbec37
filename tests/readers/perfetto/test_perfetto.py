"""Perfetto's traces: our own export read back equal, and what Perfetto's own library and rocprofv3 write."""

from __future__ import annotations

import gzip
import json
import zlib
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import opscope
from opscope.core.hlo.wire import field
from opscope.errors import BadInput
from opscope.exports.formats import export
from opscope.profile import Profile
from opscope.readers import format_of
from opscope.readers.perfetto import packets
from tests.traces import load

FORMAT = "Perfetto's traces"
FIRST = 1_000_000_000
#: Real traces of five formats, which an export and this reader must leave as they are.
REAL = [
    "kineto/qwen1.5_0.5b_h100.json.gz",
    "kineto/nccl_meta.json.gz",
    "nsys/fsdp_h100x2_2026.sqlite",
    "nvprof/language_model.sqlite",
    "rocm/rpd/matmul_result.rpd",
]


def seeds(folder: Path) -> list[Path]:
    """Write what rocprofv3 and what opscope write."""
    made = rocprof(folder / "results.pftrace")
    again = folder / "export.pftrace"
    export(opscope.load(made), "perfetto", again)
    return [made, again]


def packet(*parts: bytes, sequence: int = 1) -> bytes:
    return field(1, field(10, sequence) + b"".join(parts))


def named(kind: int, texts: dict[int, str]) -> bytes:
    """An InternedData list: 1 categories, 2 events, 3 details, 29 their texts."""
    return b"".join(field(kind, field(1, iid) + field(2, word)) for iid, word in texts.items())


def rocprof(path: Path) -> Path:
    """Write two launches and two kernels as rocprofv3 does by Perfetto's library: texts interned, times in
    steps of a clock of the sequence's own, the track of the thread by default, correlation ids as details."""
    begin = packet(
        field(13, 1),
        field(6, field(1, field(1, 6) + field(2, FIRST)) + field(1, field(1, 64) + field(2, FIRST) + field(3, 1))),
        field(59, field(58, 64) + field(11, field(11, 7))),
        field(8, FIRST) + field(58, 6),
    )  # fmt: skip
    tracks = [
        packet(field(60, field(1, 9) + field(3, field(1, 4000) + field(6, "app")))),
        packet(
            field(
                60,
                field(1, 7)
                + field(5, 9)
                + field(4, field(1, 4000) + field(2, 4001) + field(5, "main")),
            )
        ),
        packet(field(60, field(1, 8) + field(2, "COMPUTE AGENT [2] STREAM [1] (GPU)"))),
    ]
    texts = packet(
        field(12, named(1, {1: "hip_api", 2: "kernel_dispatch"}) + named(2, {1: "hipLaunchKernel", 2: "gemm"})
              + named(3, {1: "corr_id"}))
    )  # fmt: skip

    def event(step: int, kind: int, *parts: bytes) -> bytes:
        return packet(field(8, step), field(11, field(9, kind) + b"".join(parts)))

    def about(number: int) -> bytes:
        return field(4, field(1, 1) + field(3, number))

    events = []
    for number in (5, 6):
        events += [
            event(100, 1, field(10, 1), field(3, 1), about(number)),
            event(50, 2),
            event(20, 1, field(11, 8), field(10, 2), field(3, 2), about(number)),
            event(400, 2, field(11, 8)),
        ]
    path.write_bytes(begin + b"".join(tracks) + texts + b"".join(events))
    return path


def sums(profile: Profile) -> pl.DataFrame:
    """Calls, kernels and device time of each op."""
    totals = profile.op_totals().filter(pl.col("op").is_not_null())
    return totals.group_by("op").agg(pl.col("calls", "kernels", "device_time").sum()).sort("op")


@pytest.mark.parametrize("name", REAL)
def test_our_own_export_is_read_back_with_equal_ops_kernels_and_times(name, shared, tmp_path):
    profile = load(shared / name)
    path = tmp_path / "a.pftrace"
    export(profile, "perfetto", path)
    again = opscope.load(path)
    for table, column in (("kernels", "name"), ("memops", "kind"), ("calls", "name")):
        rows, theirs = (
            one.trace[table]
            .filter(pl.col("end").is_not_null())
            .select("start", "end", pl.col(column).cast(pl.String))
            .sort("start", "end", column)
            for one in (profile, again)
        )
        if len(rows):  # times below zero are moved
            rows = rows.with_columns(pl.col("start", "end") + theirs["start"][0] - rows["start"][0])
        assert rows.equals(theirs), table
    assert sums(again).equals(sums(profile))


def ops_of_kernels(profile: Profile) -> dict[tuple[int, int], str | None]:
    columns = profile.kernels().select("device", "start", pl.col("op").cast(pl.String))
    return {(device, start): op for device, start, op in columns.rows()}


def test_threads_of_one_name_keep_their_own_calls_and_ops(tmp_path):
    events: list[dict[str, Any]] = []
    for thread, op in ((11, "aten::mm"), (12, "aten::relu")):
        events += [
            {"ph": "M", "name": "thread_name", "pid": 1, "tid": thread, "args": {"name": "worker"}},
            {"ph": "X", "cat": "cpu_op", "name": op, "pid": 1, "tid": thread, "ts": thread, "dur": 50},
            {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": thread,
             "ts": thread + 9, "dur": 5, "args": {"correlation": thread}},
            {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": thread * 100, "dur": 9,
             "args": {"device": 0, "stream": 7, "correlation": thread}},
        ]  # fmt: skip
    source = tmp_path / "trace.json"
    source.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    profile = load(source)
    export(profile, "perfetto", tmp_path / "a.pftrace")
    again = opscope.load(tmp_path / "a.pftrace")
    assert again.trace["calls"]["thread"].sort().to_list() == [11, 12]
    assert list(ops_of_kernels(again).values()) == ["aten::mm", "aten::relu"]
    assert sums(again).equals(sums(profile))


def test_kernels_of_xla_keep_the_op_that_launched_them(shared, tmp_path):
    profile = load(shared / "xplane/jax_conv_mi300.xplane.pb")
    export(profile, "perfetto", tmp_path / "a.pftrace")
    before, after = ops_of_kernels(profile), ops_of_kernels(opscope.load(tmp_path / "a.pftrace"))
    assert len(before) == len(after) == 200
    # the profiler lost the op of two kernels of one execution, which their names and neighbours tell in part
    changed = [key for key in before if before[key] != after[key]]
    assert len(changed) == 2
    assert {device for device, _ in changed} == {0}


def test_what_rocprofv3_writes_has_kernels_with_their_launches(tmp_path):
    path = rocprof(tmp_path / "a.pftrace")
    assert format_of(path) == "perfetto"
    trace = opscope.load(path).trace
    assert trace["kernels"].select("device", "stream", "start", "end", "correlation").rows() == [
        (2, 1, FIRST + 170, FIRST + 570, 5),
        (2, 1, FIRST + 740, FIRST + 1140, 6),
    ]
    calls = trace["calls"]
    assert calls.select("thread", "start", "end", "correlation").rows() == [
        (4001, FIRST + 100, FIRST + 150, 5),
        (4001, FIRST + 670, FIRST + 720, 6),
    ]
    assert trace["processes"].select("pid", "name").rows()[0] == (4000, "app")
    assert opscope.load(path).kernel_totals()["total"].sum() == 800


def test_it_reads_what_perfettos_own_classes_write(tmp_path):
    proto = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
    written = proto.Trace()

    def add(time: int, **event: Any) -> Any:
        one = written.packet.add(timestamp=time, trusted_packet_sequence_id=3)
        one.track_event.CopyFrom(proto.TrackEvent(track_uuid=5, **event))
        return one

    about = written.packet.add(trusted_packet_sequence_id=3).track_descriptor
    about.uuid, about.name = 5, "work"
    counter = written.packet.add(trusted_packet_sequence_id=3).track_descriptor
    counter.uuid, counter.name, counter.counter.unit_name = 6, "heat", "C"
    add(10, type=1, name="outer", categories=["user_annotation"])
    add(20, type=1, name="aten::mm", categories=["cpu_op"])
    add(30, type=2)
    add(35, type=3, name="spot", categories=["user_annotation"])
    add(50, type=2)
    add(55, type=2)
    add(60, type=1, name="open")
    written.packet.add(timestamp=70, trusted_packet_sequence_id=3).track_event.CopyFrom(
        proto.TrackEvent(type=4, track_uuid=6, double_counter_value=1.5)
    )
    path = tmp_path / "a.pftrace"
    path.write_bytes(written.SerializeToString())
    trace = opscope.load(path).trace
    assert trace["ranges"].select("start", "end", "text", "kind").rows() == [
        (10, 50, "outer", "pushpop"),
        (20, 30, "aten::mm()", "pushpop"),
        (35, 35, "spot", "mark"),
    ]
    assert trace["samples"].select("time", "name", "value").rows() == [(70, "heat [C]", 1.5)]
    notes = dict(trace["notes"].select("what", "how_many").rows())
    assert notes["ends of slices without a beginning, left out"] == 1
    assert notes["slices that had not ended when the recording did, left out"] == 1


def test_what_proton_writes_has_kernels_launched_from_its_scopes(tmp_path):
    def event(time: int, kind: int, track: int, *parts: bytes) -> bytes:
        return packet(
            field(8, time), field(11, field(9, kind) + field(11, track) + b"".join(parts))
        )

    tracks = [
        packet(field(60, field(1, number) + field(2, name)))
        for number, name in ((1000, "CPU Thread 41"), (1001, "GPU Stream 7"))
    ]
    texts = packet(
        field(13, 3),
        field(12, named(1, {1: "scope", 2: "kernel"}) + named(2, {1: "forward", 2: "gemm"})),
    )
    path = tmp_path / "a.pftrace"
    path.write_bytes(
        b"".join(tracks) + texts
        + event(10, 1, 1000, field(10, 1), field(3, 1), field(36, 1 << 32)) + event(90, 2, 1000)
        + event(50, 1, 1001, field(10, 2), field(3, 2), field(42, 1 << 32)) + event(80, 2, 1001)
    )  # fmt: skip
    profile = opscope.load(path)
    assert profile.trace["kernels"].select("stream", "start", "end").rows() == [(7, 50, 80)]
    assert profile.trace["calls"].select("thread", "start", "end").rows() == [(41, 10, 11)]
    totals = profile.range_totals().filter(pl.col("range") == "forward")
    assert totals.select("kernels", "device_time").rows() == [(1, 30)]


@pytest.mark.parametrize("at_once", [1, 3, 1 << 17])
def test_pieces_of_any_size_give_the_same(at_once, tmp_path, monkeypatch):
    path = rocprof(tmp_path / "a.pftrace")
    expected = opscope.load(path).trace
    monkeypatch.setattr(packets, "AT_ONCE", at_once)
    trace = opscope.load(path).trace
    for table in ("kernels", "calls", "threads"):
        assert trace[table].equals(expected[table]), table


def test_packed_and_compressed_packets_are_read(tmp_path):
    path = rocprof(tmp_path / "a.pftrace")
    data = path.read_bytes()
    expected = opscope.load(path).trace["kernels"]
    (tmp_path / "b.pftrace.gz").write_bytes(gzip.compress(data))
    (tmp_path / "c.pftrace").write_bytes(
        field(1, field(10, 1)) + field(1, field(50, zlib.compress(data)))
    )
    for name in ("b.pftrace.gz", "c.pftrace"):
        assert opscope.load(tmp_path / name).trace["kernels"].equals(expected), name


def test_texts_are_numbered_anew_where_a_sequence_is_cleared(tmp_path):
    def event(name: int, time: int, kind: int = 1) -> bytes:
        return packet(field(8, time), field(11, field(9, kind) + field(11, 4) + field(10, name)))

    parts = []
    for turn, word in enumerate(("one", "two")):
        parts += [
            packet(field(13, 1), field(12, named(2, {1: word}))),
            event(1, 10 * turn + 1),
            event(1, 10 * turn + 5, 2),
        ]
    path = tmp_path / "a.pftrace"
    path.write_bytes(b"".join(parts))
    assert opscope.load(path).trace["ranges"]["text"].cast(pl.String).to_list() == ["one", "two"]


def test_a_file_that_is_cut_off_says_where(tmp_path):
    path = rocprof(tmp_path / "a.pftrace")
    path.write_bytes(path.read_bytes()[:-3])
    trace = opscope.load(path).trace
    assert len(trace["kernels"]) == 1
    assert "is cut off" in trace["notes"]["what"][0]


def test_a_trace_of_a_system_is_refused_with_a_reason(tmp_path):
    path = tmp_path / "a.pftrace"
    path.write_bytes(packet(field(8, 5), field(2, b"")) * 5)
    with pytest.raises(BadInput, match="without track events"):
        opscope.load(path)


def test_a_compressed_packet_that_unpacks_to_too_much_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(packets, "_MOST_UNPACKED", 1 << 16)
    path = tmp_path / "a.pftrace"
    path.write_bytes(field(1, field(10, 1)) + field(1, field(50, zlib.compress(bytes(1 << 20)))))
    with pytest.raises(BadInput, match="unpacks to more than"):
        opscope.load(path)
