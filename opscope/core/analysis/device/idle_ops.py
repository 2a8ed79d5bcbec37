"""What the host did while a device waited for it: the ops with most of the host wait. || The thread that
ended a gap is the launching thread. Its time in the gap is cut wherever an op, a CUDA call, a phase or a
user range begins or ends, and each piece counts for the innermost op open there. If no op is open, the
thread may have waited for another (autograd's thread for the one that calls ``backward``): then the piece
counts for the op open on the thread that marks the steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.analysis.answers import Answers
from opscope.core.analysis.device.device_work import DeviceWork, work_on_devices
from opscope.core.analysis.device.idle import KERNEL_WAIT, gaps_between, host_gaps
from opscope.core.analysis.ops.ops import Ops, first, op_index
from opscope.core.analysis.summary.summary import ended_steps
from opscope.core.question import lacking
from opscope.core.question.column import Frame
from opscope.core.question.record import Question, Report
from opscope.core.question.words import columns
from opscope.core.tables.columns import at, gather
from opscope.core.tables.interpret import ROLE
from opscope.core.tables.intervals import NONE, Ints, Nest, nest

OUTSIDE: Final = "outside any op"
_SCHEMA: Final = {
    "op": pl.String,
    "direction": pl.String,
    "layer": pl.String,
    "source": pl.String,
    "range": pl.String,
    "phase": pl.String,
    "wait_time": pl.Int64,
    "wait_share": pl.Float64,
    "waits": pl.Int64,
    "launching_time": pl.Int64,
    "in_calls": pl.Int64,
    "call": pl.String,
    "reason": pl.String,
}
_BY: Final = ("op", "direction", "layer", "source", "range", "phase")


@dataclass(slots=True)
class Pieces:
    """Pieces of the gaps caused by the host. ``gap``: number of the gap; ``start``, ``end`` (ns);
    ``process``, ``thread``: who worked; ``op``: row of ``ranges`` (-1: none), ``call``: row of ``calls`` (-1:
    none); ``launching``: whether the launch that ends the gap has begun."""

    gap: Ints
    start: Ints
    end: Ints
    process: Ints
    thread: Ints
    op: Ints
    call: Ints
    launching: NDArray[np.bool_]


def idle_ops(ops: Ops, work: DeviceWork, least: int = KERNEL_WAIT) -> pl.DataFrame:
    """Return one row per op, layer, source line, user range and phase of the host while a device waited for
    it, by time: op, direction, layer, source, range, phase, wait_time (ns), wait_share, waits,
    launching_time, in_calls (ns), call, reason.

    ``wait_time`` adds up to the ``host_wait`` of all devices. ``launching_time`` is the part after the
    launch that ended the wait had begun, ``in_calls`` the part inside CUDA calls, and ``call`` the
    call with most of it. ``reason`` says why ``op`` is null.
    """
    pieces = pieces_of_waits(ops, work, least)
    if not len(pieces.gap):
        return pl.DataFrame(schema=_SCHEMA)
    return _by_op(ops, pieces)


def pieces_of_waits(
    ops: Ops, work: DeviceWork, least: int = KERNEL_WAIT, longest: int | None = None
) -> Pieces:
    """Return the pieces of all device gaps caused by the host; their lengths add up to these gaps.

    ``longest``: only this many of the longest gaps.
    """
    calls = ops.attribution.trace["calls"]
    gaps = gaps_between(work, "device", least)
    rows = host_gaps(gaps)
    if longest is not None and len(rows) > longest:
        length = (gaps.end - gaps.start)[rows]
        rows = np.sort(rows[np.argpartition(length, len(rows) - longest)[-longest:]])
    call = work.call[gaps.after[rows]]
    process, thread = (
        calls[name].fill_null(NONE).cast(pl.Int64).gather(call).to_numpy()
        for name in ("process", "thread")
    )
    begun = calls["start"].gather(call).to_numpy()
    host = _Host(ops)
    pieces: list[tuple[Ints, ...]] = []
    table = pl.DataFrame({"process": process, "thread": thread, "lane": gaps.lane[rows]})
    for (number, on, _), part in table.with_row_index("place").group_by(
        "process", "thread", "lane", maintain_order=True
    ):
        here = part["place"].to_numpy().astype(np.int64)
        start, end, launch = gaps.start[rows[here]], gaps.end[rows[here]], begun[here]
        thread_of = host.thread(int(number), int(on))
        gap, low, high = _cut(np.arange(len(here)), start, end, [*thread_of.edges, launch])
        op = thread_of.op(low)
        first_call = thread_of.call(low)
        lane = np.full(len(low), int(on), np.int64)
        main = host.main(int(number))
        bare = op < 0
        if main is not None and main != on and bare.any():
            other = host.thread(int(number), main)
            again, its_low, its_high = _cut(gap[bare], low[bare], high[bare], list(other.edges))
            its_op, its_call = other.op(its_low), other.call(its_low)
            gap, low, high, op, first_call, lane = (
                np.concatenate((bare_part[~bare], two))
                for bare_part, two in (
                    (gap, again),
                    (low, its_low),
                    (high, its_high),
                    (op, its_op),
                    (first_call, np.where(its_call >= 0, its_call, thread_of.call(its_low))),
                    (lane, np.where(its_op >= 0, main, int(on))),
                )
            )
        whose = np.full(len(low), int(number), np.int64)
        pieces.append((here[gap], low, high, whose, lane, op, first_call, low >= launch[gap]))
    empty = np.empty(0, np.int64)
    gap, low, high, whose, lane, op, in_call, launching = (
        np.concatenate([piece[column] for piece in pieces] or [empty]) for column in range(8)
    )
    return Pieces(gap, low, high, whose, lane, op, in_call, launching.astype(bool))


def _cut(gap: Ints, start: Ints, end: Ints, edges: list[Ints]) -> tuple[Ints, Ints, Ints]:
    """Return (gap, start, end) of the pieces of disjoint spans, cut at the times ``edges``.

    ``edges`` need no order; only those within a span are sorted.
    """
    order = np.argsort(start, kind="stable")
    gap, start, end = gap[order], start[order], end[order]
    inside = []
    for times in edges:
        index = np.searchsorted(start, times, side="left") - 1
        inside.append(times[(index >= 0) & (times < at(end, index, 0))])
    # runs in order are merged by the sort; np.unique hashes, which takes half of the whole time
    cuts = np.sort(np.concatenate([np.empty(0, np.int64), *inside]), kind="stable")
    cuts = cuts[np.append(True, cuts[1:] != cuts[:-1])[: len(cuts)]]
    of = np.searchsorted(start, cuts, side="left") - 1
    number = np.concatenate((np.arange(len(start)), of))
    low = np.concatenate((start, cuts))
    order = np.argsort(low, kind="stable")
    number, low = number[order], low[order]
    last = np.append(number[1:] != number[:-1], True) if len(number) else np.empty(0, bool)
    high = np.where(last, end[number], np.append(low[1:], 0)) if len(low) else low
    return gap[number], low, high


@dataclass(slots=True)
class _Thread:
    """The ops and calls of one thread. ``edges``: times (ns) at which something on it begins or ends."""

    edges: tuple[Ints, ...]
    ops: tuple[Nest, Ints]
    calls: tuple[Nest, Ints]

    def op(self, time: Ints) -> Ints:
        """Return the row of ``ranges`` of the innermost op open at each time (ns), or -1."""
        return at(self.ops[1], self.ops[0].innermost(time))

    def call(self, time: Ints) -> Ints:
        """Return the row of ``calls`` of the call open at each time (ns), or -1."""
        return at(self.calls[1], self.calls[0].innermost(time))


class _Host:
    """The threads of a trace, each prepared at its first use."""

    def __init__(self, ops: Ops) -> None:
        trace, meaning = ops.attribution.trace, ops.attribution.meaning
        self._ranges, self._calls = trace["ranges"], trace["calls"]
        self._is_op = ops.attribution.is_op
        self._labels = np.isin(meaning.role, [ROLE[role] for role in ("user", "phase", "layer")])
        steps = ended_steps(trace["ranges"]).select("process", "thread").drop_nulls()
        most = (
            steps.group_by("process", "thread")
            .len()
            .sort("len", "thread", descending=[True, False])
        )
        self._main = dict(
            most.unique("process", keep="first", maintain_order=True)
            .select("process", "thread")
            .rows()
        )
        self._threads: dict[tuple[int, int], _Thread] = {}

    def main(self, process: int) -> int | None:
        """Return the thread that marks the process's steps; None if none does."""
        return self._main.get(process)

    def thread(self, process: int, thread: int) -> _Thread:
        """Return a thread's ops and calls."""
        key = (process, thread)
        if key not in self._threads:
            here = self._on(self._ranges, key)
            ops, op_edges = self._nest(self._ranges, here[self._is_op[here]])
            calls, call_edges = self._nest(self._calls, self._on(self._calls, key))
            labels = self._ranges[here[self._labels[here] & ~self._is_op[here]]]
            edges = (labels["start"].to_numpy(), labels["end"].to_numpy())
            self._threads[key] = _Thread((*op_edges, *call_edges, *edges), ops, calls)
        return self._threads[key]

    @staticmethod
    def _on(table: pl.DataFrame, key: tuple[int, int]) -> Ints:
        chosen = table.select(
            (pl.col("process").fill_null(NONE) == key[0])
            & (pl.col("thread").fill_null(NONE) == key[1])
        )
        return np.flatnonzero(chosen.to_series().to_numpy())

    @staticmethod
    def _nest(table: pl.DataFrame, rows: Ints) -> tuple[tuple[Nest, Ints], tuple[Ints, Ints]]:
        start, end = (table[name].gather(rows).to_numpy() for name in ("start", "end"))
        return (nest(start, end), rows), (start, end)


