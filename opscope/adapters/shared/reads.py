"""Push a range around each read of an array's values by the host, which waits there until they are computed.

The range's text is the read as a call, with the line that reads: made once for each line. A read inside
another has no range of its own.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any, Final

from opscope.adapters.shared.source import NOWHERE, Source, Sources
from opscope.core.capture import session
from opscope.core.capture.emit import Prepared
from opscope.core.schema import READ_DOMAIN, UNHEARD_READS, OpCall

from . import cache
from .compiled import BuildError, built

SOURCE: Final = Path(__file__).with_name("buffers.c")
#: The text of a read that another read replaced. It has not the form of a call, so that no op is made of it.
REFUSED: Final = "a read that was refused"


@functools.lru_cache(maxsize=1)
def _library() -> Any:
    """Return the library that notices reads of memory; building it takes a tenth of a second. Call it with
    the GIL."""
    return ctypes.PyDLL(None, handle=cache.load(built(SOURCE))._handle)


class _Local(threading.local):
    """Whether a thread is within a range."""

    within = False


class Around:
    """Ranges of one domain around calls of functions; one inside another on its thread has none."""

    def __init__(self, framework: str, failed: Callable[[str], None]) -> None:
        self._emitter = session.emitter(framework)
        self._failed = failed
        self._local = _Local()

    def around(self, name: str) -> Callable[[Any], Any]:
        """Return a function that makes the replacement of a function; ``name``: its name in the ranges."""

        def make(function: Any) -> Any:
            def replacement(*args: Any, **kwargs: Any) -> Any:
                if not self._emitter.active or self._local.within or not self._begin(name):
                    return function(*args, **kwargs)
                try:
                    return function(*args, **kwargs)
                finally:
                    self.ends()

            # methods in C++ do not have names that a function can take
            is_plain = isinstance(function, FunctionType)
            return functools.wraps(function)(replacement) if is_plain else replacement

        return make

    def ends(self) -> None:
        """End the range that ``_begin`` began."""
        self._local.within = False
        self._emitter.pop()

    def _begin(self, name: str) -> bool:
        """Begin a range for the caller's caller, and be within it; return whether it began. Never raises."""
        raise NotImplementedError


class Reads(Around):
    """The ranges around the reads of one framework's arrays."""

    def __init__(self, sources: Sources | None, failed: Callable[[str], None]) -> None:
        super().__init__(READ_DOMAIN.removeprefix("opscope."), failed)
        self._sources = sources
        #: By name and place; bounded by the number of lines in the program that read.
        self._prepared: dict[tuple[str, Source], Prepared] = {}
        self._refused = self._emitter.prepare(REFUSED, ends=True)
        #: The type whose reads of memory are recorded, and the recorder that has a note that they cannot be.
        self._heard: type | None = None
        self._noted: Any = None

    def hear(self, kind: type) -> None:
        """Record also the reads of this type's arrays by np.array(x) and memoryview(x), which call no Python
        method of the array. Nothing is recorded while nothing listens. If the library cannot be built, a
        recording says so."""
        if not self._emitter.active:
            return self.forget()
        if self._heard is None:
            begins = functools.partial(self.begins, "np.array")
            given = map(ctypes.py_object, (kind, begins, self.ends, self._refuses))
            with contextlib.suppress(BuildError, OSError, AttributeError):
                self._heard = kind if _library().opscope_buffers(*given) else None
        recorder = session.recorder()
        if self._heard is None and recorder not in (None, self._noted):
            self._noted = recorder
            recorder.note("info", UNHEARD_READS)

    def forget(self) -> None:
        """Record no more reads of memory."""
        if self._heard is not None:
            _library().opscope_buffers_end(ctypes.py_object(self._heard))
            self._heard = None

    def begins(self, name: str) -> bool:
        """Begin a read that the caller's caller makes; return whether ``ends`` is to be called after it."""
        return self._emitter.active and not self._local.within and self._begin(name)

    def _refuses(self) -> None:
        """End the read that ``begins`` began: the array gave no memory, and is read another way."""
        self._local.within = False
        self._emitter.pop(self._refused)

    def _begin(self, name: str) -> bool:
        try:
            sources = self._sources
            source = NOWHERE if sources is None else sources.find(sys._getframe(2))
            if sources is not None and not source.frames:
                return False  # a read by opscope itself or a framework
            prepared = self._prepared.get((name, source))
            if prepared is None:
                call = OpCall(name, (), None, (), None, source.frames)
                prepared = self._prepared[name, source] = self._emitter.prepare(call)
            self._emitter.push(prepared)
            self._local.within = True
        except Exception:  # noqa: BLE001 - our fault must never reach the user's program
            self._failed("a read of an array's values could not be recorded")
            return False
        return True
