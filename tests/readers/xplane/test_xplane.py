"""XPlane files: a real one, made ones with every kind of event, and hostile ones."""

from __future__ import annotations

import contextlib
import gzip
import json
import struct
import tracemalloc
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import opscope
from opscope import readers
from opscope.core.hlo.wire import WireError, fields, numbers
from opscope.profile import Profile
from opscope.readers import BadInput
from opscope.readers.xplane import reader as xplane
from opscope.readers.xplane import space as xplane_space
from opscope.readers.xplane import viewer_json
from opscope.readers.xplane.wire import entries, passes, texts
from tests.draws import dear
from tests.readers.protobuf import (
    damaged,
    encoded,
    event,
    field,
    line,
    message,
    plane,
    space,
    stat,
    tree,
    varint,
)  # fmt: skip


def write(folder: Path, data: bytes, name: str = "trace.xplane.pb") -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


def made(begun: int = 1_000) -> bytes:
    """A GPU stream and a host thread: a kernel, a copy, their calls, a step, a Python frame."""
    host = plane(
        "/host:CPU",
        {
            1: "cuLaunchKernel",
            2: "train",
            3: "$train.py:12 main",
            4: "PjitFunction(f)",
            5: "net/Mul:Mul",
        },
        [
            line(
                77,
                "python",
                begun,
                event(2, 0, 90_000_000, step_num=4),
                event(1, 1_000_000, 2_000_000, correlation_id=9),
                event(3, 500_000, 60_000_000),
                event(4, 600_000, 50_000_000),
                event(5, 700_000, 1_000_000),
            )
        ],
    )
    gpu = plane(
        "/device:GPU:1",
        {1: "fusion_kernel", 2: "MemcpyH2D"},
        [
            line(
                20,
                "Stream #20(Compute,Memcpy)",
                begun,
                event(
                    1, 5_000_000, 3_000_500, correlation_id=9, hlo_op="dot.1", hlo_module="jit_f",
                    program_id=5,
                    kernel_details="regs:32 static_shared:64 dynamic_shared:8 grid:2,3,4 block:128,1,1 occ_pct:50",
                ),
                event(2, 9_000_000, 1_000_000, correlation_id=10,
                      memcpy_details="kind_src:pageable kind_dst:device size:4096 dest:1 async:1"),
            ),
            line(1, "XLA Ops", begun, event(1, 5_000_000, 3_000_500)),
        ],
    )  # fmt: skip
    task = plane(
        "Task Environment", {}, [], (6, stat("profile_start_time", 1_700_000_000_000_000_000))
    )
    return space(plane("/host:metadata", {}, []), host, gpu, task)


def test_every_kind_of_event_has_its_table(tmp_path):
    trace = readers.open(write(tmp_path, made()))
    kernel = trace["kernels"].row(0, named=True)
    assert len(trace["kernels"]) == 1
    assert (kernel["device"], kernel["stream"], kernel["name"]) == (1, 20, "fusion_kernel")
    assert (kernel["start"], kernel["end"]) == (6_000, 9_000)
    assert (kernel["grid"], kernel["block"], kernel["registers"]) == ("2,3,4", "128,1,1", 32)
    assert (kernel["shared_static"], kernel["shared_dynamic"]) == (64, 8)
    assert (kernel["op_key"], kernel["correlation"]) == ("jit_f(5)/dot.1", 9)
    copy = trace["memops"].row(0, named=True)
    assert (copy["kind"], copy["bytes"], copy["src_kind"]) == ("HtoD", 4096, "pageable")
    call = trace["calls"].row(0, named=True)
    assert (call["name"], call["correlation"], call["thread"]) == ("cuLaunchKernel", 9, 77)
    texts = {tuple(row) for row in trace["ranges"].select(
        pl.col("domain", "category", "text").cast(pl.String)).rows()}  # fmt: skip
    assert texts == {
        ("opscope.step", "step", "step 4"),
        ("runtime", None, "train.py(12): main"),
        ("opscope.jax", "graph", "jit_f"),
        ("TSL", None, "net/Mul:Mul"),
    }
    assert trace["clocks"]["to_unix_ns"].item() == 1_700_000_000_000_000_000
    assert trace["processes"]["host"].item() == "machine"
    notes = dict(trace["notes"].select("what", "how_many").rows())
    assert notes["events of lines that only repeat the streams, left out"] == 1
    assert any("shapes are not known" in what for what in notes)


