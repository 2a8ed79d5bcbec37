"""A ring with kernels: CUPTI's buffers lie in its segments, over a stand-in for the library."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import polars as pl
import pytest

import opscope
from opscope.backends import recording_folder
from opscope.backends import ring as module
from opscope.backends.cupti.ring import RingActivity
from opscope.backends.machine import Machine
from opscope.backends.ring import RingCapture, why_ranges_alone
from opscope.core.capture import ring_recorder, session
from opscope.core.capture.ring_bounds import Bounds, Last
from opscope.core.cupti import files
from opscope.readers.recording.reader import collect
from tests.cupti_stand_in.library import Driver, build
from tests.cupti_stand_in.play import Activity

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="CUPTI's helper is built on Linux only"
)
LIMIT_S = 120


class Gpu:
    """A stand-in with kernels ``k0`` to ``k4``, and a ring beside it whose thread the test stands for."""

    def __init__(self, folder: Path, **limits: int) -> None:
        self.folder = folder
        self.path = build(folder / "lib")
        activity = Activity()
        self.call = activity.call()
        self.kernels = [
            activity.kernel(f"k{number}", duration=1000 + number) for number in range(5)
        ]
        self.driver = Driver(self.path, activity.write(folder / "play"))
        self.limits = limits

    def ring(self, **bounds: object) -> ring_recorder.RingRecorder:
        capture = RingCapture(
            self.folder / "ring", Bounds(**bounds), kernels=RingActivity(self.path, self.limits)
        )
        session.start(capture)
        recorder = capture.recorder
        assert recorder is not None
        recorder._idle.stop()  # the test does what its thread does
        return recorder

    def step(self, many: int = 1) -> None:
        opscope.step()
        for _ in range(many):
            for number, kernel in enumerate(self.kernels):
                with opscope.annotate(f"op{number}"):
                    self.driver.launch(self.call, kernel, 0)
        self.wait()

    def wait(self) -> None:
        """Until what was launched has ended."""
        until = self.driver.now() + 1_000_000
        while self.driver.now() < until:
            time.sleep(0.0005)

    @property
    def part(self) -> Path:
        return next((self.folder / "ring").glob("part-*"))


class Clock:
    """Ends the ring's segments when the test says so: a time limit that never comes."""

    @staticmethod
    def turn(recorder: ring_recorder.RingRecorder) -> None:
        with recorder._lock:
            recorder._flush()
            now = time.perf_counter_ns()
            recorder._turn(now)
            recorder._forget(now)


@pytest.fixture
def gpu(tmp_path, unobserved):
    yield Gpu(tmp_path)
    session.stop()
    session.listen(None)


def profile_of(folder: Path, to: Path):
    recording_folder.to_profile(folder, to, True)
    return opscope.load(to)


def steps_of(profile) -> list[str]:
    found = profile.trace["ranges"].filter(pl.col("category").cast(pl.String) == "step")
    return found.sort("start")["text"].cast(pl.String).to_list()


def test_the_last_steps_have_their_kernels_with_their_ops_and_no_others(gpu, tmp_path):
    recorder = gpu.ring(last=Last(steps=4))
    for _ in range(20):
        gpu.step()
        recorder._look_due = 0
        recorder._look()
    session.end_step()
    session.stop()
    assert not gpu.driver.subscribed()
    profile = profile_of(gpu.folder / "ring", tmp_path / "p.opscope")
    assert steps_of(profile) == [f"step {number}" for number in range(16, 20)]
    kernels = profile.kernels().sort("start")
    assert kernels["name"].to_list() == 4 * [f"k{number}" for number in range(5)]
    assert kernels["op"].to_list() == 4 * [f"op{number}" for number in range(5)]
    assert kernels["step"].to_list() == [step for step in range(16, 20) for _ in range(5)]
    assert profile.summary()["unattributed_time"][0] == 0
    assert profile.trace["calls"]["start"].min() >= profile.trace["ranges"]["start"].min()
    assert profile.trace["windows"].is_empty()  # kernels of all that is kept
    told = profile.trace.origin["backends"]
    assert [one["backend"] for one in told] == ["cupti"]


