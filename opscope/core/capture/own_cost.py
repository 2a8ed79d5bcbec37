"""What opscope itself costs while it records: timed as it goes, told beside what was recorded."""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import perf_counter_ns
from typing import Final, NamedTuple


class Spent(NamedTuple):
    """What one part of opscope has spent since the recording began."""

    part: str
    #: Of all calls, ns: where not each was timed, what those that were amount to; None where none was.
    time: int | None
    calls: int
    #: One in so many calls was timed; None: their number times what one takes.
    one_in: int | None
    #: Records that these calls wrote, whose cost is in ``time``.
    records: int


class Cost:
    """Counts the calls of one hook and times one in ``one_in`` of them, a power of two.

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
        #: Records that a call writes.
        self.records = records
        self.reset()

    def reset(self) -> None:
        """A recording begins."""
        #: ``long``: ns of calls in which most likely another process ran: they stand for no others.
        self.calls = self.timed = self.ns = self.long = 0

    def begin(self) -> int:
        """The time, where this call is one of those timed; else 0."""
        # Two threads may count one call once: their number is good enough.
        self.calls = calls = self.calls + 1
        return 0 if calls & self._mask else perf_counter_ns()

    def end(self, begin: int) -> None:
        """The call that began at ``begin`` is done."""
        took = perf_counter_ns() - begin
        if took < LONGEST_SAMPLE:
            self.ns += took
            self.timed += 1
        else:
            self.long += took

    def spent(self) -> Spent:
        """So far; its time is not known where too few calls were made for one to be timed."""
        time: int | None = self.long
        if self.timed:
            time = self.ns * self.calls // self.timed + self.long
        elif self.calls and not self.long:
            time = None
        return Spent(self.part, time, self.calls, self.one_in, self.records * self.calls)


#: Asked each second and at the end of a recording.
Spending = Callable[[], Spent]

_TRIES: Final = 64
#: ns; no hook takes as long but for the first time.
LONGEST_SAMPLE: Final = 1_000_000


def record_ns(pack: Callable[[int, int], bytes]) -> float:
    """What one record takes that is pushed from Python, measured now: ns, the least of a few rounds.

    The steps are those of ``emit``'s push to a recorder.
    """
    now, local = perf_counter_ns, threading.local()
    local.log = bytearray().extend

    def push(number: int) -> None:
        try:
            log = local.log
        except AttributeError:
            return
        log(pack(number, now()))

    least = float("inf")
    for _ in range(4):
        begin = now()
        for number in range(_TRIES):
            push(number)
        least = min(least, (now() - begin) / _TRIES)
    return least
