"""The state machine that decides which steps to capture; every callback feeds it step numbers."""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import Enum
from types import TracebackType

from opscope.core.capture import session
from opscope.core.capture.session import Capture

_log = logging.getLogger(__name__)


class State(Enum):
    """The state of a StepRange."""

    WAITING = "waiting"
    WARMUP = "warmup"
    CAPTURING = "capturing"
    DONE = "done"


class StepRange:
    """Captures steps [start, stop) after ``warmup`` steps in which the capture prepares, ``repeat`` times.

    Window k (from 0) is [start + k·stop, stop + k·stop): as in ``torch.profiler.schedule``, a period is
    all steps up to ``stop``. ``repeat`` 0 repeats for ever; ``stop`` None makes a window without end.

    ``make(k)`` makes a new capture for window k. Call ``at(n)`` when step n is next, or ``attach()`` to let
    ``opscope.step()`` call it. While another capture runs, the window is skipped and this is logged. Only
    captures started here are stopped. Raises ValueError for an empty window or a warm-up that begins
    before step 0.
    """

    def __init__(
        self,
        start: int,
        stop: int | None,
        warmup: int = 0,
        repeat: int = 1,
        make: Callable[[int], Capture] | None = None,
    ) -> None:
        if start < 0 or (stop is not None and stop <= start):
            raise ValueError(
                f"no steps in [{start}, {stop}): start must be at least 0 and below stop"
            )
        if not 0 <= warmup <= start:
            raise ValueError(f"{warmup} warm-up steps do not fit before step {start}")
        if repeat < 0:
            raise ValueError(f"repeat is {repeat}: it must be at least 0")
        self.start = start
        self.stop = stop
        self.warmup = warmup
        self.repeat = repeat
        self.state = State.WAITING
        self._make = make
        self._window = -1
        self._capture: Capture | None = None
        self._undo: Callable[[], None] | None = None

    def where(self, number: int) -> tuple[State, int]:
        """Return the state that belongs to step ``number``, and its window; depends on the number alone."""
        if self.stop is None:
            window, at = 0, number
        else:
            window, at = divmod(number, self.stop)
            if self.repeat and window >= self.repeat:
                return State.DONE, self.repeat - 1
        if at >= self.start:
            return State.CAPTURING, window
        return (State.WARMUP if at >= self.start - self.warmup else State.WAITING), window

    def first_captured(self, number: int, count: int) -> int:
        """Return the first step of [number, number + many) that is in a window; ``number`` if none is."""
        if self.where(number)[0] in (State.CAPTURING, State.DONE):
            return number
        # a window that has not begun begins ``start`` steps into its period
        begins = self.start if self.stop is None else number - number % self.stop + self.start
        return begins if begins < number + count else number

    def at(self, number: int, count: int = 1) -> State:
        """Note that step ``number`` is next, and return the state. Numbers may skip, repeat, or restart.

        ``count`` steps, from this one on, run together: a window that begins in any of them begins with the
        first. Exceptions from ``make`` and the capture pass through; the window is then over.
        """
        state, window = self.where(self.first_captured(max(number, 0), count))
        # a window's capture must not continue into the next window: with start 0 windows are adjacent
        if self.state is State.CAPTURING and (
            state is not State.CAPTURING or window != self._window
        ):
            self._end()
        if state in (State.WARMUP, State.CAPTURING) and window != self._window:
            self._window = window
            self._capture = None if self._make is None else self._make(window)
            if state is State.WARMUP and self._capture is not None:
                self._capture.warmup()
        if state is State.CAPTURING and self.state is not State.CAPTURING:
            self._begin()
        self.state = state
        return state

    def finish(self) -> None:
        """End the capture if it runs, because training is over. A second call does nothing."""
        if self._undo is not None:
            self._undo()
            self._undo = None
        if self.state is State.CAPTURING:
            self._end()
        self.state = State.DONE

    def attach(self) -> StepRange:
        """Let ``session.step`` call ``at`` until ``finish``; before the first step, step 0 is next."""
        if self._undo is None:
            self._undo = session.on_step(self._hear)
            self._hear(max(session.current_step(), 0))
        return self

    def __enter__(self) -> StepRange:
        return self.attach()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.finish()

    def _hear(self, number: int) -> None:
        self.at(number)

    def _begin(self) -> None:
        if self._capture is None:
            return
        running = session.capturing()
        # under ``opscope run`` session.start says that this capture is skipped, and what contains its steps
        if running is not None and (running is self._capture or not session.is_run()):
            _log.warning(
                "steps from %d on are not captured: %r is already running", self.start, running
            )
            self._capture = None
            return
        capture, self._capture = self._capture, None
        session.start(capture)
        self._capture = capture

    def _end(self) -> None:
        mine, self._capture = self._capture, None
        self.state = State.WAITING
        if mine is not None and session.capturing() is mine:
            session.stop()
