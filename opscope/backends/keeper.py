"""A thread that begins and ends a profiler, so that its callers can limit their wait.

PyTorch ties a running profiler to the thread that began it. If another thread ends it, PyTorch warns, returns
no trace and continues ("disableProfiler called but no active profiling session found", 2.13; older versions
raise). Steps, timers and the end of the program happen on several threads; this thread serves all of them.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from typing import Any, Final

_log = logging.getLogger(__name__)
#: Seconds between calls of ``tick``.
TICK_S: Final = 0.5


class Job:
    """A function that a keeper runs, and its result."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self._what = function
        self._done = threading.Event()
        self._result: Any = None
        self._error: BaseException | None = None

    def wait(self, seconds: float | None = None) -> Any:
        """Wait for the function and return its result. Raises what it raised.

        Raises TimeoutError if it has not ended within ``seconds``; it then goes on.
        """
        if not self._done.wait(seconds):
            raise TimeoutError
        if self._error is not None:
            raise self._error
        return self._result

    def run(self) -> None:
        """Run the function on this thread."""
        try:
            self._result = self._what()
        except BaseException as error:  # noqa: BLE001 - ``wait`` raises it
            self._error = error
        finally:
            self._done.set()


class Keeper:
    """One thread that runs functions in the order of ``submit``, and calls ``tick`` in between.

    The thread is started at once: at the end of a program none can be started (Python 3.12).
    """

    def __init__(self, tick: Callable[[], object]) -> None:
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._tick = tick
        self._thread = threading.Thread(target=self._run, name="opscope-profiler", daemon=True)
        self._thread.start()

    def submit(self, function: Callable[[], Any]) -> Job:
        """Run ``function`` on the thread; if called on the thread itself, run it at once. Return the job."""
        job = Job(function)
        if threading.current_thread() is self._thread:
            job.run()
        else:
            self._jobs.put(job)
        return job

    def leave(self) -> None:
        """End the thread after all jobs submitted so far."""
        self._jobs.put(None)

    def _run(self) -> None:
        while True:
            try:
                job = self._jobs.get(timeout=TICK_S)
            except queue.Empty:
                try:
                    self._tick()
                except Exception:  # noqa: BLE001 - a fault of ours must not end the thread
                    _log.exception(
                        "opscope: the timed check of the profiler's window failed; only a step ends it now"
                    )
                    self._tick = lambda: None
                continue
            if job is None:
                return
            job.run()
