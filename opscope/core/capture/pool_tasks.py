"""Have workers of multiprocessing write their recordings before each result is returned.

``with Pool()`` ends its workers by SIGTERM as soon as it has the results, and programs do the same to a
``ProcessPoolExecutor`` (``terminate_workers``). Events of the half second since the last write would be lost,
and with short workers all of them.
"""

from __future__ import annotations

import functools
import logging
import sys
from collections.abc import Callable
from typing import Any, Final

from . import after_import

_log = logging.getLogger("opscope")
#: The functions that workers run: a module, and a function in it whose second argument receives results.
_WORKERS: Final = (
    ("multiprocessing.pool", "worker"),
    ("concurrent.futures.process", "_process_worker"),
)
#: An argument of the interpreter in processes that multiprocessing spawned.
_SPAWNED = "--multiprocessing-fork"


def write_in_forked_worker(flush: Callable[[], None]) -> None:
    """Call ``flush`` before each result of this process, if it is a worker that has just been forked."""
    processes = sys.modules.get("multiprocessing.process")
    if processes is None:
        return
    # these names are private, but the same from Python 3.10 to 3.14; without them nothing is hooked
    worker = processes.current_process()
    target = getattr(worker, "_target", None)
    works = [getattr(sys.modules.get(module), name, None) for module, name in _WORKERS]
    if target is not None and target in works:
        _write_before(getattr(worker, "_args", ())[1:2], flush)


def write_in_spawned_worker(flush: Callable[[], None]) -> None:
    """Do the same in a process that was spawned, in case it becomes a worker."""
    if _SPAWNED not in sys.orig_argv:
        return
    for module, name in _WORKERS:
        after_import.call(functools.partial(_wrap, name, flush), module)


def _wrap(name: str, flush: Callable[[], None], module: Any) -> None:
    work: Any = getattr(module, name, None)
    if work is None:
        return

    @functools.wraps(work)
    def worker(*args: Any, **kwargs: Any) -> Any:
        _write_before(args[1:2], flush)
        return work(*args, **kwargs)

    setattr(module, name, worker)


def at_worker_exit(of: Any, registers: Callable[[Any], None]) -> None:
    """Register for the exit of a multiprocessing worker, which skips atexit but runs its finalizers."""
    util = sys.modules.get("multiprocessing.util")
    if util is not None:
        util.register_after_fork(of, registers)


def _write_before(queues: tuple[Any, ...], flush: Callable[[], None]) -> None:
    try:
        (results,) = queues
        put = results.put

        def put_after_writing(result: Any) -> None:
            flush()
            put(result)

        results.put = put_after_writing
    except (AttributeError, TypeError, ValueError) as error:
        _log.info("opscope: the last half second of a pool's workers may be lost: %s", error)
