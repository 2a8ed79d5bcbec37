"""A framework's own profiler beside our recorder: what captures of both have in common.

The profiler gives what ran, the recorder the ranges around it. Calls that both see, their times read
before and after on the recorder's clock (probes), put the two on one clock.
"""

from __future__ import annotations

import logging
import os
import random
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from time import perf_counter_ns, sleep
from typing import Any, ClassVar, Final

import numpy as np
import polars as pl

from opscope.core import session
from opscope.core.clockfit import ClockFit, match
from opscope.core.intervals import Ints
from opscope.core.record import Recorder
from opscope.core.trace import Trace, conform

from .onclock import moved, to_unix

_log = logging.getLogger(__name__)
#: Not the program's: drawing from that would change what it computes.
_gaps = random.Random()

PROBES: Final = 16
PROBE_NS: Final = 1_000_000_000
#: Seconds between probes, drawn anew each time: at an even pace (they took 3 to 12 µs, a few apart) all
#: of them fit as well when each is taken for its neighbour, which put kernels off by up to 15 µs.
GAP_S: Final = (20e-6, 500e-6)
#: Above this what lies at the edge of a range may fall to its neighbour.
ACCEPTED_NS: Final = 1_000
#: How far the two Unix clocks may disagree before a probe is looked for elsewhere.
REACH_NS: Final = 50_000_000


class Beside:
    """The recorder and a profiler, started and stopped together, into ``folder``.

    Forked children are recorded without what the profiler gives. A subclass says how its profiler
    is begun, touched and ended.
    """

    #: What the profiler gives, and its name, for messages.
    gives: ClassVar[str]
    profiler: ClassVar[str]

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self._recorder: Recorder | None = None
        self._undo: Callable[[], None] | None = None
        self._next_probe = 0
        self._pid = 0

    def warmup(self) -> None:
        """Prepare what is slow to start. Raises SessionError where the profiler is not to be had."""

    def start(self) -> None:
        """Begin. Raises SessionError where the profiler cannot start, OSError where the folder is gone."""
        self.warmup()
        self._begin()
        recorder = Recorder(self.folder)
        try:
            recorder.start()
        except OSError:
            self._end(None)
            raise
        self._recorder = recorder
        self._pid = os.getpid()
        self._probe(PROBES)
        session.listen(recorder)
        self._undo = session.on_step(self._on_step)

    def stop(self) -> None:
        """End. Afterwards ``recorder.collect(folder)`` has the whole trace."""
        own, self._recorder = self._recorder, None
        recorder = session.recorder()
        if self._undo is not None:
            self._undo()
            self._undo = None
        if own is None or os.getpid() != self._pid:
            session.listen(None)
            if recorder is not None:  # a forked child's, which has no profiler
                recorder.stop()
            return
        try:
            self._settle()
            session.listen(None)
            self._recorder = recorder
            self._probe(PROBES)
            self._recorder = None
            self._end(None if recorder is None else recorder.folder)
        except (RuntimeError, OSError) as error:
            _log.warning("%s are not in this capture: %s", self.gives, error)
            if recorder is not None:
                recorder.note(
                    "warning", f"{self.gives} not captured: {self.profiler} failed: {error}"
                )
        finally:
            self._recorder = None
            session.listen(None)
            if recorder is not None:
                recorder.stop()

    def _begin(self) -> None:
        """Start the profiler. Raises SessionError."""
        raise NotImplementedError

    def _touch(self) -> bool:
        """One call that the profiler sees; False where there is none to make."""
        raise NotImplementedError

    def _settle(self) -> None:
        """Wait for what was started: it is part of the capture."""
        raise NotImplementedError

    def _end(self, folder: Path | None) -> None:
        """Stop the profiler; its trace goes into the part ``folder``. Raises RuntimeError, OSError."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.folder)!r})"

    def _on_step(self, _number: int) -> None:
        if perf_counter_ns() >= self._next_probe and os.getpid() == self._pid:
            self._probe(2)

    def _probe(self, times: int) -> None:
        recorder = self._recorder
        if recorder is None:
            return
        thread = threading.get_native_id()
        for number in range(times):
            if number:
                sleep(_gaps.uniform(*GAP_S))
            before = perf_counter_ns()
            seen = self._touch()
            after = perf_counter_ns()
            if not seen:
                break
            recorder.fact(probe=[before, after, thread])
        self._next_probe = perf_counter_ns() + PROBE_NS


# ------------------------------------------------------------------------------- the merge


def probes(ranges: Trace) -> Ints:
    """Those of the recorder's part: rows of (before, after, thread), by time."""
    found = np.array(ranges.origin.get("probes") or [], dtype=np.int64).reshape(-1, 3)
    return found[np.argsort(found[:, 0], kind="stable")]


def hits(asked: Ints, start: Ints, end: Ints, guess: int) -> Ints | None:
    """For each probe the row of the call [start, end] that it is, -1 for none.

    ``guess`` is about what to add to the calls' times. None where so few are found that chance may
    have found them.
    """
    rows = match(asked[:, 0], asked[:, 1], start, end, guess, REACH_NS)
    return rows if rows is not None and (rows >= 0).sum() * 2 > len(rows) else None


def clock_of(fitted: ClockFit | None, guess: int, what: str) -> tuple[ClockFit, tuple[str, str]]:
    """The clock to place ``what`` by, the Unix clocks' where no probe was found, and what to note."""
    if fitted is None:
        return ClockFit(0, guess, 0.0, REACH_NS, 0, 0), (
            "warning",
            f"no probe found for certain in the profiler's trace: {what} are placed by the Unix clock",
        )
    good = fitted.error_ns <= ACCEPTED_NS and fitted.slack_ns >= 0
    edges = "" if good else "; what lies at the edges of ranges may fall to a neighbour"
    return fitted, (
        "info" if good else "warning",
        f"{what} are placed on the recorder's clock to within {fitted.error_ns} ns by "
        f"{fitted.readings} probes{edges}",
    )


def joined(
    ranges: Trace,
    profile: Trace,
    taken: Iterable[str],
    clock: ClockFit,
    kind: str,
    changed: dict[str, pl.DataFrame],
) -> Trace:
    """The recorder's part with the tables ``taken`` of the profiler's trace, on the recorder's clock.

    ``changed`` are tables as they are to be, on that clock already. The profiler's clock stands in
    ``clocks`` as a domain of its own, whose ``to_unix_ns`` is of the moved times.
    """
    tables: dict[str, Any] = {name: ranges[name] for name in ranges.present}
    for name in taken:
        if profile.has(name):
            tables[name] = moved(profile[name], clock).with_columns(
                pl.lit(0, pl.Int32).alias("process")
            )
    tables |= changed
    tables["notes"] = pl.concat([ranges["notes"], profile["notes"]])
    row = pl.DataFrame(
        {
            "clock_domain": [1],
            "kind": [kind],
            "to_unix_ns": [to_unix(ranges)],
            "drift_ppm": [clock.drift * 1e6],
            "error_ns": [clock.error_ns],
        }
    )
    tables["clocks"] = pl.concat([ranges["clocks"], conform("clocks", row)])
    origin = {key: value for key, value in ranges.origin.items() if key != "probes"}
    return Trace.of(tables, origin)
