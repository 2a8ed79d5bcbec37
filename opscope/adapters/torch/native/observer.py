"""Controls the native observer from Python: loads its library, switches it, and records its buffers."""

from __future__ import annotations

import atexit
import ctypes
import functools
import logging
import os
import sys
import sysconfig
import weakref
from collections.abc import Callable
from pathlib import Path
from types import CodeType
from typing import Any, Final

from torch.utils.data._utils import worker

from opscope.adapters.base import Options
from opscope.adapters.shared import cache
from opscope.adapters.shared.source import LibraryFile, Sources
from opscope.core.capture import session
from opscope.core.capture.emit import Emitter, Prepared, Writing
from opscope.core.capture.own_cost import Spent
from opscope.core.capture.recorder_sink import FLUSH_NS, Recorder, pop_code
from opscope.core.schema import CATEGORY_ID

from ..dynamo import shielded
from ..state import Threads, ThreadState
from .binary import GROUPS, BuildError, build, plan

_log = logging.getLogger(__name__)
#: The mark before the name of a library's file (kLibraryMark in state.h).
_LIBRARY_MARK: Final = "\1"

ABI: Final = 8
#: One callback in this many is timed (kTimedEvery in state.h), beside all callbacks that make something new.
TIMED_EVERY: Final = 64
#: One call of Python's hooks in this many is timed (kHookTimedEvery).
HOOK_TIMED_EVERY: Final = 17
#: ``all``: also record the ops that PyTorch decomposes (``aten::linear``) and those that backends call inside
#: an op (``aten::mkldnn_convolution``). Otherwise record one level of nested ops, the one that a dispatch
#: mode sees and that reports count, at half the cost.
LEVELS: Final = "OPSCOPE_TORCH_LEVELS"


#: The Python version by which native code chooses a frame layout; 0 where frames may change while they are
#: read (free-threaded Python).
_PYTHON: Final = 0 if sysconfig.get_config_var("Py_GIL_DISABLED") else sys.hexversion >> 16


_COUNTS: Final = (
    *("ops", "failures", "dropped", "calls", "timed", "timed_ns", "slow_ns"),
    *("hooks", "hooks_timed", "hook_ns", "hook_long_ns"),
)


#: The forced categories of ops (``ThreadState.forced_category``) → their numbers in native code.
_CATEGORIES: Final[dict[str | None, int]] = {
    None: 0,
    **{name: CATEGORY_ID[name] for name in ("backward", "optimizer")},
}


class NativeState(ThreadState):
    """A thread's state that native code copies: the open ranges and what the thread is doing."""

    __slots__ = ("_begun", "_switch")

    def __init__(self, number: int, builtins: dict[str, Callable[..., Any]]) -> None:
        self._switch = builtins["switch"]
        self._begun = builtins["begun"]
        super().__init__(number)

    def switched(self) -> None:
        """Pass the changed state to native code."""
        self._switch(self.open, self.optimizing, self.wait, _CATEGORIES[self.forced_category])

    def begun(self, phase: str, prepared: Prepared) -> None:
        """From now on let native code begin ``phase``."""
        self._begun(phase, prepared.id)


_BUILTINS: Final = ("switch", "around", "begun", "know", "forget", "enter", "leave")


class Library:
    """The loaded binary. One per process; never unloaded, because running ops may still end in it."""

    def __init__(self, path: Path) -> None:
        library = cache.load(path)
        if library.opscope_abi() != ABI:
            raise OSError(f"{path} was built for another version of opscope")
        library.opscope_setup.argtypes = (
            ctypes.py_object,
            ctypes.py_object,
            ctypes.c_int64,
            ctypes.c_int,
        )
        library.opscope_builtin.argtypes = (ctypes.c_char_p, ctypes.c_int64)
        library.opscope_builtin.restype = ctypes.py_object
        library.opscope_record.argtypes = (ctypes.c_int64,)
        library.opscope_take.argtypes = (ctypes.c_void_p,)
        library.opscope_counts.argtypes = (ctypes.c_void_p,)
        library.opscope_texts.argtypes = (ctypes.c_void_p,)
        self.call = library
        self._groups: ctypes.CDLL | None = None
        #: The builtins that Python's hooks call directly; a call through ctypes costs as much as an op.
        self.builtins = {name: self.builtin(name) for name in _BUILTINS}
        self.has_nvtx = bool(library.opscope_has_nvtx())

    def name_groups(self, path: Path) -> None:
        """Let the library at ``path`` (built from groups.cpp) name process groups. Raises OSError where it
        cannot be loaded."""
        self._groups = cache.load(path)  # never unloaded either
        self.call.opscope_name_objects(self._groups.opscope_object_name)

    def builtin(self, name: str, plain_pop: int = 0) -> Callable[..., Any]:
        """Return the builtin ``name``, bound to the code of an emitter's plain pop."""
        method: Callable[..., Any] = self.call.opscope_builtin(name.encode(), plain_pop)
        return method


