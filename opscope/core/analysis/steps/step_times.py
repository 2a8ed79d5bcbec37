"""The steps of a trace, and the wall time of each divided by activity: communication, kernels, copies … The
parts are those of the PyTorch profiler's plug-in for TensorBoard, with the kernels of collectives counted as
communication, not as kernels.

Where several activities happen at once, the first of ``PARTS`` gets the time, so that the parts of a step add
up to its wall time exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.analysis.answers import Answers
from opscope.core.analysis.ops.ops import Ops, op_index
from opscope.core.analysis.ops.windows import OUTSIDE_WINDOW, bounds, inside
from opscope.core.job.exchanges import communicating
from opscope.core.tables.amended import UNCLOSED_MARK
from opscope.core.tables.columns import at
from opscope.core.tables.interpret import ROLE
from opscope.core.tables.intervals import NONE, Ints, intersect, merge, nest
from opscope.core.tables.trace import Trace

#: The parts of a step's wall time, by priority. The rest is ``other_part``.
PARTS: Final = (
    "communication_part",
    "kernel_part",
    "copy_part",
    "set_part",
    "runtime_part",
    "loader_part",
    "op_part",
)
OTHER: Final = "other_part"
#: The content of each part, in words.
NAMES: Final = {
    "communication_part": "communication",
    "kernel_part": "kernels",
    "copy_part": "copies",
    "set_part": "sets",
    "runtime_part": "runtime",
    "loader_part": "data loader",
    "op_part": "CPU ops",
    OTHER: "other",
}
#: The reason of a row that is a whole process.
NO_STEPS: Final = "no steps in the trace: this row is all that the process recorded"
STEPS: Final = {
    "process": pl.Int32,
    "rank": pl.Int32,
    "step": pl.Int64,
    "start": pl.Int64,
    "end": pl.Int64,
    "time": pl.Int64,
    "seen": pl.Boolean,
    "reason": pl.String,
}
Spans = tuple[Ints, Ints]
_NOTHING: Final[Spans] = (np.empty(0, np.int64), np.empty(0, np.int64))


def steps_of(ops: Ops) -> pl.DataFrame:
    """Return the steps that ended (``STEPS``; ns), by process and time; a row per step, not per number.

    ``seen``: whether the device was captured during all of it; if not, ``reason`` says so. A trace without
    any step has one row per process that recorded calls or ranges, from its first event to its last, with a
    null ``step``. (Kernels alone do not show when the process began and ended.) A process whose source has
    only totals, so that its times are made up, has no row.
    """
    trace, meaning = ops.attribution.trace, ops.attribution.meaning
    ranges = trace["ranges"]
    rows = np.flatnonzero(meaning.role == ROLE["step"])
    steps_of_ranges = ranges[rows].select("process", "start", "end", "attrs")
    numbers = pl.Series("step", [reading.step for reading in meaning.readings], pl.Int64)
    steps_of_ranges = steps_of_ranges.with_columns(
        numbers.gather(meaning.reading[rows].astype(np.uint32))
    ).filter(
        pl.col("step").is_not_null()
        & ~pl.col("attrs").str.contains(UNCLOSED_MARK, literal=True).fill_null(False)
    )
    unreal = made_up(trace)
    if steps_of_ranges.is_empty():
        return _whole(trace).filter(~unreal)
    steps_of_ranges = steps_of_ranges.filter(~unreal)
    seen = pl.Series("seen", inside(trace, steps_of_ranges), dtype=pl.Boolean)
    return _with_ranks(
        trace,
        steps_of_ranges.with_columns(
            seen, pl.when(~seen).then(pl.lit(OUTSIDE_WINDOW)).cast(pl.String).alias("reason")
        ).sort("process", "start", "end"),
    )


def made_up(trace: Trace) -> pl.Expr:
    """Return whether a row's process has no times of events: its source only has totals, which were laid
    end to end."""
    origin = trace.origin
    parts = origin.get("parts") or [{**origin, "first_process": 0}]
    first = [int(part.get("first_process", 0)) for part in parts]
    is_made_up = pl.lit(False)
    for part, low, high in zip(parts, first, [*first[1:], 1 << 31], strict=True):
        if part.get("times"):
            is_made_up |= pl.col("process").is_between(low, high, closed="left").fill_null(False)
    return is_made_up


def _whole(trace: Trace) -> pl.DataFrame:
    """Return one row per process that recorded calls or ranges: from its first event to its last."""
    # a range without a thread represents a kernel
    on_host = [
        trace["ranges"]["process"].filter(trace["ranges"]["thread"].is_not_null()),
        trace["calls"]["process"],
    ]
    hosts = pl.concat([table.unique() for table in on_host])
    complete = (
        bounds(trace)
        .filter(pl.col("process").is_in(hosts.implode()))
        .filter(pl.col("end") > pl.col("start"))
        .sort("process")
    )
    if len(trace["windows"]):  # the row of a process that was captured in parts is not complete
        complete = complete.filter(pl.Series(inside(trace, complete), dtype=pl.Boolean))
    return _with_ranks(
        trace,
        complete.with_columns(
            pl.lit(None, pl.Int64).alias("step"),
            pl.lit(True).alias("seen"),
            pl.lit(NO_STEPS).alias("reason"),
        ),
    )


def _with_ranks(trace: Trace, table: pl.DataFrame) -> pl.DataFrame:
    ranks = trace["processes"].select("process", "rank").unique("process", keep="first")
    return (
        table.join(ranks, on="process", how="left", maintain_order="left", nulls_equal=True)
        .with_columns((pl.col("end") - pl.col("start")).alias("time"))
        .cast(dict(STEPS.items()), strict=False)
        .select(*STEPS)
    )


@dataclass(frozen=True, slots=True)
class Happened:
    """The activities of a process. For each part: its times (ns; a union of intervals), None if the trace
    does not show the part.

    ``why``: why parts are None.
    """

    parts: tuple[Spans | None, ...]
    kernels: Spans
    why: str | None


def happened(ops: Ops, exchanged: Callable[[], pl.DataFrame]) -> dict[int, Happened]:
    """Return the activities of each process. ``exchanged`` returns ``timed.exchanged`` of the trace."""
    trace, attribution = ops.attribution.trace, ops.attribution
    meaning = attribution.meaning
    processes = sorted(
        {
            number
            for name in ("ranges", "calls", "kernels", "memops")
            for number in trace[name]["process"].drop_nulls().unique().to_list()
        }
    )
    kernels, memops, ranges = trace["kernels"], trace["memops"], trace["ranges"]
    talks = communicating(attribution)
    sets = (memops["kind"].cast(pl.String) == "memset").fill_null(False).to_numpy()
    speaks = meaning.talks
    loading = loads(ops)
    outer = np.zeros(len(ranges), bool)
    outer[ops.rows[ops.times.parent < 0]] = True
    on_host = ranges["thread"].is_not_null().to_numpy()  # the others represent kernels
    outer &= on_host
    loading &= on_host
    speaking = set(
        ranges["process"].filter(pl.Series(speaks[meaning.reading])).unique().to_list()
        if speaks.any()
        else ()
    )
    owners = {name: _rows_by_process(trace[name]["process"]) for name in _HELD}
    happened_in = {}
    for process in processes:
        mine = {name: owners[name].get(process, _NO_ROWS) for name in _HELD}
        k, m, r = mine["kernels"], mine["memops"], mine["ranges"]
        said, computed = _spans(kernels, k[talks[k]]), _spans(kernels, k[~talks[k]])
        own_ops = _spans(ranges, r[outer[r]])
        loader = _spans(ranges, r[loading[r]])
        why = []
        communication: Spans | None = said
        if not len(said[0]) and process in speaking:
            rows = exchanged().filter(pl.col("process") == process)
            ran = rows.filter(pl.col("end").is_not_null())
            communication = merge(ran["start"].to_numpy(), ran["end"].to_numpy())
            if len(rows) and ran.is_empty():
                communication = None
                why.append("communication: only the calls of collectives were recorded")
        elif not trace.has("kernels") and (trace.used_gpu or not len(own_ops[0])):
            communication = None
        # a source that only records collectives shows nothing about other kernels
        alone = len(said[0]) and not len(computed[0]) and not trace.has("calls")
        lacks = [
            word
            for word, is_stated in (
                ("kernels", trace.has("kernels") and not alone),
                ("communication", communication is not None or process in speaking),
                ("copies and sets", trace.has("memops")),
                ("calls of the GPU's runtime", trace.has("calls")),
                ("CPU ops", len(own_ops[0]) > 0),
            )
            if not is_stated
        ]
        if lacks:
            why.append(f"not recorded: {', '.join(lacks)}")
        if not len(loader[0]):
            why.append("no data loader was seen")
        copies = trace.has("memops")
        happened_in[process] = Happened(
            (
                communication,
                computed if trace.has("kernels") and not alone else None,
                _spans(memops, m[~sets[m]]) if copies else None,
                _spans(memops, m[sets[m]]) if copies else None,
                _spans(trace["calls"], mine["calls"]) if trace.has("calls") else None,
                loader if len(loader[0]) else None,
                own_ops if len(own_ops[0]) else None,
            ),
            computed,
            "; ".join(why) or None,
        )
    return happened_in


def loads(ops: Ops) -> NDArray[np.bool_]:
    """Return whether each range belongs to a data loader: an op or range that reads input, or the input
    phase."""
    meaning = ops.attribution.meaning
    input_flags = meaning.phases("input") | meaning.each(lambda r: r.direction == "input")
    every: NDArray[np.bool_] = at(input_flags, meaning.reading.astype(np.int64), False)
    return every


_HELD: Final = ("kernels", "memops", "ranges", "calls")
_NO_ROWS: Final = np.empty(0, np.int64)


def _rows_by_process(process: pl.Series) -> dict[int, Ints]:
    return _rows_of(processes_of(process))


def _rows_of(numbers: NDArray[np.int64]) -> dict[int, Ints]:
    """Return the rows of each number, in order; by one sort, as there may be 100,000 numbers."""
    if len(numbers) and numbers.min() == numbers.max():  # most traces are of one process
        return {int(numbers[0]): np.arange(len(numbers))}
    order = np.argsort(numbers, kind="stable")
    distinct, first = np.unique(numbers[order], return_index=True)
    parts = np.split(order, first[1:])
    return dict(zip(distinct.tolist(), parts, strict=False))


def _spans(table: pl.DataFrame, rows: Ints) -> Spans:
    if not len(rows):
        return _NOTHING
    if len(rows) == len(table):
        return merge(*(table[name].fill_null(0).to_numpy() for name in ("start", "end")))
    return merge(*(table[name].fill_null(0).gather(rows).to_numpy() for name in ("start", "end")))


def covered(spans: Spans, start: Ints, end: Ints) -> Ints:
    """Return for each interval [start, end) how much of it (ns) is covered by the union ``spans``."""
    return _until(spans, np.maximum(end, start)) - _until(spans, start)


def _until(spans: Spans, time: Ints) -> Ints:
    """Return how much of the union is before each time."""
    first, last = spans
    if not len(first):
        return np.zeros(len(time), np.int64)
    running_total = np.concatenate((np.zeros(1, np.int64), np.cumsum(last - first)))
    index = np.searchsorted(first, time, side="right")
    before: Ints = running_total[index]
    over = np.maximum(np.where(index > 0, last[np.maximum(index - 1, 0)], time) - time, 0)
    return before - np.where(index > 0, over, 0)


def split(parts: Sequence[Spans | None], start: Ints, end: Ints) -> list[Ints | None]:
    """Return, for each part, how much time (ns) of each interval is in this part and in no earlier part; None
    if unknown.

    The parts and the rest of an interval add up to its length.
    """
    made: list[Ints | None] = []
    so_far, before = _NOTHING, np.zeros(len(start), np.int64)
    for spans in parts:
        if spans is None:
            made.append(None)
            continue
        so_far = _either(so_far, spans)
        now = covered(so_far, start, end)
        made.append(now - before)
        before = now
    return made


def _either(spans: Spans, other: Spans) -> Spans:
    if not len(spans[0]) or not len(other[0]):
        return spans if len(spans[0]) else other
    return merge(*(np.concatenate(both) for both in zip(spans, other, strict=True)))


def split_of(table: pl.DataFrame, did: dict[int, Happened]) -> list[pl.Series]:
    """Return the columns of ``PARTS``, ``other_part``, ``overlap_time`` (ns) and ``unknown`` for the steps.

    All are null where the device was not captured. ``overlap_time``: the part of communication during which
    another kernel ran; null without both. ``unknown``: which parts are null, and why.
    """
    count = len(table)
    values = {name: np.zeros(count, np.int64) for name in (*PARTS, OTHER, "overlap_time")}
    is_stated = {name: np.zeros(count, bool) for name in values}
    why: list[str | None] = [None] * count
    seen = table["seen"].to_numpy()
    for process, rows in _rows_by_process(table["process"]).items():
        rows = rows[seen[rows]]
        happened_there = did.get(process)
        if happened_there is None or not len(rows):
            continue
        start, end = (table[name].gather(rows).to_numpy() for name in ("start", "end"))
        rest = end - start
        for name, part in zip(PARTS, split(happened_there.parts, start, end), strict=True):
            if part is not None:
                values[name][rows], is_stated[name][rows] = part, True
                rest = rest - part
        values[OTHER][rows], is_stated[OTHER][rows] = rest, True
        said = happened_there.parts[0]
        if said is not None and happened_there.parts[1] is not None:
            both = intersect(said, happened_there.kernels)
            values["overlap_time"][rows] = covered(both, start, end)
            is_stated["overlap_time"][rows] = True
        for row in rows.tolist():
            why[row] = happened_there.why
    columns = [
        pl.Series(name, values[name]).set(pl.Series(~is_stated[name]), None)
        for name in (*PARTS, OTHER, "overlap_time")
    ]
    return [*columns, pl.Series("unknown", why, pl.String)]


def step_at(table: pl.DataFrame, process: Ints, time: Ints) -> Ints:
    """Return for each time (ns) of a process the row of the innermost step open then, -1 outside steps."""
    return steps_at(table)(process, time)


def steps_at(table: pl.DataFrame) -> Callable[[Ints, Ints], Ints]:
    """Return ``step_at`` of these steps, for processes and times that come in pieces."""
    steps = _rows_by_process(table["process"])

    def placed(process: Ints, time: Ints) -> Ints:
        placed_rows = np.full(len(time), NONE, np.int64)
        for number, here in _rows_of(process).items():
            rows = steps.get(number)
            if rows is None:
                continue
            tree = nest(*(table[name].gather(rows).to_numpy() for name in ("start", "end")))
            row = tree.innermost(time[here])
            is_placed = row >= 0
            placed_rows[here[is_placed]] = rows[row[is_placed]]
        return placed_rows

    return placed


def processes_of(column: pl.Series) -> NDArray[np.int64]:
    """Return process numbers as integers, -1 where unknown."""
    numbers: NDArray[np.int64] = column.cast(pl.Int64).fill_null(NONE).to_numpy()
    return numbers


def step_bounds(profile: Answers) -> pl.DataFrame:
    """The steps that ended, else the run of each process; computing them takes 0.3 s for a million
    kernels."""
    return steps_of(profile.of(op_index))


def has_steps(profile: Answers) -> bool:
    """Whether any step ended."""
    return bool(profile.of(step_bounds)["step"].is_not_null().any())


def stepping(profile: Answers) -> tuple[set[int], list[int]]:
    """The processes with steps, and those without."""
    bounds = profile.of(step_bounds)
    have = set(bounds.filter(pl.col("step").is_not_null())["process"])
    there: set[int] = set()
    for name in ("ranges", "kernels"):
        there |= set(profile.trace[name]["process"].drop_nulls().unique())
    return have, sorted(there - have)
