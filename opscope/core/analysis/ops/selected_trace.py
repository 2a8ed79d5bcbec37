"""The selected rows of a trace's tables, and the attribution with its rows renumbered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import polars as pl

from opscope.core.analysis.ops.costs import Costs
from opscope.core.analysis.ops.spans import EVERY, Flags, Spans, inside, overlapping, spans_of
from opscope.core.attribution.attribute import Attribution, Launched
from opscope.core.tables.columns import at
from opscope.core.tables.intervals import NONE, Ints
from opscope.core.tables.lanes import lanes_of
from opscope.core.tables.numbers import Numbers
from opscope.core.tables.trace import Trace, range_ids

#: The roles of marks that describe a graph's nodes. These are kept even if they were made outside the
#: selected time.
_EXPLAINING: Final = ("spec", "graph", "result", "note")
#: The tables whose rows are chosen by a time, with the time's column.
_TIMED: Final[Mapping[str, str]] = {
    "syncs": "start",
    "allocations": "time",
    "samples": "time",
    "thread_states": "start",
    "host_samples": "start",
}


@dataclass(frozen=True, slots=True)
class Kept:
    """The rows of a trace that are kept.

    ``ops``: per range row whether it stays an op; ``forward``: whether it was removed but is the forward op
    of an op that stays; ``steps``: whether it stays a step. ``kernels``, ``memops``: per row. ``processes``
    and ``devices``: None for all. ``windows``: the selected steps of each process; None if steps were not
    selected. ``within``: the times of the selected layers or user ranges; None if neither was selected.
    """

    ops: Flags
    forward: Flags
    steps: Flags
    kernels: Flags
    memops: Flags
    processes: frozenset[int] | None
    devices: tuple[int, ...]
    windows: Spans | None
    within: Spans | None


class Cut:
    """The kept rows of a trace's tables, and the attribution with its rows renumbered."""

    def __init__(self, attribution: Attribution, kept: Kept) -> None:
        self._whole, self._kept = attribution, kept
        self._in_ops: Spans | None = None
        if kept.within is not None:
            self._in_ops = spans_of(attribution.trace, np.flatnonzero(kept.ops))
        self._ranges = np.flatnonzero(self._range_flags())
        self._calls = np.flatnonzero(self._call_flags())

    def trace(self) -> Trace:
        """Return the tables."""
        trace, kept = self._whole.trace, self._kept
        rows = {
            "ranges": self._ranges,
            "calls": self._calls,
            "kernels": np.flatnonzero(kept.kernels),
            "memops": np.flatnonzero(kept.memops),
        }
        tables = {}
        for name in trace.present:
            frame = trace[name]
            if name in rows:
                tables[name] = frame if len(rows[name]) == len(frame) else frame[rows[name]]
            elif name != "notes":
                tables[name] = frame.filter(pl.Series(self._chosen(name, frame), dtype=pl.Boolean))
            else:
                tables[name] = frame
        # without a stored number, a row would be numbered by its new position
        if "ranges" in tables:
            tables["ranges"] = tables["ranges"].with_columns(
                range_ids(trace["ranges"]).gather(self._ranges)
            )
        return Trace.of(tables, {**trace.origin})

    def attribution(self, trace: Trace) -> Attribution:
        """Return the attribution of ``trace``."""
        all_ranges = self._whole
        rows, calls = self._ranges, self._calls
        index = np.full(len(all_ranges.is_op), NONE, np.int32)
        index[rows] = np.arange(len(rows), dtype=np.int32)
        called_at = np.full(len(all_ranges.trace["calls"]), NONE, np.int32)
        called_at[calls] = np.arange(len(calls), dtype=np.int32)
        is_op = self._kept.ops[rows]
        around = all_ranges.climb(all_ranges.parent[rows].astype(np.int64), self._kept.ops)
        meaning = replace(
            all_ranges.meaning,
            reading=all_ranges.meaning.reading[rows],
            seq=Numbers.of(all_ranges.meaning.seq.gather(rows)),
            fwd_thread=Numbers.of(all_ranges.meaning.fwd_thread.gather(rows)),
        )

        def moved(launched: Launched, flags: Flags) -> Launched:
            return Launched(
                at(called_at, launched.call[flags]),
                at(index, launched.op[flags]),
                launched.reason[flags],
                launched.inferred[flags],
                at(called_at, launched.replay[flags]),
            )

        return Attribution(
            trace,
            meaning,
            is_op,
            at(index, around),
            moved(all_ranges.kernels, self._kept.kernels),
            moved(all_ranges.memops, self._kept.memops),
            self._kept.forward[rows],
        )

    def costs(self, costs: Costs, attribution: Attribution) -> Costs:
        """Return the costs of ``attribution``: those that the ops have in the whole trace."""
        rows = self._ranges
        return Costs(
            costs.catalogue,
            costs.place[rows],
            costs.canonical[rows] & attribution.is_op,
            costs.free[rows] & attribution.is_op,
            costs.around[rows] & attribution.is_op,
            attribution,
        )

    def _moments(self, process: Ints, thread: Ints, time: Ints) -> Flags:
        """Return whether each event is in a selected step and, if parts of steps are selected, in an op that
        is kept."""
        is_kept = np.ones(len(time), bool)
        if self._kept.processes is not None:
            is_kept &= np.isin(process, list(self._kept.processes))
        if self._kept.windows is not None:
            is_kept &= inside(self._kept.windows, process, thread, time)
        if self._in_ops is not None:
            is_kept &= inside(self._in_ops, process, thread, time)
        return is_kept

    def _range_flags(self) -> Flags:
        """Return the range rows to keep: ops, steps, rows that explain graphs, and rows around kept ops."""
        attribution, kept = self._whole, self._kept
        ranges = attribution.trace["ranges"]
        role = np.array([reading.role for reading in attribution.meaning.readings], object)
        explaining = np.isin(role, _EXPLAINING)[attribution.meaning.reading]
        process, thread = (
            ranges[name].fill_null(NONE).to_numpy() for name in ("process", "thread")
        )
        start, end = (ranges[name].to_numpy() for name in ("start", "end"))
        flags = kept.ops | kept.forward
        is_step = (role == "step")[attribution.meaning.reading]
        others = ~attribution.is_op & ~explaining & ~is_step
        if kept.within is None:
            rows = np.flatnonzero(others)
            flags[rows] = True
            if kept.windows is not None:  # call stacks and user ranges may hold several steps
                where = (process[rows], thread[rows], start[rows], end[rows])
                flags[rows] = overlapping(kept.windows, *where)
        holders = kept.forward if kept.within is None else kept.forward | kept.ops
        if holders.any():  # an op has the layer of its forward op
            flags |= others & _holding(holders, process, thread, start, end)
        if kept.windows is None and kept.within is None:
            flags |= is_step & ~kept.steps  # a step that did not end
        flags |= kept.steps | explaining
        if kept.processes is not None:
            flags &= np.isin(process, list(kept.processes))
        counted = attribution.trace["counters"]["range_id"].drop_nulls().unique()
        if len(counted):  # marks have the names of the measured kernels, and made-up times
            flags |= range_ids(ranges).is_in(counted.implode()).to_numpy()
        return flags

    def _call_flags(self) -> Flags:
        """Return the calls to keep: those of the kept work, and those in the kept time that launched none."""
        calls, kept = self._whole.trace["calls"], self._kept
        used, launching = np.zeros(len(calls), bool), np.zeros(len(calls), bool)
        for launched, flags in (
            (self._whole.kernels, kept.kernels),
            (self._whole.memops, kept.memops),
        ):
            for link in (launched.call, launched.replay):
                launching[link[link >= 0]] = True
                mine = link[flags]
                used[mine[mine >= 0]] = True
        process, thread, start = (
            calls[name].fill_null(NONE).to_numpy() for name in ("process", "thread", "start")
        )
        return used | (~launching & self._moments(process, thread, start))

    def _chosen(self, name: str, frame: pl.DataFrame) -> Flags:
        """Return the rows of any other table to keep."""
        kept = self._kept
        is_chosen: Flags = np.ones(len(frame), bool)
        if "process" in frame.columns:
            process = frame["process"].fill_null(NONE).to_numpy()
            if kept.processes is not None:
                is_chosen &= np.isin(process, [*kept.processes, NONE])
        if "device" in frame.columns and kept.devices:
            # a row without a device counts for all devices
            is_chosen &= frame["device"].is_in(list(kept.devices)).fill_null(True).to_numpy()
        if name == "counters" and (kept.windows is not None or kept.within is not None):
            is_chosen &= self._of_kept_work(frame)
        if name not in _TIMED:
            return is_chosen
        time = frame[_TIMED[name]].fill_null(0).to_numpy()
        if kept.windows is not None:
            every = np.full(len(frame), EVERY, np.int64)
            ours = inside(kept.windows, process, every, time)
            is_chosen &= ours | (process == NONE if name == "samples" else False)
        if self._in_ops is not None and "thread" in frame.columns:
            thread = frame["thread"].fill_null(NONE).to_numpy()
            is_chosen &= inside(self._in_ops, process, thread, time)
        elif self._in_ops is not None and name == "syncs":
            is_chosen &= self._by_correlation(frame)
        return is_chosen

    def _of_kept_work(self, frame: pl.DataFrame) -> Flags:
        """Return for each row whether it belongs to a kernel that is kept, or of a launch where there are no
        kernels."""
        kernels = self._whole.trace["kernels"]
        if kernels.is_empty():
            return self._by_correlation(frame)
        return self._by_correlation(frame, kernels[np.flatnonzero(self._kept.kernels)])

    def _by_correlation(self, frame: pl.DataFrame, launched: pl.DataFrame | None = None) -> Flags:
        """Return whether each row has the correlation id of a row of ``launched`` (the calls that are
        kept).
        """
        if launched is None:
            launched = self._whole.trace["calls"][self._calls]
        calls = launched.select("process", "correlation")
        key = ["process", "correlation"]
        mine = frame.with_row_index("row").join(calls.unique(), on=key, how="semi")["row"]
        is_chosen = np.zeros(len(frame), bool)
        is_chosen[mine.to_numpy()] = True
        return is_chosen


def _holding(ops: Flags, process: Ints, thread: Ints, start: Ints, end: Ints) -> Flags:
    """Return per range row whether an op that is kept begins inside it, on its thread."""
    is_holder = np.zeros(len(ops), bool)
    rows = np.arange(len(ops))
    for _, here in lanes_of(process, thread).rows(np.ones(len(rows), bool)):
        begins = np.sort(start[here][ops[here]])
        first = np.searchsorted(begins, start[here], side="left")
        is_holder[here] = np.searchsorted(begins, end[here], side="left") > first
    return is_holder


def span(trace: Trace, kept: Kept) -> tuple[int, int] | tuple[None, None]:
    """Return the first and last time (ns) of the kept rows; None if there are none."""
    low: list[int] = []
    high: list[int] = []
    for name, flags in (
        ("ranges", kept.ops if kept.within is not None else kept.ops | kept.steps),
        ("kernels", kept.kernels),
        ("memops", kept.memops),
    ):
        rows = np.flatnonzero(flags)
        if len(rows):
            low.append(int(trace[name]["start"].gather(rows).min()))  # type: ignore[arg-type]
            high.append(int(trace[name]["end"].gather(rows).max()))  # type: ignore[arg-type]
    return (min(low), max(high)) if low else (None, None)