@functools.lru_cache(maxsize=1)
def load(path: Path) -> Library:
    """Return the library at ``path``. Raises OSError where it cannot be loaded."""
    return Library(path)


class NativeMode:
    """Switches the callback on and off; passes its buffers to the recorder when that flushes."""

    def __init__(
        self, library: Library, emitter: Emitter, threads: Threads, options: Options
    ) -> None:
        self.emitter = emitter
        self.threads = threads
        self.on = False
        self._library = library
        self._call = library.call
        self._creating = 0
        self._tried_groups = False
        self._recorder: Recorder | None = None
        #: The counters: room for a reading, and the values at the start of the recording.
        self._out = (ctypes.c_int64 * len(_COUNTS))()
        self._before = dict.fromkeys(_COUNTS, 0)
        self._worker_loop: Any = None
        self._sources = Sources()
        # native code keeps these functions for good, so they must not keep this object alive
        classify, taken = shielded(_file_by(weakref.ref(self))), shielded(flush)
        self._call.opscope_setup(classify, taken, pop_code(emitter.number), _PYTHON)
        self._call.opscope_options(
            int(options.shapes),
            int(options.source),
            int(os.environ.get(LEVELS) == "all"),
        )
        self._builtins = library.builtins
        # the emitters that PyTorch's hooks push to
        self._emitters = (emitter, session.emitter(session.STEP_FRAMEWORK))
        self._builtins["forget"](None)  # the layers of an earlier adapter
        threads.make = self._state
        _watch_the_end(self._call)
        _watch_forks()
        _modes.add(self)

    def for_layers(self) -> dict[str, Callable[..., Any]] | None:
        """The builtins for layers, or None where Python has no GIL: they rely on it."""
        return self._builtins if _PYTHON else None

    def name_groups(self) -> None:
        """Build and load the library that names process groups, once; from then on texts name them."""
        if self._tried_groups:
            return
        self._tried_groups = True
        try:
            self._library.name_groups(build(plan(GROUPS)))
        except (BuildError, OSError) as error:
            _log.warning("opscope: collectives do not name their process groups: %s", error)

    def _state(self, number: int) -> ThreadState:
        return NativeState(number, self._builtins)

    @property
    def creating(self) -> int:
        """The number of running backward passes that build an autograd graph."""
        return self._creating

    @creating.setter
    def creating(self, depth: int) -> None:
        self._call.opscope_creating(depth - self._creating)
        self._creating = depth

    def _file_of(self, code: CodeType) -> bytes:
        """Return a code object's file as texts show it, after a mark for a library's file; empty for a file
        that is neither a library's nor the user's."""
        try:
            shown = self._sources.shown(code.co_filename) or ""
            mark = _LIBRARY_MARK if isinstance(shown, LibraryFile) else ""
            return (mark + shown).encode("utf-8", "replace")
        except Exception:  # noqa: BLE001 - called from C++, where nothing could catch it
            _log.exception("opscope: a source file could not be classified")
            return b""

    # -------------------------------------------------------------------- on and off

    def listen(self) -> None:
        """Switch the callback on or off: a recording or the attached NVTX tool begins or stops to listen."""
        recorder = session.recorder()
        if recorder is not self._recorder:
            self._recorder = recorder
            self._call.opscope_record(0 if recorder is None else FLUSH_NS)
            if recorder is not None:
                self._before = self.counts()
                recorder.attach(self)
                recorder.spending += [self.spent, self.spent_by_hooks]
        if self.emitter.active:
            self._call.opscope_observe(int(self.emitter.nvtx))
            self._patch_workers()
            for emitter in self._emitters:
                emitter.write_by(self._writing)
        else:
            self.stop()

    def after_fork(self) -> None:
        """In a forked child, register all texts with NVTX anew."""
        self._call.opscope_forked()

    def stop(self) -> None:
        """Remove the callback."""
        self._call.opscope_ignore()
        for emitter in self._emitters:
            emitter.write_by(None)
        if self._worker_loop is not None:
            if getattr(worker, "_worker_loop", None) is self._patched:
                worker._worker_loop = self._worker_loop
            self._worker_loop = None

    def _writing(self, recorder: Recorder, popped: int) -> Writing:
        """Return the push, pop and mark for an emitter, which write into the buffer of this thread's ops."""
        push, pop, mark = (self._library.builtin(name, popped) for name in ("push", "pop", "mark"))
        return push, pop, mark

    def _patch_workers(self) -> None:
        """Wrap the data loader's worker loop, so that ops in a worker have category ``input``."""
        if self._worker_loop is not None:
            return
        original = self._worker_loop = worker._worker_loop
        mode = weakref.ref(self)

        @functools.wraps(original)
        def _worker_loop(*args: Any, **kwargs: Any) -> Any:
            current_mode = mode()
            if current_mode is not None:
                state = current_mode.threads.current()
                state.wait += 1
                state.switched()
            return original(*args, **kwargs)

        self._patched = _worker_loop
        worker._worker_loop = _worker_loop

    # -------------------------------------------------------------------- for the recorder

    def take(self) -> tuple[bytes, bytes, list[tuple[int, int, int]]]:
        """Return what was written since the last call: chunks of records, lines of strings, new threads."""
        out = (ctypes.c_size_t * 6)()
        self._call.opscope_take(out)
        events, events_size, strings, strings_size, threads, count = out
        numbers = (ctypes.c_int64 * (3 * count)).from_address(threads) if count else ()
        return (
            ctypes.string_at(events, events_size) if events_size else b"",
            ctypes.string_at(strings, strings_size) if strings_size else b"",
            list(zip(numbers[0::3], numbers[1::3], numbers[2::3], strict=True)),
        )

    def reusable(self) -> set[int]:
        """Return the ids of the texts that may be pushed again: a ring keeps these, and those in use."""
        out = (ctypes.c_size_t * 2)()
        self._call.opscope_texts(out)
        ids, count = out
        return set((ctypes.c_int64 * count).from_address(ids)) if count else set()

    def notes(self) -> list[tuple[str, str, int]]:
        """Return notes on what this recording lost."""
        spent = {name: count - self._before.get(name, 0) for name, count in self.counts().items()}
        notes = []
        if spent["dropped"]:
            message = "ops left out: the buffers were full, because nothing was written to disk"
            notes.append(("warning", message, spent["dropped"]))
        if spent["failures"]:
            notes.append(("warning", "ops that could not be described", spent["failures"]))
        return notes

    def spent(self) -> Spent:
        """Return the cost of the callbacks, without PyTorch's cost of calling them."""
        out, before = self._out, self._before  # runs during training steps: only the necessary work
        self._call.opscope_counts(out)
        calls, timed = out[3] - before["calls"], out[4] - before["timed"]
        sampled = (out[5] - before["timed_ns"]) * calls // timed if timed else 0
        time = sampled + out[6] - before["slow_ns"]
        return Spent("ops, native", time, calls, TIMED_EVERY, 0)

    def spent_by_hooks(self) -> Spent:
        """Return the cost of layers and phases, including a layer's work in Python."""
        out, before = self._out, self._before
        self._call.opscope_counts(out)
        calls, timed = out[7] - before["hooks"], out[8] - before["hooks_timed"]
        long = out[10] - before["hook_long_ns"]
        time: int | None = long
        if timed:
            time = (out[9] - before["hook_ns"]) * calls // timed + long
        elif calls and not long:
            time = None
        return Spent("layers and phases", time, calls, HOOK_TIMED_EVERY, 0)

    def counts(self) -> dict[str, int]:
        """Return the counters since the process began, by the names in ``_COUNTS``.

        ``timed_ns`` is of the timed callbacks; ``slow_ns`` counts all work on a new call, place or output,
        and timed callbacks too long to represent others.
        """
        out = self._out
        self._call.opscope_counts(out)
        return dict(zip(_COUNTS, out, strict=True))


