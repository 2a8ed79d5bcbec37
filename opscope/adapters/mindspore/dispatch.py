"""The dispatch mode of MindSpore 2.9 and later, which sees every op that PyNative mode runs on its thread.

A mode belongs to a thread. It is put on those that begin while something listens, and on any on which a
hook runs. MindSpore destroys the stack of modes after Python has ended, which ends the process with a fatal
error if a mode is left in it: so it is taken off when the program exits, too.

MindSpore releases Python's lock while it puts a mode on or takes it off. A thread that tries to get the lock
back after Python has ended aborts the process, because MindSpore's function lets no exception through. So the
exit waits for threads that do either, and lets no thread begin afterwards.
"""

from __future__ import annotations

import atexit
import functools
import os
import threading
from collections.abc import Callable
from time import monotonic, perf_counter_ns, sleep
from typing import Any, Final

from mindspore import _c_expression, utils
from mindspore.ops.primitive import Primitive

from .ops import Ops

#: None in versions before 2.9.
Mode: Any = getattr(utils, "MsDispatchMode", None)


def make(ops: Ops) -> Any:
    """Return the mode."""
    wait, guard, begin, end = ops.wait, ops.guard, ops.begin, ops.end
    raised, failed, cost = ops.raised, ops.failed, ops.cost

    class OpMode(Mode):  # type: ignore[misc] # mindspore is not typed here
        """Pushes a range for each op. One object serves all threads."""

        def __ms_dispatch__(self, func: Any, args: Any, kwargs: Any = None) -> Any:
            if not ops.on:
                return func(*args, **kwargs) if kwargs else func(*args)
            entry = None
            start = own = 0
            try:
                start = cost.begin()
                # calls through a Primitive have the arguments (Primitive, name, arguments)
                if len(args) == 3 and isinstance(args[0], Primitive) and type(args[1]) is str:
                    entry = begin(args[1], args[0], args[2], 1)
                else:
                    entry = begin(func.name, None, args, 1)
            except Exception:  # noqa: BLE001 - our fault must never reach the user's program
                failed("an op could not be described")
            if start:
                own = perf_counter_ns() - start
            try:
                with guard():
                    result = func(*args, **kwargs) if kwargs else func(*args)
                    if entry is not None:
                        wait()
            # an error of the program, or an interrupt: close the range and pass it on
            except BaseException:
                if entry is not None:
                    raised()
                raise
            if start:
                start = perf_counter_ns() - own  # excludes the op's own time
            if entry is not None:
                end(entry, result)
            if start:
                cost.end(start)
            return result

    return OpMode()


class _Changes:
    """The running changes of threads' stacks, and the exit that waits for them."""

    PATIENCE_S: Final = 2.0

    def __init__(self) -> None:
        self._threads: set[int] = set()  # adding and discarding need no lock
        self._exits = False

    def make(self, change: Callable[[], Any]) -> bool:
        """Make a change of this thread's stack; return False, without the change, if the program is
        exiting."""
        thread = threading.get_ident()
        self._threads.add(thread)
        try:
            if not self._exits:
                change()
                return True
            return False
        finally:
            self._threads.discard(thread)

    def forget(self) -> None:
        """Forget the changes by threads of the parent, which a forked child does not have."""
        self._threads.clear()

    def end(self) -> None:
        """Allow no more changes, and wait for those that are running."""
        self._exits = True
        deadline = monotonic() + self.PATIENCE_S
        while self._threads and monotonic() < deadline:
            sleep(0.001)


@functools.cache
def _changes() -> _Changes:
    changes = _Changes()
    atexit.register(changes.end)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=changes.forget)
    return changes


class Modes:
    """Puts the mode on threads, and takes it off."""

    def __init__(self, ops: Ops) -> None:
        self._ops = ops
        self._mode = make(ops) if Mode is not None else None
        self._changes = _changes()
        self._original: Any = None
        self._patched: Any = None

    @property
    def available(self) -> bool:
        """Whether this version of MindSpore has dispatch modes."""
        return self._mode is not None

    def install(self) -> None:
        """Put the mode on this thread and on new ones."""
        if self._mode is None:
            return
        self.enter()
        if self._original is not None:
            return
        original = self._original = threading.Thread._bootstrap_inner  # type: ignore[attr-defined]

        @functools.wraps(original)
        def bootstrap(thread: threading.Thread) -> Any:
            if not self._ops.on:
                return original(thread)
            self.enter()
            try:
                return original(thread)
            finally:
                self.leave()

        self._patched = bootstrap
        threading.Thread._bootstrap_inner = bootstrap  # type: ignore[attr-defined]

    def uninstall(self) -> None:
        """Take the mode off this thread. On other threads it does nothing until they end."""
        if self._mode is None:
            return
        self.leave()
        # where another tool has patched on top of our patch, ours stays below it and does nothing
        if threading.Thread.__dict__.get("_bootstrap_inner") is self._patched:
            threading.Thread._bootstrap_inner = self._original  # type: ignore[attr-defined]
            self._original = self._patched = None

    def enter(self) -> None:
        """Put the mode on this thread, at the bottom of its stack, unless the program has put one there."""
        if self._mode is None:
            return
        state = self._ops.threads.current()
        if not state.entered and stack().depth() == 0:
            state.entered = self._changes.make(self._mode.__enter__)

    def leave(self) -> None:
        """Take the mode off this thread, unless the program has put one above it."""
        state = self._ops.threads.current()
        if state.entered and stack().depth() == 1:
            state.entered = not self._changes.make(stack().pop)


def stack() -> Any:
    """Return MindSpore's stack of the calling thread's modes.

    It imports nothing, to avoid a deadlock: starting threads call it, and would wait for a thread that is
    importing MindSpore, which may itself wait for the starting thread.
    """
    return _c_expression._DispatchGuardStack
