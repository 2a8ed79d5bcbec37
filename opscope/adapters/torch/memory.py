"""Records tensors' memory during a recording: the CPU's with our wrapper of its allocator, the GPU's with
PyTorch's own history (``gpu_memory.py``).

Off unless ``init(memory=True)``, ``opscope run --memory`` or ``OPSCOPE_MEMORY=1`` switches it on. On the CPU
the allocator is wrapped (``native/memory.cpp``), which needs a C++ compiler. On the GPU
``torch.cuda.memory``'s history is switched on: it covers every thread and stream, costs less than a
microsecond per event without stacks, and needs no CUDA headers. It does not record threads, its times are
whole microseconds, and the user's use of it takes precedence.
PyTorch's profiler slot gives threads and exact times, but torch.profiler refuses to start while another
uses it.
"""

from __future__ import annotations

import ctypes
import functools
import logging
from pathlib import Path
from typing import Any, Final, NamedTuple

from opscope.adapters.shared import cache
from opscope.core.capture import session
from opscope.core.capture.own_cost import Spent
from opscope.core.capture.recorder_sink import Recorder
from opscope.core.recording_format import CPU_DEVICE

from .gpu_memory import History
from .native.binary import MEMORY, BuildError, build, plan
from .native.observer import flush

_log = logging.getLogger(__name__)

ABI: Final = 3
#: One in this many of a thread's allocations and releases is timed (kTimedEvery in memory.cpp).
TIMED_EVERY: Final = 64


class _Counts(NamedTuple):
    """The library's counters since the process began, in the order in which it writes them."""

    dropped: int = 0
    unwrapped: int = 0
    calls: int = 0
    timed: int = 0
    #: ns: of the timed calls, and of the calls that most likely were interrupted by another process.
    timed_ns: int = 0
    long_ns: int = 0


class Memory:
    """Records memory for the current recorder: starts with each recording and ends before it."""

    def __init__(self) -> None:
        self._recorder: Recorder | None = None
        self._library: Any = None
        self._cpu = False
        self._gpu = History()
        #: The counters at the start of the recording.
        self._before = _Counts()
        self._left: list[bytes] = []
        self._why: str | None = None

    def install(self) -> None:
        """Do nothing: the hooks are installed when a recording begins."""

    def uninstall(self) -> None:
        """Stop recording memory, if a recording runs."""
        self.stop()

    def listen(self) -> None:
        """Start or stop after a change of the recorder. Failures become notes of the recording."""
        recorder = session.recorder()
        if recorder is self._recorder:
            return
        self.stop()
        self._recorder = recorder
        if recorder is None:
            return
        self._left = []
        recorder.attach_memory(self)
        self._begin_cpu(recorder)
        self._gpu.begin(recorder)

    def stop(self) -> None:
        """Restore the original allocator; read the GPU's history and switch it off."""
        recorder, self._recorder = self._recorder, None
        if recorder is None:
            return
        if self._cpu:
            self._cpu = False
            self._library.opscope_memory_stop()
            self._left.append(self._taken())
            lost = self._counts()
            if lost.dropped:
                message = (
                    "changes of the CPU's memory that were lost: full buffers or ending threads"
                )
                recorder.note("warning", message, lost.dropped)
            if lost.unwrapped:
                message = "blocks of CPU memory left out: their release could not be observed"
                recorder.note("warning", message, lost.unwrapped)
        self._gpu.end()

    def take_memory(self) -> bytes:
        """Return the new records, for the recorder."""
        left, self._left = self._left, []
        return b"".join([*left, self._taken() if self._cpu else b"", *self._gpu.take()])

    # ------------------------------------------------------------------------------ the CPU

    def _begin_cpu(self, recorder: Recorder) -> None:
        why: str | None
        try:
            if self._library is None:
                self._library = _load(build(plan(MEMORY)))
            self._before = self._counted()
            message = self._library.opscope_memory_start(flush)
            why = None if message is None else message.decode()
        except (BuildError, OSError) as error:
            why = str(error)
        if why is None:
            self._cpu = True
            recorder.fact(memory=CPU_DEVICE)
            recorder.spending.append(self.spent)
        else:
            if why != self._why:  # log once, however many windows a program records
                _log.warning("opscope: the CPU's memory is not recorded: %s", why)
            self._why = why
            recorder.note("warning", f"the CPU's memory is not recorded: {why}")

    def _taken(self) -> bytes:
        out = (ctypes.c_size_t * 2)()
        self._library.opscope_memory_take(out)
        return ctypes.string_at(out[0], out[1]) if out[1] else b""

    def spent(self) -> Spent:
        """Return the cost of the wrapped CPU allocator in this recording."""
        mine = self._counts()
        time = mine.timed_ns * mine.calls // mine.timed if mine.timed else 0
        return Spent("memory, CPU", time + mine.long_ns, mine.calls, TIMED_EVERY, 0)

    def _counts(self) -> _Counts:
        """The counts of this recording."""
        return _Counts(*map(int.__sub__, self._counted(), self._before))

    def _counted(self) -> _Counts:
        out = (ctypes.c_int64 * len(_Counts._fields))()
        self._library.opscope_memory_counts(out)
        return _Counts(*out)


@functools.lru_cache(maxsize=1)
def _load(path: Path) -> Any:
    library = cache.load(path)
    if library.opscope_memory_abi() != ABI:
        raise OSError(f"{path} was built for another version of opscope")
    library.opscope_memory_start.argtypes = (ctypes.py_object,)
    library.opscope_memory_start.restype = ctypes.c_char_p
    library.opscope_memory_take.argtypes = (ctypes.c_void_p,)
    library.opscope_memory_counts.argtypes = (ctypes.c_void_p,)
    return library
