"""Records the GPU's memory from PyTorch's history of its allocator, which the program may use itself.

A process has one history (``torch.cuda.memory._record_memory_history``). A second start keeps the history's
content and replaces the first start's settings; an end empties it. So the program's history takes precedence:
ours ends before the program's begins, and continues after the program's has ended. While ours runs, the
program sees an empty history (``_snapshot``, which then also spends no time on our events). These calls are
intercepted where Python hands them to C++, because programs import the Python functions by name.
"""

from __future__ import annotations

import functools
import inspect
import logging
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from time import perf_counter_ns
from typing import Any, Final

import torch

from opscope.adapters.shared.cuda import in_use, when_in_use
from opscope.adapters.shared.patch import Patches
from opscope.core.capture.own_cost import Spent
from opscope.core.capture.recorder_sink import Recorder
from opscope.core.recording_format import ALLOCATED, MEMORY_RECORD, RELEASED, RESERVED, UNRESERVED

_log = logging.getLogger(__name__)

#: The most events that the history keeps, over all devices; older ones are lost. It can only be read as a
#: whole, into Python objects. A million events took 3.3 s and 865 MiB; the limit is a quarter of that.
MAX_EVENTS: Final = 250_000
#: The history's actions that are recorded. A block counts as released once the program no longer owns it
#: (``free_requested``), as in ``torch.cuda.memory_allocated`` and torch.profiler.
_KINDS: Final[Mapping[str, int]] = {
    "alloc": ALLOCATED,
    "free_requested": RELEASED,
    "segment_alloc": RESERVED,
    "segment_map": RESERVED,
    "segment_free": UNRESERVED,
    "segment_unmap": UNRESERVED,
}
#: Actions that are not recorded; from 2.11 on, PyTorch can omit them. They are a third of all events.
_SKIPPED: Final = ("free_completed", "snapshot", "oom")
_RECORD: Final = ("_cuda_record_memory_history", "_cuda_record_memory_history_legacy")

THEIRS: Final = (
    "the GPU's memory is not recorded while the program keeps its own history of it"
    " (torch.cuda.memory._record_memory_history)"
)


