"""A stand-in for CUDA and torch.profiler without a GPU, by the rules of their public sources.

* Kineto keeps an event for each CUDA call and each kernel in memory until it is stopped.
* PyTorch keeps the running profiler in the state of the thread that started it
  (``torch/csrc/autograd/profiler_kineto.cpp``, ``disableProfiler``): if another thread stops it, it warns,
  returns nothing and stays on.
* Stopping the profiler synchronises the current device, which creates a context if there is none. During the
  capture of a CUDA graph this is an error and makes the capture invalid.
* A device may hang: a thread that synchronises it waits until ``free`` is set.
"""

from __future__ import annotations

import itertools
import json
import os
import threading
import time
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from opscope.backends import kineto_capture as kineto
from opscope.core.recording_format import PROBE_CALL

#: The name of a CUDA call that links Kineto's clock with the recorder's.
PROBE = PROBE_CALL if PROBE_CALL.isidentifier() else "cudaDriverGetVersion"
#: Kineto's Unix clock minus the recorder's clock, ns.
AHEAD = time.time_ns() - time.perf_counter_ns()


class StandIn:
    """The CUDA of one process; ``torch`` stands for the module."""

    def __init__(self, devices: int = 1) -> None:
        self.contexts = {0}
        self.synchronised: list[int] = []
        self.free = threading.Event()
        self.free.set()
        self.fails: Exception | None = None
        self.profiler: Profiler | None = None
        self.capturing: dict[int, Graph] = {}  # by thread
        self.full = False
        self.held = 0
        self.peak = 0
        self.made: list[Profiler] = []
        self.correlations = itertools.count(1)
        self._device = threading.local()
        gpu = self

        class CUDAGraph(Graph):
            cuda = gpu

        self.Graph = CUDAGraph
        self.torch = types.SimpleNamespace(
            cuda=types.SimpleNamespace(
                is_initialized=lambda: True,
                _tls=types.SimpleNamespace(),
                device_count=lambda: devices,
                current_device=lambda: self.current,
                set_device=self._set_device,
                synchronize=self._synchronize,
                is_current_stream_capturing=lambda: threading.get_ident() in self.capturing,
                CUDAGraph=CUDAGraph,
            ),
            autograd=types.SimpleNamespace(
                _is_kineto_stopped=lambda: self.full,
                profiler=types.SimpleNamespace(
                    _is_profiler_enabled=False, _prepare_profiler=lambda *_, **__: None
                ),
            ),
            _C=types.SimpleNamespace(_cuda_hasPrimaryContext=lambda one: one in self.contexts),
        )

    @property
    def current(self) -> int:
        return getattr(self._device, "number", 0)

    def _set_device(self, device: int) -> None:
        self._device.number = device
        self.contexts.add(device)

    def _synchronize(self, device: int | None = None) -> None:
        device = self.current if device is None else device
        if self.capturing:
            for graph in self.capturing.values():
                graph.valid = False
            raise RuntimeError("operation not permitted when stream is capturing")
        self.contexts.add(device)
        self.synchronised.append(device)
        if self.fails is not None:
            raise self.fails
        self.free.wait()

    def call(self, name: str) -> int:
        start = time.perf_counter_ns()
        correlation = next(self.correlations)
        while time.perf_counter_ns() < start + 400:
            pass
        self._heard(name, start, correlation, {})
        return correlation

    def launch(self, name: str = "k") -> None:
        """Launch a kernel that runs right after its CUDA call."""
        correlation = self.call("cudaLaunchKernel")
        on = {"device": self.current, "context": 1, "stream": 7}
        self._heard(name, time.perf_counter_ns(), correlation, on)

    def _heard(self, name: str, start: int, correlation: int, on: dict[str, int]) -> None:
        if self.profiler is not None:
            end = time.perf_counter_ns()
            self.profiler.events.append((name, start, end, correlation, on, threading.get_ident()))
            self.held += 1
            self.peak = max(self.peak, self.held)


class Graph:
    """A stand-in for torch.cuda.CUDAGraph."""

    cuda: StandIn
    valid = True

    def capture_begin(self) -> None:
        self.valid = True
        self.cuda.capturing[threading.get_ident()] = self

    def capture_end(self) -> None:
        del self.cuda.capturing[threading.get_ident()]
        if not self.valid:
            raise RuntimeError("operation failed due to a previous error during capture")

    def replay(self) -> None:
        self.cuda.launch("replayed")


class Cuda(kineto._TorchCuda):
    """The backend's access to the CUDA runtime, redirected to the stand-in."""

    def __init__(self, gpu: StandIn) -> None:
        self._torch = gpu.torch
        self._gpu = gpu

    def probe(self) -> bool:
        self._gpu.call(PROBE)
        return True


class Profiler:
    """A stand-in for torch.profiler.profile with CUDA activities alone."""

    def __init__(self, gpu: StandIn) -> None:
        self.gpu = gpu
        self.events: list[tuple[str, int, int, int, dict[str, int], int]] = []
        self.thread: int | None = None
        self.fail_at_stop: Exception | None = None
        gpu.made.append(self)

    def prepare_trace(self) -> None:
        """Prepare nothing: in the stand-in, preparing is not bound to a thread."""

    def start_trace(self) -> None:
        if self.gpu.profiler is not None:
            raise RuntimeError("Profiler is already enabled on this thread.")
        self.thread = threading.get_ident()
        self.gpu.profiler = self

    def stop_trace(self) -> None:
        if self.thread != threading.get_ident():
            return  # "disableProfiler called but no active profiling session found"
        if self.fail_at_stop is not None:
            raise self.fail_at_stop
        self.gpu._synchronize()
        self.off()

    def off(self) -> None:
        if self.gpu.profiler is self:
            self.gpu.profiler = None
        self.gpu.held -= len(self.events)

    def export_chrome_trace(self, path: str) -> None:

        def event(one: tuple[str, int, int, int, dict[str, int], int]) -> dict[str, Any]:
            name, start, end, correlation, on, thread = one
            low = thread & 0xFFFFFFFF
            return {
                "ph": "X",
                "cat": "kernel" if on else "cuda_runtime",
                "name": name,
                "pid": os.getpid(),
                "tid": 7 if on else (low - (1 << 32) if low >> 31 else low),
                "ts": start / 1000,
                "dur": (end - start) / 1000,
                "args": {"correlation": correlation, "External id": 0, **on},
            }

        trace = {
            "schemaVersion": 1,
            "deviceProperties": [],
            "baseTimeNanoseconds": AHEAD,
            "traceEvents": [event(one) for one in self.events],
        }
        Path(path).write_text(json.dumps(trace))


def used(monkeypatch: Any, devices: int = 1) -> Iterator[StandIn]:
    """Yield a stand-in for the length of a test; stop every recording after it."""
    from opscope.core.capture import session

    gpu = StandIn(devices)
    monkeypatch.setattr(kineto, "_disable", lambda: gpu.profiler and gpu.profiler.off())
    yield gpu
    gpu.free.set()
    gpu.capturing.clear()
    session.stop()
    session.listen(None)