def test_it_stays_flat_on_disk_and_in_memory(gpu):
    recorder = gpu.ring(last=Last(steps=8))
    sizes, shared = [], []
    for number in range(120):
        gpu.step(many=20)
        Clock.turn(recorder)
        if number % 20 == 19:
            raw = list(gpu.part.rglob(files.RAW))
            sizes.append(sum(one.stat().st_size for one in raw))
            shared.append((gpu.part / files.FACTS).stat().st_size)
    assert 0 < max(sizes) <= 1.5 * sizes[0]  # twelve times as much went through it
    assert max(shared) <= shared[0] + 4096
    state = recorder.segmented[0]._helper.state()
    assert state.buffers > 100
    assert state.requested - state.completed <= 8  # the pool is as large as it was


def test_a_slow_step_is_written_with_its_kernels_and_those_around_it(gpu, tmp_path):
    dumps: list[Path] = []
    recorder = gpu.ring(last=Last(steps=3), slow=3.0)
    recorder._on_dump = lambda folder, what: dumps.append(folder)
    for number in range(24):
        opscope.step()
        for place, kernel in enumerate(gpu.kernels):
            with opscope.annotate(f"op{place}"):
                gpu.driver.launch(gpu.call, kernel, 0)
        time.sleep(0.4 if number == 15 else 0.005)
        if number == 15:
            with opscope.annotate("planted"):
                gpu.driver.launch(gpu.call, gpu.kernels[0], 0)
        recorder._look_due = 0
        recorder._look()
    assert len(dumps) == 1
    profile = profile_of(dumps[0], tmp_path / "slow.opscope")
    steps = steps_of(profile)
    assert {"step 14", "step 15", "step 16", "step 17"} <= set(steps)
    kernels = profile.kernels()
    slow = kernels.filter(pl.col("step") == 15).sort("start")
    assert slow["op"].to_list() == [*(f"op{number}" for number in range(5)), "planted"]
    assert kernels.filter(pl.col("step") == 14)["op"].len() == 5
    assert "the median before it" in "\n".join(profile.trace["notes"]["what"])


def test_a_text_that_another_took_the_place_of_keeps_its_kernels_across_segments(gpu, tmp_path):
    """The first segments are gone, and with them their buffers, by whose numbers texts change."""
    recorder = gpu.ring(last=Last(steps=4))
    for number in range(12):
        if number == 10:
            gpu.driver.rename(0, b"n0")
        gpu.step()
        Clock.turn(recorder)
    assert len(list(gpu.part.glob("segment-*"))) < 12
    session.end_step()
    session.stop()
    kernels = profile_of(gpu.folder / "ring", tmp_path / "p.opscope").kernels().sort("start")
    first = kernels.filter(pl.col("op") == "op0")["name"].to_list()
    assert first == ["k0", "k0", "n0", "n0"]


def test_a_ring_that_began_before_cuda_has_kernels_from_then_on(tmp_path, unobserved):
    gpu = Gpu(tmp_path)
    activity = RingActivity(gpu.path)
    capture = RingCapture(tmp_path / "ring", Bounds(Last(steps=50)), kernels=False)
    session.start(capture)
    recorder = capture.recorder
    recorder._idle.stop()
    gpu.step()
    activity.join(recorder)
    activity.join(recorder)  # a second call does nothing
    gpu.step()
    activity.leave()
    gpu.step()  # after the end
    session.stop()
    session.listen(None)
    trace = collect(tmp_path / "ring")
    assert len(trace["kernels"]) == 5
    windows = trace["windows"].to_dicts()
    assert len(windows) == 1
    assert windows[0]["source"] == "CUPTI"


def test_another_subscriber_is_told_and_the_ring_goes_on(tmp_path, unobserved, monkeypatch):
    monkeypatch.setenv("CUPTI_STAND_IN_TAKEN", "another tool")
    gpu = Gpu(tmp_path)
    gpu.ring(last=Last(steps=3))
    gpu.step()
    gpu.step()
    session.stop()
    trace = collect(tmp_path / "ring")
    assert not trace.has("kernels")
    assert "kernels are not captured: cuptiSubscribe failed" in "\n".join(trace["notes"]["what"])
    assert trace.origin["gpu"]  # so no time of the CPU stands for the device's


