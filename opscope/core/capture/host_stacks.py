"""Sample the Python stacks of the threads that a recording records, so that time outside ops has lines.

A library of opscope's own takes the samples (``adapters/shared/stacks.c``) if it can be built; else the
writer's thread does, at a lower rate. Both reduce their rate so that sampling costs 1 % at most. No signal is
used.

Samples are biased towards the places where Python lets another thread run. A thread in a C function that
keeps the GIL is sampled when that function ends. Threads may run on for some ms before they are sampled, or
until they release the GIL, as an op does when it begins. (From Python 3.13 on, this is not so of the main
thread.) A thread that waits with the GIL released (sleeping, reading, locked, in ``.item()``) is sampled
where it waits.
"""

from __future__ import annotations

import atexit
import gc
import json
import logging
import os
import struct
import sys
import sysconfig
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from time import perf_counter_ns
from types import CodeType, FrameType
from typing import Any, Final, Protocol

from opscope.core.recording_format import STACK_RECORD

from .called import called
from .own_cost import Spent

_log = logging.getLogger(__name__)

#: ``0``: do not sample stacks. ``python``: sample in Python, for tests and comparisons.
VARIABLE: Final = "OPSCOPE_STACKS"
#: Time between two samples (ns), before it is lowered: natively, and in Python.
PERIOD_NS: Final = 10_000_000
PYTHON_PERIOD_NS: Final = 50_000_000
#: Samples may cost at most 1 / SHARE of the time: a little less than 1 %.
SHARE: Final = 120
#: The rate is halved each time this many bytes were written, so that a day of samples stays small.
HALVED_EACH: Final = 16 << 20
#: The most frames of a stack, and the most distinct stacks, that are kept.
MAX_DEPTH: Final = 512
MAX_NODES: Final = 1 << 17
MAX_UNWRITTEN: Final = 1 << 16
#: The most calls that are named at one write; further ones wait for the next write.
_MOST_CALLS: Final = 200
PART: Final = "Python stacks"

#: (number, parent, code, instruction, line)
Node = tuple[int, int, CodeType, int, int]
#: (number, code, instruction)
Leaf = tuple[int, CodeType, int]


class Sampling(Protocol):
    """Takes the samples of a recording."""

    #: The way of sampling in words, for the report.
    how: str

    def open(self, period: int) -> bool:
        """Begin with nothing recorded; false if another recording is being sampled."""

    def thread(self, ident: int, native: int, is_main: bool) -> None:
        """Sample this thread from now on."""

    def start(self) -> None:
        """Begin, or go on after ``stop``."""

    def stop(self) -> None:
        """Pause; afterwards no part of the sampler runs."""

    def take(self) -> tuple[bytes, list[Node], list[Leaf]]:
        """Return the new data: ``STACK_RECORD``s, nodes of stacks, and the numbers of the innermost nodes."""

    def figures(self) -> tuple[int, int, int, int, int, int]:
        """Return ns spent, number of looks, samples, dropped records, period and longest period (ns)."""

    def lower(self, period: int) -> None:
        """Sample no more often than once in ``period`` ns."""


#: Makes the native sampler; set by the package that can build it. Raises RuntimeError or OSError if it
#: cannot.
native: Callable[[], Sampling] | None = None
_chosen: bool | None = None


def choose(stacks: bool | None) -> None:
    """Sample stacks from the next recording on, or do not; None leaves the setting unchanged."""
    global _chosen
    if stacks is not None:
        _chosen = stacks


def is_on() -> bool:
    """Whether stacks are sampled: as chosen, unless the environment says otherwise."""
    return os.environ.get(VARIABLE, "") != "0" and _chosen is not False


def why_not() -> str | None:
    """Return why no stacks can be sampled in this Python; None if they can."""
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        return "this Python has no GIL, under which frames are read"
    if not hasattr(sys, "_current_frames"):
        return f"{sys.implementation.name} does not show the frames of its threads"
    return None


