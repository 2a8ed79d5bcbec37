"""A pool of threads that works without threads once Python ends.

A capture may last until the program does. By then no pool takes work ("cannot schedule new futures after
interpreter shutdown"), and from Python 3.12 on no thread can be started; the profile is written all the same.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any


class Pool(ThreadPoolExecutor):
    """Like ``ThreadPoolExecutor``; as Python ends, ``submit`` calls the function itself."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Return the future of ``fn(*args, **kwargs)``, which is done already if no thread can do it."""
        try:
            return super().submit(fn, *args, **kwargs)
        except RuntimeError:
            done: Future[Any] = Future()
            try:
                done.set_result(fn(*args, **kwargs))
            except BaseException as error:  # noqa: BLE001 - whoever asks for the result gets it
                done.set_exception(error)
            return done
