"""CUPTI's activity records in a recording: each becomes a row of its table, and ops get their device work."""

from __future__ import annotations

import json
import threading
import time

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import opscope
from opscope.core.capture import session as capture_session
from opscope.core.capture.recorder_sink import Recorder
from opscope.core.cupti import files, kinds, layouts
from opscope.readers.errors import BadInput
from opscope.readers.recording import cupti_files
from opscope.readers.recording.with_cupti import load
from tests.cupti_records import buffers, call, kernel, record, write

#: CUPTI's clock: Unix time, which the recorder's clock is not.
T = 1_700_000_000_000_000_000
MS = 1_000_000


def tables(tmp_path, *contents, **how):
    return load(write(tmp_path, *contents, **how)).trace


def notes(trace):
    return {what: many for _, what, many in trace["notes"].rows()}


def only(frame):
    (row,) = frame.rows(named=True)
    return row


# --------------------------------------------------------------------------------- the tables


def test_a_kernels_record_fills_every_column(tmp_path):
    content = kernel(
        T + 5, T + 9, 33, registersPerThread=40, staticSharedMemory=1024, dynamicSharedMemory=2048,
        localMemoryPerThread=16, clusterX=2, clusterY=1, clusterZ=1, graphId=5, streamId=13,
        graphNodeId=(5 << 32) | 3, deviceId=2, contextId=4, sharedMemoryExecuted=8192, channelID=9,
        priority=-3, launchType=1, queued=T, submitted=T + 2,
    )  # fmt: skip
    row = only(tables(tmp_path, content, names={0x1000: "_ZN2at6native3fooEv"})["kernels"])
    attrs = json.loads(row.pop("attrs"))
    assert row == {
        "process": 0, "device": 2, "context": 4, "stream": 13, "start": T + 5, "end": T + 9,
        "name": "at::native::foo()", "correlation": 33, "grid": "4,2,1", "block": "128,1,1",
        "cluster": "2,1,1", "registers": 40, "shared_static": 1024, "shared_dynamic": 2048,
        "local_memory": 16, "graph": 5, "graph_node": (5 << 32) | 3, "op_key": None,
    }  # fmt: skip
    assert attrs == {
        "shared_executed": 8192, "channel": 9, "priority": -3, "launch_type": "cooperative",
        "queued_ns_before": 5, "submitted_ns_before": 3,
    }  # fmt: skip


@pytest.mark.parametrize("version", [number for number, _ in layouts.known() if number != 18])
def test_kernels_of_every_version_have_the_columns_that_the_version_has(tmp_path, version):
    content = b"".join(
        kernel(T + 10 * n, T + 10 * n + 5, n + 1, version=version, registersPerThread=n)
        for n in range(50)
    )
    found = tables(tmp_path, content, version=version)["kernels"]
    assert found["registers"].to_list() == list(range(50))
    assert found["correlation"].to_list() == list(range(1, 51))
    assert found["grid"].unique().to_list() == ["4,2,1"]


@pytest.mark.parametrize("release", ["11.8", "12.0"])
def test_releases_with_one_number_are_told_by_their_records(tmp_path, release):
    (layout,) = [one for one in layouts.candidates(18) if release in one.cuda]
    content = b"".join(
        record(
            kinds.CONCURRENT_KERNEL, layout=layout, start=T + n, end=T + n + 1, name=0x1000, gridX=n + 1,
            gridY=1, gridZ=1, correlationId=n + 1, contextId=1,
        )
        for n in range(20)
    )  # fmt: skip
    found = tables(tmp_path, content, version=18)["kernels"]
    assert found["grid"].to_list() == [f"{n + 1},1,1" for n in range(20)]


