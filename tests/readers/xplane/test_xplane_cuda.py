"""XPlane files as XLA writes them for NVIDIA GPUs: every kind of event, and what may be odd in it."""

from __future__ import annotations

import contextlib
import gzip
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import opscope
from opscope import readers
from opscope.core.perf.devices.identify import find
from opscope.profile import Profile
from opscope.readers import BadInput
from opscope.readers.recording.with_xplane import _of_one
from opscope.readers.xplane import reader as xplane
from opscope.readers.xplane.space import Space
from tests.readers.cupti_xplane import H200, Cupti, Plane, Ref
from tests.readers.protobuf import damaged, encoded, field, message, tree

MODULE = "XlaModule:#prefix=jit(step)/jit(main),hlo_module=jit_step,program_id=5#"
THUNK = MODULE + "::Thunk:#name=dense/dot_general,hlo_op=gemm_fusion_dot.3#"
KERNEL = "gemm_fusion_dot_3"


def write(folder: Path, made: Cupti | bytes) -> Path:
    path = folder / "machine.xplane.pb"
    path.write_bytes(made.space() if isinstance(made, Cupti) else made)
    return path


def load(folder: Path, made: Cupti) -> Profile:
    return opscope.load(write(folder, made))


def one_kernel(**more) -> Cupti:
    made = Cupti(H200)
    made.trace_me("train", 2_000, 90_000, step_num=4)
    made.launch(KERNEL, 9, 3_000, 5_000, annotation=THUNK)
    made.kernel(KERNEL, 9, 6_000, 9_000, **more)
    return made


# ------------------------------------------------------------------------------------ launches


def test_a_launch_that_is_called_after_its_kernel_is_the_kernels_launch(tmp_path):
    profile = load(tmp_path, one_kernel())
    call = profile.trace["calls"].row(0, named=True)
    assert (call["name"], call["thread"], call["correlation"]) == ("cuLaunchKernel", 77, 9)
    assert (call["start"], call["end"]) == (3_000, 5_000)
    assert KERNEL not in profile.trace["ranges"]["text"].cast(pl.String).to_list()
    row = profile.kernels().row(0, named=True)
    assert (row["op"], row["reason"], row["step"]) == ("hlo::gemm_fusion_dot", None, 4)
    op = profile.ops().row(0, named=True)
    assert (op["thread"], op["start"], op["end"]) == (77, 3_000, 5_000)


def test_what_a_kernel_took_of_its_multiprocessor_is_read(tmp_path):
    made = one_kernel(regs=168, static=1024, dynamic=98_304, grid=(2, 3, 4), block=(128, 2, 1))
    row = load(tmp_path, made).trace["kernels"].row(0, named=True)
    assert (row["registers"], row["shared_static"], row["shared_dynamic"]) == (168, 1024, 98_304)
    assert (row["grid"], row["block"], row["stream"], row["context"]) == ("2,3,4", "128,2,1", 7, 1)
    assert (row["graph"], row["graph_node"], row["attrs"]) == (None, None, None)


def test_calls_are_called_as_the_driver_calls_them(tmp_path):
    made = Cupti(H200)
    made.memcpy_call("H2D", 1, 2_000, 2_100, 64)
    made.memcpy_call("Other", 2, 2_200, 2_300, 64)
    made.memset_call(3, 2_400, 2_500, 64)
    made.call("CudaGraph", 4, 2_600, 2_700, name="cuGraphLaunch", graph=12)
    made.call("CudaGraph", 5, 2_800, 2_900, name="cuGraphInstantiateWithFlags", graph=12)
    made.call("Generic", 6, 3_000, 3_100, name="cuStreamSynchronize")
    made.launch("void cutlass::Kernel<cutlass_80_wmma>(Params)", 7, 3_200, 3_300)
    calls = load(tmp_path, made).trace["calls"].sort("start")
    assert calls["name"].cast(pl.String).to_list() == [
        "cuMemcpyHtoDAsync", "cuMemcpyAsync", "cuMemsetAsync", "cuGraphLaunch",
        "cuGraphInstantiateWithFlags", "cuStreamSynchronize", "cuLaunchKernel",
    ]  # fmt: skip
    assert calls["correlation"].to_list() == [1, 2, 3, 4, 5, 6, 7]


def test_a_kernel_of_no_annotation_belongs_to_the_range_around_its_launch(tmp_path):
    made = Cupti(H200)
    made.trace_me("net/dense/MatMul:MatMul", 2_000, 8_000)
    made.launch("sm90_xmma_gemm", 9, 3_000, 5_000)
    made.kernel("sm90_xmma_gemm", 9, 6_000, 9_000)
    row = load(tmp_path, made).kernels().row(0, named=True)
    assert (row["op"], row["reason"]) == ("MatMul", None)