def _by_op(ops: Ops, pieces: Pieces) -> pl.DataFrame:
    """Return the pieces added up by the identity of the op; each distinct op is described once."""
    place = (pieces.process, pieces.thread, pieces.start)
    numbers = ops.outline(pieces.op)
    kinds = ("user", "phase", "layer", "source")
    context = [ops.context.numbers(kind, *place) for kind in kinds]
    bare = pieces.op < 0
    keys = {f"k{number}": one for number, one in enumerate(numbers)}
    keys |= {
        kind: numbers if kind in kinds[:2] else np.where(bare, numbers, NONE)
        for kind, numbers in zip(kinds, context, strict=True)
    }
    time = pieces.end - pieces.start
    called = pieces.call >= 0
    frame = pl.DataFrame(
        {
            **keys,
            "row": np.arange(len(time)),
            "gap": pieces.gap,
            "time": time,
            "launching": np.where(pieces.launching, time, 0),
            "in_call": np.where(called, time, 0),
            "call": gather(ops.attribution.trace["calls"]["name"], pieces.call),
        }
    )
    by_gap = frame.group_by(*keys, "gap", maintain_order=True).agg(
        pl.col("row").first(), pl.col("time", "launching", "in_call").sum()
    )
    sums = by_gap.group_by(list(keys), maintain_order=True).agg(
        pl.col("row").first(),
        pl.len().alias("waits"),
        pl.col("time", "launching", "in_call").sum(),
    )
    busiest = (
        frame.filter(pl.col("call").is_not_null())
        .group_by(*keys, "call")
        .agg(pl.col("in_call").sum().alias("most"))
        .with_columns(pl.col("call").cast(pl.String))
        .sort("most", "call", descending=[True, False])
        .unique(list(keys), keep="first", maintain_order=True)
        .select(*keys, "call")
    )
    sums = sums.join(busiest, on=list(keys), how="left", maintain_order="left")
    row = sums["row"].to_numpy()
    op = pieces.op[row]
    about = ops.identify(op)
    where = tuple(column[row] for column in place)
    described = pl.DataFrame(
        {
            "op": about.call["op"].cast(pl.String),
            "direction": about.direction.cast(pl.String),
            "layer": first(about.layer, ops.context.layer(*where)).cast(pl.String),
            "source": first(about.source, ops.context.source(*where)).cast(pl.String),
            "range": ops.context.user(*where).cast(pl.String),
            "phase": ops.phase(*where),
        }
    )
    made = pl.concat(
        [described, sums.select("waits", "time", "launching", "in_call", "call")], how="horizontal"
    )
    total = int(time.sum())
    return (
        made.group_by(_BY)
        .agg(
            pl.col("time").sum().alias("wait_time"),
            pl.col("waits").sum(),
            pl.col("launching").sum().alias("launching_time"),
            pl.col("in_call").sum().alias("in_calls"),
            pl.col("call").sort_by("in_call", descending=True).drop_nulls().first(),
        )
        .with_columns(
            (pl.col("wait_time") / (total or None)).alias("wait_share"),
            pl.when(pl.col("op").is_null()).then(pl.lit(OUTSIDE)).alias("reason"),
        )
        .sort("wait_time", *_BY, descending=[True, *[False] * len(_BY)], nulls_last=True)
        .select(pl.col(name).cast(dtype) for name, dtype in _SCHEMA.items())
    )