def test_copies_and_sets_have_their_kinds_memories_and_peers(tmp_path):
    place = {"contextId": 1, "streamId": 7}
    content = b"".join(
        (
            record(kinds.MEMCPY, start=T, end=T + 1, correlationId=1, copyKind=1, srcKind=2, dstKind=3,
                   bytes=100, graphNodeId=17, **place),
            record(kinds.MEMCPY, start=T + 2, end=T + 3, correlationId=2, copyKind=2, srcKind=3, dstKind=1,
                   bytes=200, **place),
            record(kinds.MEMCPY2, start=T + 4, end=T + 5, correlationId=3, copyKind=10, srcKind=3, dstKind=3,
                   bytes=300, deviceId=1, srcDeviceId=1, dstDeviceId=0, **place),
            record(kinds.MEMSET, start=T + 6, end=T + 7, correlationId=4, bytes=400, memoryKind=5, **place),
            record(kinds.UNIFIED_MEMORY_COUNTER, counterKind=1, value=500, start=T + 8, end=T + 9,
                   srcId=(1 << 32) - 1, dstId=1, streamId=7),
            record(kinds.UNIFIED_MEMORY_COUNTER, counterKind=4, value=3, start=T + 8, end=T + 9, dstId=1),
            record(kinds.MEM_DECOMPRESS, start=T + 10, end=T + 11, correlationId=5, sourceBytes=600, **place),
        )
    )  # fmt: skip
    found = tables(tmp_path, content)["memops"].sort("start")
    columns = (
        "kind",
        "src_kind",
        "dst_kind",
        "bytes",
        "device",
        "peer",
        "graph_node",
        "correlation",
    )
    assert found.select(columns).rows() == [
        ("HtoD", "pinned", "device", 100, 0, None, 17, 1),
        ("DtoH", "device", "pageable", 200, 0, None, None, 2),
        ("PtoP", "device", "device", 300, 1, 0, None, 3),
        ("memset", None, "managed", 400, 0, None, None, 4),
        ("UvmHtoD", None, None, 500, 1, None, None, None),
        ("decompress", None, None, 600, 0, None, None, 5),
    ]


def test_the_ids_that_a_program_pushed_are_with_its_kernels(tmp_path):
    def pushed(correlation, kind, number):
        return record(
            kinds.EXTERNAL_CORRELATION,
            externalKind=kind,
            externalId=number,
            correlationId=correlation,
        )

    content = pushed(1, 3, 70) + kernel(T, T + 1, 1, priority=-2, channelID=kinds.NONE32)
    content += pushed(2, 2, 5) + pushed(2, 3, 71) + kernel(T + 2, T + 3, 2, channelID=kinds.NONE32)
    content += kernel(T + 4, T + 5, 3, channelID=kinds.NONE32)
    attrs = tables(tmp_path, content)["kernels"].sort("start")["attrs"].to_list()
    assert [one and json.loads(one) for one in attrs] == [
        {"priority": -2, "external": {"custom0": 70}},
        {"external": {"openacc": 5, "custom0": 71}},
        None,
    ]


def test_calls_have_the_functions_name_and_the_threads_number(tmp_path):
    content = call(T, T + 5, 1, thread=77) + call(T + 6, T + 8, 2, cbid=307, kind=kinds.DRIVER)
    content += call(T + 9, T + 10, 3, cbid=60_000)
    found = tables(tmp_path, content)["calls"].sort("start")
    assert found.select("name", "thread", "start", "end", "correlation").rows() == [
        ("cudaLaunchKernel_v7000", 77, T, T + 5, 1),
        ("cuLaunchKernel", 1, T + 6, T + 8, 2),
        ("cbid_60000", 1, T + 9, T + 10, 3),
    ]