def test_a_kernel_of_tensorflow_names_its_node(tmp_path):
    made = Cupti(H200)
    made.launch("sm90_xmma_gemm", 9, 3_000, 5_000, annotation="net/dense/MatMul:MatMul")
    made.kernel("sm90_xmma_gemm", 9, 6_000, 9_000)
    profile = load(tmp_path, made)
    assert profile.trace["kernels"]["op_key"].item() == "net/dense/MatMul:MatMul"
    assert profile.kernels()["op"].item() == "MatMul"


def test_a_path_is_told_in_two_parts(tmp_path):
    text = load(tmp_path, one_kernel()).trace["specs"]["text"].cast(pl.String).item()
    assert 'op_name="jit(step)/jit(main)/dense/dot_general"' in text


# ---------------------------------------------------------------------------------- the device


def test_an_h200_is_one_and_has_its_peaks(tmp_path):
    profile = load(tmp_path, one_kernel())
    row = profile.trace["devices"].row(0, named=True)
    assert (row["name"], row["cc"], row["sm_count"]) == ("NVIDIA H200", "9.0", 132)
    assert (row["memory"], row["clock_khz"]) == (150_109_880_320, 1_980_000)
    assert row["mem_bandwidth"] == 4_814_304_000_000
    device, why = find(*(row[key] for key in (
        "name", "cc", "sm_count", "memory", "clock_khz", "mem_bandwidth")))  # fmt: skip
    assert (device.name, why, device.note) == ("H200 SXM", None, "")


def test_properties_that_no_device_has_are_unknown(tmp_path):
    odd = {**H200, "core_count": 0, "clock_rate": -1, "memory_size": 0, "compute_cap_major": 0,
           "memory_bandwidth": 0}  # fmt: skip
    made = Cupti(odd)
    made.launch("k", 1, 1_000, 1_010)
    made.kernel("k", 1, 1_020, 1_030, 7)
    row = load(tmp_path, made).trace["devices"].row(0, named=True)
    assert row["name"] == "NVIDIA H200"
    assert [row[key] for key in ("sm_count", "clock_khz", "memory", "cc", "mem_bandwidth")] == [
        None
    ] * 5


def test_numbers_that_no_kernel_has_are_unknown(tmp_path):
    made = one_kernel(regs=1 << 40, dynamic=1 << 63)
    row = load(tmp_path, made).trace["kernels"].row(0, named=True)
    assert (row["registers"], row["shared_dynamic"], row["shared_static"]) == (None, None, 0)


# ------------------------------------------------------------------------------- copies and sets


def test_copies_and_sets_have_kinds_ends_and_bytes(tmp_path):
    made = Cupti(H200, H200)
    for number, kind in enumerate(("H2D", "D2H", "D2D", "Other"), start=1):
        made.memcpy_call(kind, number, 1_000 + number, 1_001 + number, 100 * number)
    made.memcpy("H2D", 1, 2_000, 2_100, 100)
    made.memcpy("D2H", 2, 2_200, 2_300, 200, source="device", target="pinned")
    made.memcpy("D2D", 3, 2_400, 2_500, 300, source="device", target="device_static")
    made.memcpy("Other", 4, 2_600, 2_700, 400, source="pageable", target="array")
    made.memcpy("P2P", 5, 2_800, 2_900, 500, source="device", dest=1)
    made.memset_call(6, 1_900, 1_950, 600)
    made.memset(6, 3_000, 3_100, 600)
    made.memcpy("Other", 7, 3_200, 3_300, 700, source="unknown", target="device")
    trace = load(tmp_path, made).trace
    rows = trace["memops"].sort("start").select(
        pl.col("kind", "src_kind", "dst_kind").cast(pl.String), "bytes", "peer", "correlation").rows()  # fmt: skip
    assert rows == [
        ("HtoD", "pageable", "device", 100, None, 1),
        ("DtoH", "device", "pinned", 200, None, 2),
        ("DtoD", "device", "device", 300, None, 3),
        ("HtoA", "pageable", "array", 400, None, 4),
        ("PtoP", "device", "device", 500, 1, 5),
        ("memset", None, None, 600, None, 6),
        (None, None, "device", 700, None, 7),
    ]
    assert len(trace["kernels"]) == 0


