"""A simulated GPU: real threads make its CUDA calls, and its profiler writes files like Kineto's.

It stands for the CUDA runtime (``launch``, ``copy``, ``fill``, ``probe``, ``synchronize``) and for
torch.profiler (``prepare_trace``, ``start_trace``, ``stop_trace``, ``export_chrome_trace``). Its clock is
Unix time that is off by some milliseconds and drifts, like a processor's counter against the system's clock.
"""

from __future__ import annotations

import itertools
import os
import random
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from tests.kineto_writer import Call, KinetoWriter, Work, memcpy_name

#: A quarter of a year: Kineto's base time is the start of the quarter in which the program was loaded.
QUARTER_NS = 7_889_238 * 10**9
#: The H100 of the shared trace.
H100 = {
    "id": 0, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 85_017_624_576, "computeMajor": 9,
    "computeMinor": 0, "maxThreadsPerBlock": 1024, "maxThreadsPerMultiprocessor": 2048,
    "regsPerBlock": 65_536, "warpSize": 32, "sharedMemPerBlock": 49_152, "numSms": 132,
    "regsPerMultiprocessor": 65_536, "sharedMemPerBlockOptin": 232_448,
    "sharedMemPerMultiprocessor": 233_472,
}  # fmt: skip

#: An MI300 as ROCm describes it: without a name.
MI300 = {
    "id": 0, "name": "", "totalGlobalMem": 206_141_652_992, "computeMajor": 9, "computeMinor": 4,
    "maxThreadsPerBlock": 1024, "maxThreadsPerMultiprocessor": 2048, "regsPerBlock": 65_536,
    "warpSize": 64, "sharedMemPerBlock": 65_536, "numSms": 304,
}  # fmt: skip


@dataclass(slots=True)
class Launched:
    """The truth about a launch: correlation id, the system's thread id, time on our clock, op."""

    correlation: int
    thread: int
    start: int
    op: str


class FakeCuda:
    """The GPU of one process. ``seed`` draws its clock; ``met``: CPU activity recorded every thread.

    ``rocm``: an AMD GPU, with HIP calls and the system's thread ids.
    """

    def __init__(
        self, seed: int = 0, met: bool = False, drift: float | None = None, rocm: bool = False
    ) -> None:
        draw = random.Random(seed)
        now, unix = time.perf_counter_ns(), time.time_ns()
        self.drift = draw.uniform(-50e-6, 50e-6) if drift is None else drift
        self._origin = now
        self._unix = unix + draw.randrange(-5_000_000, 5_000_000)
        self._met = met or rocm
        self._rocm = rocm
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._free: dict[int, int] = {}
        self._threads: dict[int, int] = {}
        self.window: tuple[int, int] | None = None
        self.on = False
        #: Exceptions that ``start_trace`` and ``stop_trace`` raise.
        self.fail_start: Exception | None = None
        self.fail_stop: Exception | None = None
        self.calls: list[Call] = []
        self.work: list[Work] = []
        self.launched: list[Launched] = []

    def theirs(self, ours: int) -> int:
        """Convert a time of ``perf_counter_ns`` to the profiler's clock."""
        since = ours - self._origin
        return self._unix + since + round(since * self.drift)

    # ---------------------------------------------------------------- the runtime

    def call(self, name: str, op: str = "") -> tuple[int, int]:
        """Make a runtime call on this thread; return its correlation id and end (profiler's clock)."""
        if self._rocm:
            name = name.replace("cuda", "hip", 1)
        start = time.perf_counter_ns()
        correlation = next(self._numbers)
        end = time.perf_counter_ns()
        if self.on:
            pthread = threading.get_ident()
            self.calls.append(
                Call(name, self.theirs(start), self.theirs(end), pthread, correlation)
            )
            if self._met:
                self._threads[pthread] = threading.get_native_id()
            if op:
                thread = threading.get_native_id()
                self.launched.append(Launched(correlation, thread, start, op))
        return correlation, self.theirs(end)

    def launch(self, name: str = "k", op: str = "", length: int = 777, **told: object) -> None:
        """Launch a kernel; it runs after the earlier work of its stream."""
        self._enqueue("kernel", name, *self.call("cudaLaunchKernel", op), length, told)

    def copy(self, kind: str, op: str = "", length: int = 1_000, **told: object) -> None:
        """Start a copy; ``kind`` is ``HtoD`` or the like."""
        ends = {"H": "Pageable", "D": "Device"}
        name = memcpy_name(kind, ends.get(kind[0], "Device"), ends.get(kind[-1], "Device"))
        self._enqueue("gpu_memcpy", name, *self.call("cudaMemcpyAsync", op), length, told)

    def fill(self, op: str = "", length: int = 500, **told: object) -> None:
        """Start a memory set."""
        self._enqueue(
            "gpu_memset", "Memset (Device)", *self.call("cudaMemsetAsync", op), length, told
        )

    def _enqueue(
        self, kind: str, name: str, correlation: int, at: int, length: int, told: dict[str, object]
    ) -> None:
        stream = int(str(told.get("stream", 7)))
        with self._lock:
            start = max(at + 1_000, self._free.get(stream, 0))
            self._free[stream] = start + length
        if self.on:
            self.work.append(Work(kind, name, start, start + length, correlation, **told))  # type: ignore[arg-type]

    def probe(self) -> bool:
        """Make the CUDA call that opscope's backend uses as a probe."""
        self.call("cudaDriverGetVersion")
        return True

    def synchronize(self) -> None:
        """Make the call without waiting: enqueued work already has its times."""
        self.call("cudaDeviceSynchronize")

    def watch(self, _give_way: object) -> None:
        """Watch nothing: no CUDA graph is captured here, and no other profiler starts."""

    def is_taken(self) -> bool:
        """Return False: no other profiler is on."""
        return False

    def is_capturing(self) -> bool:
        """Return False: no CUDA graph is being captured."""
        return False

    def is_full(self) -> bool:
        """Return False: the profiler keeps all events."""
        return False

    # ---------------------------------------------------------------- the profiler

    def prepare_trace(self) -> None:
        """Prepare nothing."""

    def start_trace(self) -> None:
        """Start recording."""
        if self.fail_start is not None:
            raise self.fail_start
        self.on = True
        self.window = (self.theirs(time.perf_counter_ns()), 1 << 62)

    def stop_trace(self) -> None:
        """Stop recording, after waiting for the device like Kineto."""
        if self.fail_stop is not None:
            raise self.fail_stop
        assert self.window is not None
        self.on = False
        end = max([self.theirs(time.perf_counter_ns()), *self._free.values()])
        self.window = (self.window[0], end)

    def export_chrome_trace(self, path: str | Path) -> None:
        """Write the file without events that are not wholly in the window, like Kineto's ``outOfRange``."""
        assert self.window is not None
        first, last = self.window
        writer = KinetoWriter(
            os.getpid(),
            first // QUARTER_NS * QUARTER_NS,
            [MI300 if self._rocm else H100],
            dict(self._threads),
            self._rocm,
        )
        writer.write(
            path,
            (call for call in self.calls if first <= call.start and call.end <= last),
            (each for each in self.work if first <= each.start and each.end <= last),
            last,
        )