def _file_by(mode: weakref.ref[NativeMode]) -> Callable[[CodeType], bytes]:
    def classify(code: CodeType) -> bytes:
        current_mode = mode()
        return b"" if current_mode is None else current_mode._file_of(code)

    return classify


#: Whether every flush so far has succeeded.
_flushed = True
_modes: weakref.WeakSet[NativeMode] = weakref.WeakSet()


def flush() -> None:
    """Let the recorder, if any, take the native buffers.

    Native code calls this inside the user's program, so it raises only what interrupts the program (Ctrl-C).
    """
    global _flushed
    try:
        recorder = session.recorder()
        if recorder is not None:
            recorder.flush()
    except Exception:  # noqa: BLE001 - our fault must never reach the user's program
        if _flushed:
            _flushed = False
            _log.exception("opscope: a recording could not be written")


@functools.lru_cache(maxsize=1)
def _watch_the_end(library: ctypes.CDLL) -> None:
    # Python's frames must not be read while the interpreter shuts down.
    atexit.register(library.opscope_ignore)


@functools.lru_cache(maxsize=1)
def _watch_forks() -> None:
    os.register_at_fork(after_in_child=_in_child)


def _in_child() -> None:
    for mode in _modes:
        mode.threads.after_fork()
        mode.after_fork()
