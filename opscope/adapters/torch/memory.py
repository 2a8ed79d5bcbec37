"""Memory of tensors, while something records it: the CPU's by an allocator of ours, the GPU's by
PyTorch's own history.

Off unless ``init(memory=True)``, ``opscope run --memory`` or ``OPSCOPE_MEMORY=1`` asks for it. On the
CPU the allocator is wrapped (``native/memory.cpp``), which needs the C++ compiler. On the GPU
``torch.cuda.memory``'s history is switched on: it hears every thread and stream, without stacks it
costs less than a microsecond an event, and it needs no CUDA headers; it has no threads, its times are
whole microseconds, and it is the user's first: where it runs already it is left alone.
PyTorch's profiler slot, which has both, was not taken: torch.profiler refuses to start beside it.
"""

from __future__ import annotations

import ctypes
import functools
import logging
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from time import perf_counter_ns
from typing import Any, Final, NamedTuple

import torch

from opscope.adapters import cache
from opscope.core import session
from opscope.core.cost import Spent
from opscope.core.record import Recorder
from opscope.core.recording import (
    ALLOCATED,
    CPU_DEVICE,
    MEMORY_RECORD,
    RELEASED,
    RESERVED,
    UNRESERVED,
)

from .native.binary import MEMORY, BuildError, build, plan
from .native.observer import flush

_log = logging.getLogger(__name__)

ABI: Final = 3
#: One of a thread's allocations and releases in so many is timed (kTimedEvery in memory.cpp).
TIMED_EVERY: Final = 64
#: Events that the GPU's history keeps of each device; those before the last so many are lost.
MAX_EVENTS: Final = 1_000_000
#: What the history calls what counts here. A block is released when it is no longer the program's
#: (``free_requested``), as ``torch.cuda.memory_allocated`` and torch.profiler have it.
_KINDS: Final[Mapping[str, int]] = {
    "alloc": ALLOCATED,
    "free_requested": RELEASED,
    "segment_alloc": RESERVED,
    "segment_map": RESERVED,
    "segment_free": UNRESERVED,
    "segment_unmap": UNRESERVED,
}


class _Counts(NamedTuple):
    """What the library has counted since the process began, as it writes it."""

    dropped: int = 0
    unwrapped: int = 0
    calls: int = 0
    timed: int = 0
    #: ns, of the calls that were timed, and of those in which most likely another process ran.
    timed_ns: int = 0
    long_ns: int = 0


