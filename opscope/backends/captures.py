"""CUDA graphs that are being captured, on whatever thread: meanwhile no profiler may begin or end.

To end PyTorch's profiler synchronises the device, and to synchronise a device while one of its streams is
being captured makes that capture invalid (CUDA programming guide, "prohibited and unhandled operations").
``torch.cuda.is_current_stream_capturing`` sees one stream of one thread. So the methods by which PyTorch
captures are wrapped for as long as a profiler may begin or end. What a C++ extension captures by itself
is not seen.
"""

from __future__ import annotations

import functools
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any, Final

from opscope.core import session


class Captures:
    """The captures in progress in this process, once ``install`` has wrapped what they go through.

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
        self._wrapped: dict[tuple[type, str], Callable[[], bool]] = {}

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

    # ---------------------------------------------------------------- the methods

    def install(self, *owners: type) -> None:
        """Wrap ``capture_begin``, ``capture_end`` and ``replay`` of the classes, where they are not yet."""
        for owner in owners:
            for name, make in (
                ("capture_begin", self._begin),
                ("capture_end", self._end),
                ("replay", self._replay),
            ):
                original = getattr(owner, name, None)
                if original is not None and (owner, name) not in self._wrapped:
                    self._wrapped[owner, name] = _exchange(owner, name, make(original))

    def uninstall(self) -> None:
        """Put the methods back, but those that others have wrapped since and while one is captured."""
        if not self._open:
            for key, undo in tuple(self._wrapped.items()):
                if undo():
                    del self._wrapped[key]

    def _begin(self, original: Any) -> Any:
        @functools.wraps(original)
        def capture_begin(graph: Any, *args: Any, **kwargs: Any) -> Any:
            self.begins(graph)
            try:
                return original(graph, *args, **kwargs)
            except BaseException:
                self.ends(graph)
                raise

        return capture_begin

    def _end(self, original: Any) -> Any:
        @functools.wraps(original)
        def capture_end(graph: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                return original(graph, *args, **kwargs)
            finally:
                self.ends(graph)

        return capture_end

    def _replay(self, original: Any) -> Any:
        @functools.wraps(original)
        def replay(graph: Any, *args: Any, **kwargs: Any) -> Any:
            self.replays(graph)
            return original(graph, *args, **kwargs)

        return replay


def _exchange(owner: type, name: str, ours: Any) -> Callable[[], bool]:
    own, before = name in vars(owner), vars(owner).get(name)
    setattr(owner, name, ours)

    def undo() -> bool:
        if vars(owner).get(name) is not ours:
            return False
        if own:
            setattr(owner, name, before)
        else:
            delattr(owner, name)
        return True

    return undo


def _written() -> int:
    recorder = session.recorder()
    return 0 if recorder is None else recorder.written


#: Those of this process.
OF_PROCESS: Final = Captures()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=OF_PROCESS.forget)