def test_copies_of_unified_memory_are_no_kernels(tmp_path):
    made = one_kernel()
    made.unified("UM_BYTES_TRANSFER_HTOD", 2_000, 2_500, 1)
    made.unified("UM_GPU_PAGE_FAULT", 2_600, 2_700, 4)
    trace = load(tmp_path, made).trace
    assert len(trace["kernels"]) == 1
    row = trace["memops"].row(0, named=True)
    assert (row["kind"], row["bytes"], row["stream"]) == ("UvmHtoD", None, None)
    notes = dict(trace["notes"].select("what", "how_many").rows())
    assert notes["events of unified memory that copied nothing, left out"] == 1


# ------------------------------------------------------- what stands among the streams and is no kernel


@pytest.mark.parametrize("stream", [7, None])
def test_the_profilers_own_work_takes_no_kernel_with_it(tmp_path, stream):
    """A stream's line is called ``CUPTI overhead`` as soon as one such event is on it."""
    made = one_kernel()
    made.overhead("BUFFER_FLUSH", 9_500, 9_900, stream)
    profile = load(tmp_path, made)
    kernels = profile.trace["kernels"]
    assert kernels.select(pl.col("name").cast(pl.String), "stream").rows() == [(KERNEL, 7)]
    notes = dict(profile.trace["notes"].select("what", "how_many").rows())
    assert notes["events of the profiler's own work (CUPTI overhead), left out"] == 1


def test_a_kernel_that_is_called_like_the_profilers_work_is_a_kernel(tmp_path):
    made = Cupti(H200)
    made.launch("RESOURCE", 9, 3_000, 5_000)
    made.kernel("RESOURCE", 9, 6_000, 9_000)
    assert len(load(tmp_path, made).trace["kernels"]) == 1


def test_the_life_of_an_allocation_is_no_kernel(tmp_path):
    made = one_kernel()
    made.residency(1_100, 90_000, 1 << 20, 0x7F00)
    made.counter("power_mw", 5_000, 700_000.0)
    profile = load(tmp_path, made)
    assert profile.summary()["kernel_time"].item() == 3_000
    notes = dict(profile.trace["notes"].select("what", "how_many").rows())
    assert notes["lifetimes of allocations among the streams, left out"] == 1
    assert notes["samples of hardware counters and of the device's state, left out"] == 1


# ---------------------------------------------------------------------------------- CUDA graphs


def replayed() -> Cupti:
    made = Cupti(H200)
    annotation = MODULE + "::Thunk:#hlo_op=command_buffer#"
    for run in range(2):
        start = 10_000 * (run + 1)
        made.call("CudaGraph", 20 + run, start, start + 500, name="cuGraphLaunch", graph=12,
                  annotation=annotation)  # fmt: skip
        for node in (1, 2):
            thunk = MODULE + f"::Thunk:#name=layer{node}/dot,hlo_op=dot.{node}#"
            made.kernel(f"dot_{node}", 20 + run, start + 1_000 * node, start + 1_000 * node + 400,
                        graph=12, node=(7 << 32) + node, annotation=thunk)  # fmt: skip
    return made


def test_a_graphs_launch_has_its_kernels_and_they_their_ops(tmp_path):
    profile = load(tmp_path, replayed())
    calls = profile.trace["calls"]["name"].cast(pl.String).to_list()
    assert calls == ["cuGraphLaunch", "cuGraphLaunch"]
    kernels = profile.trace["kernels"].sort("start")
    assert kernels["graph"].to_list() == [12] * 4
    assert kernels["graph_node"].to_list() == [(7 << 32) + node for node in (1, 2, 1, 2)]
    frame = profile.kernels().sort("start")
    assert frame["op"].cast(pl.String).to_list() == ["hlo::dot"] * 4
    assert frame["reason"].null_count() == 4
    ops = profile.op_totals()
    assert sorted(ops["layer"].cast(pl.String)) == ["layer1", "layer2"]
    assert ops["calls"].to_list() == [2, 2]


def test_a_graph_that_was_traced_as_a_whole_says_so(tmp_path):
    made = Cupti(H200)
    made.call("CudaGraph", 20, 3_000, 3_500, name="cuGraphLaunch", graph=12)
    made.graph(12, 20, 5_000, 9_000)
    row = load(tmp_path, made).trace["kernels"].row(0, named=True)
    assert (row["name"], row["attrs"], row["graph"]) == (
        "CUDA graph 12",
        '{"graph_trace":true}',
        12,
    )


# ------------------------------------------------------------------------- command buffers, warnings

FLAG = "--xla_enable_command_buffers_during_profiling=true"


def told(profile: Profile) -> list[tuple[str, str]]:
    notes = profile.trace["notes"].with_columns(pl.col("severity").cast(pl.String))
    return (
        notes.filter(pl.col("what").str.contains(FLAG, literal=True))
        .select("severity", "what")
        .rows()
    )


