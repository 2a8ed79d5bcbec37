"""Push a range around each read of an array's values by the host, which waits there until they are computed.

The range's text is the read as a call, with the line that reads: made once for each line. A read inside
another has no range of its own.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable
from types import FunctionType
from typing import Any

from opscope.adapters.shared.source import NOWHERE, Source, Sources
from opscope.core.capture import session
from opscope.core.capture.emit import Prepared
from opscope.core.schema import READ_DOMAIN, OpCall


class _Local(threading.local):
    """Whether a thread is within a read."""

    within = False


class Reads:
    """The ranges around the reads of one framework's arrays."""

    def __init__(self, sources: Sources | None, failed: Callable[[str], None]) -> None:
        self._emitter = session.emitter(READ_DOMAIN.removeprefix("opscope."))
        self._sources = sources
        self._failed = failed
        self._local = _Local()
        #: By name and place; bounded by the number of lines in the program that read.
        self._prepared: dict[tuple[str, Source], Prepared] = {}

    def around(self, name: str) -> Callable[[Any], Any]:
        """Return a function that makes the replacement of a function that reads; ranges call it ``name``."""

        def make(read: Any) -> Any:
            def reading(*args: Any, **kwargs: Any) -> Any:
                if not self._emitter.active or self._local.within or not self._begin(name):
                    return read(*args, **kwargs)
                try:
                    return read(*args, **kwargs)
                finally:
                    self.ends()

            # methods in C++ do not have names that a function can take
            return functools.wraps(read)(reading) if isinstance(read, FunctionType) else reading

        return make

    def begins(self, name: str) -> bool:
        """Begin a read that the caller's caller makes; return whether ``ends`` is to be called after it."""
        return self._emitter.active and not self._local.within and self._begin(name)

    def ends(self) -> None:
        """End the read that ``begins`` began."""
        self._local.within = False
        self._emitter.pop()

    def _begin(self, name: str) -> bool:
        try:
            sources = self._sources
            source = NOWHERE if sources is None else sources.find(sys._getframe(2))
            if sources is not None and not source.frames:
                return False  # opscope's own, or a framework's
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