@pytest.mark.parametrize("version", [28, 22])
def test_a_wait_names_the_record_of_the_event_that_it_waits_for(tmp_path, version):
    """Since CUDA 12.8 by the record's own number, before by the order of the calls."""
    numbered = version == 28
    content = b""
    for number, (correlation, stream) in enumerate([(10, 7), (20, 8), (30, 9)], start=1):
        own = {"cudaEventSyncId": number} if numbered else {}
        content += record(
            kinds.CUDA_EVENT,
            version,
            correlationId=correlation,
            contextId=1,
            streamId=stream,
            eventId=5,
            **own,
        )
    own = {"cudaEventSyncId": 2} if numbered else {}
    content += record(
        kinds.SYNCHRONIZATION, version, type=2, start=T, end=T + 1, correlationId=25, contextId=1, streamId=11,
        cudaEventId=5, **own,
    )  # fmt: skip
    content += record(
        kinds.SYNCHRONIZATION, version, type=4, start=T + 2, end=T + 3, correlationId=40, contextId=1,
        streamId=kinds.NONE32, cudaEventId=kinds.NONE32,
    )  # fmt: skip
    content += record(kinds.CONTEXT, version, contextId=1, deviceId=3)
    found = tables(tmp_path, content, version=version)["syncs"].sort("start")
    columns = ("kind", "device", "context", "stream", "event_id", "record", "event_stream")
    assert found.select(columns).rows() == [
        ("stream wait", 3, 1, 11, 5, 20, 8),
        ("context", 3, 1, None, None, None, None),
    ]


def test_memory_is_counted_per_device_and_pools_by_their_size(tmp_path):
    pool = {"memoryPoolConfig__memoryPoolType": 1, "memoryPoolConfig__address": 0xAA}

    def memory(at, address, size, release=False, **more):
        return record(
            kinds.MEMORY2, timestamp=T + at, address=address, bytes=size, memoryOperationType=1 + release,
            **{"memoryKind": 3, **more},
        )  # fmt: skip

    content = b"".join(
        (
            memory(1, 0x10, 1000),
            memory(2, 0x20, 64, **pool, memoryPoolConfig__pool__size=4096),
            memory(3, 0x30, 64, **pool, memoryPoolConfig__pool__size=4096),
            memory(4, 0x10, 1000, release=True),
            memory(5, 0x40, 500, memoryKind=2),
            record(kinds.MEMORY_POOL, timestamp=T + 6, memoryPoolOperationType=3, memoryPoolType=1,
                   address=0xAA, size=128),
            memory(7, 0x30, 64, release=True, **pool, memoryPoolConfig__pool__size=128),
        )
    )  # fmt: skip
    found = tables(tmp_path, content)["allocations"]
    assert found.select("device", "address", "bytes", "total", "reserved").rows() == [
        (0, 0x10, 1000, 1000, 1000),
        (0, 0x20, 64, 1064, 5096),
        (0, 0x30, 64, 1128, 5096),
        (0, 0x10, -1000, 128, 4096),
        (-1, 0x40, 500, 500, 500),
        (0, 0x30, -64, 64, 128),
    ]


def test_a_slice_of_a_gpu_is_said(tmp_path):
    layout = layouts.candidates(130500)[0]
    row = np.zeros(1, layout.dtypes[kinds.DEVICE])
    for name, value in {
        "kind": kinds.DEVICE, "id": 0, "name": 0x9000, "computeCapabilityMajor": 8, "numMultiprocessors": 14,
        "globalMemorySize": 5 << 30, "globalMemoryBandwidth": 200_000_000, "coreClockRate": 1_410_000,
        "maxWarpsPerMultiprocessor": 64, "numThreadsPerWarp": 32, "isMigEnabled": 1, "gpuInstanceId": 7,
        "computeInstanceId": 0,
    }.items():  # fmt: skip
        row[name] = value
    row["migUuid"] = np.frombuffer(bytes(range(16)), "V16")
    names = {0x9000: "NVIDIA A100-SXM4-40GB MIG 1g.5gb", 0x1000: "k"}
    found = tables(tmp_path, row.tobytes() + kernel(T, T + 1, 1), names=names)
    assert only(found["devices"]) == {
        "process": 0, "device": 0, "name": "NVIDIA A100-SXM4-40GB MIG 1g.5gb",
        "uuid": "MIG-00010203-0405-0607-0809-0a0b0c0d0e0f", "cc": "8.0", "sm_count": 14, "memory": 5 << 30,
        "max_threads_per_sm": 2048, "clock_khz": 1_410_000, "mem_bandwidth": 200_000_000_000,
    }  # fmt: skip
    assert "device 0 is a slice of a GPU (MIG): GPU instance 7, compute instance 0" in notes(found)


