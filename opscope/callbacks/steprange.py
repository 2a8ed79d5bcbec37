"""Which steps to capture: the state machine that every callback feeds with step numbers."""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import Enum
from types import TracebackType

from opscope.core.capture import session
from opscope.core.capture.session import Capture

_log = logging.getLogger(__name__)


class State(Enum):
    """Where a StepRange stands."""

    WAITING = "waiting"
    WARMUP = "warmup"
    CAPTURING = "capturing"
    DONE = "done"


class StepRange:
    """Steps [start, stop), after ``warmup`` steps in which the capture may prepare, ``repeat`` times.

    The k-th window (from 0) is [start + k·stop, stop + k·stop): as with ``torch.profiler.schedule``
    a period is all that leads to ``stop``. ``repeat`` 0 goes on for ever; ``stop`` None never ends.

    ``make`` gives the capture of window k, fresh each time. Feed ``at(n)`` when step n is next, or
    ``attach()`` to let ``opscope.step()`` feed it. It starts nothing while another capture runs
    (that is logged, and the window passed over), and stops only what it started. Raises ValueError
    on a window that is empty or a warm-up that begins before step 0.
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
            raise ValueError(f"no steps in [{start}, {stop})")
        if not 0 <= warmup <= start:
            raise ValueError(f"{warmup} warm-up steps do not fit before step {start}")
        if repeat < 0:
            raise ValueError(f"repeat is {repeat}")
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
        """The state that step ``number`` asks for, and its window; a pure function of the number."""
        if self.stop is None:
            window, at = 0, number
        else:
            window, at = divmod(number, self.stop)
            if self.repeat and window >= self.repeat:
                return State.DONE, self.repeat - 1
        if at >= self.start:
            return State.CAPTURING, window
        return (State.WARMUP if at >= self.start - self.warmup else State.WAITING), window

    def at(self, number: int) -> State:
        """Step ``number`` is next. Numbers may skip, repeat, or begin again. Returns the state.

        What ``make`` and the capture raise passes through, the window then being over.
        """
        state, window = self.where(max(number, 0))
        # one window's capture never goes on into the next: windows may touch (start 0)
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
        """Training is over: end the capture if it runs. Harmless when called twice."""
        if self._undo is not None:
            self._undo()
            self._undo = None
        if self.state is State.CAPTURING:
            self._end()
        self.state = State.DONE

    def attach(self) -> StepRange:
        """Be fed by ``session.step`` until ``finish``; step 0 counts as next at once."""
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
        if running is not None:
            _log.warning("steps from %d on are not captured: %r is running", self.start, running)
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
