"""The CUPTI backend over a stand-in for the library: what is recorded, and what goes wrong."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import polars as pl
import pytest

import opscope
from opscope.backends import graph_trace
from opscope.backends.cupti import capture as module
from opscope.backends.cupti import others
from opscope.backends.cupti.capture import CuptiCapture
from opscope.backends.window import EXACT, Bounds
from opscope.core.capture import session
from opscope.core.capture.session import SessionError
from opscope.core.cupti import files, kinds, layouts
from opscope.readers.recording.reader import collect
from tests.cupti_stand_in.library import Driver, build
from tests.cupti_stand_in.play import Activity

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="CUPTI's helper is built on Linux only"
)
ROOT = Path(opscope.__file__).resolve().parents[1]
LIMIT_S = 120


class Gpu:
    """A stand-in with one call and kernels ``k0`` to ``k4``, and captures of it into ``folder``."""

    def __init__(self, folder: Path, *flags: str, activity: Activity | None = None) -> None:
        self.folder = folder
        self.path = build(folder / "lib", *flags)
        self.activity = Activity() if activity is None else activity
        self.call = self.activity.call()
        self.kernels = [self.activity.kernel(f"k{i}<float>", duration=1000 + i) for i in range(5)]
        self.play = self.activity.write(folder / "play")
        self.driver = Driver(self.path, self.play)

    def capture(self, bounds: Bounds = EXACT, **limits: int) -> CuptiCapture:
        return CuptiCapture(self.folder / "out", bounds, self.path, limits)

    def launch(self, number: int = 0) -> int:
        return self.driver.launch(self.call, self.kernels[number], 0)

    def steps(self, many: int = 3) -> None:
        for _ in range(many):
            opscope.step()
            for number in range(5):
                with opscope.annotate(f"op{number}"):
                    self.launch(number)

    def record(self, many: int = 3, **limits: int) -> CuptiCapture:
        capture = self.capture(**limits)
        session.start(capture)
        self.steps(many)
        session.stop()
        return capture

    @property
    def trace(self):
        return collect(self.folder / "out")

    @property
    def part(self) -> Path:
        return next((self.folder / "out").glob("part-*"))

    @property
    def facts(self) -> list[dict]:
        return [json.loads(line) for line in (self.part / files.FACTS).read_text().splitlines()]

    @property
    def notes(self) -> str:
        return "\n".join(self.trace["notes"]["what"].to_list())


@pytest.fixture
def gpu_of(tmp_path, unobserved):
    yield lambda *flags, **what: Gpu(tmp_path, *flags, **what)
    session.stop()
    session.listen(None)


@pytest.fixture
def gpu(gpu_of):
    return gpu_of()


def kernels_of(trace) -> list[tuple[str, int]]:
    table = trace["kernels"].sort("start")
    return list(zip(table["name"].cast(pl.String), table["end"] - table["start"], strict=True))


ONE_STEP = [(f"k{number}<float>", 1000 + number) for number in range(5)]


def test_kernels_have_their_names_times_and_ops(gpu, tmp_path):
    gpu.record(2)
    trace = gpu.trace
    assert kernels_of(trace) == 2 * ONE_STEP
    found = attributed(gpu, tmp_path)
    assert found["range"].to_list() == 2 * [f"op{number}" for number in range(5)]


def attributed(gpu: Gpu, tmp_path: Path) -> pl.DataFrame:
    from opscope.backends import recording_folder

    recording_folder.to_profile(gpu.folder / "out", tmp_path / "p.opscope", True)
    return opscope.load(tmp_path / "p.opscope").kernels().sort("start")


def test_a_call_is_on_the_thread_that_made_it(gpu):
    capture = gpu.capture()
    session.start(capture)
    seen: list[int] = []

    def work() -> None:
        seen.append(threading.get_native_id())
        gpu.launch(1)

    for _ in range(3):  # each thread ends before CUPTI hands its buffer back
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    gpu.launch(0)
    session.stop()
    calls = gpu.trace["calls"].sort("start")
    assert calls["thread"].to_list() == [*seen, threading.get_native_id()]
    assert len(gpu.trace["kernels"]) == 4


def test_devices_contexts_and_streams_are_told_apart(gpu_of):
    activity = Activity()
    for device in range(2):
        for stream in (7, 13):
            activity.kernel("k", deviceId=device, contextId=device + 1, streamId=stream)
    gpu = gpu_of(activity=activity)
    session.start(gpu.capture())
    for number in range(4):
        gpu.driver.launch(gpu.call, number, 0)
    session.stop()
    table = gpu.trace["kernels"]
    places = table.select("device", "context", "stream").rows()
    assert places == [(0, 1, 7), (0, 1, 13), (1, 2, 7), (1, 2, 13)]


def test_a_second_recording_of_the_process_has_its_own_kernels(gpu):
    gpu.record(1)
    gpu.launch()
    gpu.record(2)
    kernels = [
        len(collect(part)["kernels"]) for part in sorted((gpu.folder / "out").glob("part-*"))
    ]
    assert sorted(kernels) == [5, 10]
    assert not gpu.driver.subscribed()


def test_a_window_of_steps_ends_the_activity_and_not_the_ranges(gpu):
    capture = gpu.capture(Bounds(steps=2))
    session.start(capture)
    gpu.steps(6)
    assert not gpu.driver.subscribed()
    session.stop()
    assert len(gpu.trace["kernels"]) == 10
    steps = gpu.trace["ranges"].filter(pl.col("category").cast(pl.String) == "step")
    assert len(steps) == 6


def test_a_thread_of_the_system_and_the_clock_are_set_back(gpu, monkeypatch, tmp_path):
    gpu.record(1)
    assert gpu.driver.system_threads() == 0
    assert abs(gpu.driver.now() - time.time_ns()) < 5_000_000_000
    assert not any(gpu.driver.enabled(kind) for kind in range(64))


def test_capture_writes_a_profile_with_cuptis_kernels(gpu, tmp_path, monkeypatch):
    """``LD_LIBRARY_PATH`` names the library, which this process has loaded already."""
    monkeypatch.setattr(
        module.library, "here", lambda *_: (module.library.Found(gpu.path, 12, ""), "")
    )
    with opscope.capture(tmp_path / "c.opscope", backend="cupti"):
        gpu.steps(2)
    profile = opscope.load(tmp_path / "c.opscope")
    assert profile.kernels().sort("start")["name"].to_list() == 2 * [name for name, _ in ONE_STEP]
    assert profile.summary()["unattributed_time"][0] == 0


def test_the_programs_own_profiler_finds_cupti_free(gpu):
    torch = pytest.importorskip("torch")
    session.start(gpu.capture())
    gpu.steps(1)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
        assert not gpu.driver.subscribed()
    gpu.steps(1)
    session.stop()
    assert kernels_of(gpu.trace) == ONE_STEP
    assert gpu.trace["windows"]["ended"].to_list() == ["the program's own profiler began"]


# ----------------------------------------------------------------------- CUDA graphs, texts


def test_a_replayed_node_has_the_op_that_captured_it(gpu_of, tmp_path):
    activity = Activity()
    launch = activity.call(311)  # cudaGraphLaunch
    node = activity.kernel("captured", graphNodeId=(5 << 32) + 1, graphId=5)
    gpu = gpu_of(activity=activity)
    session.start(gpu.capture())
    opscope.step()
    with opscope.annotate("captures"):
        gpu.driver.graph_node(4, (4 << 32) + 1, 0)
    with opscope.annotate("instantiates"):
        gpu.driver.graph_node(5, (5 << 32) + 1, (4 << 32) + 1)
    opscope.step()
    with opscope.annotate("replays"):
        gpu.driver.launch(launch, node, 0)
    session.stop()
    nodes = gpu.trace["graph_nodes"].select("node", "original_node", "thread").rows()
    here = threading.get_native_id()
    assert ((4 << 32) + 1, None, here) in nodes
    assert ((5 << 32) + 1, (4 << 32) + 1, here) in nodes
    assert attributed(gpu, tmp_path)["op"].to_list() == ["captures"]


def graph_of(gpu_of) -> tuple[Gpu, int, list[int]]:
    """A stand-in, the call that launches a graph of two kernels, and what CUPTI may record of that."""
    activity = Activity()
    launch = activity.call(311)  # cudaGraphLaunch
    node = {"graphId": 5, "contextId": 1, "streamId": 7}
    parts = [
        activity.kernel("first", duration=2000, graphNodeId=(5 << 32) + 1, **node),
        activity.kernel("second", duration=3000, graphNodeId=(5 << 32) + 2, **node),
        activity.add(kinds.GRAPH_TRACE, duration=5500, **node),
    ]
    return gpu_of(activity=activity), launch, parts


def replayed(gpu: Gpu, launch: int, parts: list[int]) -> None:
    session.start(gpu.capture())
    for _ in range(2):
        opscope.step()
        with opscope.annotate("replays"):
            number = gpu.driver.launch(launch, parts[2], 0)
            for part in parts[:2]:  # the same launch starts the nodes
                now = gpu.driver.now()
                gpu.driver.record(part, now, now + 1000, number)
        with opscope.annotate("launches"):
            gpu.launch(1)
    opscope.step()
    session.stop()


def test_a_graph_is_traced_by_its_nodes_unless_the_whole_is_asked_for(gpu_of):
    gpu, launch, parts = graph_of(gpu_of)
    replayed(gpu, launch, parts)
    names = [name for name, _ in kernels_of(gpu.trace)]
    assert sorted(names) == sorted(2 * ["first", "second", "k1<float>"])
    assert "as a whole" not in gpu.notes


def test_a_graph_that_is_traced_as_a_whole_belongs_to_its_launch(gpu_of, monkeypatch, tmp_path):
    monkeypatch.setenv(graph_trace.VARIABLE, "graph")
    gpu, launch, parts = graph_of(gpu_of)
    replayed(gpu, launch, parts)
    found = attributed(gpu, tmp_path)
    assert sorted(found.select("name", "duration", "op", "step").rows()) == [
        ("CUDA graph 5", 5500, "replays", 0), ("CUDA graph 5", 5500, "replays", 1),
        ("k1<float>", 1001, "launches", 0), ("k1<float>", 1001, "launches", 1),
    ]  # fmt: skip
    profile = opscope.load(tmp_path / "p.opscope")
    assert "CUDA graph launches traced as a whole" in "\n".join(profile.trace["notes"]["what"])
    summary = profile.summary().row(0, named=True)
    assert summary["kernel_time"] == 2 * (5500 + 1001)
    assert summary["unattributed_time"] == 0


def test_where_kernels_are_refused_graphs_are_traced_as_wholes(gpu_of, monkeypatch):
    monkeypatch.setenv("CUPTI_STAND_IN_ERRORS", "cuptiActivityEnable:10=27")
    gpu, launch, parts = graph_of(gpu_of)
    replayed(gpu, launch, parts)
    assert kernels_of(gpu.trace) == 2 * [("CUDA graph 5", 5500)]
    assert "single kernels are not recorded, only CUDA graphs as wholes" in gpu.notes
    assert gpu.facts[0]["kinds"][0] == kinds.GRAPH_TRACE


def test_where_graphs_cannot_be_traced_as_wholes_their_nodes_are(gpu_of, monkeypatch):
    monkeypatch.setenv(graph_trace.VARIABLE, "graph")
    monkeypatch.setenv("CUPTI_STAND_IN_ERRORS", "cuptiActivityEnable:51=27")
    gpu, launch, parts = graph_of(gpu_of)
    replayed(gpu, launch, parts)
    assert sorted(name for name, _ in kernels_of(gpu.trace)) == sorted(
        2 * ["first", "second", "k1<float>"]
    )
    assert "CUDA graphs are traced by their nodes" in gpu.notes


def test_a_text_that_another_took_the_place_of_keeps_its_kernels(gpu):
    session.start(gpu.capture())
    gpu.launch(0)
    wait_until((gpu.part / files.RAW).read_bytes)  # CUPTI has handed the first over
    gpu.driver.rename(0, b"other")
    gpu.launch(0)
    session.stop()
    assert [name for name, _ in kernels_of(gpu.trace)] == ["k0<float>", "other"]


def test_a_name_with_odd_characters_is_kept(gpu_of):
    activity = Activity()
    names = ['a"quoted"\\name', "tab\there", "gemm<ä>", "x" * 20_000]
    for name in names:
        activity.kernel(name)
    gpu = gpu_of(activity=activity)
    session.start(gpu.capture())
    for number in range(len(names)):
        gpu.driver.launch(gpu.call, number, 0)
    session.stop()
    assert [name for name, _ in kernels_of(gpu.trace)] == names


# ---------------------------------------------------------------------------- what goes wrong


def test_another_subscriber_is_told_by_name(gpu, monkeypatch):
    monkeypatch.setenv("CUPTI_STAND_IN_TAKEN", "CUPTI for Nsight Systems")
    with pytest.raises(SessionError, match="one at a time may; it is CUPTI for Nsight Systems"):
        session.start(gpu.capture())
    monkeypatch.delenv("CUPTI_STAND_IN_TAKEN")
    gpu.record(1)  # it has gone
    assert kernels_of(gpu.trace) == ONE_STEP


@pytest.mark.parametrize(
    ("environ", "word"),
    [
        ({"NSYS_PROFILING_SESSION_ID": "1"}, "Nsight Systems"),
        ({"NV_COMPUTE_PROFILER_PERFWORKS_DIR": "/"}, "Nsight Compute"),
        ({"CUDA_INJECTION64_PATH": "/a/libtool.so"}, "libtool.so"),
    ],
)
def test_another_subscriber_is_guessed_by_the_environment(gpu_of, monkeypatch, environ, word):
    gpu = gpu_of("-DWITHOUT_SUBSCRIBE_V2")
    monkeypatch.setenv("CUPTI_STAND_IN_TAKEN", "x")
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SessionError, match=word):
        session.start(gpu.capture())


def test_a_library_without_a_needed_call_is_told(gpu_of):
    gpu = gpu_of("-DWITHOUT_ENABLE")
    with pytest.raises(SessionError, match="has no call cuptiActivityEnable"):
        session.start(gpu.capture())


@pytest.mark.parametrize(
    ("flag", "note"),
    [
        ("NEXT_RECORD", "sizes of records are not checked"),
        ("CLOCK", "the system's clock"),
        ("THREAD_IDS", "numbers of the C library"),
        ("GRAPHS", "which op captured a node"),
        ("SUBSCRIBE_V2", ""),
    ],
)
def test_an_older_library_without_a_call_records_what_it_can(gpu_of, flag, note):
    gpu = gpu_of(f"-DWITHOUT_{flag}")
    gpu.record(1)
    assert kernels_of(gpu.trace) == ONE_STEP
    assert note in gpu.notes
    assert set(gpu.trace["calls"]["thread"]) == {threading.get_native_id()}


def test_a_version_before_all_known_ones_is_told(gpu, monkeypatch):
    monkeypatch.setenv("CUPTI_STAND_IN_VERSION", "9")
    with pytest.raises(SessionError, match="version 9 is older than the oldest that is known"):
        session.start(gpu.capture())


def test_a_version_that_is_not_what_it_says_is_told(gpu, monkeypatch):
    """Its kernels' records have another size than the version's layout: no name is read from them."""
    monkeypatch.setenv("CUPTI_STAND_IN_VERSION", "17")
    gpu.record(1)
    (sizes,) = (fact["sizes"] for fact in gpu.facts if "sizes" in fact)
    types = gpu.activity.types()
    assert sizes[str(kinds.CONCURRENT_KERNEL)] == types[kinds.CONCURRENT_KERNEL].itemsize
    assert "another size than their layout" in gpu.notes
    assert not any("names" in fact for fact in gpu.facts)
    trace = gpu.trace  # the reader finds the layout by the sizes; the names were not read in time
    assert trace["kernels"]["name"].null_count() == 5
    assert any("kernels whose name was not recorded" in text for text in trace["notes"]["what"])


def test_a_library_that_is_none_is_told(tmp_path):
    (tmp_path / "libcupti.so").write_text("not a library")
    capture = CuptiCapture(tmp_path / "out", path=tmp_path / "libcupti.so")
    with pytest.raises(SessionError, match="cannot be loaded"):
        session.start(capture)


@pytest.mark.parametrize(
    ("errors", "text"),
    [
        ("cuptiGetVersion=999", "cuptiGetVersion failed"),
        ("cuptiSubscribe=15", "cannot be initialised"),
        ("cuptiActivityRegisterCallbacks=1", "cuptiActivityRegisterCallbacks failed"),
        (f"cuptiActivityEnable:{kinds.CONCURRENT_KERNEL}=43", "this MIG instance"),
        (f"cuptiActivityEnable:{kinds.CONCURRENT_KERNEL}=35", "only the administrator"),
    ],
)
def test_an_error_that_prevents_recording_is_told_and_nothing_stays_set(
    gpu, monkeypatch, errors, text
):
    monkeypatch.setenv("CUPTI_STAND_IN_ERRORS", errors)
    with pytest.raises(SessionError, match=text):
        session.start(gpu.capture())
    assert not gpu.driver.subscribed()
    assert not gpu.driver.enabled(kinds.RUNTIME)
    monkeypatch.delenv("CUPTI_STAND_IN_ERRORS")
    gpu.record(1)
    assert kernels_of(gpu.trace) == ONE_STEP


@pytest.mark.parametrize(
    ("errors", "text"),
    [
        (f"cuptiActivityEnable:{kinds.MEMCPY2}=27", "no copies between devices"),
        ("cuptiSetThreadIdType=27", "threads may not be told apart"),
        ("cuptiActivityRegisterTimestampCallback=39", "times are of CUPTI's own clock"),
        ("cuptiEnableCallback=27", "which op captured a node"),
        ("cuptiActivityDisable=999", "cuptiActivityDisable failed"),
        ("cuptiUnsubscribe=999", "cuptiUnsubscribe failed"),
        ("cuptiActivityGetNumDroppedRecords=999", "cuptiActivityGetNumDroppedRecords failed"),
    ],
)
def test_an_error_that_costs_a_part_is_told_and_the_rest_recorded(gpu, monkeypatch, errors, text):
    monkeypatch.setenv("CUPTI_STAND_IN_ERRORS", errors)
    gpu.record(1)
    assert kernels_of(gpu.trace) == ONE_STEP
    assert text in gpu.notes


def test_a_flush_that_fails_is_told(gpu, monkeypatch, caplog):
    monkeypatch.setenv("CUPTI_STAND_IN_ERRORS", "cuptiActivityFlushAll=999")
    gpu.record(1)
    assert "cuptiActivityFlushAll failed" in caplog.text + gpu.notes
    assert len(gpu.trace["ranges"]) > 5


def test_dropped_records_are_counted_and_told(gpu):
    """One small buffer: what comes before it is written is dropped, by CUPTI's own account."""
    gpu.record(40, buffer_bytes=4096, buffers=1)
    dropped = sum(fact.get("dropped", 0) for fact in gpu.facts)
    kept = len(gpu.trace["kernels"]) + len(gpu.trace["calls"])
    assert dropped > 0
    assert kept + dropped == 400
    assert gpu.notes.count(f"CUPTI dropped {dropped:,} records") == 1
    assert "no buffer was free" in gpu.notes


