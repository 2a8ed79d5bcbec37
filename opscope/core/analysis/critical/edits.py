"""Edits of the timeline, replayed: how long the window and each step take if some of its work changes.

An edit names rows and spans, while ``what_if`` names ops and kernels. Several edits are replayed together. If
they touch the same work, the smallest factor counts, because work that one edit halves and another removes is
removed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.analysis.critical.work import COPY, SET
from opscope.core.analysis.ops.ops import Ops
from opscope.core.tables.intervals import NONE, Floats, Ints, distinct

if TYPE_CHECKING:
    from opscope.core.analysis.critical.graph import Graph
    from opscope.core.analysis.critical.scaled import Scaled

#: The largest factor, so that times stay far below 64 bits.
MOST: Final = 1000.0
_SPAN = ("process", "thread", "start", "end", "factor")


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """What a change does to the timeline, as factors of durations: 0 removes the work, 0.5 halves it.

    ``kernels``, ``memops``: rows of the trace's tables, with the factor of each. ``launches``: rows of
    ``calls`` whose time, and the delay until their work starts, is scaled. ``waits``: rows of ``calls`` that
    no longer wait for the device; a call whose factor in ``launches`` is 0 is removed and does not wait
    either. ``host``: spans of threads (columns process, thread, start, end, factor; ns) whose own time is
    scaled; time in which a thread waits for the device is not its own.
    """

    kernels: tuple[Ints, Floats] | None = None
    memops: tuple[Ints, Floats] | None = None
    launches: tuple[Ints, Floats] | None = None
    waits: Ints | None = None
    host: pl.DataFrame | None = None


def edited(ops: Ops, graph: Graph, edits: Sequence[Edit]) -> pl.DataFrame:
    """Return the window's time with all ``edits`` made, then each step's (``scaled.SCHEMA``; ns).

    Without an edit, the times are the measured ones. Raises ValueError for a row that the trace does not
    have, and for a factor that is negative, not finite, or above 1000.
    """
    from opscope.core.analysis.critical.scaled import Scaled  # lazy: most detectors make no edit

    trace, changed = ops.attribution.trace, Scaled.of(graph)
    kernels, memops, launches = (
        _smallest(len(trace[table]), [getattr(edit, name) for edit in edits], name)
        for table, name in (("kernels", "kernels"), ("memops", "memops"), ("calls", "launches"))
    )
    work = graph.work
    if kernels is not None or memops is not None:
        factor = np.ones(len(work))
        memop = np.isin(work.what, (COPY, SET))
        for one, here in ((kernels, ~memop), (memops, memop)):
            if one is not None:
                factor[here] = one[work.row[here]]
        changed.device(factor)
    spans = [checked for edit in edits for checked in [_spans(edit)] if checked is not None]
    if launches is not None:
        changed.launching(launches)
        rows = np.flatnonzero(launches != 1.0)
        calls = trace["calls"].select("process", "thread", "start", "end")[rows]
        spans.append(calls.with_columns(pl.Series("factor", launches[rows])).drop_nulls())
    if spans:
        _scale_threads(changed, pl.concat([_type(span) for span in spans]))
    gone = _gone(len(trace["calls"]), launches, edits)
    if gone.any():
        changed.unwaited(gone)
    return changed.times(ops)


def _check(factor: Floats, subject: str) -> Floats:
    """Return the factors. Raises ValueError for an invalid factor."""
    if not (np.isfinite(factor) & (factor >= 0) & (factor <= MOST)).all():
        raise ValueError(f"{subject}: a factor is not between 0 and {MOST:g}")
    return factor


def _rows(rows: Ints, count: int, subject: str) -> Ints:
    """Return the rows. Raises ValueError if the trace has fewer."""
    if len(rows) and not (0 <= int(rows.min()) <= int(rows.max()) < count):
        raise ValueError(f"{subject}: a row is not one of the {count:,} of the trace")
    return rows


def _smallest(
    count: int, parts: Sequence[tuple[Ints, Floats] | None], subject: str
) -> Floats | None:
    """Return for each of ``count`` rows the smallest factor in any part, else 1; None without parts."""
    given = [part for part in parts if part is not None and len(part[0])]
    if not given:
        return None
    factor = np.full(count, np.inf)
    for rows, factors in given:
        if len(rows) != len(factors):
            raise ValueError(f"{subject}: {len(rows):,} rows have {len(factors):,} factors")
        np.minimum.at(factor, _rows(rows, count, subject), _check(factors, subject))
    factor[np.isinf(factor)] = 1.0
    return factor


def _gone(count: int, launches: Floats | None, edits: Sequence[Edit]) -> NDArray[np.bool_]:
    """Return for each call whether it no longer waits for the device."""
    gone = np.zeros(count, bool) if launches is None else launches == 0
    for edit in edits:
        if edit.waits is not None:
            gone[_rows(edit.waits, count, "waits")] = True
    return gone


def _spans(edit: Edit) -> pl.DataFrame | None:
    """Return the spans of an edit. Raises ValueError if they lack a place, a time or a factor."""
    if edit.host is None or edit.host.is_empty():
        return None
    spans = edit.host.select(_SPAN)
    if any(spans.null_count().row(0)):
        raise ValueError("host: a span lacks its thread, its times or its factor")
    _check(spans["factor"].cast(pl.Float64).to_numpy(), "host")
    return spans


def _type(spans: pl.DataFrame) -> pl.DataFrame:
    return spans.select(pl.col(_SPAN[:4]).cast(pl.Int64), pl.col("factor").cast(pl.Float64))


def _scale_threads(changed: Scaled, spans: pl.DataFrame) -> None:
    """Scale the own work of threads in the ``spans``; where spans overlap, the smallest factor counts."""
    graph = changed.made
    process, thread, start, end = (spans[name].to_numpy() for name in _SPAN[:4])
    lane = graph.host.lane_of(process, thread)
    within = graph.high - graph.low
    start, end = np.clip(start - graph.low, 0, within), np.clip(end - graph.low, 0, within)
    factor = spans["factor"].to_numpy()
    for number in np.unique(lane[(lane != NONE) & (end > start)]).tolist():
        mine = np.flatnonzero((lane == number) & (end > start))
        nodes = np.flatnonzero(graph.lane[: graph.host_nodes] == number)
        edges = distinct(np.zeros(1, np.int64), start[mine], end[mine])
        first, last = (np.searchsorted(edges, times[mine]) for times in (start, end))
        changed.host(nodes, edges, _least(len(edges), first, last, factor[mine]))


def _least(count: int, first: Ints, last: Ints, factor: Floats) -> Floats:
    """Return for each of ``count`` places the least factor of the stretches ``[first, last)`` that contain
    it, or 1.

    Each stretch is covered by two overlapping ones whose length is a power of two. From the longest down,
    each passes its least factor to its halves. This takes log2(``count``) passes, however the stretches
    overlap.
    """
    level = np.frexp(last - first)[1] - 1  # the largest power of two that fits
    least = np.full(count, np.inf)
    for power in range(int(level.max()), -1, -1):
        size, here = 1 << power, level == power
        if power != int(level.max()):
            halved = least.copy()
            halved[size:] = np.minimum(least[size:], least[:-size])
            least = halved
        np.minimum.at(least, first[here], factor[here])
        np.minimum.at(least, last[here] - size, factor[here])
    least[np.isinf(least)] = 1.0
    return least
