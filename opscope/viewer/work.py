"""Answer in threads: a few at a time, others wait for a while, and more than that are refused."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any, Final


class Busy(Exception):
    """No answer in time; the message says why. The server says 503."""


#: Answers at one time: a page asks a few questions, and Polars uses all processors for each.
_AT_ONCE: Final = 4
#: Questions that wait for their turn.
_WAITING: Final = 64
#: Seconds for which a page waits for an answer; the work goes on, and its result is kept for the next time.
PATIENCE: Final = 300.0


class Work:
    """Runs functions in threads of their own.

    The threads are daemons, as the server's end (Ctrl-C) does not wait for an answer that nobody reads.
    """

    def __init__(self, patience: float = PATIENCE) -> None:
        self._patience = patience
        self._turns = asyncio.Semaphore(_AT_ONCE)
        self._waiting = 0

    async def do(self, function: Callable[[], Any]) -> Any:
        """Return what ``function`` returns, or raise what it raises. Raises Busy."""
        if self._waiting >= _WAITING:
            raise Busy("too many questions at one time; ask again in a moment")
        self._waiting += 1
        try:
            await asyncio.wait_for(self._turns.acquire(), self._patience)
        except asyncio.TimeoutError:
            raise Busy(
                f"other questions took longer than {self._patience:g} s; ask again"
            ) from None
        finally:
            self._waiting -= 1
        loop = asyncio.get_running_loop()
        result: asyncio.Future[Any] = loop.create_future()

        def finish(value: Any, error: BaseException | None) -> None:
            self._turns.release()  # only now: a thread that nobody waits for still takes its turn
            if result.done():
                return
            if error is None:
                result.set_result(value)
            else:
                result.set_exception(error)

        def run() -> None:
            value, failed = None, None
            try:
                value = function()
            except BaseException as error:  # noqa: BLE001 - raised in the request's task
                failed = error
            try:
                loop.call_soon_threadsafe(finish, value, failed)
            except RuntimeError:  # the loop has ended
                return

        threading.Thread(target=run, name="opscope-answer", daemon=True).start()
        try:
            return await asyncio.wait_for(asyncio.shield(result), self._patience)
        except asyncio.TimeoutError:
            # without this asyncio logs an error that nobody asked for
            result.add_done_callback(lambda done: done.cancelled() or done.exception())
            raise Busy(
                f"the answer took longer than {self._patience:g} s; the work goes on: ask again later"
            ) from None
