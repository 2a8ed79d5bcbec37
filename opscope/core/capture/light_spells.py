"""Record a few steps in full when steps stay slow: a spell. Three an hour at most, none if the user said so.

A single slow step is over before it can be recorded, so only a spell counts: several steps in a row that took
``FACTOR`` times the median, and together lost ``LOST_NS``. ``slow_steps.SlowSteps`` judges each step as it
ends, for 1 µs; here a step is only compared with a limit, which the writer's thread computes.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from . import session
from .light import Clock

_log = logging.getLogger(__name__)

#: A step that takes longer than this many times the median is slow.
FACTOR: Final = 1.5
#: The median is taken of this many steps; with fewer than ``LEAST`` there is no median.
OF: Final = 512
LEAST: Final = 30
#: A spell is this many slow steps in a row that together took this much longer than as many median steps.
ROW: Final = 3
LOST_NS: Final = 100_000_000
#: Spells that are recorded in an hour, and the steps of each.
PER_HOUR: Final = 3
HOUR_NS: Final = 3_600_000_000_000
STEPS: Final = 5
#: A spell's recording ends after this long, even if its steps have not all ended.
LONGEST_NS: Final = 60_000_000_000


class Spells:
    """Watches a clock's steps; begins and ends a capture that ``make`` returns, between two steps."""

    def __init__(
        self, clock: Clock, make: Callable[[], session.Capture] | None, steps: int = STEPS
    ) -> None:
        """``make`` None: spells are counted but not recorded."""
        self._clock = clock
        self._make = make
        self._steps = steps
        self._recent: NDArray[np.int64] = np.zeros(0, np.int64)
        self._median = 0
        self._row = self._lost = 0
        self._told = False
        self._begun: deque[int] = deque(maxlen=PER_HOUR)
        self._capture: session.Capture | None = None
        self._left = 0
        self._wanted = False
        #: The number of observed spells, and the facts of each recorded one.
        self.seen = 0
        self.recorded: list[dict[str, Any]] = []
        #: Reasons why spells were not recorded, with their number.
        self.not_recorded: dict[str, int] = {}
        clock.watch = self
        clock.between = self.between

    def learn(self, took: NDArray[np.int64]) -> None:
        """Take the durations (ns) of the latest steps; on the writer's thread."""
        if not len(took):
            return
        self._recent = np.concatenate([self._recent, took])[-OF:]
        if len(self._recent) >= LEAST:
            self._median = median = int(np.median(self._recent))
            self._clock.limit = int(median * FACTOR)

    def slow(self, took: int) -> None:
        """A step took longer than the limit; on the program's thread."""
        if self._clock.full or self._told:
            return
        self._row += 1
        self._lost += took - self._median
        if self._row >= ROW and self._lost >= LOST_NS:
            self._told = True
            self.seen += 1
            why = self._not_now()
            if why is None:
                self._wanted = self._clock.due = True
            else:
                self.not_recorded[why] = self.not_recorded.get(why, 0) + 1

    def usual(self) -> None:
        """A step was within the limit, after a step that was not."""
        self._row = self._lost = 0
        self._told = False

    def _not_now(self) -> str | None:
        if self._make is None:
            return "the user said no"
        if session.capturing() is not None or session.recorder() is not None:
            return "another capture ran"
        now = perf_counter_ns()
        if len(self._begun) == PER_HOUR and now - self._begun[0] < HOUR_NS:
            return f"{PER_HOUR} spells had been recorded within the hour"
        return None

    def between(self) -> None:
        """Begin or end the recording of a spell: between two steps, on the program's thread. Never raises."""
        try:
            if self._capture is not None:
                self._left -= 1
                late = perf_counter_ns() - self._begun[-1] > LONGEST_NS
                if self._left <= 0 or late or session.capturing() is not self._capture:
                    self.end()
            elif self._wanted:
                self._wanted = False
                self._begin()
            else:
                self._clock.due = False
        except Exception as error:  # noqa: BLE001 - our fault must never reach the user's program
            self._capture = None
            self._clock.due = False
            _log.warning("opscope: a slow spell is not recorded: %s", error)
            self._refused(str(error))

    def _begin(self) -> None:
        make, self._clock.due = self._make, False
        why = self._not_now()
        if make is None or why is not None:
            self._refused(why or "")
            return
        self._begun.append(perf_counter_ns())
        capture = make()
        session.start(capture)
        if session.capturing() is not capture:
            self._refused("opscope run records this process")
            return
        self._capture, self._left = capture, self._steps
        self._clock.due = True
        self.recorded.append(
            {
                "start": perf_counter_ns(),
                "step": session.current_step(),
                "slow_steps": self._row,
                "lost": self._lost,
                "median": self._median,
            }
        )

    def _refused(self, why: str) -> None:
        self.not_recorded[why] = self.not_recorded.get(why, 0) + 1

    def end(self) -> None:
        """End the recording of a spell, if one runs."""
        capture, self._capture = self._capture, None
        self._clock.due = False
        if capture is None:
            return
        if session.capturing() is capture:
            session.stop()
        self.recorded[-1]["end"] = perf_counter_ns()

    def after_fork(self) -> None:
        """Forget a running capture in a forked child: it is the parent's."""
        self._capture, self._wanted = None, False
        self._row = self._lost = 0