def test_a_kernel_that_names_its_op_is_the_ops_without_its_program(tmp_path):
    profile = opscope.load(write(tmp_path, made()))
    row = profile.kernels().row(0, named=True)
    assert (row["op"], row["reason"], row["step"]) == ("hlo::dot", None, 4)
    assert row["flops"] is None  # no shapes, so not known, and not 0
    assert profile.summary()["attributed_time"].item() == 3_000


def test_opened_from_gzip_from_a_run_folder_and_by_content(tmp_path):
    data = made()
    packed = write(tmp_path, gzip.compress(data), "trace.pb.gz")
    run = tmp_path / "logs" / "plugins" / "profile" / "2026_01_01"
    run.mkdir(parents=True)
    write(run, data, "machine.xplane.pb")
    odd = write(tmp_path, data, "no_suffix")
    expected = readers.open(odd)
    for place in (packed, tmp_path / "logs", run):
        assert readers.format_of(place) == "xplane"
        trace = readers.open(place)
        assert trace["kernels"].equals(expected["kernels"])


def test_which_of_several_runs_is_read_is_told(tmp_path):
    for run in ("2026_01_01", "2026_01_02"):
        folder = tmp_path / "plugins" / "profile" / run
        folder.mkdir(parents=True)
        write(folder, made(), "machine.xplane.pb")
    notes = readers.open(tmp_path)["notes"]["what"].to_list()
    assert any("2026_01_02, the newest of 2 runs" in note for note in notes)
    assert not any("runs" in note for note in readers.open(folder)["notes"]["what"])


def test_a_folder_of_several_hosts_is_one_job(tmp_path):
    for host, begun in (("a", 1_000), ("b", 1_500)):
        write(tmp_path, made(begun), f"{host}.xplane.pb")
    trace = readers.open(tmp_path)
    assert trace["kernels"]["process"].n_unique() == 2


def test_a_host_whose_file_is_a_copy_of_anothers_is_refused(tmp_path):
    for host in ("a", "b"):
        write(tmp_path, made(), f"{host}.xplane.pb")
    with pytest.raises(BadInput, match=r"b\.xplane\.pb: has the same events as .*a\.xplane\.pb"):
        readers.open(tmp_path)


# ------------------------------------------------------------------------------ the real file


@pytest.fixture(scope="module")
def mi300(shared):
    return opscope.load(shared / "xplane" / "jax_conv_mi300.xplane.pb")


def test_real_kernels_are_attributed_to_hlo_ops_and_lines(mi300):
    kernels = mi300.kernels()
    named = kernels.filter(mi300.trace["kernels"]["op_key"].is_not_null())
    assert (len(kernels), len(named)) == (200, 198)
    assert kernels["reason"].null_count() == len(kernels)
    assert kernels["inputs"].null_count() == 0
    assert kernels["outputs"].null_count() == 0
    lines = kernels["source"].cast(pl.String).unique().to_list()
    assert len(lines) == 1
    assert lines[0].startswith("/workspace/traces/generate_conv_trace.py:23")
    # of two the file says nothing; all others of their names, on every device, are of one op each
    rest = kernels.filter(pl.col("inferred")).sort("start")
    told = rest.select(pl.col("name", "op").cast(pl.String)).rows()
    assert told == [
        ("input_transpose_fusion_1.kd", "hlo::fusion"),
        ("Im3d2Col.kd", "hlo::convolution:forward"),
    ]
    # each of the four ops of the program ran once on each of its 40 runs
    assert mi300.op_totals()["calls"].to_list() == [40, 40, 40, 40]
    summary = mi300.summary().row(0, named=True)
    assert summary["attributed_time"] + summary["unattributed_time"] == summary["kernel_time"]
    assert summary["unattributed_time"] == 0
    assert summary["kernel_time"] == kernels["duration"].sum()
    assert summary["devices"] == 8


def test_real_convolutions_flops_are_brute_forces(mi300):
    """bf16[1,16,32,60,104] by bf16[5120,16,1,2,2], stride 1,2,2, padding 1: counted from the shapes."""
    totals = mi300.op_totals()
    conv = totals.filter(pl.col("op_type").cast(pl.String) == "conv").row(0, named=True)
    assert conv["outputs"].startswith("bf16[1,5120,34,31,53]")
    once = 2 * (5120 * 34 * 31 * 53) * (16 * 1 * 2 * 2)
    assert conv["calls"] == 40
    assert conv["matrix_flops"] == 40 * once
    kernels = mi300.kernels().filter(pl.col("op_type").cast(pl.String) == "conv")
    assert kernels["matrix_flops"].sum() == 40 * once
    assert len(kernels) == 80  # each call prepares, then multiplies