def test_a_recording_at_its_limit_of_size_ends(gpu):
    capture = gpu.capture(buffer_bytes=4096, most_bytes=10_000)
    told = []
    capture.announce = told.append
    session.start(capture)
    wait_until(lambda: gpu.steps(1) or not gpu.driver.subscribed())
    session.stop()
    assert "the recording reached its limit of size" in told[0]


def test_a_recording_at_its_limit_of_size_tells_what_is_lost(gpu, monkeypatch):
    capture = gpu.capture(buffer_bytes=4096, most_bytes=10_000)
    monkeypatch.setattr(capture, "_fills", lambda _: False)  # else it would end there
    session.start(capture)
    gpu.steps(40)
    session.stop()
    assert (gpu.part / files.RAW).stat().st_size <= 10_000
    lost = re.search(r"buffers with ([\d,]+) records are lost: the recording reached", gpu.notes)
    assert lost
    kept = len(gpu.trace["kernels"]) + len(gpu.trace["calls"])
    assert kept + int(lost[1].replace(",", "")) == 400


def test_a_full_disk_is_told_and_the_program_goes_on(gpu, monkeypatch):
    session.start(gpu.capture(buffer_bytes=4096))
    capture = session.capturing()
    monkeypatch.setattr(capture, "_fills", lambda _: False)
    full = os.open("/dev/full", os.O_WRONLY)
    gpu.launch()
    capture._helper.open(full, capture._files[1])
    gpu.steps(20)
    session.stop()
    os.close(full)
    assert "No space left on device" in gpu.notes


