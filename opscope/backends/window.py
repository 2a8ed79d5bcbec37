"""Which part of a run a framework's profiler records: a window, so that no run is too long for it.

PyTorch's profiler keeps each event in memory until it ends, and takes 14 to 100 µs an event then: an hour
of training is 10⁸ events. So it runs from the beginning, ends once it has a window of steps that are
alike, and what came before the window is left out of the report. A run that ends sooner is whole.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import Final

#: What the profiler may keep, in any window that names no other bound.
EVENTS: Final = 2_000_000
#: Of a window that nobody asked for.
STEPS: Final = 20
SECONDS: Final = 60.0
#: Steps are told from now on where this many in a row, ``WARM`` after the first at the earliest, take
#: within ``SPREAD`` of their median. After ``MOST`` steps or ``SECONDS`` of them it begins whatever they do.
WARM: Final = 2
ALIKE: Final = 3
SPREAD: Final = 0.25
MOST: Final = 50

#: Why a window ended, as the report says it.
AT_STEPS: Final = "after {steps} steps"
AT_TIME: Final = "after {seconds:g} s"
AT_EVENTS: Final = "at about {events:,} events, which the profiler keeps in memory"
FULL: Final = "the profiler's buffers were full"
GAVE_WAY: Final = "the program's own profiler began"


@dataclass(frozen=True, slots=True)
class Bounds:
    """What ends a window: so many steps, seconds or events (None: no bound).

    ``chosen``: steps and seconds are counted from where the steps have become alike.
    """

    steps: int | None = None
    seconds: float | None = None
    events: int | None = EVENTS
    chosen: bool = False


#: What somebody asked for, from its beginning to its end.
EXACT: Final = Bounds()
#: All of a run, however long it is.
WHOLE: Final = Bounds(events=None)
#: What ``opscope run`` takes where nothing else is asked for.
CHOSEN: Final = Bounds(STEPS, SECONDS, EVENTS, chosen=True)


class Window:
    """Where a window begins and ends, told of steps and of time as they pass; times in ns.

    ``begin``, ``first`` and ``end`` are those of the window proper: null until it has begun, and
    ``first`` where no steps tell. ``over`` says why it ended.
    """

    def __init__(self, bounds: Bounds, now: int) -> None:
        self.bounds = bounds
        self.opened = now
        self.begin: int | None = None if bounds.chosen else now
        self.first: int | None = None
        self.last: int | None = None
        self.over: str | None = None
        self._steps: deque[int] = deque(maxlen=ALIKE)
        self._since: int | None = None  # the last step's begin
        self._first_step: int | None = None  # when the first began
        self._number: int | None = None
        self._told = 0

    @property
    def stepping(self) -> bool:
        """Whether steps are told."""
        return self._since is not None

    @property
    def whole(self) -> bool:
        """Whether nothing was left out before the window: it needs no choice."""
        return self.begin is None or self.begin == self.opened

    def step(self, number: int, now: int, events: int) -> str | None:
        """Step ``number`` is next. Why the window is to end before it, if it is."""
        if number == self._number:  # told twice: at the end of one, and as the next begins
            return self.over
        if self._since is None:
            self._first_step = now
        else:
            self._steps.append(now - self._since)
            self._told += 1
        if self._number is not None and self.begin is not None and self.first is not None:
            self.last = self._number
        self._since, self._number = now, number
        if self.begin is None and self._is_steady(now):
            self.begin = now
        if self.begin is not None and self.first is None:
            self.first = number
            self._told = 0
        return self._end(now, events, at_step=True)

    def tick(self, now: int, events: int) -> str | None:
        """Time has passed. Why the window is to end in the midst of a step, if it is."""
        return self._end(now, events, at_step=False)

    def _is_steady(self, now: int) -> bool:
        assert self._first_step is not None
        if self._told >= MOST or now - self._first_step > SECONDS * 1e9:
            return True
        if self._told < WARM + ALIKE:
            return False
        middle = sorted(self._steps)[ALIKE // 2]
        return all(abs(one - middle) <= SPREAD * middle for one in self._steps)

    def _end(self, now: int, events: int, at_step: bool) -> str | None:
        """At a step what is due; in the midst of one only what cannot wait for its end."""
        bounds = self.bounds
        if self.over is not None:
            return self.over
        # a step's end is waited for, but not by a program that came to none, nor for long
        patience = 1.0 if at_step or not self.stepping else 1.25
        if bounds.events is not None and events >= bounds.events * patience:
            self.over = AT_EVENTS.format(events=bounds.events)
        elif at_step and self.first is not None and self._told >= (bounds.steps or math.inf):
            self.over = AT_STEPS.format(steps=bounds.steps)
        if self.over is None and bounds.seconds is not None:
            since = self.begin if self.begin is not None else self.opened
            # steps that are not yet alike are waited for, while there are some
            waits = (
                self.begin is None
                and self._since is not None
                and now - self._since < bounds.seconds * 1e9
            )
            patience = 1.0 if at_step or not self.stepping else 2.0
            if not waits and now - since >= bounds.seconds * 1e9 * patience:
                self.over = AT_TIME.format(seconds=bounds.seconds)
        return self.over