class History:
    """opscope's use of the history: from the first use of CUDA in a recording until the recording's end."""

    def __init__(self) -> None:
        self._recorder: Recorder | None = None
        self._queued = False
        self._ours = False
        #: The number of running calls by which the program starts its own history.
        self._beginning = 0
        self._left: list[bytes] = []
        self._pid = 0
        self._patches = Patches()
        self._entries = MAX_EVENTS
        # Held during a CUDA call only where CUDA is in use already, see ``adapters/shared/cuda.py``.
        self._lock = threading.RLock()
        self._own = threading.local()

    def begin(self, recorder: Recorder) -> None:
        """Start for ``recorder``, at the first use of CUDA. Call ``end`` before the next ``begin``."""
        if not torch.backends.cuda.is_built():
            return
        self._pid = os.getpid()
        self._left = []
        self._recorder = recorder
        self._watch()
        if in_use(torch.cuda):
            self._start()
        elif not self._queued:  # once: PyTorch keeps the queued call until CUDA is in use
            self._queued = True
            when_in_use(torch.cuda, self._start)

    def end(self) -> None:
        """Read the history and switch it off, if it is ours; ``take`` then returns its events."""
        if os.getpid() != self._pid:  # forked: a thread of the parent may have held the lock
            self._lock = threading.RLock()
        with self._lock:
            recorder, self._recorder = self._recorder, None
            if recorder is not None:
                self._patches.restore()
                if self._ours and os.getpid() == self._pid:  # a forked child has no GPU
                    self._read(recorder)
                self._ours = False

    def take(self) -> list[bytes]:
        """Return the new records; their times are Unix times in ns."""
        left = self._left[:]  # a copy: records that another thread adds meanwhile stay
        del self._left[: len(left)]
        return left

    # ------------------------------------------------------------------ opscope's history

    def _start(self) -> None:
        """Switch the history on. PyTorch calls this as it initialises CUDA, else ``begin`` does."""
        with self._lock:
            self._queued = False
            recorder = self._recorder
            if recorder is None or self._ours or os.getpid() != self._pid:
                return
            try:
                with self._calling():
                    if self._beginning or torch._C._cuda_isHistoryEnabled():
                        recorder.note("warning", THEIRS)
                        return
                    self._switch_on()
            except Exception as error:  # noqa: BLE001 - must not be raised into the user's program
                _log.warning("opscope: the GPU's memory is not recorded: %s", error)
                recorder.note("warning", f"the GPU's memory is not recorded: {error}")

    def _switch_on(self) -> None:
        """Switch the history on, with ``MAX_EVENTS`` shared among the devices. Raises what PyTorch raises."""
        memory = torch.cuda.memory
        parameters = inspect.signature(memory._record_memory_history).parameters
        more = {"skip_actions": list(_SKIPPED)} if "skip_actions" in parameters else {}
        self._entries = max(1, MAX_EVENTS // max(1, torch.cuda.device_count()))
        memory._record_memory_history(
            "all", context=None, stacks="python", max_entries=self._entries, **more
        )
        self._ours = True

    def _read(self, recorder: Recorder) -> None:
        """Keep the history's events and switch it off."""
        begin = perf_counter_ns()
        try:
            with self._calling():
                records = _history(recorder, self._entries)
            self._left.extend(records)
        except Exception:  # noqa: BLE001 - the recording and the program continue without it
            _log.exception("opscope: the GPU's memory history could not be read")
            recorder.note(
                "warning",
                "the GPU's memory is not known: PyTorch's history of it could not be read",
            )
        self._ours = False
        read = Spent("memory, GPU", perf_counter_ns() - begin, 1, 1, 0)
        recorder.spending.append(lambda: read)

    @contextmanager
    def _calling(self) -> Iterator[None]:
        """Mark this thread's calls of the history inside the context as opscope's own."""
        self._own.inside = True
        try:
            yield
        finally:
            self._own.inside = False

    def _passes(self) -> bool:
        """Whether a call goes to PyTorch unchanged: it is opscope's own, or nothing records here."""
        inside = getattr(self._own, "inside", False)
        return inside or self._recorder is None or os.getpid() != self._pid

    # ----------------------------------------------------------------- the program's history

    def _watch(self) -> None:
        library = torch._C
        for name in (*_RECORD, "_cuda_isHistoryEnabled", "_cuda_memorySnapshot"):
            if hasattr(library, name) and not self._patches.has(library, name):
                make = self._recording if name in _RECORD else getattr(self, name[5:])
                self._patches.wrap(library, name, make)

    def _recording(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def record_memory_history(*args: Any, **kwargs: Any) -> Any:
            if self._passes():
                return original(*args, **kwargs)
            enabled = args[0] if args else kwargs.get("enabled")
            if enabled is None or enabled is False:
                return self._they_end(original, args, kwargs)
            return self._they_begin(original, args, kwargs)

        return record_memory_history

    def _they_begin(self, original: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        with self._lock:
            ours, recorder = self._ours, self._recorder
            self._beginning += 1
            if ours and recorder is not None:
                self._read(recorder)
                recorder.note("warning", THEIRS)
        try:
            # without our lock: the call may initialise CUDA, which may start a recording and our history
            done = original(*args, **kwargs)
        except BaseException:  # an interrupt too: the program's history has not begun, ours goes on
            self._beginning -= 1
            if ours:
                self._start()
            raise
        self._beginning -= 1
        return done

    def _they_end(self, original: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        if self._ours:
            return None  # the program's history does not run, and the program must not empty ours
        done = original(*args, **kwargs)
        if in_use(torch.cuda):
            self._start()
        return done

    def _isHistoryEnabled(self, original: Callable[[], bool]) -> Callable[[], bool]:
        @functools.wraps(original)
        def is_history_enabled() -> bool:
            return original() and (self._passes() or not self._ours)

        return is_history_enabled

    def _memorySnapshot(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def memory_snapshot(*args: Any, **kwargs: Any) -> Any:
            if self._passes() or not self._ours:
                return original(*args, **kwargs)
            # a pool's id (two numbers) and whether to include traces
            if args and isinstance(args[0], tuple) and len(args[0]) == 3:
                args = ((*args[0][:2], False), *args[1:])
            snapshot = original(*args, **kwargs)
            if "device_traces" in snapshot:
                snapshot["device_traces"] = [[] for _ in snapshot["device_traces"]]
            return snapshot

        return memory_snapshot


def _history(recorder: Recorder, entries: int) -> list[bytes]:
    """Return the history's events as records, with times in Unix ns, and switch the history off."""
    try:
        chunks = []
        for device, events in enumerate(torch.cuda.memory._snapshot()["device_traces"]):
            if not events:
                continue
            records = list(_records(device, events))
            # torch.cuda.memory_stats is empty until CUDA reports that it is initialised
            stats = torch._C._cuda_memoryStats(device)
            recorder.fact(
                memory=device,
                total=_current(stats, "requested_bytes"),
                reserved=_current(stats, "reserved_bytes"),
                changes=len(records),
            )
            if len(events) >= entries:
                recorder.note(
                    "warning",
                    f"the GPU's memory before the last {entries} changes is not known: PyTorch's history of"
                    " it keeps no more",
                )
            chunks.append(b"".join(records))
        return chunks
    finally:
        torch.cuda.memory._record_memory_history(None)


def _current(stats: Mapping[str, Any], statistic: str) -> int | None:
    """The current value of statistic ``statistic``, in bytes; None where PyTorch does not report it."""
    bytes_now = stats.get(statistic, {}).get("all", {}).get("current")
    return bytes_now if isinstance(bytes_now, int) else None


def _records(device: int, events: Iterable[Mapping[str, Any]]) -> Iterable[bytes]:
    for event in events:
        kind = _KINDS.get(event["action"])
        if kind is not None:
            # PyTorch gives whole microseconds: take the middle
            time = event["time_us"] * 1000 + 500
            yield MEMORY_RECORD.pack(time, event["addr"], event["size"], 0, device, kind)
