"""Align the clocks of several hosts by the ends of the collectives that their ranks took part in.

No rank can leave a collective such as an all-reduce before all ranks have entered it. So each collective
bounds the offset between two clocks. All ranks leave it at nearly the same moment, so the difference of
the ends is close to the offset. The median over many collectives is the offset; if the capture is long
enough, the slope (the median over pairs half the capture apart, after Theil and Sen) is the drift. The
bounds give the error: the offset is within it, whatever delays there were.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.attribution.attribute import attribute
from opscope.core.job.exchanges import GROUP, SYNCHRONISING, exchanges, matched
from opscope.core.schema import TABLES
from opscope.core.tables.clockfit import MAX_DRIFT, fit
from opscope.core.tables.intervals import Ints
from opscope.core.tables.trace import Trace

#: Values of ``clocks.method``.
BY_COLLECTIVES: Final = "ends of collectives"
BY_UNIX: Final = "Unix clocks"
REFERENCE: Final = "reference"
UNKNOWN: Final = "not aligned"
_Floats: TypeAlias = NDArray[np.float64]
_LEAST_FOR_DRIFT: Final = 16
_TIMES: Final = ("start", "end", "time")


@dataclass(frozen=True, slots=True)
class Offset:
    """``theirs + offset + drift · (theirs - origin)`` is the time on the reference clock; all ns.

    ``error``: how far that can be off at most; null if the bounds contradict each other, so some
    collective is not what it was taken for. ``spread``: the usual distance of an end from that time.
    """

    origin: int
    offset: int
    drift: float
    error: int | None
    spread: int
    collectives: int


def estimate(start: Ints, end: Ints, their_start: Ints, their_end: Ints) -> Offset:
    """Return the offset from their clock to ours, from collectives that both took part in, one per entry.

    ``start`` and ``end`` (ns, our clock): when the last of our ranks entered and the first left each
    collective; ``their_…``: likewise on their clock. Raises ValueError without collectives.
    """
    if not len(end):
        raise ValueError("no collectives to align by")
    origin, base = int(their_end[0]), int(end[0] - their_end[0])
    at = (their_end - origin).astype(np.float64)
    apart = (end - their_end - base).astype(np.float64)
    # below ``low`` they would have left before we entered, above ``high`` we before they entered
    low = (start - their_end - base).astype(np.float64)
    high = (end - their_start - base).astype(np.float64)

    lines = _Lines(at, low, high, fit(start, end, their_end, their_start).drift)
    drift = lines.nearest(_drift(at, apart))
    least, most = lines.bounds(drift)
    offset = float(np.median(apart - drift * at))
    if least <= most:
        offset = min(max(offset, least), most)
    spread = 1.4826 * float(np.median(np.abs(apart - drift * at - offset)))
    error = lines.error(offset, drift)
    return Offset(origin, base + round(offset), drift, error, int(np.ceil(spread)), len(end))


class _Lines:
    """The lines (offset, drift) that pass above every ``low`` and below every ``high``.

    The room for the offset is concave in the drift; ``best`` is the drift that leaves most room.
    """

    def __init__(self, at: _Floats, low: _Floats, high: _Floats, best: float) -> None:
        self._at, self._low, self._high = at, low, high
        self._best = best
        self._edges = (best, best)
        if self._room(best) >= 0:
            self._edges = (self._edge(-MAX_DRIFT), self._edge(MAX_DRIFT))

    def bounds(self, drift: float, when: float = 0.0) -> tuple[float, float]:
        """Return the least and the most value that a line of that drift may have at ``when``."""
        since = self._at - when
        return float((self._low - drift * since).max()), float((self._high - drift * since).min())

    def _room(self, drift: float) -> float:
        least, most = self.bounds(drift)
        return most - least

    def nearest(self, drift: float) -> float:
        """Return the drift nearest to ``drift`` that a line may have."""
        return min(max(drift, self._edges[0]), self._edges[1])

    def error(self, offset: float, drift: float) -> int | None:
        """Return the largest distance (ns) from the true line, between first and last collective."""
        if self._room(self._best) < 0:
            return None
        worst = 0.0
        for when in (float(self._at.min()), float(self._at.max())):
            here = offset + drift * when
            worst = max(worst, self._farthest(when, 1) - here, here + self._farthest(when, -1))
        return int(np.ceil(worst)) + 1

    def _edge(self, far: float) -> float:
        """Return the drift farthest from ``best`` towards ``far`` that leaves room."""
        inside, outside = self._best, far
        if self._room(far) >= 0:
            return far
        for _ in range(60):
            middle = (inside + outside) / 2
            inside, outside = (middle, outside) if self._room(middle) >= 0 else (inside, middle)
        return inside

    def _farthest(self, when: float, up: int) -> float:
        """Return the largest value of any line at ``when`` (``up`` 1), or the smallest, negated (-1)."""

        def of(drift: float) -> float:  # concave
            least, most = self.bounds(drift, when)
            return most if up > 0 else -least

        low, high = self._edges
        for _ in range(100):
            left, right = low + (high - low) / 3, high - (high - low) / 3
            low, high = (left, high) if of(left) < of(right) else (low, right)
        return max(of(low), of(high))


def _drift(at: _Floats, apart: _Floats) -> float:
    """Return the slope of ``apart``; 0 if it is not clearly more than chance."""
    order = np.argsort(at, kind="stable")
    half = len(order) // 2
    if len(order) < _LEAST_FOR_DRIFT:
        return 0.0
    early, late = order[:half], order[len(order) - half :]
    run = at[late] - at[early]
    slopes = (apart[late] - apart[early])[run > 0] / run[run > 0]
    if not len(slopes):
        return 0.0
    slope = float(np.median(slopes))
    chance = 1.4826 * float(np.median(np.abs(slopes - slope))) / len(slopes) ** 0.5
    return slope if abs(slope) <= MAX_DRIFT and abs(slope) > 3 * chance else 0.0


def machines(trace: Trace) -> pl.DataFrame:
    """Return process, host, rank, clock_domain, machine; the machine of the lowest rank comes first.

    Clock domains of one machine (one boot of one host) are one clock. If the boot is unknown, the host is
    the machine; if the host is unknown too, each clock domain is a machine.
    """
    used = trace["processes"].select("process", "host", "rank", "clock_domain")
    known = trace["clocks"].select("clock_domain", "machine")
    return (
        used.drop_nulls("clock_domain")
        .join(known, on="clock_domain", how="left")
        .with_columns(
            pl.coalesce("machine", "host", pl.format("clock {}", "clock_domain")).alias("machine")
        )
        .sort(pl.col("rank").min().over("machine"), "process", nulls_last=True)
        .select("process", "host", "rank", "clock_domain", "machine")
    )


def aligned(trace: Trace) -> Trace:
    """Return ``trace`` with all times on the clock of its lowest rank's machine, as far as it shows how.

    With one machine, nothing is moved. Otherwise the table ``clocks`` gets, per domain, ``method``,
    ``offset_ns``, ``drift_ppm``, ``error_ns``, ``spread_ns`` and ``collectives``. A machine without a
    collective in common with another is aligned by its Unix clock, with an unknown error. An offset within
    its error is taken to be 0.
    """
    on = machines(trace)
    names = on["machine"].unique(maintain_order=True).to_list()
    done = trace["clocks"].filter(pl.col("clock_domain").is_in(on["clock_domain"].implode()))
    if len(names) < 2 or done["method"].is_not_null().all():
        return trace
    ends = _ends(trace, on)
    placed: dict[str, Offset | None] = {names[0]: Offset(0, 0, 0.0, 0, 0, 0)}
    how = {names[0]: REFERENCE}
    while True:  # a machine may have collectives in common with the first only through others
        for one, other in ((a, b) for a in names if a in placed for b in names if b not in placed):
            found = _between(ends, one, other, placed[one])
            if found is not None:
                placed[other], how[other] = found, BY_COLLECTIVES
                break
        else:
            break
    for name in names:
        if name not in placed:
            placed[name] = _by_unix(trace, on, names[0], name)
            how[name] = UNKNOWN if placed[name] is None else BY_UNIX
            trace.note(
                "warning",
                f"clock of {name}: no collective links it to the machine of the lowest rank, so its error "
                f"is unknown (method: {how[name]})",
            )
    for name, one in placed.items():
        if one is not None and how[name] == BY_COLLECTIVES and one.error is None:
            trace.note(
                "warning",
                f"clock of {name}: its collectives contradict each other, so its error is unknown",
            )
    return _moved(trace, on, placed, how)


def _ends(trace: Trace, on: pl.DataFrame) -> pl.DataFrame:
    """Return per machine and synchronising collective the last start and the first end (ns)."""
    key = [*GROUP, "number"]
    found = exchanges(attribute(trace)).drop_nulls(["start", "end"])
    found = matched(found, same_clock=False).filter(
        pl.col("number").is_not_null() & pl.col("kind").cast(pl.String).is_in(SYNCHRONISING)
    )
    return (
        found.join(on.select("process", "machine"), on="process")
        .group_by("machine", *key)
        .agg(pl.col("start").max(), pl.col("end").min())
        .sort("end")
    )


def _between(ends: pl.DataFrame, one: str, other: str, base: Offset | None) -> Offset | None:
    key = [*GROUP, "number"]
    ours, theirs = (ends.filter(pl.col("machine") == name) for name in (one, other))
    both = ours.join(theirs, on=key, nulls_equal=True, suffix="_theirs").sort("end_theirs")
    if base is None or both.is_empty():
        return None
    columns = [both[name].to_numpy() for name in ("start", "end", "start_theirs", "end_theirs")]
    first = [_shifted(column, base) for column in columns[:2]]
    found = estimate(*first, *columns[2:])
    if found.error is not None and base.error:
        return Offset(
            found.origin, found.offset, found.drift, found.error + base.error, found.spread,
            found.collectives,
        )  # fmt: skip
    return found


def _shifted(times: Ints, by: Offset) -> Ints:
    since = (times - by.origin).astype(np.float64)
    moved: Ints = times + by.offset + np.rint(by.drift * since).astype(np.int64)
    return moved


def _by_unix(trace: Trace, on: pl.DataFrame, first: str, name: str) -> Offset | None:
    clocks = on.join(trace["clocks"], on="clock_domain", suffix="_of").drop_nulls("to_unix_ns")
    unix = [clocks.filter(pl.col("machine") == one)["to_unix_ns"] for one in (first, name)]
    if not len(unix[0]) or not len(unix[1]):
        return None
    return Offset(0, int(unix[1][0]) - int(unix[0][0]), 0.0, None, 0, 0)


def _moved(
    trace: Trace, on: pl.DataFrame, placed: dict[str, Offset | None], how: dict[str, str]
) -> Trace:
    by = {
        name: Offset(0, 0, 0.0, one.error, one.spread, one.collectives)
        if one is not None and how[name] == BY_COLLECTIVES and _is_none(one)
        else one
        for name, one in placed.items()
    }
    of_process: dict[int, Offset] = {
        process: found for process, name in on.select("process", "machine").rows()
        if (found := by[name]) is not None and (found.offset or found.drift)
    }  # fmt: skip
    tables: dict[str, pl.DataFrame] = {}
    for name in trace.present if of_process else ():
        times = [one for one in _TIMES if one in TABLES[name]]
        if times and "process" in TABLES[name] and len(trace[name]):
            tables[name] = _moved_table(trace[name], times, of_process)
    tables["clocks"] = _clocks(trace, on, by, placed, how)
    return trace.replace(**tables)


def _is_none(one: Offset) -> bool:
    return one.error is not None and abs(one.offset) <= one.error


def _moved_table(
    frame: pl.DataFrame, times: list[str], of_process: dict[int, Offset]
) -> pl.DataFrame:
    process = frame["process"].fill_null(-1).to_numpy()
    columns = []
    for name in times:
        column = frame[name]
        value = column.fill_null(0).to_numpy().copy()
        for one, by in of_process.items():
            here = process == one
            value[here] = _shifted(value[here], by)
        columns.append(pl.Series(name, value).set(column.is_null(), None))
    return frame.with_columns(columns)


def _clocks(
    trace: Trace,
    on: pl.DataFrame,
    by: dict[str, Offset | None],
    placed: dict[str, Offset | None],
    how: dict[str, str],
) -> pl.DataFrame:
    first = next(iter(placed))
    unix = on.join(trace["clocks"], on="clock_domain", suffix="_of")
    reference = unix.filter(pl.col("machine") == first)["to_unix_ns"].drop_nulls()
    rows: list[dict[str, Any]] = []
    machine_of = dict(on.select("clock_domain", "machine").rows())
    for row in trace["clocks"].to_dicts():
        name = machine_of.get(row["clock_domain"])
        one = None if name is None else by[name]
        if name is not None:
            row["method"] = how[name]
        if name is not None and name != first and one is not None:
            found = placed[name]
            assert found is not None
            row |= {
                "to_unix_ns": int(reference[0]) if len(reference) else None,
                "offset_ns": found.offset,
                "drift_ppm": found.drift * 1e6,
                "error_ns": found.error,
                "spread_ns": found.spread if found.collectives else None,
                "collectives": found.collectives,
            }
        rows.append(row)
    return pl.DataFrame(rows, schema=trace["clocks"].schema)
