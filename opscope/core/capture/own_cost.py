"""Measure opscope's own cost while it records; the recording contains the result."""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import perf_counter_ns
from types import SimpleNamespace
from typing import Any, Final, NamedTuple


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
#: Recompute opscope's share of step time at most once per this many ns of back-to-back steps.
TURN_NS: Final = 1_000_000_000
#: Early in a run, the cost of a change of step is computed again after this part (1/4) of the time of all
#: steps before.
TURN_PART: Final = 4
#: Computing opscope's cost takes as long as some tens of ops. After ``EXACT_STEPS`` steps it is computed once
#: per this many ns of steps.
EXACT_NS: Final = 20_000_000
EXACT_STEPS: Final = 16


class StepCosts:
    """The time of steps, and opscope's cost in them. If several threads have steps, only the first counts."""

    def __init__(self, spending: list[Spending], writing: Callable[[], int]) -> None:
        """``spending`` gives the cost of parts, ``writing`` that of writing (ns)."""
        #: Sums over all ended steps (ns).
        self.time = self.own = 0
        self._spending, self._writing = spending, writing
        # The open step: its thread, its begin, and the cost up to then of writing, and of the other parts
        # (None: not computed).
        self._open: tuple[int, int, int, int | None] | None = None
        # The steps in which the other parts' cost was computed: their number, and the time and this cost of
        # the last. The steps until the next one, which comes from ``time`` _exact_due on, are taken to have
        # cost the same share of their time.
        self._exact_steps = self._exact_time = self._exact_own = self._exact_due = 0

    def begin(self) -> None:
        """Begin a step on this thread, unless one is open."""
        if self._open is None:
            is_due = self._exact_steps < EXACT_STEPS or self.time >= self._exact_due
            now, written = perf_counter_ns(), self._writing()
            self._open = (threading.get_ident(), now, written, self._others() if is_due else None)

    def end(self, counts: bool = True) -> None:
        """End this thread's step: if it counts, add its time, and opscope's cost in it."""
        if self._open is None or self._open[0] != threading.get_ident():
            return
        (_, begin, written, before), self._open = self._open, None
        if not counts:
            return
        took = perf_counter_ns() - begin
        if before is not None:
            self._exact_steps += 1
            self._exact_due = self.time + EXACT_NS
            self._exact_time, self._exact_own = took, max(0, self._others() - before)
        self.time += took
        self.own += self._writing() - written + self._exact_own * took // max(1, self._exact_time)

    def turn(self) -> bool:
        """End this thread's step and begin its next one; return whether that was done now. Such steps are
        measured as one for up to ``TURN_NS``."""
        thread, begin, *_ = self._open or (0, 0)
        most = min(TURN_NS, self.time // TURN_PART)
        if thread == threading.get_ident() and perf_counter_ns() - begin < most:
            return False
        self.end()
        self.begin()
        return True

    def _others(self) -> int:
        return sum(spending().time or 0 for spending in tuple(self._spending))


_TRIES: Final = 64
#: In ns. A hook takes this long only at its first call.
LONGEST_SAMPLE: Final = 1_000_000


#: Makes push, pop and mark for a recorder and the code of a plain pop (``emit.Writing``).
Writes = Callable[[Any, int], tuple[Any, Any, Any]]


def record_ns(writes: Writes) -> float:
    """Measure and return the cost in ns of pushing one record, the least of four rounds."""
    # stands for a recorder that has nothing to write, and for a text
    stand_in = SimpleNamespace(id=0, deadline=1 << 62, new_thread=None, flush=None)
    stand_in.local = threading.local()
    stand_in.local.log = bytearray().extend
    least = float("inf")
    push, _, _ = writes(stand_in, 0)
    for _ in range(4):
        begin = perf_counter_ns()
        for _ in range(_TRIES):
            push(stand_in)
        least = min(least, (perf_counter_ns() - begin) / _TRIES)
    return least
