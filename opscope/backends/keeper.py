"""A thread that begins and ends a profiler, so that whoever asks for it need not wait for ever.

PyTorch keeps a running profiler in the state of the thread that began it: ended on another it warns, gives
no trace and goes on ("disableProfiler called but no active profiling session found", 2.13; older ones
raise). Steps, timers and the end of the program come on several threads; this is the one for all of it.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from typing import Any, Final

_log = logging.getLogger(__name__)
#: How often ``tick`` is called.
TICK_S: Final = 0.5


class Job:
    """What a keeper was asked to do."""

    def __init__(self, what: Callable[[], Any]) -> None:
        self._what = what
        self._done = threading.Event()
        self._result: Any = None
        self._error: BaseException | None = None

    def wait(self, seconds: float | None = None) -> Any:
        """What it returned. Raises what it raised, and TimeoutError where it has not ended by then; it
        goes on."""
        if not self._done.wait(seconds):
            raise TimeoutError
        if self._error is not None:
            raise self._error
        return self._result

    def run(self) -> None:
        """Do it, on this thread."""
        try:
            self._result = self._what()
        except BaseException as error:  # noqa: BLE001 - whoever waits gets it
            self._error = error
        finally:
            self._done.set()


class Keeper:
    """One thread that does what it is asked, in order, and calls ``tick`` in between.

    It begins at once: at the end of a program no thread can (Python 3.12).
    """

    def __init__(self, tick: Callable[[], object]) -> None:
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._tick = tick
        self._thread = threading.Thread(target=self._run, name="opscope-profiler", daemon=True)
        self._thread.start()

    def ask(self, what: Callable[[], Any]) -> Job:
        """Have ``what`` done on the thread; on the thread itself at once."""
        job = Job(what)
        if threading.current_thread() is self._thread:
            job.run()
        else:
            self._jobs.put(job)
        return job

    def leave(self) -> None:
        """End the thread once all is done that was asked."""
        self._jobs.put(None)

    def _run(self) -> None:
        while True:
            try:
                job = self._jobs.get(timeout=TICK_S)
            except queue.Empty:
                try:
                    self._tick()
                except Exception:  # noqa: BLE001 - a fault of ours must not end the thread
                    _log.exception("opscope: the profiler's window is not looked after")
                    self._tick = lambda: None
                continue
            if job is None:
                return
            job.run()
