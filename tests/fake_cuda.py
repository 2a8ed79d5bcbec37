"""A GPU that is none: its calls are made on real threads, its profiler writes what Kineto would.

It stands for the CUDA runtime (``launch``, ``copy``, ``fill``, ``probe``, ``synchronize``) and for
torch.profiler (``prepare_trace``, ``start_trace``, ``stop_trace``, ``export_chrome_trace``). Its clock is Unix time that is off by some
milliseconds and drifts, as a processor's counter does against the system's clock.
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

#: Kineto's base: the quarter of a year in which the program was loaded.
QUARTER_NS = 7_889_238 * 10**9
#: The H100 of the shared trace.
H100 = {
    "id": 0, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 85_017_624_576, "computeMajor": 9,
    "computeMinor": 0, "maxThreadsPerBlock": 1024, "maxThreadsPerMultiprocessor": 2048,
    "regsPerBlock": 65_536, "warpSize": 32, "sharedMemPerBlock": 49_152, "numSms": 132,
    "regsPerMultiprocessor": 65_536, "sharedMemPerBlockOptin": 232_448,
    "sharedMemPerMultiprocessor": 233_472,
}  # fmt: skip

#: As ROCm tells of one: without a name.
MI300 = {
    "id": 0, "name": "", "totalGlobalMem": 206_141_652_992, "computeMajor": 9, "computeMinor": 4,
    "maxThreadsPerBlock": 1024, "maxThreadsPerMultiprocessor": 2048, "regsPerBlock": 65_536,
    "warpSize": 64, "sharedMemPerBlock": 65_536, "numSms": 304,
}  # fmt: skip


@dataclass(slots=True)
class Launched:
    """What really happened: a launch's correlation id, thread (the system's), time (ours), op."""

    correlation: int
    thread: int
    start: int
    op: str


class FakeCuda:
    """One process's GPU. ``seed`` draws its clock; ``met`` makes CPU activity out of every thread.

    ``rocm``: it is AMD's, whose calls are HIP's and whose threads have the system's ids.
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
        #: Set to what ``start_trace`` or ``stop_trace`` shall raise.
        self.fail_start: Exception | None = None
        self.fail_stop: Exception | None = None
        self.calls: list[Call] = []
        self.work: list[Work] = []
        self.launched: list[Launched] = []

    def theirs(self, ours: int) -> int:
        """A time of ``perf_counter_ns`` on the profiler's clock."""
        since = ours - self._origin
        return self._unix + since + round(since * self.drift)

    # ---------------------------------------------------------------- the runtime

    def call(self, name: str, op: str = "") -> tuple[int, int]:
        """One call of the runtime by this thread: its correlation id, and its end on that clock."""
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
        """A kernel, after what its stream does already."""
        self._enqueue("kernel", name, *self.call("cudaLaunchKernel", op), length, told)

    def copy(self, kind: str, op: str = "", length: int = 1_000, **told: object) -> None:
        """A copy; ``kind`` is ``HtoD`` and the like."""
        ends = {"H": "Pageable", "D": "Device"}
        name = memcpy_name(kind, ends.get(kind[0], "Device"), ends.get(kind[-1], "Device"))
        self._enqueue("gpu_memcpy", name, *self.call("cudaMemcpyAsync", op), length, told)

    def fill(self, op: str = "", length: int = 500, **told: object) -> None:
        """A set."""
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
        """The call that our backend asks for."""
        self.call("cudaDriverGetVersion")
        return True

    def synchronize(self) -> None:
        """Nothing is waited for: what is enqueued has its times already."""
        self.call("cudaDeviceSynchronize")

    def watch(self, _give_way: object) -> None:
        """No graph is captured here, and no other profiler begins."""

    def is_taken(self) -> bool:
        """No other profiler is on."""
        return False

    def is_capturing(self) -> bool:
        """No graph is captured."""
        return False

    def is_full(self) -> bool:
        """It keeps all."""
        return False

    # ---------------------------------------------------------------- the profiler

    def prepare_trace(self) -> None:
        """Nothing to prepare."""

    def start_trace(self) -> None:
        """Begin to record."""
        if self.fail_start is not None:
            raise self.fail_start
        self.on = True
        self.window = (self.theirs(time.perf_counter_ns()), 1 << 62)

    def stop_trace(self) -> None:
        """End. Kineto waits for the device first."""
        if self.fail_stop is not None:
            raise self.fail_stop
        assert self.window is not None
        self.on = False
        end = max([self.theirs(time.perf_counter_ns()), *self._free.values()])
        self.window = (self.window[0], end)

    def export_chrome_trace(self, path: str | Path) -> None:
        """The file; ``outOfRange`` leaves out what is not wholly in the window."""
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
