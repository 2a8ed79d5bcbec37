"""The life of a capture with kernels: a long run, graphs, errors, hung devices, forks, kills; no GPU needed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from hashlib import pbkdf2_hmac
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest

from opscope.backends import beside, window
from opscope.backends import kineto_capture as kineto
from opscope.backends.cuda_graph_captures import METHODS
from opscope.backends.window import CHOSEN, EXACT, WHOLE, Bounds
from opscope.backends.xplane_capture import XPlaneCapture
from opscope.core.capture import session
from opscope.core.capture.cuda_graphs import OF_PROCESS
from opscope.core.capture.session import SessionError
from opscope.profile import Profile
from opscope.readers.recording.reader import collect
from tests.cuda_stand_in import Cuda, Profiler, StandIn, used

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, fresh_steps: None) -> Iterator[StandIn]:
    yield from used(monkeypatch, devices=2)
    OF_PROCESS.forget()
    METHODS.uninstall()


@pytest.fixture
def steady(monkeypatch: pytest.MonkeyPatch) -> None:
    """All steps are alike: a busy machine's are not."""
    monkeypatch.setattr(window, "SPREAD", 1e9)


def capture(gpu: StandIn, folder: Path, bounds: Bounds = EXACT) -> kineto.KinetoCapture:
    made = kineto.KinetoCapture(folder, lambda: Profiler(gpu), Cuda(gpu), bounds)
    made.lines = []  # type: ignore[attr-defined]
    made.announce = made.lines.append  # type: ignore[attr-defined]
    return made


def train(gpu: StandIn, steps: int, kernels: int = 1) -> None:
    op = session.emitter("torch").prepare("aten::relu(f32[4]) -> f32[4]", "forward")
    for _ in range(steps):
        session.step()
        for _ in range(kernels):
            session.emitter("torch").push(op)
            gpu.launch()
            session.emitter("torch").pop()


def within(seconds: float, what: Callable[[], Any]) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.01)


# ------------------------------------------------------------------------- a long run


def test_ten_thousand_steps_hold_the_events_of_one_window(
    gpu: StandIn, tmp_path: Path, steady: None
) -> None:
    made = capture(gpu, tmp_path, CHOSEN)
    session.start(made)
    train(gpu, 10_000, kernels=3)
    session.stop()
    assert gpu.peak < 40 * 3 * 3  # of warm-up and 20 steps, calls, kernels and probes
    assert gpu.held == 0
    assert len(gpu.made) == 1
    (said,) = made.lines  # type: ignore[attr-defined]
    first, last = window.WARM + window.ALIKE, window.WARM + window.ALIKE + window.STEPS - 1
    assert said.startswith(
        f"kernels were captured only for steps {first} to {last} (after 20 steps)"
    )
    for flag in ("--steps", "--duration", "--whole"):
        assert flag in said


def test_what_lies_outside_the_window_is_not_known_and_never_nothing(
    gpu: StandIn, tmp_path: Path, steady: None
) -> None:
    session.start(capture(gpu, tmp_path, CHOSEN))
    train(gpu, 100, kernels=2)
    session.stop()
    profile = Profile(collect(tmp_path))
    assert not profile.cpu_only
    row = profile.summary().row(0, named=True)
    assert (row["window_steps"], row["kernels"]) == (20, 40)
    assert row["window_time"] < row["wall_time"]
    assert row["attributed_share"] == 1.0
    ops = profile.ops()
    inside = ops.filter(pl.col("device_time").is_not_null())
    assert len(ops) == 200
    assert len(inside) == 40
    assert inside["step"].unique().sort().to_list() == list(range(5, 25))
    assert (inside["device_time"] > 0).all()
    outside = ops.filter(pl.col("device_time").is_null())
    assert outside["reason"].unique().to_list() == ["kernels not captured in this window"]
    assert inside["reason"].is_null().all()
    totals = profile.op_totals()
    assert totals.select("calls", "kernels", "reason").rows() == [
        (40, 40, None),
        (160, 0, "kernels not captured in this window"),
    ]
    assert totals["device_time"].to_list()[1] is None
    assert totals["device_time"].to_list()[0] == row["kernel_time"]
    assert profile.utilization()["step"].to_list() == list(range(5, 25))
    assert profile.unattributed().is_empty()


