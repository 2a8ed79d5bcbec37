"""Answer in threads: a few at a time, others wait for a while, and no answer blocks all others.

A thread cannot be stopped from outside. An answer that nobody waits for any more (the page went on, or timed
out) is told to give up once others need its turn; it gives up at its next report of progress. A slow answer
also loses its turn. Both kinds then go on without a turn, and their number is bounded. A question that waits
only for such answers is refused after a few seconds.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from opscope.core import progress


class Busy(Exception):
    """No answer came in time; the message says why. The server answers 503."""


class GivenUp(BaseException):
    """Nobody waits for the answer, and others need the turn. No handler of ordinary errors catches this."""


#: Answers that have a turn at one time: a page asks a few questions, and Polars uses all processors for each.
_AT_ONCE: Final = 4
#: Questions that wait for their turn: as many as there may be connections.
_WAITING: Final = 512
#: Seconds after which an answer gives up its turn, and how many awaited answers may run without one.
_LONG: Final = 5.0
_LONG_ONES: Final = 4
#: Answers without a turn: slow ones, and those that must give up and have not done so yet.
_BESIDE: Final = 12
#: Seconds for which a question waits while only abandoned answers block it.
_STUCK: Final = 10.0
#: Seconds between two checks for a free turn.
_LOOK: Final = 0.1
#: Seconds for which a page waits for an answer. Results until then are kept for the next time.
PATIENCE: Final = 300.0


class _Answer:
    """An answer in progress: what it is, when it began, and how far it is."""

    def __init__(self, name: str, since: float) -> None:
        self.name, self.since = name, since
        self.turn = True
        self.unwanted = self.stopped = False
        self._stage: progress.Stage | None = None

    def listen(self, stage: progress.Stage) -> None:
        """Note the progress of the work. Raises GivenUp, which ends the work, once the work must stop."""
        if self.stopped:
            raise GivenUp
        self._stage = stage.parent if stage.over else stage

    def said(self, now: float) -> dict[str, Any]:
        """Return the progress, as ``Working`` of ``web/src/parts/working.tsx``."""
        stage = self._stage
        return {
            "question": self.name,
            "seconds": round(now - self.since, 1),
            "doing": None if stage is None else stage.name,
            "done": None if stage is None else stage.done,
            "total": None if stage is None else stage.total,
            "unit": "" if stage is None else stage.unit,
        }


class Work:
    """Runs functions in threads of their own.

    The threads are daemons, as the server's end (Ctrl-C) does not wait for an answer that nobody reads.
    """

    def __init__(self, patience: float = PATIENCE, long: float = _LONG) -> None:
        self._patience, self._long = patience, long
        self._line: deque[asyncio.Event] = deque()  # the first in line has the next turn
        self._running: list[_Answer] = []

    def running(self) -> list[dict[str, Any]]:
        """Return the answers that somebody waits for, the oldest first, and how far each is."""
        now = asyncio.get_running_loop().time()
        return [task.said(now) for task in self._running if not task.unwanted]

    async def do(self, name: str, function: Callable[[], Any]) -> Any:
        """Return the result of ``function``, or raise its exception. Raises Busy.

        If it is cancelled, the answer continues as long as nobody else needs its turn.
        """
        loop = asyncio.get_running_loop()
        answer = await self._turn(name)
        result = self._start(answer, function, loop)
        try:
            return await asyncio.wait_for(asyncio.shield(result), self._patience)
        except asyncio.TimeoutError:
            raise Busy(
                f"the answer took longer than {self._patience:g} s; the work goes on while nobody else needs"
                " its turn: ask again later, or select fewer steps"
            ) from None
        finally:
            if not result.done():
                answer.unwanted = True
                answer.stopped |= not answer.turn
                # otherwise asyncio logs an error that nobody retrieves
                result.add_done_callback(lambda done: done.cancelled() or done.exception())

    def _start(
        self, answer: _Answer, function: Callable[[], Any], loop: asyncio.AbstractEventLoop
    ) -> asyncio.Future[Any]:
        result: asyncio.Future[Any] = loop.create_future()

        def finish(value: Any, error: BaseException | None) -> None:
            self._running.remove(answer)
            self._next()
            if result.done():
                return
            if error is None:
                result.set_result(value)
            elif isinstance(error, Exception):
                result.set_exception(error)
            else:
                result.cancel()

        def run() -> None:
            value, failed = None, None
            try:
                with progress.listening(answer.listen):
                    value = function()
            except BaseException as error:  # noqa: BLE001 - raised in the request's task
                failed = error
            with suppress(RuntimeError):  # the event loop has ended
                loop.call_soon_threadsafe(finish, value, failed)

        threading.Thread(target=run, name="opscope-answer", daemon=True).start()
        return result

    async def _turn(self, name: str) -> _Answer:
        """Wait for a turn, and take it. Raises Busy."""
        if len(self._line) >= _WAITING:
            raise Busy("too many questions at one time; ask again in a moment")
        loop = asyncio.get_running_loop()
        until, called = loop.time() + self._patience, asyncio.Event()
        stuck = loop.time() + _STUCK
        self._line.append(called)
        try:
            while self._line[0] is not called or not self._free():
                abandoned = sum(task.unwanted for task in self._running)
                if not self._full() or abandoned < len(self._running):
                    stuck = loop.time() + _STUCK
                elif loop.time() >= stuck:
                    raise Busy(
                        f"{abandoned} answers that nobody waits for any more have not ended, and no more are"
                        " begun until one does: ask again later, or end opscope view (Ctrl-C) and start it"
                        " again"
                    )
                if loop.time() >= until:
                    raise Busy(f"other questions took longer than {self._patience:g} s; ask again")
                with suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(called.wait(), _LOOK)
                called.clear()
            answer = _Answer(name, loop.time())
            self._running.append(answer)
            return answer
        finally:
            self._line.remove(called)
            self._next()

    def _next(self) -> None:
        """Let the first in line check whether it may begin."""
        if self._line:
            self._line[0].set()

    def _full(self) -> bool:
        """Whether no answer can be begun until another ends."""
        turns = sum(task.turn for task in self._running)
        return turns >= _AT_ONCE and len(self._running) - turns >= _BESIDE

    def _free(self) -> bool:
        """Whether an answer can begin; if needed, an abandoned or slow answer gives up its turn."""
        holding = [task for task in self._running if task.turn]
        if len(holding) < _AT_ONCE:
            return True
        if self._full():
            return False
        beside = [task for task in self._running if not task.turn]
        unwanted = [task for task in holding if task.unwanted]
        if unwanted:
            unwanted[0].turn, unwanted[0].stopped = False, True
            return True
        now = asyncio.get_running_loop().time()
        long = [task for task in holding if now - task.since >= self._long]
        if long and sum(not task.unwanted for task in beside) < _LONG_ONES:
            long[0].turn = False
            return True
        return False