def test_the_programs_own_profiler_finds_cupti_free_and_the_ring_goes_on(gpu):
    torch = pytest.importorskip("torch")
    gpu.ring(last=Last(steps=30))
    gpu.step()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
        assert not gpu.driver.subscribed()
    gpu.step()
    session.stop()
    trace = collect(gpu.folder / "ring")
    assert len(trace["kernels"]) == 5
    assert "the program's own profiler began" in "\n".join(trace["notes"]["what"])


def test_bytes_of_a_segment_end_it_and_what_has_no_room_is_told(tmp_path, unobserved):
    gpu = Gpu(tmp_path, most_bytes=1 << 16, buffer_bytes=1 << 13)
    recorder = gpu.ring(last=Last(steps=1000), max_bytes=1 << 17)
    for _ in range(60):
        gpu.step(many=10)
        recorder._look_due = 0
        recorder._look()
    raw = list(gpu.part.rglob(files.RAW))
    assert len(raw) > 1
    assert sum(one.stat().st_size for one in raw) <= 1.5 * (1 << 17)
    session.stop()
    assert "what is older is not in it" in "\n".join(collect(tmp_path / "ring")["notes"]["what"])


def test_what_is_read_of_a_killed_process_is_what_it_had_written(gpu, tmp_path):
    recorder = gpu.ring(last=Last(steps=100))
    for _ in range(3):
        gpu.step()
        Clock.turn(recorder)
    gpu.step()
    with recorder._lock:
        recorder._flush()
    # a snapshot of the folder, as if the process had ended here
    import shutil

    shutil.copytree(gpu.folder / "ring", tmp_path / "killed")
    part = next((tmp_path / "killed").glob("part-*"))
    with (sorted(part.glob("segment-*"))[-1] / files.RAW).open("ab") as file:
        file.write(b"OPSCUPT1 half a head")
    trace = collect(tmp_path / "killed")
    assert len(trace["kernels"]) >= 15
    assert "the last buffer of CUPTI's records is incomplete" in "\n".join(trace["notes"]["what"])


@pytest.mark.parametrize("line", ['{"buffers_before": "x"}', "[]", '{"clock": [1]}'])
def test_a_segment_that_is_damaged_leaves_the_ranges(gpu, line):
    recorder = gpu.ring(last=Last(steps=100))
    gpu.step()
    Clock.turn(recorder)
    session.stop()
    segment = sorted(gpu.part.glob("segment-*"))[0] / files.FACTS
    segment.write_text(line + "\n")
    trace = collect(gpu.folder / "ring")
    assert not trace.has("kernels")
    assert len(trace["ranges"])
    assert json.dumps(trace.origin["failed"])


def test_why_a_ring_has_ranges_alone_is_told_where_there_is_a_gpu(monkeypatch):
    assert why_ranges_alone(Machine({}, Path("/nonexistent"), gpu=None)) is None
    amd = why_ranges_alone(Machine({}, Path("/nonexistent"), gpu="amd"))
    assert amd == f"{module.RANGES_ALONE}: CUPTI records NVIDIA's GPUs, and this is another"
    nsys = Machine({"NSYS_PROFILING_SESSION_ID": "1"}, Path("/nonexistent"), gpu="nvidia")
    assert "Nsight Systems runs this process" in why_ranges_alone(nsys)


def test_a_forked_child_has_ranges_and_its_parent_the_kernels(gpu):
    import os

    recorder = gpu.ring(last=Last(steps=50))
    gpu.step()
    Clock.turn(recorder)
    pid = os.fork()
    if not pid:
        try:
            with opscope.annotate("in the child"):
                pass
            session.finish()
        finally:
            os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    gpu.step()
    session.stop()
    trace = collect(gpu.folder / "ring")
    names = trace["kernels"]["name"].cast(pl.String)
    assert len(names) == 10
    assert trace["kernels"]["process"].n_unique() == 1