def test_a_kind_that_was_enabled_and_never_happened_has_an_empty_table(tmp_path):
    path = write(tmp_path, call(T, T + 1, 1, cbid=17))
    assert {"kernels", "calls"} <= load(path).trace.present
    assert "memops" not in load(path).trace.present


# ------------------------------------------------------------------------- what is not whole


def test_dropped_records_overhead_and_what_the_program_side_noted_are_told(tmp_path):
    content = record(kinds.OVERHEAD, overheadKind=1 << 16, start=T, end=T + 2 * MS) * 2
    facts = [
        {"dropped": 3, "context": 1, "stream": 0},
        {"dropped": 4, "context": 2, "stream": 0},
        {"note": "MPS is in use"},
    ]
    found = notes(tables(tmp_path, content, facts=facts))
    (lost,) = [what for what in found if "dropped" in what]
    assert found[lost] == 7
    assert "CUPTI: MPS is in use" in found
    assert "CUPTI's overhead by reason (times it occurred): buffer flush 4.000 ms (2)" in found


def test_records_after_an_unknown_kind_are_counted_in_bytes_and_the_next_buffer_is_read(tmp_path):
    strange = np.uint32(200).tobytes() + bytes(36)
    first = kernel(T, T + 1, 1) + strange + kernel(T + 2, T + 3, 2)
    found = tables(tmp_path, first, kernel(T + 4, T + 5, 3))
    assert found["kernels"]["correlation"].to_list() == [1, 3]
    (what,) = [what for what in notes(found) if "cannot be read" in what]
    assert "200" in what
    assert notes(found)[what] == len(strange) + len(kernel(T, T, 1))


def test_records_that_no_table_has_are_counted_by_kind(tmp_path):
    layout = layouts.candidates(130500)[0]
    other = np.uint32(55).tobytes().ljust(int(layout.slots[55]) * 8, b"\0")
    found = tables(tmp_path, other * 3 + kernel(T, T + 1, 1))
    assert notes(found)["records of CUPTI that no table has (of kinds 55)"] == 3
    assert len(found["kernels"]) == 1


def test_kernels_without_times_are_left_out_and_counted(tmp_path):
    found = tables(tmp_path, kernel(0, 0, 1) + kernel(T, T + 1, 2))
    assert found["kernels"]["correlation"].to_list() == [2]
    assert notes(found)["kernels without times, which CUPTI could not take: left out"] == 1


def test_launches_of_whole_graphs_are_rows_that_say_so(tmp_path):
    content = record(
        kinds.GRAPH_TRACE, start=T, end=T + 9, graphId=6, correlationId=2, contextId=1, streamId=7
    )
    found = tables(tmp_path, content)
    row = only(found["kernels"])
    assert (row["name"], row["graph"], row["attrs"]) == ("CUDA graph 6", 6, '{"graph_trace":true}')
    assert any("traced as a whole" in what for what in notes(found))


def test_a_text_that_came_to_lie_at_an_address_later_names_the_later_kernels(tmp_path):
    facts = [{"names": {str(0x1000): "other"}, "buffer": 3}]
    contents = [kernel(T + n, T + n + 1, n + 1) for n in range(4)]
    found = tables(tmp_path, *contents, facts=facts)["kernels"].sort("start")
    assert found["name"].to_list() == ["kernel_a", "kernel_a", "other", "other"]


def test_a_killed_processs_last_buffer_and_line_are_read_as_far_as_they_go(tmp_path):
    path = write(tmp_path, kernel(T, T + 1, 1), kernel(T + 2, T + 3, 2) * 2)
    raw = path.with_name(files.RAW)
    raw.write_bytes(raw.read_bytes()[:-100])
    path.write_text(path.read_text() + '{"dropped": 5, "con')
    found = load(path).trace
    assert found["kernels"]["correlation"].to_list() == [1, 2]
    assert notes(found)["the last buffer of CUPTI's records is incomplete"] == 1


