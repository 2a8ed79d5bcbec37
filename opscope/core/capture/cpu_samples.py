"""Sample the use of the machine by the process and others: processors, memory, disk, network, GPUs.

psutil reads the system's counters of processor time. A sample is the difference of two readings, so nothing
between them is missed, and a delayed sample is only longer. Measured on Linux 6 (2 cores, psutil 7.2): a
sample takes 0.08 ms of processor time, at 10 Hz 0.08 % of one processor; importing psutil takes 20 ms, once.
"""

from __future__ import annotations

import logging
import os
import time
from collections import deque
from collections.abc import Callable
from importlib import import_module
from time import perf_counter_ns
from typing import Any, Final

from opscope.core.schema import (
    CHILDREN_CPU,
    MACHINE_CPU,
    PROCESS_CPU,
    PROCESS_MEMORY,
    PROCESS_QUEUED,
    PROCESS_THREADS,
    PROCESSORS,
)

from .gpu_samples import GpuSamples
from .machine_samples import MachineSamples
from .own_cost import Spent

_log = logging.getLogger(__name__)

#: The environment variable with the samples per second; 0: none.
RATE: Final = "OPSCOPE_SAMPLES"
DEFAULT_RATE: Final = 10.0
MAX_RATE: Final = 1000.0
#: The first sample is taken this long after the first event.
FIRST_NS: Final = 200_000_000
#: Threads and child processes are read only once in this many ns: reading their files costs more than the
#: rest.
SLOW_NS: Final = 1_000_000_000
#: Memory is read as steps begin, at most once in this many ns.
STEP_NS: Final = 2_000_000
#: The most child processes that are read.
MAX_CHILDREN: Final = 256
#: Samples that are kept until the first event makes the recording's folder.
MAX_UNWRITTEN: Final = 6_000
_PART: Final = "CPU samples"

_chosen: float | None = None


def choose(rate: float | None) -> None:
    """Take ``rate`` samples per second from the next recording on; 0 takes none, None leaves it as it is.

    Raises ValueError for a rate below 0 or above ``MAX_RATE``.
    """
    global _chosen
    if rate is None:
        return
    if not 0 <= rate <= MAX_RATE:
        raise ValueError(f"samples per second: {rate!r} is not between 0 and {MAX_RATE:g}")
    _chosen = float(rate)


def rate() -> float:
    """Return the samples per second: as chosen, else as the environment says, else ``DEFAULT_RATE``."""
    return chosen_rate(DEFAULT_RATE)


def chosen_rate(default: float) -> float:
    """Return the samples per second: as chosen, else as the environment says, else ``default``."""
    if _chosen is not None:
        return _chosen
    text = os.environ.get(RATE, "")
    try:
        asked = float(text) if text else default
    except ValueError:
        asked = -1.0
    if 0 <= asked <= MAX_RATE:
        return asked
    _log.warning(
        "opscope: %s=%r is no number of samples per second; %g is used", RATE, text, default
    )
    return default


class _Series:
    """Samples of several names at the same times: one thread adds samples, any thread may take them."""

    def __init__(self, *names: str) -> None:
        self._names = names
        # add a complete row at once: with a list per name, another thread could take one list before the next
        # is filled
        self._rows: deque[tuple[float | None, ...]] = deque(maxlen=MAX_UNWRITTEN)

    def add(self, now: int, *values: float | None) -> None:
        self._rows.append((now, *values))

    def take(self) -> dict[str, Any] | None:
        rows = [self._rows.popleft() for _ in range(len(self._rows))]
        if not rows:
            return None
        times, *columns = map(list, zip(*rows, strict=True))
        return {"samples": times, "values": dict(zip(self._names, columns, strict=True))}