class HostStacks:
    """The samples of one recorder, from ``begin`` to ``end``. No method raises."""

    def __init__(self, note: Callable[[str, str], object], flat: bool = False) -> None:
        """``flat``: whether old samples are deleted, so that the rate need not fall as they accumulate."""
        self._note = note
        self._flat = flat
        self._sampling: Sampling | None = None
        self._begun = self._ended = False
        self._waiting: list[tuple[int, int]] = []
        self._codes: dict[int, int] = {}
        self._leaves: list[Leaf] = []
        self._written = 0
        self._naming_ns = 0
        self._pid = os.getpid()
        self._since = 0

    def begin(self) -> bool:
        """Begin; return whether stacks are sampled from now on. A second call does nothing."""
        if self._begun:
            return False
        self._begun = True
        if not is_on():
            return False
        try:
            why = why_not()
            if why is None:
                self._begin()
            else:
                self._note("info", f"Python stacks are not sampled: {why}")
        except Exception as error:  # noqa: BLE001 - a fault of ours must not be the program's
            self._fail(error)
        return self._sampling is not None

    def _begin(self) -> None:
        sampling, period = _make()
        if not sampling.open(period):
            self._note("info", "Python stacks are not sampled: another recording samples them")
            return
        main = threading.main_thread()
        if main.ident is not None:
            sampling.thread(main.ident, main.native_id or os.getpid(), True)
        for ident, number in self._waiting:
            sampling.thread(ident, number, ident == main.ident)
        self._sampling = sampling
        self._since = perf_counter_ns()
        _running.add(self)
        sampling.start()
        # a recorder dropped without its end must leave no sampler behind, which would block the next
        weakref.finalize(self, _stop, sampling, self._pid).atexit = False

    def thread(self, ident: int, native_id: int) -> None:
        """Sample this thread too."""
        if self._sampling is None:
            if not self._begun:
                self._waiting.append((ident, native_id))
            return
        try:
            self._sampling.thread(ident, native_id, ident == threading.main_thread().ident)
        except Exception as error:  # noqa: BLE001 - likewise
            self._fail(error)

    def tick(self) -> int:
        """Sample, if that is due on the writer's thread; return the ns until the next call."""
        tick = getattr(self._sampling, "tick", None)
        if tick is None:
            return PERIOD_NS * 100
        try:
            left: int = tick()
        except Exception as error:  # noqa: BLE001 - likewise
            self._fail(error)
            return PERIOD_NS * 100
        return left

    def pause(self) -> None:
        """End the sampler's thread before a fork."""
        if self._sampling is not None and self._pid == os.getpid():
            self._sampling.stop()

    def resume(self) -> None:
        """Continue after a fork, only in the parent, and only if the recording has not ended."""
        if self._sampling is not None and not self._ended and self._pid == os.getpid():
            self._sampling.start()

    def end(self) -> None:
        """End the sampling; samples taken so far can still be read."""
        if not self._ended:
            self._ended = True
            _running.discard(self)
            self.pause()

    def abandon(self) -> None:
        """Forget everything, in a forked child."""
        self._sampling, self._begun = None, True
        _running.discard(self)

    def take(self) -> tuple[bytes, list[str]]:
        """Return the samples since the last call, and lines for their stacks, to be written first."""
        if self._sampling is None:
            return b"", []
        begin = time.thread_time_ns()
        try:
            samples, nodes, leaves = self._sampling.take()
            self._leaves += leaves
            lines = list(self._lines(nodes))
        except Exception as error:  # noqa: BLE001 - likewise
            self._fail(error)
            return b"", []
        before, self._written = self._written, self._written + len(samples)
        if not self._flat and before // HALVED_EACH != self._written // HALVED_EACH:
            self._sampling.lower(self._sampling.figures()[4] * 2)
        self._naming_ns += time.thread_time_ns() - begin
        return samples, lines

    def facts(self) -> dict[str, Any] | None:
        """Return a fact of the recording about the samples so far."""
        if self._sampling is None:
            return None
        _, looks, samples, dropped, _, longest = self._sampling.figures()
        seconds = (perf_counter_ns() - self._since) / 1e9
        return {
            "how": self._sampling.how,
            "looks": looks,
            "samples": samples,
            "dropped": dropped,
            "rate": looks / seconds if seconds > 0 else 0.0,
            "longest": longest,
        }

    def spent(self) -> Spent:
        """Return the cost of all samples."""
        if self._sampling is None:
            return Spent(PART, 0, 0, 1, 0)
        spent, looks = self._sampling.figures()[:2]
        return Spent(PART, spent + self._naming_ns, looks, 1, 0)

    def _lines(self, nodes: Iterable[Node]) -> Iterable[str]:
        for number, parent, code, _, line in nodes:
            code_number = self._codes.get(id(code))  # the sampler keeps the object alive
            if code_number is None:
                code_number = self._codes[id(code)] = len(self._codes)
                name = getattr(code, "co_qualname", code.co_name)
                yield json.dumps(["code", code_number, code.co_filename, name])
            yield json.dumps(["node", number, parent, code_number, max(0, line)])
        now, self._leaves = self._leaves[:_MOST_CALLS], self._leaves[_MOST_CALLS:]
        for number, code, at in now:
            name = called(code, at)
            if name is not None:
                yield json.dumps(["call", number, name])

    def _fail(self, error: Exception) -> None:
        sampling, self._sampling = self._sampling, None
        _running.discard(self)
        self._note(
            "info", f"Python stacks are not sampled from here on: {type(error).__name__}: {error}"
        )
        if sampling is not None:
            sampling.stop()


