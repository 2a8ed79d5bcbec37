"""Track which CUDA graphs are being captured in this process, on all threads.

Ending PyTorch's profiler synchronises the device, and synchronising a device while one of its streams is
being captured makes that capture invalid (CUDA programming guide, "prohibited and unhandled operations").
``torch.cuda.is_current_stream_capturing`` sees one stream of one thread. So captures are reported here, by an
adapter or, without one, by a backend that wraps the same methods; code that begins or ends a profiler checks
here. Captures made inside a C++ extension are not seen.
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
    """The captures of CUDA graphs in progress in this process, as far as they are reported.

    A replay runs kernels without any op. So ``replayed`` adds up, over all replays, the number of records
    that were written while the replayed CUDA graph was captured.
    """

    def __init__(self) -> None:
        self.replayed = 0
        self._changed = threading.Condition()
        self._open: dict[
            int, tuple[weakref.ref[Any], int, int]
        ] = {}  # by id: graph, thread, records
        self._sizes: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._busy = False
        #: Whether an adapter reports captures; then the backend does not wrap the capturing methods.
        self.reported_by_adapter = False

    def forget(self) -> None:
        """Forget all captures: for a forked child, whose only thread captures nothing."""
        self._changed = threading.Condition()
        self._open.clear()
        self._busy = False

    # ---------------------------------------------------------------- called by the wrapped methods

    def begins(self, graph: Any) -> None:
        """Report that ``graph`` will be captured on this thread; waits while a profiler begins or ends."""
        with self._changed:
            while self._busy:
                self._changed.wait()
            key = id(graph)
            gone = weakref.ref(graph, lambda _: self._open.pop(key, None))
            self._open[key] = (gone, threading.get_ident(), _write())

    def ends(self, graph: Any) -> None:
        """Report that the capture of ``graph`` has ended, with or without an error."""
        with self._changed:
            capture = self._open.pop(id(graph), None)
            if capture is not None:
                self._sizes[graph] = max(0, _write() - capture[2])
            self._changed.notify_all()

    def replays(self, graph: Any) -> None:
        """Report a replay of ``graph``."""
        self.replayed += self._sizes.get(graph, 0)

    # ------------------------------------------------- called by code that begins or ends a profiler

    @property
    def threads(self) -> set[int]:
        """The idents of the threads that are capturing."""
        return {thread for _, thread, _ in tuple(self._open.values())}

    @contextmanager
    def kept_out(self, wait_s: float = 0) -> Iterator[bool]:
        """Wait up to ``wait_s`` seconds until no capture is in progress, and yield whether that is so.

        If it is, no capture begins inside the block.
        """
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


def _write() -> int:
    recorder = session.recorder()
    return 0 if recorder is None else recorder.written


#: The captures of this process.
OF_PROCESS: Final = Captures()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=OF_PROCESS.forget)