def test_a_worker_of_cupti_that_dies_is_told(gpu, monkeypatch):
    monkeypatch.setenv("CUPTI_STAND_IN_DIES", "2")
    monkeypatch.setattr(module, "DRAIN_S", 0.1)
    gpu.record(40, buffer_bytes=4096)
    assert "CUPTI has not handed back" in gpu.notes
    assert 0 < len(gpu.trace["kernels"]) < 200


def test_records_of_another_clock_than_registered_are_placed_by_the_true_one(gpu, monkeypatch):
    monkeypatch.setenv("CUPTI_STAND_IN_OWN_CLOCK", "1")
    begin = time.perf_counter_ns()
    gpu.record(1)
    trace = gpu.trace
    assert "its records use CUPTI's clock" in gpu.notes
    starts = trace["kernels"]["start"]
    assert begin < starts.min() < starts.max() < time.perf_counter_ns()


def test_work_that_does_not_end_is_told_and_has_no_time(gpu_of, monkeypatch):
    activity = Activity()
    for_ever = activity.kernel("for_ever", duration=3_600_000_000_000)
    gpu = gpu_of(activity=activity)
    monkeypatch.setattr(module, "DRAIN_S", 0.1)
    session.start(gpu.capture())
    gpu.launch(0)
    gpu.driver.launch(gpu.call, for_ever, 0)
    session.stop()
    assert [name for name, _ in kernels_of(gpu.trace)] == ["k0<float>"]
    assert "had not ended when the recording did" in gpu.notes
    assert "without times" in gpu.notes