def test_a_window_that_a_step_ends_has_none_of_the_next_however_often_the_keeper_looks(
    gpu: StandIn, tmp_path: Path, steady: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("opscope.backends.keeper.TICK_S", 1e-4)
    monkeypatch.setattr(beside, "PROBES", 200)  # it looks while the end is probed
    session.start(capture(gpu, tmp_path, CHOSEN))
    train(gpu, 2000)
    session.stop()
    profile = Profile(collect(tmp_path))
    assert profile.summary()["kernels"].to_list() == [20]
    assert profile.ops().filter(pl.col("device_time").is_not_null())["step"].n_unique() == 20
    assert not [
        note for note in profile.trace["notes"]["what"].cast(pl.String) if "no probe found" in note
    ]


def test_a_run_that_ends_within_the_window_is_whole(gpu: StandIn, tmp_path: Path) -> None:
    made = capture(gpu, tmp_path, CHOSEN)
    session.start(made)
    train(gpu, 15)
    session.stop()
    profile = Profile(collect(tmp_path))
    assert made.lines == []  # type: ignore[attr-defined]
    assert profile.trace["windows"].is_empty()
    assert len(profile.kernels()) == 15
    assert profile.ops()["device_time"].null_count() == 0


def test_the_time_in_which_the_profiler_ends_is_not_the_programs(
    gpu: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[int] = []
    end = kineto.KinetoCapture._end
    monkeypatch.setattr(
        kineto.KinetoCapture,
        "_end",
        lambda self, folder: (ended.append(time.perf_counter_ns()), end(self, folder))[1],
    )
    session.start(capture(gpu, tmp_path))
    train(gpu, 5)
    session.stop()
    times = Profile(collect(tmp_path)).trace["process_times"]
    recorded = times.filter(pl.col("kind") == "recorded")
    assert recorded["end"].to_list()[0] < ended[0]


def test_all_of_a_run_is_taken_where_it_is_asked_for(
    gpu: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(window, "EVENTS", 10)
    session.start(capture(gpu, tmp_path, WHOLE))
    train(gpu, 300)
    session.stop()
    profile = Profile(collect(tmp_path))
    assert len(profile.kernels()) == 300
    assert profile.trace["windows"].is_empty()


def test_a_block_that_was_asked_for_ends_at_the_bound_of_events_and_says_so(
    gpu: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("opscope.core.capture.recorder_sink.FLUSH_NS", 0)
    made = capture(gpu, tmp_path, Bounds(events=500))
    session.start(made)
    train(gpu, 1000)
    session.stop()
    assert gpu.peak < 2000
    assert "500 events" in made.lines[0]  # type: ignore[attr-defined]
    profile = Profile(collect(tmp_path))
    row = profile.summary().row(0, named=True)
    assert 0 < row["kernels"] < 1000
    assert row["window_steps"] == row["kernels"]
    (ended,) = profile.trace["windows"]["ended"].to_list()
    assert "events" in ended


def test_full_buffers_of_the_profiler_end_the_window(gpu: StandIn, tmp_path: Path) -> None:
    made = capture(gpu, tmp_path)
    session.start(made)
    train(gpu, 3)
    gpu.full = True
    train(gpu, 3)
    assert gpu.profiler is None
    assert window.FULL in made.lines[0]  # type: ignore[attr-defined]


def test_a_program_without_steps_has_a_window_of_time(
    gpu: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("opscope.backends.keeper.TICK_S", 0.01)
    made = capture(gpu, tmp_path, Bounds(20, 0.2, 10**6, chosen=True))
    session.start(made)
    gpu.launch()
    within(300, lambda: made.lines)  # type: ignore[attr-defined]
    gpu.launch()
    session.stop()
    assert gpu.profiler is None
    assert "after 0.2 s" in made.lines[0]  # type: ignore[attr-defined]
    assert len(collect(tmp_path)["kernels"]) == 1


def test_steps_that_come_after_that_have_a_window_of_their_own(
    gpu: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steady: None
) -> None:
    monkeypatch.setattr("opscope.backends.keeper.TICK_S", 0.01)
    made = capture(gpu, tmp_path, Bounds(20, 0.2, 10**6, chosen=True))
    session.start(made)
    gpu.launch("load")
    within(300, lambda: made.lines)  # type: ignore[attr-defined]
    made._bounds = CHOSEN
    train(gpu, 100)
    session.stop()
    assert len(gpu.made) == 2
    profile = Profile(collect(tmp_path))
    names = profile.kernels()["name"].cast(pl.String).unique().to_list()
    assert names == ["k"]  # what came before the window of steps is left out
    inside = profile.ops().filter(pl.col("device_time").is_not_null())
    assert inside["step"].to_list() == list(range(5, 25))
    assert profile.summary()["window_steps"].item() == 20


# --------------------------------------------------------------------- graphs and errors


def test_a_window_does_not_end_while_a_graph_is_captured(
    gpu: StandIn, tmp_path: Path, steady: None
) -> None:
    made = capture(gpu, tmp_path, Bounds(steps=2))
    session.start(made)
    train(gpu, 2)
    graph = gpu.Graph()
    graph.capture_begin()
    train(gpu, 3)  # steps in the midst of a capture: the window was to end here
    assert gpu.profiler is not None
    graph.capture_end()  # raises if it was spoilt
    train(gpu, 1)
    assert gpu.profiler is None
    session.stop()
    session.start(capture(gpu, tmp_path / "next"))
    train(gpu, 1)
    session.stop()
    assert len(collect(tmp_path / "next")["kernels"]) == 1


def test_nor_while_another_thread_captures_one(gpu: StandIn, tmp_path: Path) -> None:
    session.start(capture(gpu, tmp_path, Bounds(steps=2)))
    begun, over = threading.Event(), threading.Event()
    failed: list[BaseException] = []

    def other() -> None:
        graph = gpu.Graph()
        graph.capture_begin()
        begun.set()
        over.wait()
        try:
            graph.capture_end()
        except RuntimeError as error:
            failed.append(error)

    thread = threading.Thread(target=other)
    thread.start()
    begun.wait()
    train(gpu, 5)
    assert gpu.profiler is not None
    over.set()
    thread.join()
    assert failed == []
    train(gpu, 1)
    assert gpu.profiler is None


def test_a_recording_that_ends_in_a_capture_leaves_it_valid_and_no_profiler_on(
    gpu: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("opscope.backends.keeper.TICK_S", 0.01)
    session.start(capture(gpu, tmp_path))
    train(gpu, 2)
    graph = gpu.Graph()
    graph.capture_begin()
    session.stop()
    with pytest.raises(SessionError, match="not ended"):
        session.start(capture(gpu, tmp_path / "early"))
    graph.capture_end()
    within(300, lambda: gpu.profiler is None and not beside._UNENDED)
    notes = collect(tmp_path)["notes"]["what"].to_list()
    assert any("while a CUDA graph was being captured" in what for what in notes)
    session.start(capture(gpu, tmp_path / "next"))
    train(gpu, 1)
    session.stop()
    assert len(collect(tmp_path / "next")["kernels"]) == 1


def test_a_capture_that_is_to_begin_waits_for_a_profiler_that_ends(gpu: StandIn) -> None:
    capturing = threading.Event()
    graph = gpu.Graph()
    METHODS.install(gpu.Graph)

    def other() -> None:
        graph.capture_begin()
        capturing.set()
        graph.capture_end()

    thread = threading.Thread(target=other)
    with OF_PROCESS.kept_out() as quiet:
        assert quiet
        thread.start()
        assert not capturing.wait(0.2)
    thread.join()
    assert capturing.is_set()
    METHODS.uninstall()
    assert "capture_begin" not in vars(gpu.Graph)


def test_replays_are_counted_by_what_was_captured(
    gpu: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("opscope.core.capture.recorder_sink.FLUSH_NS", 0)
    made = capture(gpu, tmp_path, Bounds(events=5000))
    session.start(made)
    graph = gpu.Graph()
    graph.capture_begin()
    train(gpu, 50, kernels=3)
    graph.capture_end()
    before = made._events()
    for _ in range(30):
        graph.replay()
    assert made._events() - before >= 30 * 150 * 2 // 3
    session.step()
    session.step()
    assert gpu.profiler is None


@pytest.mark.parametrize("where", ["settle", "stop"])
def test_after_an_error_at_the_end_no_profiler_is_on_and_the_next_window_works(
    gpu: StandIn, tmp_path: Path, where: str
) -> None:
    session.start(capture(gpu, tmp_path))
    train(gpu, 2)
    error = RuntimeError("CUDA error: an illegal memory access was encountered")
    if where == "settle":
        gpu.fails = error
    else:
        gpu.made[-1].fail_at_stop = error
    session.stop()
    gpu.fails = None
    assert gpu.profiler is None
    trace = collect(tmp_path)
    assert "illegal memory access" in " ".join(trace["notes"]["what"])
    assert len(trace["ranges"].filter(pl.col("category") == "forward")) == 2
    assert not Profile(trace).cpu_only  # the CPU's time never stands for a GPU's
    session.start(capture(gpu, tmp_path / "next"))
    train(gpu, 1)
    session.stop()
    assert len(collect(tmp_path / "next")["kernels"]) == 1


def test_every_device_with_a_context_is_waited_for_and_no_other(
    gpu: StandIn, tmp_path: Path
) -> None:
    gpu.contexts = {1}
    gpu.torch.cuda.set_device(1)
    session.start(capture(gpu, tmp_path))
    train(gpu, 1)
    session.stop()
    assert set(gpu.synchronised) == {1}
    assert gpu.contexts == {1}  # none was made on device 0
    gpu.contexts = {0, 1}
    gpu.synchronised.clear()
    session.start(capture(gpu, tmp_path / "two"))
    session.stop()
    assert set(gpu.synchronised) == {0, 1}


def test_a_window_may_end_on_another_thread_than_it_began(gpu: StandIn, tmp_path: Path) -> None:
    session.start(capture(gpu, tmp_path))
    train(gpu, 3)
    timer = threading.Thread(target=session.stop)
    timer.start()
    timer.join()
    assert gpu.profiler is None
    trace = collect(tmp_path)
    assert len(trace["kernels"]) == 3
    assert Profile(trace).summary()["attributed_share"].item() == 1.0


# ----------------------------------------------------------------------- a hung device


def test_a_hung_device_is_waited_for_so_long_and_no_longer(
    gpu: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session.start(capture(gpu, tmp_path))
    train(gpu, 2)
    monkeypatch.setattr(beside, "SETTLE_S", 0.2)
    gpu.free.clear()
    session.stop()  # would never return
    trace = collect(tmp_path)
    assert "has not finished within 0.2 s" in " ".join(trace["notes"]["what"])
    assert len(trace["ranges"].filter(pl.col("category") == "forward")) == 2
    with pytest.raises(SessionError, match="not ended"):
        session.start(capture(gpu, tmp_path / "early"))
    gpu.free.set()
    within(300, lambda: not beside._UNENDED)
    assert gpu.profiler is None


PROGRAM = """
import sys, threading, time, os, signal
sys.path.insert(0, {root!r})
from pathlib import Path
from opscope.backends import beside, window
from opscope.backends import kineto_capture as kineto
from opscope.core.capture import session
from tests.cuda_stand_in import Cuda, Profiler, StandIn
gpu = StandIn()
folder = Path(sys.argv[1])
def capture(bounds=window.EXACT):
    return kineto.KinetoCapture(folder, lambda: Profiler(gpu), Cuda(gpu), bounds)
def train(steps):
    op = session.emitter("torch").prepare("aten::relu(f32[4]) -> f32[4]", "forward")
    for _ in range(steps):
        session.step()
        session.emitter("torch").push(op)
        gpu.launch()
        session.emitter("torch").pop()
"""


def program(body: str, folder: Path) -> subprocess.Popen[str]:
    code = PROGRAM.format(root=str(ROOT)) + body
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        [sys.executable, "-c", code, str(folder)],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_program_stuck_at_its_end_can_be_interrupted(tmp_path: Path) -> None:
    running = program(
        """
beside.SETTLE_S = 1000.0
session.start(capture())
train(2)
def hang(device=None):
    print("waiting", flush=True)
    gpu.free.wait()
gpu.torch.cuda.synchronize = hang
gpu.free.clear()
""",
        tmp_path,
    )
    assert running.stdout is not None
    assert running.stdout.readline() == "waiting\n"
    time.sleep(0.5)
    assert running.poll() is None
    running.send_signal(signal.SIGINT)
    running.communicate(timeout=500)  # of a thousand seconds
    trace = collect(tmp_path)
    assert "interrupted" in " ".join(trace["notes"]["what"])
    assert len(trace["ranges"].filter(pl.col("category") == "forward")) == 2


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_program_that_is_killed_after_its_window_has_the_windows_kernels(
    tmp_path: Path, how: signal.Signals
) -> None:
    body = "window.SPREAD = 1e9\nsession.start(capture(window.CHOSEN))\ntrain(60)\nprint('end', flush=True)\ntime.sleep(600)\n"
    running = program(body, tmp_path)
    assert running.stdout is not None
    assert running.stdout.readline() == "end\n"
    running.send_signal(how)
    running.communicate(timeout=300)
    assert running.returncode == -how
    trace = collect(tmp_path)
    assert len(trace["kernels"]) == 20
    assert trace["windows"].select("first_step", "last_step").row(0) == (5, 24)


def test_a_program_that_is_killed_in_its_window_says_what_is_lost(tmp_path: Path) -> None:
    running = program(
        "session.start(capture())\ntrain(60)\nsession.recorder().flush()\n"
        "print('end', flush=True)\ntime.sleep(600)\n",
        tmp_path,
    )
    assert running.stdout is not None
    assert running.stdout.readline() == "end\n"
    running.kill()
    running.communicate(timeout=300)
    profile = Profile(collect(tmp_path))
    assert not profile.cpu_only
    assert profile.ops()["device_time"].null_count() == 60
    assert profile.summary()["kernel_time"].item() is None
    notes = " ".join(profile.notes()["what"])
    assert "ended before its profiler did" in notes


def test_the_stand_in_keeps_the_rules_of_the_real_one(gpu: StandIn) -> None:
    one = Profiler(gpu)
    one.start_trace()
    with pytest.raises(RuntimeError, match="already enabled"):
        Profiler(gpu).start_trace()
    thread = threading.Thread(target=one.stop_trace)
    thread.start()
    thread.join()
    assert gpu.profiler is one  # another thread cannot stop it
    graph = gpu.Graph()
    graph.capture_begin()
    with pytest.raises(RuntimeError, match="capturing"):
        one.stop_trace()
    with pytest.raises(RuntimeError, match="during capture"):
        graph.capture_end()
    one.stop_trace()
    assert gpu.profiler is None


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="the system lists no threads")
def test_a_window_of_xla_on_a_cpu_waits_for_work_whose_result_was_dropped(tmp_path) -> None:
    capture = XPlaneCapture(tmp_path)
    capture._jax = SimpleNamespace(live_arrays=list, default_backend=lambda: "cpu")
    begun, done = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        pbkdf2_hmac("sha256", b"", b"", 100_000)  # like XLA's threads it runs without Python's lock
        done.set()

    threading.Thread(target=work).start()
    begun.wait()
    time.sleep(0.01)  # it has given up Python's lock
    capture._settle()
    assert done.is_set()
