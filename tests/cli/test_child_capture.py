"""A child's recording gets the kernels when the program initialises CUDA, and never before."""

from __future__ import annotations

import sys
import threading
import types
from typing import ClassVar

import pytest

import opscope.backends.kineto_capture as kineto
from opscope.backends import recording_folder, xplane_capture
from opscope.backends.kineto import KINETO_BACKEND
from opscope.backends.mindspore_profiler import MINDSPORE_BACKEND
from opscope.backends.window import EXACT
from opscope.backends.xplane import XPLANE_BACKEND
from opscope.cli.child_capture import Recording, RecordingWithMore
from opscope.core.capture import session
from opscope.core.capture.recorder_sink import Recorder
from opscope.core.capture.session import SessionError
from opscope.readers.recording.reader import collect


def with_kernels(folder):
    return RecordingWithMore(folder, EXACT, [KINETO_BACKEND])


def with_either(folder):
    return RecordingWithMore(folder, EXACT, [KINETO_BACKEND, XPLANE_BACKEND, MINDSPORE_BACKEND])


class Kineto:
    """In place of the real capture: a recorder, and a list of what was done."""

    log: ClassVar[list[str]] = []
    fails = False

    def __init__(self, folder, bounds):
        self.folder, self.bounds = folder, bounds

    def start(self):
        if self.fails:
            raise SessionError("no CUPTI")
        self.log.append("start")
        mine = Recorder(self.folder)
        mine.start()
        session.listen(mine)

    def stop(self):
        self.log.append("stop")
        mine = session.recorder()
        session.listen(None)
        mine.stop()


@pytest.fixture
def torch(gpus, monkeypatch):
    """PyTorch's own initialisation of CUDA; its profiler is not started."""
    monkeypatch.setattr(kineto, "KinetoCapture", Kineto)
    monkeypatch.setattr(Kineto, "log", [])
    yield gpus.cuda
    session.stop()


def work(name):
    with session.annotate(name):
        pass


def texts(folder):
    return sorted(collect(folder)["ranges"]["text"].cast(str))


def test_kernels_begin_when_cuda_does_and_nothing_before_is_lost(torch, tmp_path):
    session.start(with_kernels(tmp_path))
    work("on the host")
    assert Kineto.log == []
    torch.init()
    assert Kineto.log == ["start"]
    work("on the device")
    session.stop()
    assert Kineto.log == ["start", "stop"]
    assert texts(tmp_path) == ["on the device", "on the host"]
    assert len(collect(tmp_path)["processes"]) == 1


def test_a_window_that_opens_later_has_kernels_at_once(torch, tmp_path):
    torch.init()
    session.start(with_kernels(tmp_path))
    assert Kineto.log == ["start"]


def test_cuda_outside_the_window_starts_nothing(torch, tmp_path):
    with_kernels(tmp_path)
    torch.init()
    assert Kineto.log == []
    assert list(tmp_path.iterdir()) == []


def test_without_a_profiler_the_ranges_go_on(torch, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(Kineto, "fails", True)
    session.start(with_kernels(tmp_path))
    work("before")
    torch.init()
    work("after")
    session.stop()
    assert texts(tmp_path) == ["after", "before"]
    assert "no CUPTI" in caplog.text


@pytest.fixture
def jax(monkeypatch):
    """A JAX that has only what tells of its backends' beginning."""

    class XPlane(Kineto):
        log: ClassVar[list[str]] = []

    bridge = types.ModuleType("jax._src.xla_bridge")
    bridge.started = False
    bridge.backends_are_initialized = lambda: bridge.started

    def backends():
        bridge.started = True

    asking = threading.RLock()

    def get_backend():  # as JAX 0.11: a thread that asks waits for another that asks
        with asking:
            bridge.backends()
            return bridge

    bridge.backends, bridge.get_backend = backends, get_backend
    monkeypatch.setitem(sys.modules, "jax._src.xla_bridge", bridge)
    monkeypatch.setattr(xplane_capture, "XPlaneCapture", XPlane)
    bridge.log = XPlane.log
    yield bridge
    session.stop()


def test_on_a_machine_for_both_the_framework_that_begins_first_is_profiled(torch, jax, tmp_path):
    session.start(with_either(tmp_path))
    work("before")
    jax.backends()
    work("operations")
    torch.init()  # too late: one profiler at a time
    session.stop()
    assert (jax.log, Kineto.log) == (["start", "stop"], [])
    assert texts(tmp_path) == ["before", "operations"]


def test_on_a_machine_for_both_pytorchs_kernels_are_profiled(torch, jax, tmp_path):
    session.start(with_either(tmp_path))
    torch.init()
    jax.backends()
    session.stop()
    assert (jax.log, Kineto.log) == ([], ["start", "stop"])


def test_the_profiler_begins_when_get_backend_has_returned(torch, jax, tmp_path, monkeypatch):
    """JAX's profiler asks for the backend on a thread of its own, which must not wait for its beginning."""
    answered = []

    class Asking(Kineto):
        log = jax.log

        def start(self):
            thread = threading.Thread(target=lambda: answered.append(jax.get_backend()))
            thread.start()
            thread.join(10)
            super().start()

    monkeypatch.setattr(xplane_capture, "XPlaneCapture", Asking)
    original = jax.get_backend
    session.start(with_either(tmp_path))
    assert jax.get_backend() is jax
    assert answered == [jax]
    assert jax.log == ["start"]
    assert jax.get_backend is original


class Slow(Kineto):
    """A profiler that takes a while to start; ``begun`` and ``go`` tell and let it go on."""

    begun, go = threading.Event(), threading.Event()

    def start(self):
        self.begun.set()
        assert self.go.wait(30)
        super().start()


@pytest.fixture
def slow(torch, monkeypatch):
    monkeypatch.setattr(kineto, "KinetoCapture", Slow)
    Slow.begun.clear()
    Slow.go.clear()
    return torch


def test_a_thread_of_the_program_waits_for_another_that_begins_the_profiler(slow, tmp_path):
    recording = with_kernels(tmp_path)
    session.start(recording)
    first = threading.Thread(target=slow.init)
    first.start()
    assert Slow.begun.wait(30)
    second = threading.Thread(target=lambda: (recording._begins(), work("second")))
    second.start()
    second.join(0.2)
    assert second.is_alive()
    Slow.go.set()
    second.join(30)
    first.join(30)
    session.stop()
    assert texts(tmp_path) == ["second"]
    assert Kineto.log == ["start", "stop"]


def test_an_end_waits_for_a_profiler_that_another_thread_begins(slow, tmp_path):
    session.start(with_kernels(tmp_path))
    first = threading.Thread(target=slow.init)
    first.start()
    assert Slow.begun.wait(30)
    threading.Timer(0.2, Slow.go.set).start()
    session.stop()
    first.join(30)
    assert Kineto.log == ["start", "stop"]
    assert session.recorder() is None


def test_a_process_that_records_nothing_leaves_nothing(tmp_path):
    session.start(Recording(tmp_path))
    session.stop()
    assert list(tmp_path.iterdir()) == []


def test_a_recording_beside_a_gpu_says_so(torch, tmp_path):
    torch.init()
    session.start(Recording(tmp_path))
    work("x")
    session.stop()
    (part,) = recording_folder.parts(tmp_path)
    assert '"gpu": true' in (part / "facts.jsonl").read_text()