def test_bytes_that_are_no_buffer_are_counted(tmp_path):
    path = write(tmp_path, kernel(T, T + 1, 1))
    raw = path.with_name(files.RAW)
    raw.write_bytes(raw.read_bytes() + b"x" * 500)
    found = load(path).trace
    assert len(found["kernels"]) == 1
    (what,) = [what for what in notes(found) if "no buffer begins" in what]
    assert notes(found)[what] == 500


@given(
    st.lists(st.binary(max_size=20), min_size=3, max_size=9), st.sampled_from([64, 1000, 1 << 24])
)
def test_pieces_of_the_file_that_are_read_at_once_change_nothing(tmp_path_factory, rests, size):
    """Buffers with a rest of any length, after which the next ones lie at odd places."""
    contents = [
        call(T + 10 * n, T + 10 * n + 5, n + 1)
        + kernel(T + 10 * n, T + 10 * n + 9, n + 1)
        + b"\xff" * bool(rest)
        + rest
        for n, rest in enumerate(rests)
    ]
    folder = tmp_path_factory.mktemp("part")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cupti_files, "REGION", size)
        found = load(write(folder, *contents)).trace
    for name in ("calls", "kernels"):
        assert found[name]["correlation"].to_list() == list(range(1, len(rests) + 1))
    unread = sum(len(rest) + 1 for rest in rests if rest)
    told = [many for what, many in notes(found).items() if "cannot be read" in what]
    assert told == ([unread] if unread else [])


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("", "does not begin with CUPTI's version"),
        ('{"version": "13"}\n', "does not begin with CUPTI's version"),
        ('{"version": 130500, "pointer_bytes": 4}\n', "pointers"),
        ('{"version": 130500}\n[1]\n', "not an object"),
        ('{"version": 130500}\n{"clock": [1, 2]}\n', "cannot be read"),
        ('{"version": 130500}\n{"clock": [1, 2, 1e300]}\n', "cannot be read"),
        ('{"version": 130500}\n{"graph_nodes": 5}\n', "cannot be read"),
        *(
            (f'{{"version": 130500}}\n{{"{name}": "text"}}\n', "cannot be read")
            for name in ("names", "threads", "sizes", "devices", "clock", "dropped")
        ),
        ('{"version": 130500}\nnonsense\n', "not JSON"),
        ('{"version": 11}\n', "version 11 is older"),
    ],
)
def test_facts_that_cannot_be_read_are_refused_in_one_line(tmp_path, line, said):
    path = write(tmp_path, kernel(T, T + 1, 1))
    path.write_text(line)
    with pytest.raises(BadInput, match=said) as error:
        load(path)
    assert "\n" not in str(error.value)


@given(st.data())
def test_damage_is_refused_or_counted_and_never_fails(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("part")
    whole = [
        call(T, T + 1, 1)
        + kernel(T + 2, T + 3, 1)
        + record(kinds.MEMCPY, start=T, end=T + 1, copyKind=1),
        record(kinds.DEVICE, id=0) + record(kinds.SYNCHRONIZATION, type=1, start=T, end=T + 1),
        record(kinds.MEMORY2, timestamp=T, memoryOperationType=1, memoryKind=3, bytes=5)
        + record(kinds.GRAPH_TRACE, start=T, end=T + 2, graphId=1),
    ]
    version = data.draw(st.sampled_from([18, 28, 130500, 130600]))
    path = write(folder, *whole, version=version, facts=[{"clock": [T, 5, 5]}])
    target = data.draw(st.sampled_from([files.RAW, files.FACTS]))
    content = bytearray((folder / target).read_bytes())
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, len(content) - 1))
        piece = data.draw(st.binary(min_size=1, max_size=12))
        content[at : at + len(piece)] = piece
    (folder / target).write_bytes(content)
    try:
        trace = load(path).trace
    except BadInput:
        return
    for name in ("kernels", "memops", "calls", "syncs"):
        frame = trace[name]
        assert (frame["end"] >= frame["start"]).all()