def test_real_copies_are_no_kernels(mi300):
    """The runtime copies by kernels of its own; which way, the call that asked for it tells."""
    memops = mi300.memops()
    assert len(memops) == 35
    kinds = memops["kind"].cast(pl.String).to_list()
    # two carry the number of another call than the one that asked for them
    assert (kinds.count("DtoD"), kinds.count(None)) == (33, 2)
    assert memops["bytes"].null_count() == 35  # the file says 0 of an unknown kind


def test_real_figures_are_those_of_the_profilers_own_reader(mi300, shared):
    profiler = pytest.importorskip("jax.profiler")
    if getattr(profiler, "ProfileData", None) is None:
        pytest.skip("this JAX has no reader of its own without TensorFlow")
    data = profiler.ProfileData.from_file(str(shared / "xplane" / "jax_conv_mi300.xplane.pb"))
    theirs = sorted(
        (event.name, round(event.start_ns), dict(event.stats)["correlation_id"])
        for one in data.planes
        if one.name.startswith("/device:GPU")
        for row in one.lines
        for event in row.events
    )
    copies = [one for one in theirs if one[0].startswith("__amd_rocclr_copyBuffer")]
    kernels = [one for one in theirs if one not in copies]
    found = mi300.trace["kernels"].select(pl.col("name").cast(pl.String), "start", "correlation")
    for mine, other in zip(sorted(found.rows()), kernels, strict=True):
        assert mine[0] == other[0]
        assert abs(mine[1] - other[1]) <= 1
        assert mine[2] == other[2]
    moved = mi300.trace["memops"].select("start", "correlation").sort("start").rows()
    for mine, other in zip(moved, sorted(one[1:] for one in copies), strict=True):
        assert abs(mine[0] - other[0]) <= 1
        assert mine[1] == other[1]


# -------------------------------------------------------------------------------- the decoder

NUMBER = st.integers(0, 2**64 - 1)
MESSAGE = st.lists(
    st.tuples(st.integers(1, 300), st.one_of(NUMBER, st.binary(max_size=200), st.floats(allow_nan=False))),
    max_size=8,
)  # fmt: skip


@given(st.lists(MESSAGE, max_size=6))
def test_side_by_side_decoding_reads_what_was_written(messages):
    bodies = [message(*one) for one in messages]
    data = b"".join(bodies)
    ends = (
        np.cumsum([len(body) for body in bodies], dtype=np.int64)
        if bodies
        else np.empty(0, np.int64)
    )
    starts = ends - np.array([len(body) for body in bodies], np.int64)
    found: list[list] = [[] for _ in messages]
    for one in passes(np.frombuffer(data, np.uint8), starts, ends):
        for row, number, kind, value, size in zip(
            one.row.tolist(), one.number.tolist(), one.kind.tolist(), one.value.tolist(),
            one.size.tolist(), strict=True,
        ):  # fmt: skip
            if kind == 2:
                value = data[value : value + size]
            elif kind == 1:
                value = struct.unpack("<d", struct.pack("<Q", value))[0]
            found[row].append((number, value))
    assert found == messages


@given(st.lists(st.binary(max_size=300), max_size=20))
def test_repeated_messages_are_found(bodies):
    data = field(1, 5) + b"".join(field(4, body) for body in bodies) + field(2, "name")
    starts, ends, others = entries(data, 0, len(data), 4)
    assert [data[a:b] for a, b in zip(starts, ends, strict=True)] == bodies
    assert [number for number, _, _ in others] == [1, 2]


@given(st.lists(st.text(max_size=20).map(str.encode) | st.binary(max_size=20), max_size=10),
       st.integers(0, 90), st.randoms(use_true_random=False))  # fmt: skip
def test_texts_are_gathered(values, apart, random):
    places, data = [], b""
    for value in values:
        data += b"\xff" * apart
        places.append((len(data), len(value)))
        data += value
    random.shuffle(places)
    starts, sizes = np.array(places, np.int64).reshape(-1, 2).T
    found = texts(np.frombuffer(data, np.uint8), starts, sizes)
    assert found.dtype == pl.String
    assert found.to_list() == [data[at : at + n].decode("utf-8", "replace") for at, n in places]