def test_that_xla_did_without_its_command_buffers_is_a_warning(tmp_path):
    made = one_kernel()
    made.trace_me("WARNING: CommandBuffer disabled when profiling", 2_500, 2_600)
    made.trace_me("WARNING: CommandBuffer disabled when profiling", 2_700, 2_800)
    ((severity, what),) = told(load(tmp_path, made))
    assert severity == "warning"
    assert what.startswith("XLA ran its command buffers")


def test_that_it_may_have_is_said_where_nothing_tells(tmp_path):
    ((severity, what),) = told(load(tmp_path, one_kernel()))
    assert severity == "info"
    assert "if this program has any" in what


def test_where_graphs_ran_there_is_nothing_to_say(tmp_path):
    assert told(load(tmp_path, replayed())) == []


def test_events_that_the_profiler_dropped_are_told(tmp_path):
    made = one_kernel()
    made.warnings.append("Detected GPU events dropped on machine: 5 events dropped")
    notes = load(tmp_path, made).trace["notes"]["what"].to_list()
    assert (
        "the profiler reported: Detected GPU events dropped on machine: 5 events dropped" in notes
    )


# ----------------------------------------------------------------------------- planes and processes


def test_nvtx_ranges_stand_on_their_threads(tmp_path):
    made = one_kernel()
    made.nvtx("TSL", "net/Relu:Relu", 3_100, 4_900)
    made.nvtx("", "my range", 2_900, 5_100)
    trace = load(tmp_path, made).trace
    ranges = trace["ranges"].filter(pl.col("domain").cast(pl.String).is_in(["TSL", ""]))
    assert ranges.select("thread", pl.col("domain", "text").cast(pl.String)).sort("text").rows() == [
        (77, "", "my range"), (77, "TSL", "net/Relu:Relu")]  # fmt: skip
    assert trace["threads"]["thread"].to_list() == [77]
    assert len(trace["calls"]) == 1


def test_a_device_in_several_messages_is_one(tmp_path):
    """XLA divides planes that are too large for one (DestructiveChunkXPlaneLines)."""
    data = one_kernel().space()
    plane = Cupti(H200).planes[0]
    twice = data + field(1, plane.data())
    trace = readers.open(write(tmp_path, twice))
    assert len(trace["devices"]) == 1
    assert len(trace["kernels"]) == 1


def test_planes_of_subprocesses_are_processes(tmp_path):
    """MergeSubprocessXSpace puts the process id behind a plane's name; ids repeat between processes."""
    data = one_kernel().space()
    other = one_kernel()
    for plane in (*other.planes, other.host):
        plane.name += " [4711]"
    trace = readers.open(write(tmp_path, data + other.space()))
    assert trace["kernels"]["process"].to_list() == [0, 1]
    assert trace["processes"]["pid"].to_list() == [None, 4711]
    profile = Profile(trace)
    assert profile.kernels()["reason"].null_count() == 2
    alone = _of_one(trace)
    assert (len(alone["processes"]), len(alone["kernels"]), len(alone["calls"])) == (1, 1, 1)


def test_the_tree_of_annotations_is_passed_over(tmp_path):
    tree_of = Plane("/host:__ScopeRangeCallStack__")
    tree_of.stats = [message((1, number), (4, number - 1)) for number in range(2, 2_000)]
    data = one_kernel().space() + field(1, tree_of.data())
    assert len(readers.open(write(tmp_path, data))["kernels"]) == 1


def test_the_programs_in_the_file_say_what_a_kernel_computed(tmp_path):
    real = Path(__file__).with_name("torch_xla.xplane.pb.gz")
    space = Space(gzip.decompress(real.read_bytes()))
    (metadata,) = [plane for plane in space.planes() if plane.name == "/host:metadata"]
    name, proto = next(
        (event.name, event.stats["Hlo Proto"]) for event in metadata.events.values()
        if "Hlo Proto" in event.stats
    )  # fmt: skip
    before = opscope.load(real)
    known = before.trace["specs"].filter(pl.col("graph").cast(pl.String) == name)
    known = known.filter(pl.col("text").cast(pl.String).str.contains("dot"))
    key = known["key"].cast(pl.String)[0]
    module, number = name[:-1].rsplit("(", 1)
    made = Cupti(H200)
    made.program(module, int(number), space.data[slice(*proto)])
    annotation = f"XlaModule:#hlo_module={module},program_id={number}#::Thunk:#hlo_op={key}#"
    made.launch("gemm", 9, 3_000, 5_000, annotation=annotation)
    made.kernel("gemm", 9, 6_000, 9_000)
    row = load(tmp_path, made).kernels().row(0, named=True)
    assert row["inputs"] is not None
    assert row["flops"] > 0