def answer(profile: Answers) -> pl.DataFrame:
    """What the host did while a device waited for it: the ops in which most of the host wait lies.

    The times add up to the ``host_wait`` of all devices.
    """
    return idle_ops(profile.of(op_index), profile.of(work_on_devices))


QUESTION = Question(
    answer=answer,
    frames=(
        Frame(
            "idle_ops()",
            (
                "one row per op, layer, source line, user range and phase of the host while a "
                "device waited for it"
            ),
            columns(
                "op direction layer source range phase wait_time wait_share waits "
                "launching_time in_calls call reason",
                """
                op: text: the innermost op open on the thread; null outside any op
                wait_time: ns: host wait that lies in the row's op
                wait_share: fraction: wait_time / the host wait of all devices
                waits: count: gaps, or parts of gaps, in which the host did this
                launching_time: ns: part of wait_time after the launch that ended the wait had begun
                in_calls: ns: part of wait_time inside CUDA calls
                call: text: the CUDA call with most of in_calls
                """,
            ),
        ),
    ),
    merged=lacking.PATTERNS,
    reports=(
        Report(
            name="idle_ops",
            title="What the host did while a device waited for it",
            empty="no device waited for the host, or records of it are missing (--reports idle says why)",
            shown=(
                "wait_share wait_time waits launching_time in_calls op direction call range phase "
                "layer source reason"
            ),
            sums="wait_time in_calls launching_time waits",
            gpu_only=True,
        ),
    ),
)
