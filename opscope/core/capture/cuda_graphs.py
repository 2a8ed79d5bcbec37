"""Which graphs of a GPU's work are being captured in this process, on whatever thread.

To end PyTorch's profiler synchronises the device, and to synchronise a device while one of its streams is
being captured makes that capture invalid (CUDA programming guide, "prohibited and unhandled operations").
``torch.cuda.is_current_stream_capturing`` sees one stream of one thread. So who captures tells here: an
adapter, or where there is none a backend that wraps the same methods; who begins or ends a profiler asks.
What a C++ extension captures by itself is not seen.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any, Final

from opscope.core.capture import session


class Captures:
    """The captures in progress in this process, as far as they are told.

    What a replay runs is told by no op: ``replayed`` counts the records of the captures that were
    replayed, those of each as many times as it was.
    """

    def __init__(self) -> None:
        self.replayed = 0
        self._changed = threading.Condition()
        self._open: dict[
            int, tuple[weakref.ref[Any], int, int]
        ] = {}  # by id: graph, thread, records
        self._sizes: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._busy = False
        #: Whether an adapter tells: then nobody else needs to wrap what captures go through.
        self.told = False

    def forget(self) -> None:
        """Nothing is captured: in a forked child, whose only thread is another."""
        self._changed = threading.Condition()
        self._open.clear()
        self._busy = False

    # ---------------------------------------------------------------- what the wrapped methods tell

    def begins(self, graph: Any) -> None:
        """``graph`` is about to be captured on this thread; waits while a profiler begins or ends."""
        with self._changed:
            while self._busy:
                self._changed.wait()
            key = id(graph)
            gone = weakref.ref(graph, lambda _: self._open.pop(key, None))
            self._open[key] = (gone, threading.get_ident(), _written())

    def ends(self, graph: Any) -> None:
        """The capture of ``graph`` has ended, well or not."""
        with self._changed:
            known = self._open.pop(id(graph), None)
            if known is not None:
                self._sizes[graph] = max(0, _written() - known[2])
            self._changed.notify_all()

    def replays(self, graph: Any) -> None:
        """``graph`` is replayed."""
        self.replayed += self._sizes.get(graph, 0)

    # ---------------------------------------------------------------- who begins or ends a profiler

    @property
    def threads(self) -> set[int]:
        """The idents of the threads that capture."""
        return {thread for _, thread, _ in tuple(self._open.values())}

    @contextmanager
    def kept_out(self, wait_s: float = 0) -> Iterator[bool]:
        """Whether nothing is captured, waiting so long for it; while it is so nothing begins to be."""
        deadline = monotonic() + wait_s
        with self._changed:
            while (self._open or self._busy) and (left := deadline - monotonic()) > 0:
                self._changed.wait(left)
            quiet = self._busy = not (self._open or self._busy)
        try:
            yield quiet
        finally:
            if quiet:
                with self._changed:
                    self._busy = False
                    self._changed.notify_all()


def _written() -> int:
    recorder = session.recorder()
    return 0 if recorder is None else recorder.written


#: Those of this process.
OF_PROCESS: Final = Captures()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=OF_PROCESS.forget)
