"""A pool of threads that runs work directly once Python is shutting down.

A capture may last until the program ends. By that time pools refuse work ("cannot schedule new futures after
interpreter shutdown"), and from Python 3.12 on no thread can be started; the profile must still be written.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any


class Pool(ThreadPoolExecutor):
    """Like ``ThreadPoolExecutor``; while Python shuts down, ``submit`` calls the function itself."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Return the future of ``fn(*args, **kwargs)``; it is already done if no thread could run it."""
        try:
            return super().submit(fn, *args, **kwargs)
        except RuntimeError:
            done: Future[Any] = Future()
            try:
                done.set_result(fn(*args, **kwargs))
            except BaseException as error:  # noqa: BLE001 - the caller gets it with the result
                done.set_exception(error)
            return done
