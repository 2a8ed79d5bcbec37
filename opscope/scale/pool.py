"""Processes on this machine as an executor; a process that dies takes only its own task with it."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context, parent_process
from queue import SimpleQueue
from typing import Any, Final, TypeVar

from .worker import bounds

_T = TypeVar("_T")
#: Environment variables are set for this process while a worker starts, so only one worker starts at a time.
_starting: Final = threading.Lock()


class ProcessPool(Executor):
    """``workers`` processes of ``threads`` threads each, started when they are first needed.

    Each is a ProcessPoolExecutor of its own. In a shared pool, a death fails every waiting task and does not
    show which task caused it; here only the task of that process raises BrokenProcessPool, and the next task
    gets a new process. Processes are spawned, because a fork may hang when Polars has threads.
    """

    def __init__(self, workers: int, threads: int | None = None) -> None:
        if workers < 1:
            raise ValueError(f"a pool needs at least one worker, not {workers}")
        self.workers = workers
        self._threads = threads or max(1, (os.cpu_count() or 1) // workers)
        self._turns = ThreadPoolExecutor(workers, thread_name_prefix="opscope-pool")
        self._free: SimpleQueue[ProcessPoolExecutor | None] = SimpleQueue()
        self._ended = False
        for _ in range(workers):
            self._free.put(None)

    def submit(self, fn: Callable[..., _T], /, *args: Any, **kwargs: Any) -> Future[_T]:
        """Run ``fn`` in one of the processes; the future raises BrokenProcessPool if that one dies."""
        return self._turns.submit(self._run, fn, args, kwargs)

    def _run(self, fn: Callable[..., _T], args: Any, kwargs: Any) -> _T:
        process = self._free.get()
        try:
            if process is None:
                process = self._start()
            return process.submit(fn, *args, **kwargs).result()
        except BrokenProcessPool:
            if process is not None:
                process.shutdown(wait=False)
            process = None
            raise
        finally:
            if self._ended and process is not None:  # the future was cancelled
                process.shutdown(wait=False)
                process = None
            self._free.put(process)

    def _start(self) -> ProcessPoolExecutor:
        process = ProcessPoolExecutor(1, get_context("spawn"), initializer=_begin)
        with _starting, _environment(bounds(self._threads)):
            process.submit(os.getpid).result()  # the worker has read the environment
        return process

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the processes once their tasks are done; with ``cancel_futures``, drop the waiting tasks."""
        self._turns.shutdown(wait=wait, cancel_futures=cancel_futures)
        self._ended = True
        for _ in range(self._free.qsize()):
            process = self._free.get()
            if process is not None:
                process.shutdown(wait=wait, cancel_futures=cancel_futures)
            self._free.put(None)


@contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _begin() -> None:
    """Set up a new worker: it ends when the parent process ends, and at Ctrl-C it exits so that scratch
    files are removed."""
    signal.signal(signal.SIGINT, lambda *_: sys.exit(130))
    parent = parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: Any) -> None:
    """End when the parent is gone: without this, a worker whose parent was killed would wait for ever at
    its open queue."""
    parent.join()
    os._exit(1)