def test_an_error_of_cupti_itself_is_noted(gpu):
    session.start(gpu.capture())
    gpu.launch()
    gpu.driver.fails(8, b'out of "device" memory', 0)
    session.stop()
    assert 'CUPTI reports error 8: out of "device" memory' in gpu.notes


def test_a_helper_that_cannot_be_built_is_told(gpu, monkeypatch):
    from opscope.adapters.shared import compiled

    def fails(*_):
        raise compiled.BuildError("no C compiler found (tried cc)")

    monkeypatch.setattr(compiled, "built", fails)
    with pytest.raises(SessionError, match="no C compiler found"):
        session.start(gpu.capture())


def test_mig_and_mps_are_said(tmp_path):
    assert others.notes({}, tmp_path) == []
    (tmp_path / "tmp/nvidia-mps").mkdir(parents=True)
    (tmp_path / "tmp/nvidia-mps/control").touch()
    (tmp_path / "proc/driver/nvidia/capabilities/gpu0/mig/gi1").mkdir(parents=True)
    mig, mps = others.notes({}, tmp_path)
    assert "MIG" in mig
    assert "Multi-Process Service" in mps


# --------------------------------------------------------------------- the end of the process

PROGRAM = """
    import os, sys, time, threading
    from pathlib import Path
    import opscope
    from opscope.backends.cupti.capture import CuptiCapture
    from opscope.core.capture import session
    from tests.cupti_stand_in.library import Driver
    folder = Path(sys.argv[1])
    gpu = Driver(folder / "lib/libcupti.so.12", folder / "play")
    session.start(CuptiCapture(folder / "out", path=folder / "lib/libcupti.so.12"))
    for _ in range(3):
        opscope.step()
        for number in range(1, 6):
            with opscope.annotate(f"op{number - 1}"):
                gpu.launch(0, number, 0)
"""


