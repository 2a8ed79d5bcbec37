"""The clock of light mode: the duration of each step and of its phases. No op is recorded.

A hook reads the time and adds the time since the last reading to the open phase: two readings of the clock
and a few additions. Completed steps are appended to a buffer, which the writer's thread empties
(``light_recording``). The time directly before a backward pass, from the end of the last wait for input or
other phase, counts as the forward phase, because hooking the model's calls would cost time at each module.
The same holds within an optimizer's step that calls a closure, as in Lightning.

In one step of ``ONE_IN`` each hook also measures itself. That time plus the cost of calling a hook, measured
beforehand, is opscope's own cost, and its spread is the error.

``LightClock`` serves where nothing can be compiled. ``backends/light_clock.py`` has the same in C.
"""

from __future__ import annotations

import functools
import struct
import threading
from collections.abc import Callable
from math import floor, sqrt
from statistics import median
from threading import get_ident
from time import perf_counter_ns
from typing import Any, Final, Protocol

from opscope.core.light_format import (
    BACKWARD,
    COLLECTIVE,
    FORWARD,
    FULL,
    INPUT,
    OPTIMIZER,
    OTHER,
    RECORD,
    STEP,
)

__all__ = [
    "AWAY",
    "BACKWARD",
    "COLLECTIVE",
    "INPUT",
    "OPTIMIZER",
    "Clock",
    "Cost",
    "LightClock",
    "Watch",
]

#: The result of ``enter`` on a thread whose steps are not measured.
AWAY: Final = -1
#: One step in this many measures the hooks; a power of two. The first steps do, too.
ONE_IN: Final = 64
_MASK: Final = ONE_IN - 1
_FIRST: Final = 16
#: The most bytes of steps that wait for the writer's thread; beyond it, all waiting steps are dropped, and
#: counted.
MAX_WAITING: Final = 16 << 20
#: Number of self-measured steps whose cost is kept.
KEPT: Final = 512
#: Phases whose time counts as forward if a backward pass follows.
_OUTSIDE_OF_FORWARD: Final = (OTHER, OPTIMIZER)
#: No step takes longer (ns): the limit of slow steps while no limit is set.
NEVER: Final = 1 << 62
_LEAST, _MOST = -(1 << 63), (1 << 63) - 1


class Watch(Protocol):
    """Decides, between two steps, whether steps are to be recorded in full."""

    def slow(self, took: int) -> None:
        """A step took longer than the limit."""

    def usual(self) -> None:
        """A step was within the limit, after a step that was not."""


class Cost:
    """The cost of the hooks in a step, from the steps in which they measured themselves (ns). The latest
    ``KEPT`` are kept for the median: a thread that loses its processor within a hook measures milliseconds
    of other threads' work, and a few of those outweigh thousands of steps in a mean."""

    __slots__ = ("count", "recent", "total")

    def __init__(self) -> None:
        self.count = self.total = 0
        self.recent: list[int] = []

    def add(self, ns: int) -> None:
        if self.count < KEPT:
            self.recent.append(ns)
        else:
            self.recent[self.count % KEPT] = ns
        self.count += 1
        self.total += ns

    def middle(self) -> tuple[float, float] | None:
        """Return the median and the half width of its 95 % interval, by order statistics; None for fewer
        than two values."""
        ordered = sorted(self.recent)
        count = len(ordered)
        if count < 2:
            return None
        median_value = median(ordered)
        low = max(0, floor(count / 2 - 0.98 * sqrt(count)) - 1)
        return float(median_value), float(
            max(ordered[count - 1 - low] - median_value, median_value - ordered[low])
        )


class Clock(Protocol):
    """The steps of the first thread that has any, and their phases. No method raises."""

    #: Whether steps are also recorded in full, so that they take longer than usual.
    full: bool
    #: A step above ``limit`` (ns) is reported to ``watch``.
    limit: int
    watch: Watch | None
    #: Whether ``session`` must call ``between`` between two steps.
    due: bool
    between: Callable[[], None]
    #: Called once, when the first step begins.
    started: Callable[[], None] | None

    @property
    def cost(self) -> Cost:
        """The cost of the hooks, which they measured themselves in some steps."""

    @property
    def measured_calls(self) -> int:
        """The number of hook calls in those steps."""

    @property
    def measured_turns(self) -> int:
        """The number of changes of step, among the self-measuring steps, for which the time to reach this
        clock was not measured."""

    @property
    def dropped(self) -> int:
        """The number of steps that were not read in time."""

    def enter(self, phase: int, /) -> int:
        """Begin a phase; return the phase to return to, or ``AWAY``."""

    def leave(self, before: int, /) -> None:
        """End the phase for which ``enter`` returned ``before``."""

    def around(self, function: Any, phase: int) -> Any:
        """Return ``function`` with its calls in a phase."""

    def optimizes(self) -> None:
        """Begin the optimizer's phase."""

    def optimized(self) -> None:
        """End the optimizer's phase; does nothing outside one."""

    def turns(self, number: int, /) -> None:
        """End this thread's step, if one is open, and begin step ``number``."""

    def turns_after(self, number: int, /) -> None:
        """Do what ``turns`` does, for the hook that has called ``optimized`` before: the time since then is
        opscope's own cost."""

    def begins(self, number: int, /) -> None:
        """Begin a step on this thread."""

    def ends(self) -> None:
        """End this thread's step."""

    def here(self) -> bool:
        """Whether a step is open on this thread."""

    def left(self) -> None:
        """Drop this thread's step, because it did not really end."""

    def named(self, number: int, /) -> None:
        """Give this thread's open step another number."""

    def take(self) -> bytes:
        """Return the records of the steps that ended since the last call."""

    def after_fork(self) -> None:
        """Forget all in a forked child: its steps are its own."""