@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=9), st.booleans())
def test_repeated_numbers_packed_or_not(values, packed):
    data = (
        field(3, b"".join(map(varint, values))) if packed else b"".join(field(3, v) for v in values)
    )
    assert numbers(data, fields(data, 0, len(data)), 3) == tuple(values)


# ---------------------------------------------------------------------------------- the hostile


@given(st.binary(max_size=400))
def test_arbitrary_bytes_are_refused_in_words(tmp_path_factory, data):
    path = write(tmp_path_factory.mktemp("bytes"), b"\x0a" + data)
    with contextlib.suppress(BadInput):
        xplane.read(path)


@given(st.integers(0, 10**6), st.integers(0, 255), st.integers(0, 10**6))
def test_damaged_files_are_read_or_refused(tmp_path_factory, place, byte, cut):
    data = bytearray(made())
    data[place % len(data)] = byte
    path = write(tmp_path_factory.mktemp("damaged"), bytes(data[: len(data) - cut % 50]))
    with contextlib.suppress(BadInput):
        trace = xplane.read(path)
        Profile(trace).kernels()


DAMAGE = st.lists(
    st.tuples(st.integers(0, 10**6), st.integers(0, 4), st.integers(0, 10**6)),
    min_size=1,
    max_size=8,
)


def test_two_lines_of_one_name_are_two(tmp_path):
    streams = [line(20, "XLA Ops", 0, event(1, 10**6, 10**6), event(1, 3 * 10**6, 10**6))] * 2
    twice = space(plane("/device:GPU:0", {1: "gemm"}, [*streams, line(20, "other", 0)]))
    assert len(readers.open(write(tmp_path, twice))["kernels"]) == 4


def test_a_message_taken_apart_is_put_together_again():
    assert encoded(tree(made())) == made()


@given(DAMAGE)
def test_well_formed_nonsense_is_read_or_refused(tmp_path_factory, damage):
    """Every length right, and any field missing, twice, of another kind or of any size."""
    nodes = tree(made())
    for one in damage:
        damaged(nodes, *one)
    path = write(tmp_path_factory.mktemp("nonsense"), encoded(nodes))
    with contextlib.suppress(BadInput):
        profile = Profile(xplane.read(path))
        for frame in (profile.kernels, profile.memops, profile.ops, profile.unattributed):
            frame()


@dear
@given(st.integers(0, 10**7), st.integers(0, 255))
def test_damage_to_the_real_file_is_read_or_refused(shared, tmp_path_factory, place, byte):
    data = bytearray((shared / "xplane" / "jax_conv_mi300.xplane.pb").read_bytes())
    data[place % len(data)] = byte
    with contextlib.suppress(BadInput):
        xplane.read(write(tmp_path_factory.mktemp("damaged"), bytes(data)))


def test_a_bomb_is_refused_before_it_fills_the_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(xplane, "LARGEST", 1 << 20)
    path = write(tmp_path, gzip.compress(b"\x0a" + bytes(64 << 20)), "bomb.pb.gz")
    tracemalloc.start()
    try:
        with pytest.raises(BadInput, match="unpacks to over"):
            xplane.read(path)
        assert tracemalloc.get_traced_memory()[1] < 32 << 20
    finally:
        tracemalloc.stop()


def test_memory_is_bounded_by_a_batch_of_events(tmp_path, monkeypatch):
    """Events that are two bytes each are the worst that a file can hold for its size."""
    monkeypatch.setattr(xplane_space, "BATCH", 1 << 12)
    body = message((1, 7), (2, "python")) + b"\x22\x00" * 200_000
    data = space(message((2, "/host:CPU"), (3, body)))
    space_ = xplane_space.Space(data)
    (only,) = space_.planes()
    tracemalloc.start()
    try:
        assert (
            sum(len(batch.number) for batch in space_.batches(only, only.lines[0], frozenset()))
            == 200_000
        )
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


def test_an_event_of_endless_fields_is_refused(monkeypatch):
    one = b"\x08\x01" * 5000
    with pytest.raises(WireError, match="over 4096 fields"):
        list(passes(np.frombuffer(one, np.uint8), np.array([0]), np.array([len(one)])))


def test_a_refusal_names_the_file(tmp_path):
    path = write(tmp_path, made()[:-3])
    with pytest.raises(BadInput, match="not an XPlane file") as raised:
        xplane.read(path)
    assert str(path) in str(raised.value)