def run(gpu: Gpu, more: str = "", **environ: str) -> subprocess.Popen:
    code = textwrap.dedent(PROGRAM) + textwrap.dedent(more)
    return subprocess.Popen(
        [sys.executable, "-c", code, str(gpu.folder)],
        env={**os.environ, "PYTHONPATH": str(ROOT), **environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_until(what) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_program_that_ends_without_a_stop_has_all_its_kernels(gpu):
    program = run(gpu)
    _, errors = program.communicate(timeout=LIMIT_S)
    assert (program.returncode, errors) == (0, "")
    assert kernels_of(gpu.trace) == 3 * ONE_STEP


def test_a_killed_program_leaves_what_was_handed_over(gpu):
    program = run(gpu, 'print("waits", flush=True); time.sleep(600)')
    assert program.stdout.readline() == "waits\n"
    wait_until(
        lambda: any(
            "abruptly" in one.read_text() for one in (gpu.folder / "out").glob("part-*/facts.jsonl")
        )
    )
    program.send_signal(signal.SIGKILL)
    program.communicate(timeout=LIMIT_S)
    assert kernels_of(gpu.trace) == 3 * ONE_STEP
    assert "ended without closing" in gpu.notes


def test_a_forked_child_ends_well_and_writes_nothing_of_its_parents(gpu):
    program = run(
        gpu,
        """
        child = os.fork()
        if not child:
            gpu.launch(0, 1, 0)
            with opscope.annotate("in the child"):
                pass
            sys.exit(3)
        _, status = os.waitpid(child, 0)
        with opscope.annotate("after"):
            gpu.launch(0, 5, 0)
        print(os.waitstatus_to_exitcode(status))
        """,
    )
    output, errors = program.communicate(timeout=LIMIT_S)
    assert (output, errors) == ("3\n", "")
    kernels = gpu.trace["kernels"]
    assert kernels_of(gpu.trace) == [*3 * ONE_STEP, ONE_STEP[4]]
    assert kernels["process"].n_unique() == 1


def test_a_program_whose_disk_is_gone_goes_on(gpu):
    program = run(
        gpu,
        """
        import shutil
        shutil.rmtree(folder / "out")
        gpu.launch(0, 1, 0)
        session.stop()
        print("done")
        """,
    )
    output, _ = program.communicate(timeout=LIMIT_S)
    assert (program.returncode, output) == (0, "done\n")


@pytest.mark.parametrize("version", [17, 18, 20, 24, 28, 130000, 130301, 130500])
def test_the_records_of_each_version_come_back(gpu_of, monkeypatch, version):
    for layout in range(len(layouts.candidates(version))):
        gpu = gpu_of(activity=Activity(version, layout=layout))
        monkeypatch.setenv("CUPTI_STAND_IN_VERSION", str(version))
        gpu.folder = gpu.folder / f"layout{layout}"
        gpu.record(1)
        assert kernels_of(gpu.trace) == ONE_STEP
