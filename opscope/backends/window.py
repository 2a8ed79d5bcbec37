"""Choose the window of a run that a framework's profiler records, so that a run can have any length.

PyTorch's profiler keeps every event in memory until it ends, and then takes 14 to 100 µs per event; an hour
of training is 10⁸ events. So the profiler runs from the beginning and ends once it has a window of steps that
are alike; the report leaves out everything before the window. A run that ends sooner is kept completely.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import Final

#: Largest number of events in the profiler's memory, unless the window has another bound.
EVENTS: Final = 2_000_000
#: Length of a window that the user has not chosen.
STEPS: Final = 20
SECONDS: Final = 60.0
#: The window begins when ``ALIKE`` steps in a row, not counting the first ``WARM``, each take a time within
#: ``SPREAD`` of their median. After ``MOST`` steps, or ``SECONDS`` of steps, it begins in any case.
WARM: Final = 2
ALIKE: Final = 3
SPREAD: Final = 0.25
MOST: Final = 50

#: Why a window ended, in the report's words.
AT_STEPS: Final = "after {steps}"
AT_TIME: Final = "after {seconds:g} s"
AT_EVENTS: Final = "at about {events:,} events, because the profiler keeps them in memory"
FULL: Final = "the profiler's buffers were full"
GAVE_WAY: Final = "the program's own profiler began"


@dataclass(frozen=True, slots=True)
class Bounds:
    """What ends a window: a number of steps, seconds or events (None: no bound).

    ``chosen``: steps and seconds count from the moment when steps have become alike.
    """

    steps: int | None = None
    seconds: float | None = None
    events: int | None = EVENTS
    chosen: bool = False


#: A capture that the user starts and stops: the window is all of it, up to ``EVENTS`` events.
EXACT: Final = Bounds()
#: The whole run, however long it is.
WHOLE: Final = Bounds(events=None)
#: The default of ``opscope run``.
CHOSEN: Final = Bounds(STEPS, SECONDS, EVENTS, chosen=True)


class Window:
    """Decides when a window begins and ends, from steps (``step``) and time (``tick``); times in ns.

    ``opened`` is when the profiler began. ``begin`` is when the window proper began, ``first`` and ``last``
    are its steps; they are None until known; without steps, ``first`` and ``last`` stay None. ``over`` says
    why the window ended.
    """

    def __init__(self, bounds: Bounds, now: int) -> None:
        self.bounds = bounds
        self.opened = now
        self.begin: int | None = None if bounds.chosen else now
        self.first: int | None = None
        self.last: int | None = None
        self.over: str | None = None
        self._steps: deque[int] = deque(maxlen=ALIKE)
        self._since: int | None = None  # when the last step began
        self._first_step: int | None = None  # when the first step began
        self._number: int | None = None
        self._counted = 0

    @property
    def stepping(self) -> bool:
        """Whether the program has steps."""
        return self._since is not None

    @property
    def whole(self) -> bool:
        """Whether nothing before the window was left out."""
        return self.begin is None or self.begin == self.opened

    def step(self, number: int, now: int, events: int) -> str | None:
        """Note that step ``number`` is next; return why the window must end before it, or None."""
        if number == self._number:  # called twice: at the end of a step, and when the next begins
            return self.over
        if self._since is None:
            self._first_step = now
        else:
            self._steps.append(now - self._since)
            self._counted += 1
        if self._number is not None and self.begin is not None and self.first is not None:
            self.last = self._number
        self._since, self._number = now, number
        if self.begin is None and self._is_steady(now):
            self.begin = now
        if self.begin is not None and self.first is None:
            self.first = number
            self._counted = 0
        return self._end(now, events, at_step=True)

    def tick(self, now: int, events: int) -> str | None:
        """Note that time has passed; return why the window must end in the middle of a step, or None."""
        return self._end(now, events, at_step=False)

    def _is_steady(self, now: int) -> bool:
        assert self._first_step is not None
        if self._counted >= MOST or now - self._first_step > SECONDS * 1e9:
            return True
        if self._counted < WARM + ALIKE:
            return False
        middle = sorted(self._steps)[ALIKE // 2]
        return all(abs(step - middle) <= SPREAD * middle for step in self._steps)

    def _end(self, now: int, events: int, at_step: bool) -> str | None:
        """Return why the window ends, or None. In the middle of a step, bounds may be exceeded for a
        while."""
        bounds = self.bounds
        if self.over is not None:
            return self.over
        # wait for the end of a step, but not long, and not if the program has no steps
        patience = 1.0 if at_step or not self.stepping else 1.25
        if bounds.events is not None and events >= bounds.events * patience:
            self.over = AT_EVENTS.format(events=bounds.events)
        elif at_step and self.first is not None and self._counted >= (bounds.steps or math.inf):
            self.over = AT_STEPS.format(
                steps="1 step" if bounds.steps == 1 else f"{bounds.steps} steps"
            )
        if self.over is None and bounds.seconds is not None:
            since = self.begin if self.begin is not None else self.opened
            # while steps come that are not yet alike, wait for them
            waits = (
                self.begin is None
                and self._since is not None
                and now - self._since < bounds.seconds * 1e9
            )
            patience = 1.0 if at_step or not self.stepping else 2.0
            if not waits and now - since >= bounds.seconds * 1e9 * patience:
                self.over = AT_TIME.format(seconds=bounds.seconds)
        return self.over
