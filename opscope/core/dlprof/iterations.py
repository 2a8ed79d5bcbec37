"""DLProf's iterations: the profile cut where each instance of a key node stops.

N stops give N + 1 intervals: from the profile's begin to 1 ns before the first stop, from each stop to 1 ns
before the next, and from the last stop to the profile's end (section 7 of DLProf's guide). Without a key
node, the profile is one iteration. The intervals are of the whole profile, not of a process.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import polars as pl

from opscope.core.analysis.ops.ops import Ops
from opscope.core.analysis.steps.key_ops import Key, key_ops, on_gpus, stop_times
from opscope.core.attribution.attribute import Attribution
from opscope.core.attribution.step_counter import GLOBAL_STEP
from opscope.core.dlprof.rules import Spans
from opscope.core.schema import OPTIMIZER_STEPS
from opscope.core.tables.amended import UNCLOSED_MARK
from opscope.core.tables.interpret import ROLE
from opscope.core.tables.intervals import Ints
from opscope.core.tables.trace import Trace

#: ``table``: bounds in ns, both included; ``process`` is null, as an interval is of all processes.
TABLE: Final = {
    "iteration": pl.Int64,
    "process": pl.Int32,
    "begin": pl.Int64,
    "end": pl.Int64,
    "aggregated": pl.Boolean,
}
#: Formats whose times count from the session's start, which is also the profile's begin.
_FROM_START: Final = frozenset({"nsys", "dlprof"})
_TIMED: Final = ("ranges", "calls", "kernels", "memops")


class BadIterationRange(ValueError):
    """No iteration is in the range to aggregate; the message says which there are."""


@dataclass(frozen=True, slots=True)
class DlprofIterations:
    """The intervals (``TABLE``, ordered), whether a key node was found and which, or the reason for none.
    ``key``: the name of the key node; ``step`` for steps that the program marks."""

    table: pl.DataFrame
    found: bool
    key: str | None
    reason: str | None

    @property
    def within(self) -> Spans:
        """The time (ns) of the aggregated iterations: each lasts until the next one begins.

        So the lengths of all iterations add up to that of the profile.
        """
        begins, ends = (self.table[name].to_numpy() for name in ("begin", "end"))
        until = np.append(begins[1:], ends[-1:])
        kept = self.table["aggregated"].to_numpy()
        return begins[kept], until[kept]


def iterations(
    trace: Trace,
    attribution: Attribution,
    *,
    key: str | None = None,
    start: int | None = None,
    stop: int | None = None,
    rows: Ints | None = None,
) -> DlprofIterations:
    """Return the iterations by the key node ``key``; ``start`` to ``stop`` (both included) are aggregated.

    Without ``key``: by ``global_step``, else by the steps that the program marks. ``rows``: the range rows of
    the key node's instances, if the caller has found them (by an op id of DLProf's).

    Raises BadIterationRange if no iteration is from ``start`` to ``stop``.
    """
    begin, end = _span(trace)
    key_rows, reason = _key(attribution, key, rows)
    if key_rows is None:
        stops = np.empty(0, np.int64)
    else:
        ranges = attribution.trace["ranges"]
        ended = key_rows.rows[_end(ranges[key_rows.rows]).to_numpy()]
        ends = ranges["end"].gather(ended).to_numpy()
        places, gpu = on_gpus(Ops(attribution), ended)
        stops = stop_times(gpu, ends[places])
    begins = np.concatenate(([begin], stops))
    count = len(begins)
    first, last = 0 if start is None else start, count - 1 if stop is None else stop
    if first > last or first >= count or last < 0:
        has = f"iterations 0 to {count - 1}" if count > 1 else "one iteration, 0"
        raise BadIterationRange(f"no iteration is from {first} to {last}: the profile has {has}")
    number = np.arange(count)
    table = pl.DataFrame(
        {
            "iteration": number,
            "process": pl.Series([None] * count, dtype=pl.Int32),
            "begin": begins,
            "end": np.append(stops - 1, end),
            "aggregated": (number >= first) & (number <= last),
        },
        schema=TABLE,
    )
    return DlprofIterations(
        table, key_rows is not None, None if key_rows is None else key_rows.name, reason
    )


def assign(dlprof_iterations: DlprofIterations, process: pl.Series, time: pl.Series) -> pl.Series:
    """Return the iteration of events at ``time`` (ns); null for a null time and outside the profile.

    ``process`` is each event's; an interval of DLProf's is of all processes.
    """
    begins, ends = (dlprof_iterations.table[name].to_numpy() for name in ("begin", "end"))
    when = time.fill_null(begins[0] - 1).to_numpy()
    index = np.searchsorted(ends, when)
    is_inside = (when >= begins[0]) & (when <= ends[-1])
    numbers = dlprof_iterations.table["iteration"].to_numpy()[np.minimum(index, len(ends) - 1)]
    inside = pl.Series(is_inside)
    return (
        pl.select(pl.when(inside).then(pl.lit(pl.Series(numbers)))).to_series().alias("iteration")
    )


def _span(trace: Trace) -> tuple[int, int]:
    """Return the profile's begin and the end of its last event (ns)."""
    starts = [trace[name]["start"].min() for name in _TIMED]
    ends: list[Any] = [trace[name]["end"].max() for name in _TIMED]
    low: Any = min((start for start in starts if start is not None), default=0)
    high = max((end for end in ends if end is not None), default=int(low))
    parts = trace.origin.get("parts") or [trace.origin]
    from_start = all(part.get("format") in _FROM_START for part in parts) and low >= 0
    return 0 if from_start else int(low), max(int(low), int(high))


def _key(
    attribution: Attribution, key: str | None, rows: Ints | None
) -> tuple[Key | None, str | None]:
    """Return the key node's instances, or None and why there are none."""
    if rows is not None:
        named = key or ""
        return (Key(rows, named), None) if len(rows) else (None, f"no op of key node {named}")
    ops = Ops(attribution)
    if key:
        rows_of_key = key_ops(ops, key)
        return rows_of_key, None if rows_of_key else f"key node {key} not found"
    rows_of_key = key_ops(ops, GLOBAL_STEP) or _mark(attribution)
    return (
        rows_of_key,
        None if rows_of_key else f"no key node given, no {GLOBAL_STEP}, and no step marked",
    )


def _end(ranges: pl.DataFrame) -> pl.Series:
    """Return for each range whether it ends before the capture ends."""
    unclosed = ranges["attrs"].str.contains(UNCLOSED_MARK, literal=True).fill_null(False)
    return ranges["end"].is_not_null() & ~unclosed


def _mark(attribution: Attribution) -> Key | None:
    """Return the completed steps that the program, or an optimizer's hook in it, marks. Steps that opscope
    infers in other ways are not DLProf's key nodes."""
    meaning, ranges = attribution.meaning, attribution.trace["ranges"]
    wanted = pl.Series(meaning.role == ROLE["step"]) & _end(ranges)
    is_marked = (ranges["domain"].cast(pl.String) != "inferred").fill_null(True)
    is_marked |= OPTIMIZER_STEPS in attribution.trace["notes"]["what"].to_list()
    rows = np.flatnonzero((wanted & is_marked).to_numpy())
    return Key(rows, "step") if len(rows) else None