def test_other_files_are_not_taken_for_it(tmp_path):
    for data in (b"\x0aHello\n", b"\n\n\n", b"\x0a", b"\x0a\x02\x12"):
        path = write(tmp_path, data)
        with pytest.raises(BadInput):
            readers.open(path)


# ---------------------------------------------------------------------- the trace viewer's JSON


def viewer() -> bytes:
    def named(pid: int, what: str, name: str, **more: int) -> dict:
        return {"ph": "M", "pid": pid, "name": what, "args": {"name": name}, **more}

    def row(pid: int, tid: int, name: str, ts: float, dur: float, **args: str) -> dict:
        return {"ph": "X", "pid": pid, "tid": tid, "name": name, "ts": ts, "dur": dur, "args": args}

    events = [
        named(1, "process_name", "/device:GPU:3 (NVIDIA H100)"),
        named(1, "thread_name", "Stream #20(Compute)", tid=20),
        named(701, "process_name", "/host:CPU"),
        named(701, "thread_name", "python", tid=77),
        row(1, 20, "gemm", 6.0, 3.0005, correlation_id="9", hlo_op="dot.1", hlo_module="jit_f",
            kernel_details="regs:32 static_shared:64 dynamic_shared:8 grid:2,3,4 block:128,1,1"),
        row(701, 77, "train", 1.0, 90.0, step_num="4"),
        row(701, 77, "cuLaunchKernel", 2.0, 2.0, correlation_id="9"),
        {},
    ]  # fmt: skip
    text = {"displayTimeUnit": "ns", "metadata": {"highres-ticks": True}, "traceEvents": events}
    return json.dumps(text).encode()


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_the_viewers_json_is_read_too(tmp_path, pack):
    path = write(tmp_path, pack(viewer()), "machine.trace.json")
    assert readers.format_of(path) == "xplane"
    row = opscope.load(path).kernels().row(0, named=True)
    assert (row["device"], row["stream"], row["start"], row["end"]) == (3, 20, 6_000, 9_000)
    assert (row["op"], row["step"], row["grid"], row["reason"]) == ("hlo::dot", 4, "2,3,4", None)


def test_what_jax_makes_of_it_for_perfetto_is_read_too(tmp_path):
    """``perfetto_trace.json.gz``: the same events, without what says who wrote them."""
    plain = json.loads(viewer())
    del plain["metadata"]
    path = write(tmp_path, gzip.compress(json.dumps(plain).encode()), "perfetto_trace.json.gz")
    assert readers.format_of(path) == "xplane"
    other = write(tmp_path, viewer(), "machine.trace.json")
    assert readers.open(path)["kernels"].equals(readers.open(other)["kernels"])


