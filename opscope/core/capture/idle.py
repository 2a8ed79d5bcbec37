"""A thread that writes a recording to disk while the program makes no events that would trigger a write.

It sleeps until a write is due, and writes if no thread of the program has done so by then. A memory-mapped
file would need no thread and would survive every way in which a process ends. It was tried: ``mmap.write``
costs as much as ``bytearray.extend`` (0.22 µs), but writing to a page for which the disk then has no room
ends the program with SIGBUS, and only some file systems can reserve that room beforehand.
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
from typing import Final, Protocol

_log = logging.getLogger(__name__)

#: The thread waits this much longer than the due time: a program that makes events writes them itself, at a
#: better moment (between two steps).
GRACE_NS: Final = 20_000_000
#: How long ``stop`` waits for the thread to end; the thread may be writing to a disk that hangs.
STOP_S: Final = 2.0
#: How long ``pause`` waits for the system to remove a thread that has ended.
GONE_S: Final = 0.2
#: Signals for faults of the thread itself; the thread does not block them.
_OWN_FAULTS: Final = ("SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGABRT", "SIGTRAP")


class _Run:
    """The state that one thread shares with its IdleWriter."""

    __slots__ = ("ended", "ident", "running", "sleeping", "system_id")

    def __init__(self) -> None:
        self.ended = False
        #: ``sleeping`` is held while the thread shall sleep, ``running`` until the thread has ended.
        self.sleeping, self.running = _thread.allocate_lock(), _thread.allocate_lock()
        self.sleeping.acquire()
        self.running.acquire()
        self.ident = self.system_id = 0


class IdleWriter:
    """Calls ``write`` on its own thread when the time ``due()`` (perf_counter_ns) has passed.

    ``tick``, if given, is called too; it returns the ns after which it shall be called again, and must not
    raise.

    Python's ``threading`` does not list the thread, no signal is handled on it, and it does not exist while
    the process forks. It ends when this object is deleted. If no thread can be started, the program continues
    without it.
    """

    def __init__(
        self,
        due: Callable[[], int],
        write: Callable[[], object],
        tick: Callable[[], int] | None = None,
    ) -> None:
        self._due = due
        self._write = write
        self._tick = tick
        self._wanted = False
        self._process = 0
        self._thread: _Run | None = None

    @property
    def runs(self) -> bool:
        """Whether the thread exists."""
        return self._thread is not None

    def start(self) -> None:
        """Start the thread. A second call does nothing."""
        self._wanted = True
        self._process = os.getpid()
        if self._thread is not None or not hasattr(signal, "pthread_sigmask"):
            return
        pause_for_forks(self)
        if _forks:
            return  # the thread is started after the fork
        run = _Run()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
        try:
            # a new thread inherits the signal mask of the thread that starts it
            signal.pthread_sigmask(signal.SIG_BLOCK, blocked())
            run.ident = _thread.start_new_thread(_work, (weakref.ref(self), run))
            self._thread = run
        except RuntimeError as error:  # no resources for a thread, or Python is shutting down
            _log.info(
                "opscope: no thread can be started, so events are written only when the next ones come: %s",
                error,
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def stop(self) -> None:
        """End the thread. A second call does nothing."""
        self._wanted = False
        _writers.discard(self)
        self._end()

    def pause(self) -> None:
        """End the thread until ``resume``, and wait until the system has removed it too."""
        run = self._end()
        if run is None:
            return
        task, until = f"/proc/self/task/{run.system_id}", time.monotonic() + GONE_S
        while os.path.exists(task) and time.monotonic() < until:
            time.sleep(0.0001)

    def resume(self) -> None:
        """Start again, unless stopped meanwhile or in a forked child, where the recording is the parent's."""
        if self._wanted and self._process == os.getpid():
            self.start()

    def look(self) -> float:
        """Write if a write is due, and tick; return the seconds until the next check.

        Called on the thread.
        """
        left = self._due() + GRACE_NS - perf_counter_ns()
        if left <= 0:
            self._write()
            left = max(self._due() + GRACE_NS - perf_counter_ns(), GRACE_NS)
        if self._tick is not None:
            left = max(min(left, self._tick()), 0)
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
            del mine  # a sleeping thread must not keep the writer alive
            run.sleeping.acquire(timeout=seconds)
    except Exception:  # noqa: BLE001 - a fault of ours must not be the program's
        _log.exception(
            "opscope: the thread that writes the recording failed; events are written only when the next ones"
            " come"
        )
    finally:
        run.running.release()


class Paused(Protocol):
    """Has a thread that must not exist while the process forks."""

    def pause(self) -> None:
        """End the thread until ``resume``, before a fork."""

    def resume(self) -> None:
        """Start it again, after a fork; it is called in the parent and in the child."""


def pause_for_forks(pause: Paused) -> None:
    """Let ``pause`` pause while the process forks, as long as something else keeps it alive."""
    _hook_forks()
    _writers.add(pause)


_writers: weakref.WeakSet[Paused] = weakref.WeakSet()
_hooked = False
#: Number of forks in progress; threads are started after them.
_forks = 0


def blocked() -> set[signal.Signals]:
    """Return the signals that a thread of opscope's blocks: all but its own faults."""
    own = {getattr(signal, name) for name in _OWN_FAULTS if hasattr(signal, name)}
    return {number for number in signal.valid_signals() if number not in own}


def _hook_forks() -> None:
    # Python 3.12 rightly warns of deadlocks when a process with threads forks.
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
    if _forks == 0:  # else another thread is forking
        _resume()


def _in_child() -> None:
    global _forks
    _forks = 0
    _resume()


def _resume() -> None:
    for writer in list(_writers):
        writer.resume()
