"""A thread that has a recording written while nothing else does: events alone would wait for the next one.

It sleeps until a write is due, and writes where no event's thread has by then. A mapped file would need no
thread, and survive all that ends a process. It was tried: ``mmap.write`` costs what ``bytearray.extend``
does (0.22 µs), but writing to a page that the disk then has no room for ends the program by SIGBUS, and
only some file systems can promise that room beforehand.
"""

from __future__ import annotations

import _thread
import logging
import os
import signal
import time
import weakref
from collections.abc import Callable
from time import perf_counter_ns
from typing import Final

_log = logging.getLogger(__name__)

#: How much longer than until it is due is waited: a program that makes events writes by itself, at a time
#: of its own choice (between two steps).
GRACE_NS: Final = 20_000_000
#: How long the end of the thread is waited for; it may be at a disk that hangs.
STOP_S: Final = 2.0
#: How long the system is given to be rid of a thread that has ended.
GONE_S: Final = 0.2
#: Faults of the thread itself are not to be put off.
_OWN_FAULTS: Final = ("SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGABRT", "SIGTRAP")


class _Run:
    """One thread: what it is told, and what it tells."""

    __slots__ = ("ended", "ident", "running", "sleeping", "system_id")

    def __init__(self) -> None:
        self.ended = False
        #: Held while it is to sleep, and until it has ended.
        self.sleeping, self.running = _thread.allocate_lock(), _thread.allocate_lock()
        self.sleeping.acquire()
        self.running.acquire()
        self.ident = self.system_id = 0


class IdleWriter:
    """Calls ``write`` when ``due()`` (perf_counter_ns) has gone by, on a thread of its own.

    The thread is a plain one: Python's ``threading`` does not list it, no signal is handled on it, and it
    is not there while the process forks. It ends with this object. A program that can start no thread
    goes on without.
    """

    def __init__(self, due: Callable[[], int], write: Callable[[], object]) -> None:
        self._due = due
        self._write = write
        self._wanted = False
        self._process = 0
        self._thread: _Run | None = None

    @property
    def runs(self) -> bool:
        """Whether there is a thread."""
        return self._thread is not None

    def start(self) -> None:
        """Begin. Harmless when called twice."""
        self._wanted = True
        self._process = os.getpid()
        if self._thread is not None or not hasattr(signal, "pthread_sigmask"):
            return
        _hook_forks()
        _writers.add(self)
        if _forks:
            return  # it begins after that
        run = _Run()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
        try:
            # a thread is born with the mask of the one that starts it
            signal.pthread_sigmask(signal.SIG_BLOCK, _blocked())
            run.ident = _thread.start_new_thread(_work, (weakref.ref(self), run))
            self._thread = run
        except RuntimeError as error:  # no room for a thread, or Python goes down
            _log.info("opscope: what is recorded in an idle time is written after it: %s", error)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def stop(self) -> None:
        """End. Harmless when called twice."""
        self._wanted = False
        _writers.discard(self)
        self._end()

    def pause(self) -> None:
        """End until ``resume``, and wait until the system too has forgotten the thread."""
        run = self._end()
        if run is None:
            return
        task, until = f"/proc/self/task/{run.system_id}", time.monotonic() + GONE_S
        while os.path.exists(task) and time.monotonic() < until:
            time.sleep(0.0001)

    def resume(self) -> None:
        """Go on, unless stopped meanwhile, or in a forked child: there the recording is its parent's."""
        if self._wanted and self._process == os.getpid():
            self.start()

    def look(self) -> float:
        """On the thread: write where that is due. For how many seconds nothing is to be done."""
        left = self._due() + GRACE_NS - perf_counter_ns()
        if left <= 0:
            self._write()
            left = max(self._due() + GRACE_NS - perf_counter_ns(), GRACE_NS)
        return left / 1e9

    def _end(self) -> _Run | None:
        run, self._thread = self._thread, None
        if run is None or run.ident == _thread.get_ident():
            return None
        run.ended = True
        run.sleeping.release()
        return run if run.running.acquire(timeout=STOP_S) else None


def _work(writer: weakref.ref[IdleWriter], run: _Run) -> None:
    try:
        run.system_id = _thread.get_native_id()
        while not run.ended:
            mine = writer()
            if mine is None:
                return
            seconds = mine.look()
            del mine  # nothing lives on because of a thread that sleeps
            run.sleeping.acquire(timeout=seconds)
    except Exception:  # noqa: BLE001 - a fault of ours must not be the program's
        _log.exception("opscope: what is recorded in an idle time is written after it")
    finally:
        run.running.release()


_writers: weakref.WeakSet[IdleWriter] = weakref.WeakSet()
_hooked = False
#: Forks that are under way: threads begin after them.
_forks = 0


def _blocked() -> set[signal.Signals]:
    own = {getattr(signal, name) for name in _OWN_FAULTS if hasattr(signal, name)}
    return {one for one in signal.valid_signals() if one not in own}


def _hook_forks() -> None:
    # A process that forks while it has threads is warned of deadlocks (Python 3.12), rightly.
    global _hooked
    if not _hooked and hasattr(os, "register_at_fork"):
        _hooked = True
        os.register_at_fork(
            before=_before_fork, after_in_parent=_in_parent, after_in_child=_in_child
        )


def _before_fork() -> None:
    global _forks
    _forks += 1
    for writer in list(_writers):
        writer.pause()


def _in_parent() -> None:
    global _forks
    _forks -= 1
    if _forks == 0:  # else another thread forks
        _resume()


def _in_child() -> None:
    global _forks
    _forks = 0
    _resume()


def _resume() -> None:
    for writer in list(_writers):
        writer.resume()