def test_more_values_than_a_viewer_shows_are_refused_before_they_fill_the_memory(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(viewer_json, "MOST", 1000)
    bomb = viewer()[:-2] + b',{"args":{"a":[' + b"[]," * 1000 + b"[]]}}]}"
    json.loads(bomb)
    with pytest.raises(BadInput, match="more than any trace viewer shows"):
        readers.open(write(tmp_path, bomb, "machine.trace.json"))


@pytest.mark.parametrize("cut", [200, 500, -5])
def test_the_viewers_json_damaged_is_refused(tmp_path, cut):
    with pytest.raises(BadInput, match="trace viewer"):
        readers.open(write(tmp_path, viewer()[:cut], "machine.trace.json"))


@given(st.integers(0, 10**6), st.binary(min_size=1, max_size=3))
def test_the_viewers_json_with_any_bytes_in_it_is_read_or_refused(tmp_path_factory, place, junk):
    data = bytearray(viewer())
    data[1 + place % (len(data) - 4) : 1 + place % (len(data) - 4) + len(junk)] = junk
    with contextlib.suppress(BadInput):
        xplane.read(write(tmp_path_factory.mktemp("viewer"), bytes(data), "machine.trace.json"))


def test_jitted_calls_inside_another_are_no_ranges(tmp_path):
    names = {1: "PjitFunction(train.<locals>.step)", 2: "PjitFunction(inner)"}
    events = [event(1, 10 * 10**6, 80 * 10**6), event(1, 20 * 10**6, 60 * 10**6),
              event(2, 30 * 10**6, 5 * 10**6), event(1, 100 * 10**6, 50 * 10**6)]  # fmt: skip
    host = plane(
        "/host:CPU", names, [line(5, "python", 0, *events), line(6, "python", 0, events[0])]
    )
    ranges = readers.open(write(tmp_path, space(host)))["ranges"]
    calls = ranges.filter(pl.col("category").cast(pl.String) == "graph").sort("start", "thread")
    assert calls.select("thread", "start", pl.col("text").cast(pl.String)).rows() == [
        (5, 10_000, "jit_train._locals_.step"),
        (6, 10_000, "jit_train._locals_.step"),
        (5, 100_000, "jit_train._locals_.step"),
    ]


@pytest.mark.parametrize("numbered", [True, False])
def test_a_gradient_is_linked_to_the_operation_of_its_own_run(tmp_path, monkeypatch, numbered):
    """By the number of the run, or where there is none by turn."""
    text = 'hlo::dot(f32[4,4], f32[4,4]) -> f32[4,4] {{op_name="jit(f)/{}/net/dot_general"}}'
    told = {"dot.1": text.format("jvp(m)"), "dot.2": text.format("transpose(jvp(m))")}
    monkeypatch.setattr(
        "opscope.readers.xplane.programs.Programs.text", lambda self, graph, key, path: told[key]
    )
    events = [
        event(1, (10 * run + place) * 10**6, 10**6, hlo_op=f"dot.{place}", hlo_module="jit_f",
              **({"run_id": 77 + run} if numbered else {}))
        for run in range(3) for place in (1, 2)
    ]  # fmt: skip
    host = plane("/host:CPU", {1: "dot"}, [line(5, "pool", 0, *events)])
    ops = opscope.load(write(tmp_path, space(host))).ops().sort("start")
    assert ops["forward_op_id"].to_list() == [None, 0, None, 2, None, 4]


def test_the_allocator_names_the_gpu_of_a_block(tmp_path):
    """TSL's BFCAllocator tells no number of the device; the host's allocators count each for itself."""
    changes = [("GPU_3_bfc", 1, 640, 640), ("gpu_host_bfc", 1, 99, 99), ("GPU_3_bfc", 2, 640, 0)]
    host = plane(
        "/host:CPU",
        {1: "MemoryAllocation", 2: "MemoryDeallocation"},
        [
            line(
                77,
                "python",
                1_000,
                *(
                    event(
                        kind,
                        number * 1_000_000,
                        0,
                        allocator_name=name,
                        addr=4096,
                        allocation_bytes=size,
                        bytes_allocated=total,
                    )
                    for number, (name, kind, size, total) in enumerate(changes)
                ),
            )
        ],
    )
    profile = opscope.load(write(tmp_path, space(host)))
    rows = profile.trace["allocations"].select("device", "address", "bytes", "total").rows()
    assert rows == [(3, 4096, 640, 640), (None, 4096, 99, 99), (3, 4096, -640, 0)]
    assert profile.memory_events().select("device", "duration").rows() == [(None, None), (3, 2000)]


def test_a_set_and_a_copy_that_name_their_operation_are_work_of_it(tmp_path):
    """AMD's sets, which are kernels of the runtime, have the operation that needs them; so have XLA's copies."""
    named = {"hlo_op": "conv.1", "hlo_module": "jit_f", "program_id": 5}
    gpu = plane(
        "/device:GPU:0",
        {1: "__amd_rocclr_fillBufferAligned.kd", 2: "Cijk_kernel.kd", 3: "MemcpyD2D", 4: "copyBuffer"},
        [
            line(
                20,
                "Stream #20(Kernel)",
                1_000,
                event(1, 0, 3_000_000, correlation_id=9, kernel_details="grid:1,1,1", **named),
                event(2, 4_000_000, 5_000_000, correlation_id=10, kernel_details="grid:1,1,1", **named),
                event(3, 10_000_000, 2_000_000, memcpy_details="size:64", hlo_op="copy.2",
                      hlo_module="jit_f", program_id=5),
                event(3, 13_000_000, 1_000_000, memcpy_details="size:64"),
            )
        ],
    )  # fmt: skip
    profile = opscope.load(write(tmp_path, space(gpu)))
    ops = profile.ops().select("op", "device_time").sort("op").rows()
    assert ops == [("hlo::conv", 8_000), ("hlo::copy", 2_000)]
    assert profile.summary()["device_unattributed_time"].item() == 1_000