# ---------------------------------------------------------------------- with the ops of a run


class Run:
    """A recording of ops with CUPTI's records beside them. Times are ms after its begin."""

    def __init__(self, folder, drift=0):
        self.recorder = Recorder(folder)
        self.recorder.start()
        self.begin = time.perf_counter_ns()
        capture_session.listen(self.recorder)
        self.emitter = capture_session.emitter("torch")
        self.thread = threading.get_native_id()
        self.low = threading.get_ident() & 0xFFFFFFFF
        self.folder, self.drift, self.content = folder, drift, []

    def op(self, text, start, end, category="forward"):
        prepared = self.emitter.prepare(text, category)
        self.emitter.past(prepared, self.at(start), self.at(end))

    def at(self, ms):
        return self.begin + int(ms * MS)

    def theirs(self, ms):
        """The time on CUPTI's clock."""
        return T + int(ms * MS * (1 + self.drift))

    def call(self, start, end, correlation, **more):
        more.setdefault("thread", self.low)
        self.content.append(call(self.theirs(start), self.theirs(end), correlation, **more))

    def kernel(self, start, end, correlation, **more):
        self.content.append(kernel(self.theirs(start), self.theirs(end), correlation, **more))

    def close(self, *facts, pairs=(0, 50, 100), **how):
        clocks = [{"clock": [self.theirs(ms), self.at(ms), 30]} for ms in pairs]
        write(self.recorder.folder, b"".join(self.content), facts=[*clocks, *facts], **how)
        self.recorder.fact(gpu=True)
        self.recorder.fact(profiling=self.begin, profiler="cupti")
        stop = time.perf_counter_ns() + 10_000 * MS
        self.recorder.fact(window=[self.begin, stop], steps=[None, None], ended=None, chosen=False)
        capture_session.listen(None)
        self.recorder.stop()
        return opscope.load(self.folder)


@pytest.fixture
def run(tmp_path):
    made = Run(tmp_path / "recording")
    yield made
    if capture_session.recorder() is made.recorder:
        made.close()


MM = "aten::mm(f32[64,64], f32[64,64]) -> f32[64,64]"
RELU = "aten::relu(f32[64,64]) -> f32[64,64]"


def ops(profile):
    return {
        op: (kernels, time)
        for op, kernels, time in profile.ops().select("op", "kernels", "device_time").rows()
    }


def test_kernels_belong_to_the_op_that_launched_them(run):
    run.op(MM, 10, 20)
    run.op(RELU, 20, 30)
    run.call(11, 12, 1)
    run.kernel(40, 45, 1)
    run.call(21, 22, 2)
    run.kernel(45, 46, 2, name=0x2000)
    profile = run.close()
    assert ops(profile) == {"aten::mm": (1, 5 * MS), "aten::relu": (1, MS)}
    assert profile.kernels()["reason"].is_null().all()
    assert profile.trace.origin["kernels"]["format"] == "cupti"


def test_clocks_that_drift_apart_are_followed(tmp_path):
    made = Run(tmp_path / "recording", drift=1e-4)
    for number in range(1000):
        made.op(MM, number, number + 0.05)
        made.call(number + 0.01, number + 0.04, number + 1)
        made.kernel(number + 0.1, number + 0.2, number + 1)
    profile = made.close(pairs=range(0, 1000, 100))
    calls = profile.trace["calls"].sort("start")["start"].to_numpy()
    expected = np.array([made.at(number + 0.01) for number in range(1000)])
    assert np.abs(calls - expected).max() < 100
    assert profile.ops()["kernels"].to_list() == [1] * 1000