class CpuSampler:
    """Samples this process and its machine at each ``tick`` that is due. No method raises."""

    def __init__(
        self,
        rate: float,
        note: Callable[[str, str], object],
        begins: Callable[[], object] = lambda: None,
    ) -> None:
        """``note`` is called once, with severity and text, if nothing can be sampled; ``begins`` before the
        first sample."""
        self._period = int(1e9 / rate)
        self._note = note
        self._begins = begins
        self._due = 0
        self._slow_due = 0
        self._off = False
        self._psutil: Any = None
        self._process: Any = None
        self._before: tuple[int, float, float, float] | None = None
        self._children_before: tuple[int, float] | None = None
        self._queued_before: int | None = None
        self._fast = _Series(MACHINE_CPU, PROCESS_CPU, PROCESS_QUEUED, PROCESS_MEMORY)
        self._slow = _Series(CHILDREN_CPU, PROCESS_THREADS, PROCESSORS, *MachineSamples.names)
        self._children: dict[int, Any] = {}
        self._machine: MachineSamples | None = None
        self._gpus: GpuSamples | None = None
        self._of_gpus: dict[int, dict[tuple[str, ...], _Series]] = {}
        self._ns = 0
        self._calls = 0

    def tick(self) -> int:
        """Take a sample if one is due; return the ns until the next one."""
        if self._off:
            return self._period
        if not self._due:  # a recording that ends before this does not import psutil
            self._due = perf_counter_ns() + FIRST_NS
        left = self._due - perf_counter_ns()
        if left <= 0:
            self.sample()
            self._due = perf_counter_ns() + self._period
            left = self._period
        return left

    def last(self) -> None:
        """Take the last sample at the end of a recording, if there was a first one."""
        if self._before is not None and not self._off:
            self._slow_due = 0
            self.sample()

    def sample(self) -> None:
        """Take a sample now."""
        if not self._calls:
            self._begins()
        begin = time.thread_time_ns()
        try:
            self._sample()
        except Exception as error:  # noqa: BLE001 - a fault of ours must not be the program's
            self._off = True
            why = f"the processors are not sampled from here on: {type(error).__name__}: {error}"
            if isinstance(error, ImportError):
                why = f"the processors are not sampled: psutil cannot be imported: {error}"
            self._note("info", why)
        self._ns += time.thread_time_ns() - begin
        self._calls += 1

    def take(self) -> list[dict[str, Any]]:
        """Return the samples since the last call, as facts of the recording."""
        series_taken = [
            values for series in (self._fast, self._slow) if (values := series.take()) is not None
        ]
        for device, parts in self._of_gpus.items():
            series_taken += [
                {**values, "device": device}
                for series in parts.values()
                if (values := series.take()) is not None
            ]
        return series_taken

    def spent(self) -> Spent:
        """Return the processor time that all samples took."""
        return Spent(_PART, self._ns, self._calls, 1, 0)

    def _sample(self) -> None:
        if self._psutil is None:
            self._psutil = import_module("psutil")
            self._process = self._psutil.Process()
            self._machine = MachineSamples(self._psutil, self._process, self._note)
            self._gpus = GpuSamples(self._note)
        times = self._psutil.cpu_times()
        now = perf_counter_ns()
        idle = times.idle + getattr(times, "iowait", 0.0)
        # a guest's time is already part of user and nice
        busy = sum(times) - idle - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)
        own = self._process.cpu_times()
        used = own.user + own.system
        memory = float(self._process.memory_info().rss)
        queued_then, self._queued_before = self._queued_before, _queued()
        before, self._before = self._before, (now, busy, idle, used)
        if before is None:
            self._fast.add(now, None, None, None, memory)
        else:
            then, busy_then, idle_then, used_then = before
            # the counters of a virtual machine may step back
            did, all_of_it = max(0.0, busy - busy_then), busy - busy_then + idle - idle_then
            machine = min(100.0, 100.0 * did / all_of_it) if all_of_it > 0 else None
            process = 100.0 * max(0.0, used - used_then) / max(1, now - then) * 1e9
            queued = None
            if queued_then is not None and self._queued_before is not None:
                queued = 100.0 * max(0, self._queued_before - queued_then) / max(1, now - then)
            self._fast.add(now, machine, process, queued, memory)
        if now >= self._slow_due:
            self._slow_due = now + SLOW_NS
            self._sample_slowly(now, own.children_user + own.children_system)
        if self._gpus:
            self._sample_gpus(self._gpus, now)

    def _sample_gpus(self, gpus: GpuSamples, now: int) -> None:
        for device, values in gpus.sample(now):
            # the set of quantities that NVML returns varies over time
            parts = self._of_gpus.setdefault(device, {})
            names = tuple(values)
            series = parts.get(names)
            if series is None:
                series = parts[names] = _Series(*names)
            series.add(now, *values.values())

    def _sample_slowly(self, now: int, waited_for: float) -> None:
        alive = self._living()
        children = None
        if alive is not None:
            before, self._children_before = self._children_before, (now, waited_for + alive)
            if before is not None:
                used = max(0.0, waited_for + alive - before[1])
                children = 100.0 * used / max(1, now - before[0]) * 1e9
        threads = float(self._process.num_threads())
        processors = float(self._psutil.cpu_count() or 0) or None
        assert self._machine is not None
        more = self._machine.sample(now, None if alive is None else self._children.values())
        self._slow.add(now, children, threads, processors, *more)

    def _living(self) -> float | None:
        """Return the seconds that the living child processes have used; None if the system lists none."""
        processes: dict[int, Any] = {}
        waiting, used = [self._process.pid], 0.0
        try:
            while waiting and len(processes) < MAX_CHILDREN:
                for pid in _children(waiting.pop()):
                    if pid not in processes and len(processes) < MAX_CHILDREN:
                        process = self._children.get(pid)
                        try:
                            process = self._psutil.Process(pid) if process is None else process
                            times = process.cpu_times()
                        except self._psutil.Error:  # the process has ended meanwhile
                            continue
                        processes[pid] = process
                        waiting.append(pid)
                        used += times.user + times.system
                        used += times.children_user + times.children_system
        except OSError:
            return None
        self._children = processes
        return used