class LightClock:
    """A ``Clock`` in Python."""

    __slots__ = (
        "_at",
        "_begin",
        "_full",
        "_measures",
        "_number",
        "_own",
        "_phase",
        "_places",
        "_since",
        "_thread",
        "_times",
        "between",
        "calls",
        "cost",
        "dropped",
        "due",
        "full",
        "late",
        "limit",
        "log",
        "measured_calls",
        "measured_turns",
        "open",
        "started",
        "watch",
    )

    def __init__(self) -> None:
        self._times = [0, 0, 0, 0, 0, 0]
        self._phase = OTHER
        self._at = self._begin = self._number = self._places = 0
        self._thread = 0
        self._own = 0
        #: When the optimizer's hook ended its phase, in a self-measuring step; 0 if another hook was called
        #: since.
        self._since = 0
        self._measures = self._full = False
        #: Whether a step is open.
        self.open = False
        #: The completed steps, as records.
        self.log = bytearray()
        self.dropped = 0
        self.cost = Cost()
        #: ``calls``: hook calls in the current self-measuring step. ``measured_calls``: those in all
        #: self-measuring steps. ``measured_turns``: changes of step in these.
        self.calls = self.measured_calls = self.measured_turns = 0
        #: Whether steps are also recorded in full, so that they take longer than usual.
        self.full = False
        #: A step above ``limit`` (ns) is reported to ``watch``; ``late``: whether the last step was.
        self.limit = NEVER
        self.late = False
        self.watch: Watch | None = None
        self.due = False
        #: Called between two steps while ``due``.
        self.between: Callable[[], None] = lambda: None
        #: Called once, when the first step begins.
        self.started: Callable[[], None] | None = None

    # ------------------------------------------------------------------------------ phases

    def enter(self, phase: int) -> int:
        """Begin a phase; return the phase to return to, or ``AWAY``."""
        if get_ident() != self._thread:
            return AWAY
        now = perf_counter_ns()
        before = self._phase
        forward = phase == BACKWARD and before in _OUTSIDE_OF_FORWARD
        self._times[FORWARD if forward else before] += now - self._at
        self._phase = phase
        self._at = now
        if self._measures:
            self.calls += 1
            self._since = 0
            self._own += perf_counter_ns() - now
        return before

    def leave(self, before: int) -> None:
        """End the phase that ``enter`` began."""
        if before < 0:
            return
        now = perf_counter_ns()
        self._times[self._phase] += now - self._at
        self._phase = before
        self._at = now
        if self._measures:
            self.calls += 1
            self._since = 0
            self._own += perf_counter_ns() - now

    def around(self, function: Any, phase: int) -> Any:
        """Return ``function`` with its calls in a phase."""
        clock, times, backward = self, self._times, phase == BACKWARD

        # ``enter`` and ``leave`` are repeated here: two calls would cost a quarter of everything else
        @functools.wraps(function)
        def phased(*args: Any, **kwargs: Any) -> Any:
            if get_ident() != clock._thread:
                return function(*args, **kwargs)
            now = perf_counter_ns()
            before = clock._phase
            forward = backward and before in _OUTSIDE_OF_FORWARD
            times[FORWARD if forward else before] += now - clock._at
            clock._phase = phase
            clock._at = now
            if clock._measures:
                clock.calls += 1
                clock._since = 0
                clock._own += perf_counter_ns() - now
            try:
                return function(*args, **kwargs)
            finally:
                now = perf_counter_ns()
                times[clock._phase] += now - clock._at
                clock._phase = before
                clock._at = now
                if clock._measures:
                    clock.calls += 1
                    clock._since = 0
                    clock._own += perf_counter_ns() - now

        return phased

    def optimizes(self) -> None:
        """Begin the optimizer's phase."""
        self.enter(OPTIMIZER)

    def optimized(self) -> None:
        """End the optimizer's phase; does nothing outside one."""
        if get_ident() != self._thread:
            return
        if self._phase == OPTIMIZER:
            self.leave(OTHER)
        if self._measures:
            self._since = perf_counter_ns()

    # ------------------------------------------------------------------------------- steps

    def turns(self, number: int) -> None:
        """End this thread's step, if one is open, and begin step ``number``."""
        self._since = 0
        self.turns_after(number)

    def turns_after(self, number: int) -> None:
        """Do what ``turns`` does, for the hook that has called ``optimized`` before: the time since then is
        opscope's own cost."""
        if self.open and get_ident() == self._thread:
            self._ends(perf_counter_ns(), number)
        else:
            self.begins(number)

    def begins(self, number: int) -> None:
        """Begin a step on this thread."""
        ident = get_ident()
        if ident != self._thread:
            if self.open and self._thread in threading._active:  # type: ignore[attr-defined]
                return
            self._thread = ident
            started, self.started = self.started, None
            if started is not None:
                started()
        self.open = True
        self._start(perf_counter_ns(), number)

    def ends(self) -> None:
        """End this thread's step."""
        if self.open and get_ident() == self._thread:
            self._since = 0
            self._ends(perf_counter_ns(), None)

    def here(self) -> bool:
        """Whether a step is open on this thread."""
        return self.open and get_ident() == self._thread

    def left(self) -> None:
        """Drop this thread's step, because it did not really end."""
        if get_ident() == self._thread:
            self.open = False

    def named(self, number: int) -> None:
        """Give this thread's open step another number."""
        if self.here():
            self._number = number

    def take(self) -> bytes:
        """Return the records of the steps that ended since the last call."""
        data = bytes(self.log)  # the program may append meanwhile: delete only what was copied
        del self.log[: len(data)]
        return data

    def after_fork(self) -> None:
        """Forget all in a forked child: its steps are its own."""
        self.log = bytearray()
        self.open = self.full = self.due = self.late = False
        self._thread = self._places = self.dropped = 0
        self.limit = NEVER
        self.cost = Cost()

    def _start(self, now: int, number: int) -> None:
        times = self._times
        times[0] = times[1] = times[2] = times[3] = times[4] = times[5] = 0
        self._phase = OTHER
        self._begin = self._at = now
        self._number = number
        self._own = self._since = 0
        self._full = self.full
        places = self._places
        self._measures = measures = not places & _MASK or places < _FIRST
        if measures and len(self.log) > MAX_WAITING:
            self.dropped += len(self.log) // RECORD.size
            self.log.clear()

    def _ends(self, now: int, number: int | None) -> None:
        """End the step at ``now``, and begin step ``number``, if given."""
        times, log = self._times, self.log
        times[self._phase] += now - self._at
        took = now - self._begin
        index = self._places
        self._places = index + 1
        kind = FULL if self.full or self._full else STEP
        number_, begin = self._number, self._begin
        try:
            record = RECORD.pack(
                index, kind, number_, begin, took, times[0], times[1], times[2], times[3], times[4]
            )
        except struct.error:  # a number of more than 64 bits becomes the nearest one that fits
            number_ = max(_LEAST, min(number_, _MOST))
            record = RECORD.pack(index, kind, number_, begin, took, *times[:5])
        log.extend(record)
        if took > self.limit:
            if self.watch is not None:
                self.late = True
                self.watch.slow(took)
        elif self.late and self.watch is not None:
            self.late = False
            self.watch.usual()
        if self._measures:
            own = self._own + perf_counter_ns() - now
            since = self._since
            if since:  # the time since the optimizer's hook
                own += now - since
                self.calls += 1
            if not (self.full or self._full):
                self.cost.add(own)
                self.measured_calls += self.calls
                self.measured_turns += not since
            self.calls = 0
        if number is None:
            self.open = False
            self._phase = OTHER
            self._thread_rest(now)
        else:
            self._start(now, number)

    def _thread_rest(self, now: int) -> None:
        # time before the next step belongs to no step: its hooks add to phases that ``_start`` clears
        self._at = now
        self._measures = False