class Memory:
    """Follows the recorder: begins with each recording and ends before it does."""

    def __init__(self) -> None:
        self._recorder: Recorder | None = None
        self._library: Any = None
        self._cpu = False
        self._gpu = False
        self._queued = False
        #: What the recording began with.
        self._before = _Counts()
        self._left: list[bytes] = []
        self._why: str | None = None
        self._pid = 0

    def install(self) -> None:
        """Nothing is hooked before there is a recording."""

    def uninstall(self) -> None:
        """End with the recording, where one runs."""
        self.stop()

    def listen(self) -> None:
        """A recording may have begun or be about to end. What fails is told in the recording."""
        recorder = session.recorder()
        if recorder is self._recorder:
            return
        self.stop()
        self._recorder = recorder
        if recorder is None:
            return
        self._left = []
        self._pid = os.getpid()
        recorder.memory.append(self)
        self._begin_cpu(recorder)
        if torch.backends.cuda.is_built() and not self._queued:
            self._queued = True  # once: what is queued there stays until CUDA is initialised
            torch.cuda._lazy_call(self._begin_gpu)

    def stop(self) -> None:
        """End: the allocator that was there is put back, the history read and switched off."""
        recorder, self._recorder = self._recorder, None
        if recorder is None:
            return
        if self._cpu:
            self._cpu = False
            self._library.opscope_memory_stop()
            self._left.append(self._taken())
            lost = self._counts()
            if lost.dropped:
                what = "changes of the CPU's memory that were not kept"
                recorder.note("warning", what, lost.dropped)
            if lost.unwrapped:
                what = "blocks of CPU memory left out: their release could not be heard"
                recorder.note("warning", what, lost.unwrapped)
        mine, self._gpu = self._gpu and os.getpid() == self._pid, False
        if mine:  # a forked child has no GPU
            begin = perf_counter_ns()
            try:
                self._left.extend(_history(recorder))
            except Exception:  # noqa: BLE001 - a recording, and the program, go on without it
                _log.exception("opscope: the GPU's memory history could not be read")
                recorder.note("warning", "the GPU's memory is not known: its history was not read")
            read = Spent("memory, GPU", perf_counter_ns() - begin, 1, 1, 0)
            recorder.spending.append(lambda: read)

    def take_memory(self) -> bytes:
        """For the recorder: what is new."""
        left, self._left = self._left, []
        return b"".join([*left, self._taken() if self._cpu else b""])

    # ------------------------------------------------------------------------------ the CPU

    def _begin_cpu(self, recorder: Recorder) -> None:
        why: str | None
        try:
            if self._library is None:
                self._library = _load(build(plan(MEMORY)))
            self._before = self._counted()
            found = self._library.opscope_memory_start(flush)
            why = None if found is None else found.decode()
        except (BuildError, OSError) as error:
            why = str(error)
        if why is None:
            self._cpu = True
            recorder.fact(memory=CPU_DEVICE)
            recorder.spending.append(self.spent)
        else:
            if why != self._why:  # once, however many windows a program records
                _log.warning("opscope: the CPU's memory is not recorded: %s", why)
            self._why = why
            recorder.note("warning", f"the CPU's memory is not recorded: {why}")

    def _taken(self) -> bytes:
        out = (ctypes.c_size_t * 2)()
        self._library.opscope_memory_take(out)
        return ctypes.string_at(out[0], out[1]) if out[1] else b""

    def spent(self) -> Spent:
        """What wrapping the CPU's allocator has cost in this recording."""
        mine = self._counts()
        time = mine.timed_ns * mine.calls // mine.timed if mine.timed else 0
        return Spent("memory, CPU", time + mine.long_ns, mine.calls, TIMED_EVERY, 0)

    def _counts(self) -> _Counts:
        """Of this recording."""
        return _Counts(*map(int.__sub__, self._counted(), self._before))

    def _counted(self) -> _Counts:
        out = (ctypes.c_int64 * len(_Counts._fields))()
        self._library.opscope_memory_counts(out)
        return _Counts(*out)

    # ------------------------------------------------------------------------------ the GPU

    def _begin_gpu(self) -> None:
        """Called by PyTorch when it initialises CUDA, or at once where it has."""
        self._queued = False
        recorder = self._recorder
        if recorder is None:
            return
        try:
            if torch._C._cuda_isHistoryEnabled():
                what = "the GPU's memory is not recorded: the program keeps its own history of it"
                recorder.note("warning", what)
                return
            torch.cuda.memory._record_memory_history(
                "all", context=None, stacks="python", max_entries=MAX_EVENTS
            )
        except Exception as error:  # noqa: BLE001 - raised into the user's program otherwise
            _log.warning("opscope: the GPU's memory is not recorded: %s", error)
            recorder.note("warning", f"the GPU's memory is not recorded: {error}")
            return
        self._gpu = True


def _history(recorder: Recorder) -> list[bytes]:
    """What the history has, as records of Unix time; it is switched off."""
    try:
        devices = torch.cuda.memory._snapshot()["device_traces"]
        for device, events in enumerate(devices):
            if not events:
                continue
            stats = torch.cuda.memory_stats(device)
            recorder.fact(
                memory=device,
                total=stats.get("requested_bytes.all.current"),
                reserved=stats.get("reserved_bytes.all.current"),
            )
            if len(events) >= MAX_EVENTS:
                what = f"events of the GPU's memory before the last {MAX_EVENTS} are lost"
                recorder.note("warning", what)
        return [b"".join(_records(device, events)) for device, events in enumerate(devices)]
    finally:
        torch.cuda.memory._record_memory_history(None)


def _records(device: int, events: Iterable[Mapping[str, Any]]) -> Iterable[bytes]:
    for event in events:
        kind = _KINDS.get(event["action"])
        if kind is not None:
            # the middle of the microsecond that is told
            time = event["time_us"] * 1000 + 500
            yield MEMORY_RECORD.pack(time, event["addr"], event["size"], 0, device, kind)


@functools.lru_cache(maxsize=1)
def _load(path: Path) -> Any:
    library = cache.load(path)
    if library.opscope_memory_abi() != ABI:
        raise OSError(f"{path} is of another version")
    library.opscope_memory_start.argtypes = (ctypes.py_object,)
    library.opscope_memory_start.restype = ctypes.c_char_p
    library.opscope_memory_take.argtypes = (ctypes.c_void_p,)
    library.opscope_memory_counts.argtypes = (ctypes.c_void_p,)
    return library