class StepMemory:
    """Resident memory as steps begin: steps may be shorter than the time between samples. It never raises.

    Reading it takes 1.5 to 3.3 µs, and happens at most once in ``STEP_NS``.
    """

    def __init__(self) -> None:
        self._due = 0
        self._page = 0
        self._file: int | None = None
        self._off = False
        #: The thread of the steps appends, and the writing thread removes.
        self._read: deque[tuple[int, float]] = deque(maxlen=MAX_UNWRITTEN)

    def step(self) -> None:
        """A step begins."""
        now = perf_counter_ns()
        if self._off or now < self._due:
            return
        self._due = now + STEP_NS
        try:
            if self._file is None:
                self._page = os.sysconf("SC_PAGE_SIZE")
                self._file = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
            pages = int(os.pread(self._file, 64, 0).split()[1])
        except (OSError, ValueError, IndexError, AttributeError) as error:
            _log.debug("opscope: memory is not read as steps begin: %s", error)
            self.close()
        else:
            self._read.append((now, float(pages * self._page)))

    def take(self) -> dict[str, Any] | None:
        """Return the readings since the last call, as facts of the recording."""
        rows = [self._read.popleft() for _ in range(len(self._read))]
        if not rows:
            return None
        times, values = zip(*rows, strict=True)
        return {"samples": list(times), "values": {PROCESS_MEMORY: list(values)}}

    def close(self) -> None:
        """Read no more."""
        self._off = True
        file, self._file = self._file, None
        if file is not None:
            os.close(file)


def _queued() -> int | None:
    """Return how long (ns) the first thread has waited for a processor; None if the system does not count
    it."""
    try:
        with open("/proc/self/schedstat", "rb", buffering=0) as file:
            return int(file.read(128).split()[1])
    except (OSError, ValueError, IndexError):
        return None


#: Whether this kernel lists the children of a thread.
_LISTS: Final = os.path.exists(f"/proc/self/task/{os.getpid()}/children")


def _children(pid: int) -> list[int]:
    """Return the child processes of a process, from the kernel's files for each thread. psutil's ``children``
    would read the status of every process of the machine. Raises OSError if the kernel has no such files."""
    if not _LISTS:
        raise OSError("this system does not list the children of a process")
    pids: list[int] = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children", encoding="ascii") as file:
                pids += map(int, file.read().split())
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return pids  # the process or its thread has ended meanwhile, or has become another user's
    return pids