def call_ns(clock: Clock, rounds: int = 7, calls: int = 200) -> float:
    """Measure the cost of a hook that the hook itself does not measure (ns): Python's calls, and its readings
    of the clock. ``clock`` is an unused clock of the kind in use."""

    def nothing() -> None:
        pass

    def many(function: Callable[[], None]) -> None:
        for _ in range(calls):
            function()

    phased = clock.around(nothing, BACKWARD)
    loop = median(_beside(clock, lambda: many(nothing)) for _ in range(rounds))
    per_call = median(_beside(clock, lambda: many(phased)) for _ in range(rounds))
    return max(0.0, per_call - loop) / (2 * calls)


def turn_ns(clock: Clock, turn: Callable[[], object], rounds: int = 15, calls: int = 8) -> float:
    """Measure the part of the cost (ns) of ``turn`` that ``clock`` itself does not measure; ``turn`` makes
    the clock end a step and begin the next."""

    def many() -> None:
        for _ in range(calls):
            turn()

    return max(0.0, median(_beside(clock, many) for _ in range(rounds))) / calls


def _beside(clock: Clock, work: Callable[[], None]) -> float:
    """Return the time of ``work`` minus the time that the clock's hooks measured themselves (ns)."""
    clock.after_fork()  # the first steps measure themselves
    clock.begins(0)
    begin = perf_counter_ns()
    work()
    elapsed = perf_counter_ns() - begin
    clock.ends()
    return float(elapsed - clock.cost.total)