def _stop(sampling: Sampling, process: int) -> None:
    if process == os.getpid():
        sampling.stop()


#: The active sampler. A sampler must end before the interpreter does, or it would wait for a GIL that no
#: longer exists.
_running: weakref.WeakSet[HostStacks] = weakref.WeakSet()


@atexit.register
def _at_exit() -> None:
    for stacks in list(_running):
        stacks.end()


def _make() -> tuple[Sampling, int]:
    if native is not None and os.environ.get(VARIABLE) != "python":
        try:
            return native(), PERIOD_NS
        except (RuntimeError, OSError) as error:
            _log.info("opscope: Python stacks are sampled from Python, less often: %s", error)
    return PythonStacks(), PYTHON_PERIOD_NS


class _Last:
    """A thread's current sample, which lasts until its stack changes."""

    __slots__ = ("cpu", "last", "native", "node", "ready", "ready_before", "samples", "start")

    def __init__(self, native_id: int) -> None:
        self.native = native_id
        self.start = self.last = self.cpu = 0
        self.ready = self.ready_before = 0
        self.node, self.samples = -1, 0


class PythonStacks:
    """Samples in Python, at each ``tick`` of the writer's thread."""

    how = "in Python: no native sampler could be had"

    def __init__(self) -> None:
        self._threads: dict[int, _Last] = {}
        self._nodes: dict[tuple[int, int, int], int] = {}
        self._kept: dict[int, CodeType] = {}
        self._new: list[Node] = []
        self._leaves: list[Leaf] = []
        self._is_leaf: set[int] = set()
        self._records: list[bytes] = []
        self._due = self._spent = self._looks = self._samples = self._dropped = 0
        self._base = self._period = PYTHON_PERIOD_NS
        self._longest = 0
        self._cost = 0.0
        self._runs = False

    def open(self, period: int) -> bool:
        """Begin anew."""
        self._base = self._period = period
        return True

    def thread(self, ident: int, native: int, is_main: bool) -> None:
        """Sample this thread from now on."""
        last = self._threads.get(ident)
        if last is None or last.native != native:
            self._threads[ident] = _Last(native)

    def start(self) -> None:
        """Begin, or go on."""
        self._runs = True

    def stop(self) -> None:
        """Pause."""
        self._runs = False
        now = perf_counter_ns()
        for last in self._threads.values():
            self._close(last, now)

    def lower(self, period: int) -> None:
        """Sample no more often than once in ``period`` ns."""
        self._base = period

    def figures(self) -> tuple[int, int, int, int, int, int]:
        """Return ns spent, number of looks, samples, dropped records, period and longest period (ns)."""
        return self._spent, self._looks, self._samples, self._dropped, self._period, self._longest

    def tick(self) -> int:
        """Sample all threads if that is due; return the ns until the next sample."""
        if not self._runs:
            return self._period
        left = self._due - perf_counter_ns()
        if left > 0:
            return left
        asked, begin = perf_counter_ns(), time.thread_time_ns()
        self._look(asked)
        took = time.thread_time_ns() - begin
        self._spent += took
        self._looks += 1
        self._cost += (took - self._cost) / 8
        self._period = max(self._base, int(self._cost * SHARE))
        self._longest = max(self._longest, self._period)
        # an even interval could stay in step with the program
        period = self._period * (3 + (asked >> 7) % 3) // 4
        self._due = perf_counter_ns() + period
        return period

    def take(self) -> tuple[bytes, list[Node], list[Leaf]]:
        """Return what is new."""
        for last in self._threads.values():
            if last.samples > 1:  # a lasting sample is written up to its last observation
                self._record(last, last.last, last.samples - 1)
                last.start, last.samples, last.ready_before = last.last, 1, last.ready
        records, self._records = self._records, []
        nodes, self._new = self._new, []
        leaves, self._leaves = self._leaves, []
        return b"".join(records), nodes, leaves

    def _look(self, asked: int) -> None:
        wanted = []
        for ident, last in list(self._threads.items()):
            cpu = _cpu_of(last.native)
            if cpu is None:
                self._close(last, asked)
                del self._threads[ident]
            elif last.samples and cpu == last.cpu >= 0:
                last.samples += 1
                last.last = asked
                self._samples += 1
            else:
                last.cpu = cpu
                last.ready = cpu + _waited_for_processor(last.native)
                wanted.append((ident, last))
        if not wanted:
            return
        collects = gc.isenabled()
        if collects:  # see process.living_threads
            gc.disable()
        try:
            frames = sys._current_frames()
        finally:
            if collects:
                gc.enable()
        for ident, last in wanted:
            node = self._stack(frames.get(ident))
            self._close(last, asked)
            last.start = last.last = asked
            last.ready_before, last.node, last.samples = last.ready, node, 1
            self._samples += 1
        frames.clear()  # code objects keep all constants of the program's functions alive

    def _stack(self, frame: FrameType | None) -> int:
        path: list[tuple[CodeType, int, int]] = []
        while frame is not None and len(path) < MAX_DEPTH:
            path.append((frame.f_code, frame.f_lasti, frame.f_lineno or 0))
            frame = frame.f_back
        node = -1
        for code, at, line in reversed(path):
            key = (node, id(code), at)
            number = self._nodes.get(key)
            if number is None:
                if len(self._nodes) >= MAX_NODES:
                    return node
                self._kept[id(code)] = code
                number = self._nodes[key] = len(self._nodes)
                self._new.append((number, node, code, at, line))
            node = number
        if path and node not in self._is_leaf:
            self._is_leaf.add(node)
            self._leaves.append((node, path[0][0], path[0][1]))
        return node

    def _close(self, last: _Last, end: int) -> None:
        if last.samples and end > last.start:
            self._record(last, end, last.samples)
        last.samples = 0

    def _record(self, last: _Last, end: int, samples: int) -> None:
        if len(self._records) >= MAX_UNWRITTEN:
            self._dropped += 1
            return
        ready = last.ready - last.ready_before if last.cpu >= 0 else -1
        packed = (last.start, end, ready, last.native, last.node, samples, 0)
        self._records.append(STACK_RECORD.pack(*packed))


def _cpu_of(native_id: int) -> int | None:
    """Return the processor time of a thread (ns); None once it has ended, -1 if the system does not say."""
    if not sys.platform.startswith("linux"):
        return -1
    try:
        # the id of the thread's clock, as Linux forms it; reading it fails for a thread that has ended
        return time.clock_gettime_ns(struct.unpack("<i", struct.pack("<I", _clock(native_id)))[0])
    except OSError:
        return None


def _waited_for_processor(native_id: int) -> int:
    """Return how long (ns) a thread was ready without a processor; 0 if the system does not say."""
    try:
        with open(f"/proc/self/task/{native_id}/schedstat", encoding="ascii") as file:
            return int(file.read().split()[1])
    except (OSError, ValueError, IndexError):
        return 0


def _clock(native_id: int) -> int:
    return ((~native_id << 3) | 6) & 0xFFFFFFFF