# -------------------------------------------------------------------------------------- laws

KERNELS = st.lists(
    st.tuples(
        st.integers(0, 1), st.integers(0, 40), st.integers(0, 1 << 20), st.integers(0, 65_535),
        st.booleans(),
    ),
    min_size=1,
    max_size=20,
)  # fmt: skip


@given(KERNELS)
def test_every_kernel_is_read_as_it_was_written(tmp_path_factory, kernels):
    made = Cupti(H200, H200)
    expected = []
    for number, (device, stream, length, grid, busy) in enumerate(kernels, start=1):
        start = 1_000 + 2_000 * number
        made.launch(f"k{number}", number, start, start + 10, device=device)
        made.kernel(f"k{number}", number, start + 20, start + 20 + length, stream, device=device,
                    grid=(grid, 1, 1))  # fmt: skip
        if busy:
            made.overhead("INSTRUMENTATION", start, start + 5, stream)
        expected.append(
            (device, stream, start + 20, start + 20 + length, f"k{number}", number, f"{grid},1,1")
        )
    trace = readers.open(write(tmp_path_factory.mktemp("made"), made))
    found = trace["kernels"].sort("correlation").select(
        "device", "stream", "start", "end", pl.col("name").cast(pl.String), "correlation",
        pl.col("grid").cast(pl.String)).rows()  # fmt: skip
    assert found == expected
    assert trace["calls"]["correlation"].sort().to_list() == [one[5] for one in expected]


def everything() -> bytes:
    made = replayed()
    made.launch(KERNEL, 9, 3_000, 5_000, annotation=THUNK)
    made.kernel(KERNEL, 9, 6_000, 9_000)
    made.memcpy("H2D", 1, 2_000, 2_100, 100)
    made.memset(6, 3_000, 3_100, 600)
    made.residency(1_100, 90_000, 1 << 20, 0x7F00)
    made.unified("UM_BYTES_TRANSFER_HTOD", 2_000, 2_500, 1)
    made.overhead("BUFFER_FLUSH", 9_500, 9_900, 7)
    made.graph(12, 20, 5_000, 9_000)
    made.nvtx("TSL", "net/Relu:Relu", 3_100, 4_900)
    made.planes[0].add(7, "odd", 1_000, 2_000, {"context_id": Ref("$$x"), "kernel_details": 5})
    return made.space()


DAMAGE = st.lists(
    st.tuples(st.integers(0, 10**6), st.integers(0, 4), st.integers(0, 10**6)),
    min_size=1,
    max_size=8,
)


@given(DAMAGE)
def test_well_formed_nonsense_is_read_or_refused(tmp_path_factory, damage):
    nodes = tree(everything())
    for one in damage:
        damaged(nodes, *one)
    path = write(tmp_path_factory.mktemp("nonsense"), encoded(nodes))
    with contextlib.suppress(BadInput):
        profile = Profile(xplane.read(path))
        for frame in (profile.kernels, profile.memops, profile.ops, profile.unattributed):
            frame()


@pytest.mark.parametrize("far", [(1 << 62) + 1, -(1 << 62) - 1, (1 << 63) - 1, -(1 << 63)])
def test_a_time_beyond_all_bounds_costs_its_event_and_no_other(tmp_path, far):
    made = one_kernel()
    made.kernel("other", 10, 12_000, 15_000)
    plane = made.planes[0]
    number = plane.events.setdefault("lost", len(plane.events) + 1)
    plane.lines[7][1].append(message((1, number), (2, far), (3, 1000)))
    trace = load(tmp_path, made).trace
    assert sorted(trace["kernels"]["name"].cast(pl.String)) == [KERNEL, "other"]
    what = "rows of kernels whose time is out of range, left out: their times were not recorded"
    assert trace["notes"].filter(pl.col("what") == what)["how_many"].to_list() == [1]


@pytest.mark.parametrize("registers", [2_191_500_840, 1 << 40, 10**30])
def test_registers_that_no_thread_has_are_not_known(tmp_path, registers):
    trace = load(tmp_path, one_kernel(regs=registers, static=64)).trace
    row = trace["kernels"].row(0, named=True)
    assert (row["registers"], row["shared_static"], row["name"]) == (None, 64, KERNEL)
    if registers < 1 << 63:
        what = "values of kernels.registers out of range, read as null"
        assert trace["notes"].filter(pl.col("what") == what)["how_many"].to_list() == [1]