def test_threads_are_the_systems_by_the_programs_map(run):
    run.op(MM, 10, 20)
    run.call(11, 12, 1, thread=12345)
    run.kernel(40, 45, 1)
    profile = run.close({"threads": {"12345": run.thread}})
    assert profile.trace["calls"]["thread"].to_list() == [run.thread]
    assert ops(profile)["aten::mm"][0] == 1


def test_without_a_pair_of_readings_the_note_says_how_kernels_are_placed(run):
    run.kernel(40, 45, 1)
    profile = run.close(pairs=())
    assert any("placed by the Unix clock" in what for what in profile.trace["notes"]["what"])


def test_replays_of_a_graph_belong_to_the_ops_whose_nodes_they_are(run):
    """By the events of the nodes' creation, through the clone that instantiating the graph made."""
    run.op(MM, 10, 20)
    run.op(RELU, 20, 30)
    run.op("replay()", 50, 60, "phase")
    run.call(51, 52, 9, cbid=311)
    clones = [(7 << 32) | 1, (7 << 32) | 0]
    for place, node in enumerate(clones):
        run.kernel(60 + place, 60.5 + place, 9, graphId=7, graphNodeId=node)
    created = [
        [run.at(15), run.thread, 3, (3 << 32) | 0, 0],
        [run.at(25), run.thread, 3, (3 << 32) | 1, 0],
        [run.at(40), run.thread, 7, (7 << 32) | 0, (3 << 32) | 0],
        [run.at(40), run.thread, 7, (7 << 32) | 1, (3 << 32) | 1],
    ]
    profile = run.close({"graph_nodes": created})
    found = profile.kernels().sort("start")
    assert found["op"].to_list() == ["aten::relu", "aten::mm"]
    assert not profile.trace["graph_nodes"].is_empty()


def test_the_source_nodes_that_newer_cupti_tells_lead_to_the_ops_too(run):
    run.op(MM, 10, 20)
    run.call(51, 52, 9, cbid=311)
    run.kernel(60, 61, 9, graphId=7, graphNodeId=(7 << 32) | 4, sourceGraphNodeId=(3 << 32) | 4)
    created = [[run.at(15), run.thread, 3, (3 << 32) | 4, 0]]
    profile = run.close({"graph_nodes": created})
    assert profile.kernels()["op"].to_list() == ["aten::mm"]


def test_a_run_that_launched_nothing_had_its_kernels_captured(run):
    run.op(MM, 10, 20)
    profile = run.close()
    assert profile.trace.has("kernels")
    assert not any("not captured" in what for what in profile.trace["notes"]["what"])
    assert ops(profile) == {"aten::mm": (0, 0)}


def test_a_damaged_file_leaves_the_ops_and_is_told(run):
    run.op(MM, 10, 20)
    run.kernel(40, 45, 1)
    path = run.recorder.folder / files.FACTS
    run.close()
    path.write_text("nonsense\n")
    profile = opscope.load(run.folder)
    assert ops(profile)["aten::mm"][0] in (0, None)
    assert any("kernels not captured" in what for what in profile.trace["notes"]["what"])


def test_an_unknown_version_is_refused_by_its_number(run):
    run.op(MM, 10, 20)
    run.content.append(np.uint32(3).tobytes() + bytes(300))
    profile = run.close(version=999_000)
    assert any("version 999000" in what for what in profile.trace["notes"]["what"])


def test_small_buffers_are_read_as_one_large_one_is(tmp_path):
    rows = [
        call(T + 10 * n, T + 10 * n + 5, n + 1) + kernel(T + 10 * n, T + 10 * n + 9, n + 1)
        for n in range(500)
    ]
    one, many = tmp_path / "one", tmp_path / "many"
    one.mkdir(), many.mkdir()
    whole, parts = load(write(one, b"".join(rows))).trace, load(write(many, *rows)).trace
    for name in ("calls", "kernels"):
        assert whole[name].equals(parts[name])
    assert buffers(*rows) != buffers(b"".join(rows))
    assert isinstance(parts["kernels"], pl.DataFrame)
