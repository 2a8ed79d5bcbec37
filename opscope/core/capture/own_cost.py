"""Measure opscope's own cost while it records; the recording contains the result."""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import perf_counter_ns
from typing import Final, NamedTuple


class Spent(NamedTuple):
    """The cost of one part of opscope since the recording began."""

    part: str
    #: Time of all calls in ns, extrapolated if only some were timed; None if none was.
    time: int | None
    calls: int
    #: N if one call in N was timed; None if ``time`` is the number of calls times the cost of one call.
    one_in: int | None
    #: Number of records that these calls wrote; ``time`` includes their cost.
    records: int


class Cost:
    """Counts the calls of one hook and times one call in ``one_in``, which is a power of two.

    In the hook::

        begin = cost.begin()
        ...
        if begin:
            cost.end(begin)
    """

    __slots__ = ("_mask", "calls", "long", "ns", "one_in", "part", "records", "timed")

    def __init__(self, part: str, one_in: int, records: int) -> None:
        self.part = part
        self.one_in = one_in
        self._mask = one_in - 1
        #: Number of records that each call writes.
        self.records = records
        self.reset()

    def reset(self) -> None:
        """Set all counts to 0, for a new recording."""
        #: ``long``: ns of calls during which another process most likely ran; they are not extrapolated.
        self.calls = self.timed = self.ns = self.long = 0

    def begin(self) -> int:
        """Count a call; return the time (perf_counter_ns) if this call is timed, else 0."""
        # Simultaneous calls of two threads may count as one: the number is accurate enough.
        self.calls = calls = self.calls + 1
        return 0 if calls & self._mask else perf_counter_ns()

    def end(self, begin: int) -> None:
        """Add the time of the call that began at ``begin``."""
        took = perf_counter_ns() - begin
        if took < LONGEST_SAMPLE:
            self.ns += took
            self.timed += 1
        else:
            self.long += took

    def spent(self) -> Spent:
        """Return the cost so far; its time is None if there were too few calls for one to be timed."""
        time: int | None = self.long
        if self.timed:
            time = self.ns * self.calls // self.timed + self.long
        elif self.calls and not self.long:
            time = None
        return Spent(self.part, time, self.calls, self.one_in, self.records * self.calls)


#: Gives the cost of one part; called once per second and at the end of a recording.
Spending = Callable[[], Spent]

_TRIES: Final = 64
#: In ns. A hook takes this long only at its first call.
LONGEST_SAMPLE: Final = 1_000_000


def record_ns(pack: Callable[[int, int], bytes]) -> float:
    """Return the measured cost (ns) of pushing a record from Python, by the steps of the push in ``emit``."""
    now, local = perf_counter_ns, threading.local()
    local.log = bytearray().extend

    def push(number: int = 1) -> None:
        try:
            log = local.log
        except AttributeError:
            return
        log(pack(number, now()))

    return call_ns(push)


def call_ns(push: Callable[[], object]) -> float:
    """Return the ns that a call takes, the least of four rounds."""
    least = float("inf")
    for _ in range(4):
        begin = perf_counter_ns()
        for _ in range(_TRIES):
            push()
        least = min(least, (perf_counter_ns() - begin) / _TRIES)
    return least
