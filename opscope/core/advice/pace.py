"""What kept each device idle while it waited for its host: input, a call that waits, launching, other work.

Only steps that ended and are not warm-up count. Every gap of a device that the host caused (``idle()``'s host
wait) is split into pieces, each with one cause, so that no two detectors claim the same time:

- *input*: a thread of the steps waited for a data loader;
- *sync*: the device ran dry while a call waited for it; at most as long as that call took;
- *launching*: a gap below ``DISPATCH`` in a stretch of launches that each came too late;
- *host*: the rest.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final
from weakref import WeakKeyDictionary

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.advice.finding import EVIDENCE, Answers
from opscope.core.advice.marked_steps import marked_steps
from opscope.core.advice.rest import with_rest
from opscope.core.advice.saying import ms
from opscope.core.analysis.device.device_work import COPY, DeviceWork, device_work, linked_work
from opscope.core.analysis.device.idle import HOST, Gaps, gaps_between
from opscope.core.analysis.device.idle_ops import pieces_of_waits
from opscope.core.analysis.host.input_waits import waits
from opscope.core.analysis.ops.ops import Ops, first
from opscope.core.analysis.steps.step_times import covered
from opscope.core.attribution.attribute import Attribution
from opscope.core.once import lock_of
from opscope.core.tables.columns import at, compact, gather
from opscope.core.tables.intervals import NONE, Ints, intersect, merge, subtract

#: The host takes less than this (ns) between the launches of two ops in a row. In trainings whose launches
#: set the pace, under a profiler with call stacks, 99 of 100 such gaps are below it; in longer gaps the host
#: does other work.
DISPATCH: Final = 500_000
#: A stretch has at least this many launches that came too late, and at most this many launches that were in
#: time between two of them.
FEWEST: Final = 20
BETWEEN: Final = 4
CAUSES: Final = ("input", "sync", "launching", "host")
#: Calls that return when work of the device is done, and copies, which may.
SYNCS: Final = re.compile(
    r"\A(cuda|cu|hip)(Device|Thread|Ctx|Stream|Event)Synchronize|\A(cu|hip)CtxSynchronize"
)
COPIES: Final = re.compile(r"\A(cuda|cu|hip)Memcpy")
NO_GPU: Final = "the CPU is the device, so no device waits for its host: capture a run on a GPU"
NO_KERNELS: Final = "the profile has no kernels: capture the GPU's activity"
NO_LAUNCHES: Final = (
    "the profile has no launches, so what a device waited for is not known: capture the CUDA API"
)
NO_STEPS: Final = (
    "the profile has no steps, so that the work cannot be told from what comes before it: mark the steps"
    " (opscope.step(), profiler.step(), or a callback)"
)
NO_CAPTURED: Final = "no step was captured as a whole, with what the device did in it"
PIECES: Final = {
    "process": pl.Int32,
    "device": pl.Int32,
    "place": pl.Int64,
    "start": pl.Int64,
    "end": pl.Int64,
    "cause": pl.String,
    "call": pl.Int64,
    "op": pl.Int64,
}
_STRETCHES: Final = {
    "process": pl.Int32,
    "device": pl.Int32,
    "thread": pl.Int64,
    "start": pl.Int64,
    "end": pl.Int64,
    "launches": pl.Int64,
    "idle": pl.Int64,
}
#: The number of gaps, the longest ones, for which the host's work is looked up: they have nearly all of the
#: time.
LOOKED_AT: Final = 20_000
_PLACED: Final = ("op", "direction", "layer", "source", "process", "count", "time", "detail")
_Spans = tuple[Ints, Ints]


@dataclass(frozen=True, slots=True)
class Pace:
    """What kept the devices idle because of the host, in the steps that count; times in ns.

    ``steps``: process, place (the step's place in its process, from 0), step, start, end, time, and ``idle``:
    the least idle time of the process's devices in it, null where none is known. ``warm``: how many steps
    were left out as warm-up. ``pieces`` (PIECES): the idle time that the host caused; ``call`` is the row of
    ``calls`` that waited, for a piece whose cause is *sync*, and ``op`` the row of ``ranges`` of the op that
    launched the work after the gap (-1: none). ``stretches``: from the first to the last launch on each
    thread of stretches in which launches set the pace, with the idle time between their work.
    """

    steps: pl.DataFrame
    warm: int
    pieces: pl.DataFrame
    stretches: pl.DataFrame

    def time(self, cause: str) -> int:
        """Return a cause's idle time (ns) in each step, on the device with most of it."""
        mine = self.pieces.filter(pl.col("cause") == cause)
        by_device = mine.group_by("process", "device", "place").agg(
            (pl.col("end") - pl.col("start")).sum().alias("time")
        )
        return longest(by_device, "time")

    @property
    def left_out(self) -> str:
        """What was left out, as words to add to a sentence."""
        return f"; {count(self.warm, 'step')} of warm-up left out" if self.warm else ""

    @property
    def whole(self) -> int:
        """The time (ns) of the steps."""
        return longest(self.steps, "time")

    @property
    def idle(self) -> int:
        """The idle time (ns): no change of the host can shorten the steps by more."""
        return longest(self.steps.with_columns(pl.col("idle").fill_null(pl.col("time"))), "idle")


def count(count: int, noun: str) -> str:
    """Return how many there are, in words: ``1 step``, ``1,234 steps``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def longest(frame: pl.DataFrame, column: str) -> int:
    """Return the sum over steps of the largest value among the processes: ranks run at the same time."""
    return int(frame.group_by("place").agg(pl.col(column).max())[column].sum())


_known: WeakKeyDictionary[Any, Pace | str] = WeakKeyDictionary()


def pace(answers: Answers) -> Pace | str:
    """Return what kept the devices waiting, or the reason why it is not known. Computed once for each
    profile."""
    with lock_of(answers, "pace"):  # several detectors ask at once
        if answers not in _known:
            _known[answers] = _pace(answers)
        return _known[answers]


def counted(answers: Answers) -> tuple[pl.DataFrame, int] | str:
    """Return process, place, step, start, end and time (ns) of the steps that count, and how many others are
    warm-up; or the reason why there are none."""
    table = marked_steps(answers)
    if table.is_empty():
        return NO_STEPS
    table = table.filter(pl.col("kernel_part").is_not_null() | pl.lit(answers.cpu_only))
    warm = pl.col("warm_up").fill_null(False)
    left, steps = table.filter(warm), table.filter(~warm).sort("process", "start")
    if steps.is_empty():
        return NO_CAPTURED
    index = pl.int_range(pl.len(), dtype=pl.Int64).over("process").alias("place")
    return steps.select("process", index, "step", "start", "end", "time"), len(left)


def _pace(answers: Answers) -> Pace | str:
    trace = answers.attribution.trace  # including inferred steps
    if answers.cpu_only:
        return NO_GPU
    if trace["kernels"].is_empty():
        return NO_KERNELS
    if trace["calls"].is_empty():
        return NO_LAUNCHES
    steps_counted = counted(answers)
    if isinstance(steps_counted, str):
        return steps_counted
    steps, warm = steps_counted
    attribution = answers.attribution
    work = answers.of(linked_work)
    if work.untimed is not None:
        return work.untimed
    if work.unlinked is not None:
        return work.unlinked
    gaps = gaps_between(work)
    parts, stretches = [], []
    asked = waits(trace, attribution.meaning).filter("timed")
    blocked = blocking(attribution)
    for lane, rows in work.lanes(work.device):
        process, device = work.devices.row(lane)
        mine = steps.filter(pl.col("process").eq_missing(pl.lit(process, pl.Int32)))
        here = np.flatnonzero((gaps.lane == lane) & (gaps.kind == HOST))
        if mine.is_empty() or not len(here):
            continue
        one = _Lane(attribution, work, rows, gaps, here)
        of = asked.filter(pl.col("process").eq_missing(pl.lit(process, pl.Int32)))
        spans = of.select("start", "end").to_numpy().astype(np.int64)
        pieces = one.pieces(
            mine, merge(spans[:, 0], spans[:, 1]), _rows_of(trace, blocked, process)
        )
        keys = {"process": process, "device": device}
        parts.append(pieces.with_columns(pl.lit(value).alias(key) for key, value in keys.items()))
        runs = one.stretches(mine)
        stretches.append(runs.with_columns(pl.lit(value).alias(key) for key, value in keys.items()))
    return Pace(
        _with_idle(answers, steps), warm, _join(parts, PIECES), _join(stretches, _STRETCHES)
    )


def _join(parts: list[pl.DataFrame], schema: Any) -> pl.DataFrame:
    empty = pl.DataFrame(schema=schema)
    return pl.concat(
        [
            empty,
            *(
                part.select(pl.col(name).cast(kind) for name, kind in schema.items())
                for part in parts
            ),
        ]
    )


def _with_idle(answers: Answers, steps: pl.DataFrame) -> pl.DataFrame:
    """Return the steps with ``idle``, matched by place among equal numbers, as numbers may occur twice."""
    again = pl.int_range(pl.len()).over("process", "step").alias("again")
    idle = (
        answers.idle_steps()
        .with_columns(pl.int_range(pl.len()).over("process", "device", "step").alias("again"))
        .group_by("process", "step", "again")
        .agg(pl.col("idle_time").min().alias("idle"))
    )
    return (
        steps.with_columns(again)
        .join(
            idle,
            on=["process", "step", "again"],
            how="left",
            maintain_order="left",
            nulls_equal=True,
        )
        .drop("again")
    )


def _rows_of(trace: Any, rows: Ints, process: int | None) -> tuple[Ints, Ints, Ints]:
    """Return start, end and row of the calls of a process, by start."""
    calls = trace["calls"]
    number = NONE if process is None else process
    mine = rows[calls["process"].gather(rows).fill_null(NONE).to_numpy() == number]
    start, end = (calls[name].gather(mine).to_numpy() for name in ("start", "end"))
    order = np.argsort(start, kind="stable")
    return start[order], end[order], mine[order]


def blocking(attribution: Attribution) -> Ints:
    """Return the rows of the calls in which a thread waits for the device: synchronising ones, and copies to
    the host that had ended when their call returned. Threads that launch nothing do not count: a watchdog's
    waits block no one."""
    trace = attribution.trace
    calls, memops = trace["calls"], trace["memops"]
    codes, names = compact(calls["name"])
    named = np.array([bool(SYNCS.search(name or "")) for name in names] or [False])[codes]
    copied = np.array([bool(COPIES.search(name or "")) for name in names] or [False])[codes]
    call = attribution.memops.call.astype(np.int64)
    kind = memops["kind"].cast(pl.String)
    to_host = kind.str.ends_with("toH").fill_null(False).to_numpy()
    returned = at(calls["end"].to_numpy(), call, 0)
    waited = (call >= 0) & to_host & (returned >= memops["end"].to_numpy())
    named = named.copy() if len(calls) else np.empty(0, bool)
    if len(calls):
        rows = call[waited]
        named[rows[copied[rows]]] = True
    found = np.flatnonzero(named)
    if not len(found):
        return found
    flags = np.zeros(len(calls), bool)
    for launched in (attribution.kernels.call, attribution.memops.call):
        flags[launched[launched >= 0]] = True
    launching = pl.Series(flags)
    keys = ["process", "thread"]
    threads = calls.lazy().select(keys).filter(launching).unique().collect()
    steps = trace["ranges"].filter(pl.col("category") == "step").select(keys).unique()
    threads = pl.concat([threads, steps]).unique().with_columns(pl.lit(True).alias("works"))
    here = calls[found].select(keys)
    works = here.join(threads, on=keys, how="left", maintain_order="left", nulls_equal=True)[
        "works"
    ]
    kept: Ints = found[works.fill_null(False).to_numpy()]
    return kept


def host_work(answers: Answers, most: int = 20) -> pl.DataFrame:
    """Return the host's work during the pieces whose cause is *host*, the most time first: op, direction,
    layer, source, process, count, time (ns), detail. Only the devices' 20,000 longest gaps are examined."""
    pace_of_steps = pace(answers)
    assert isinstance(pace_of_steps, Pace)
    ops = Ops(answers.attribution)
    did = pieces_of_waits(ops, device_work(ops), longest=LOOKED_AT)
    mine = pace_of_steps.pieces.filter(pl.col("cause") == "host")
    time = np.zeros(len(did.gap), np.int64)
    for (process,), part in mine.group_by("process"):
        here = np.flatnonzero(did.process == (NONE if process is None else process))
        spans = merge(part["start"].to_numpy(), part["end"].to_numpy())
        time[here] = covered(spans, did.start[here], did.end[here])
    rows = np.flatnonzero(time)
    return described(
        ops, did.process[rows], did.thread[rows], did.start[rows], did.op[rows], time[rows], most
    )


def launched_work(answers: Answers, most: int = 20) -> pl.DataFrame:
    """Return the work whose launches the device waited for in the pieces whose cause is *launching*, the most
    time first: op, direction, source, count, time (ns), detail."""
    pace_of_steps = pace(answers)
    assert isinstance(pace_of_steps, Pace)
    attribution = answers.attribution
    mine = pace_of_steps.pieces.filter(pl.col("cause") == "launching")
    op, length = mine["op"].to_numpy(), (mine["end"] - mine["start"]).to_numpy()
    # a trace has few distinct texts of ops: a million launches are added up by their numbers
    code = at(attribution.meaning.reading.astype(np.int64), op) + 1
    time, counts = np.bincount(code, length).astype(np.int64), np.bincount(code)
    held = np.flatnonzero(counts)
    named = Ops(attribution).readings.select(pl.col("op", "direction", "source").cast(pl.String))
    found_at = pl.Series(held - 1, dtype=pl.Int64)
    rows = pl.DataFrame(
        {
            **{name: gather(named[name], found_at.to_numpy()) for name in named.columns},
            "count": counts[held],
            "time": time[held],
        }
    )
    outside = pl.when(pl.col("op").is_null()).then(pl.lit("outside any op")).alias("detail")
    return (
        rows.group_by("op", "direction", "source", maintain_order=True)
        .agg(pl.col("count", "time").sum())
        .sort("time", descending=True, maintain_order=True)
        .with_columns(outside)
        .pipe(with_rest, most)
    )


def described(
    ops: Ops, process: Ints, thread: Ints, start: Ints, op: Ints, time: Ints, most: int = 20
) -> pl.DataFrame:
    """Return moments of threads with the row of the op that was open (-1: none), added up by place: op,
    direction, layer, source, process, count, time (ns), detail."""
    if not len(time):
        return pl.DataFrame(schema={name: EVIDENCE[name] for name in _PLACED})
    about, where = ops.identify(op), (process, thread, start)
    phase = ops.phase(*where)
    return (
        pl.DataFrame(
            {
                "op": about.call["op"].cast(pl.String),
                "direction": about.direction.cast(pl.String),
                "layer": first(about.layer, ops.context.layer(*where)).cast(pl.String),
                "source": first(about.source, ops.context.source(*where)).cast(pl.String),
                "process": process,
                "phase": phase,
                "time": time,
            }
        )
        .group_by("op", "direction", "layer", "source", "process", "phase", maintain_order=True)
        .agg(pl.len().alias("count"), pl.col("time").sum())
        .sort("time", descending=True, maintain_order=True)
        .with_columns(
            pl.concat_str(
                pl.when(pl.col("op").is_null()).then(pl.lit("outside any op")),
                "phase: " + pl.col("phase"),
                separator="; ",
                ignore_nulls=True,
            ).alias("detail")
        )
        .with_columns(pl.when(pl.col("detail") != "").then("detail"))
        .select(_PLACED)
        .pipe(with_rest, most)
    )


def said(rows: pl.DataFrame, most: int = 3) -> str:
    """Return the first rows of ``host_work`` or ``launched_work`` in words."""
    line = pl.col("source").str.split(" < ").list.first()
    other = [name for name in ("layer", "op", "detail") if name in rows.columns]
    location = pl.coalesce(line, *other, pl.lit("outside any op"))
    label = pl.when(pl.col("source").is_not_null() & pl.col("op").is_not_null()).then("op")
    texts = rows.head(most).select(location.alias("place"), label.alias("what"), "time").rows()
    return "; ".join(f"{where}{f' ({op})' if op else ''}: {ms(time)}" for where, op, time in texts)


class _Lane:
    """The gaps of one device that its host caused."""

    def __init__(
        self, attribution: Attribution, work: DeviceWork, rows: Ints, gaps: Gaps, here: Ints
    ) -> None:
        self.attribution, self.work, self.rows = attribution, work, rows
        self.start, self.end = gaps.start[here], gaps.end[here]
        self.after = gaps.after[here]
        self.length = self.end - self.start
        self.stretch = np.full(len(here), NONE, np.int64)

    def pieces(
        self, steps: pl.DataFrame, asked: _Spans, blocked: tuple[Ints, Ints, Ints]
    ) -> pl.DataFrame:
        """Return place, start, end, cause and call of each piece of the gaps in the steps."""
        begin, end = (steps[name].to_numpy() for name in ("start", "end"))
        inside = intersect((self.start, self.end), merge(begin, end))
        waited = intersect(inside, asked)
        rest = subtract(inside, asked)
        gap = np.searchsorted(self.start, rest[0], side="right") - 1
        synced, call = self._synced(blocked)
        self.stretch = self._stretches(synced > 0, asked)
        limit = self.start[gap] + synced[gap]
        none = np.full(len(waited[0]), NONE)
        parts = [(*waited, np.full(len(waited[0]), 0), none, none)]
        cut = np.clip(limit, rest[0], rest[1])
        op = self._op()[gap]
        parts.append((rest[0], cut, np.full(len(gap), 1), call[gap], op))
        other = np.where(self.stretch[gap] >= 0, 2, 3)
        parts.append((cut, rest[1], other, np.full(len(gap), NONE), op))
        start, stop, cause, of, op = (np.concatenate(column) for column in zip(*parts, strict=True))
        kept = stop > start
        start, stop, cause, of, op = start[kept], stop[kept], cause[kept], of[kept], op[kept]
        index = steps["place"].to_numpy()[
            np.maximum(np.searchsorted(begin, start, side="right") - 1, 0)
        ]
        return pl.DataFrame(
            {
                "place": index,
                "start": start,
                "end": stop,
                "cause": pl.Series(CAUSES).gather(cause),
                "call": of,
                "op": op,
            }
        )

    def _synced(self, blocked: tuple[Ints, Ints, Ints]) -> tuple[Ints, Ints]:
        """Return, for each gap, the length (ns) of the call during which it began, and the call's row."""
        begin, end, row = blocked
        if not len(begin):
            return np.zeros(len(self.start), np.int64), np.full(len(self.start), NONE)
        index = np.searchsorted(begin, self.start, side="right") - 1
        is_synced = (index >= 0) & (at(end, index, 0) >= self.start)
        return np.where(is_synced, at(end - begin, index, 0), 0), np.where(
            is_synced, at(row, index), NONE
        )

    def _stretches(self, synced: NDArray[np.bool_], asked: _Spans) -> Ints:
        """Return the number of the stretch of launches in which each gap lies, -1 for none. A stretch ends at
        work of CUDA graphs, at gaps that begin with a wait for input or a synchronising call, and at gaps of
        ``DISPATCH`` or more."""
        position = np.empty(len(self.work.start), np.int64)
        position[self.rows] = np.arange(len(self.rows))
        where = position[self.after]
        loading = np.zeros(len(self.start), bool)
        if len(asked[0]):
            before = np.searchsorted(asked[0], self.end, side="left") - 1
            loading = (before >= 0) & (at(asked[1], before, 0) > self.start)
        short = (self.length < DISPATCH) & ~loading & ~synced & ~self._in_graph(self.after)
        late = np.flatnonzero(short)
        if len(late) < FEWEST:
            return np.full(len(self.start), NONE, np.int64)
        broken = np.concatenate(([0], np.cumsum(~short)))[late]
        graph = np.concatenate(([0], np.cumsum(self._in_graph(self.rows))))[where[late]]
        far = np.diff(where[late]) > BETWEEN + 1
        new = far | (np.diff(broken) > 0) | (np.diff(graph) > 0)
        number = np.concatenate(([0], np.cumsum(new)))
        enough = np.bincount(number) >= FEWEST
        stretch = np.full(len(self.start), NONE, np.int64)
        stretch[late] = np.where(enough[number], number, NONE)
        return stretch

    def _op(self) -> Ints:
        """Return the row of the op that launched the work after each gap."""
        row, copy = self.work.row[self.after].astype(np.int64), self.work.kind[self.after] == COPY
        of_kernel = at(self.attribution.kernels.op, np.where(copy, NONE, row))
        of_copy = at(self.attribution.memops.op, np.where(copy, row, NONE))
        op: Ints = np.where(copy, of_copy, of_kernel).astype(np.int64)
        return op

    def _in_graph(self, rows: Ints) -> NDArray[np.bool_]:
        row, copy = self.work.row[rows].astype(np.int64), self.work.kind[rows] == COPY
        kernels, memops = self.attribution.kernels.replay, self.attribution.memops.replay
        in_graph: NDArray[np.bool_] = at(kernels, np.where(copy, NONE, row)) >= 0
        in_graph |= at(memops, np.where(copy, row, NONE)) >= 0
        return in_graph

    def stretches(self, steps: pl.DataFrame) -> pl.DataFrame:
        """Return the stretches on each thread: thread, start, end, launches, idle (ns)."""
        rows = np.flatnonzero(self.stretch >= 0)
        empty = pl.DataFrame(
            schema={k: v for k, v in _STRETCHES.items() if k not in ("process", "device")}
        )
        if not len(rows):
            return empty
        number = self.stretch[rows]
        low = np.flatnonzero(np.concatenate(([True], number[1:] != number[:-1])))
        begin, end = self.start[rows[low]], self.end[rows[np.append(low[1:], len(rows)) - 1]]
        idle = np.add.reduceat(self.length[rows], low)
        calls = self.attribution.trace["calls"]
        call = self.work.call[self.rows].astype(np.int64)
        start = self.work.start[self.rows]
        of = np.searchsorted(begin, start, side="right") - 1
        inside = (of >= 0) & (call >= 0) & (start <= at(end, of, 0))
        launched = pl.DataFrame(
            {
                "stretch": of[inside],
                "thread": calls["thread"].gather(call[inside]),
                "called": calls["start"].gather(call[inside]),
                "returned": calls["end"].gather(call[inside]),
            }
        )
        stretches = pl.DataFrame({"stretch": np.arange(len(begin)), "idle": idle})
        inside_steps = merge(steps["start"].to_numpy(), steps["end"].to_numpy())
        kept = np.searchsorted(inside_steps[0], begin, side="right") - 1
        good = (kept >= 0) & (at(inside_steps[1], kept, 0) > begin)
        return (
            launched.group_by("stretch", "thread", maintain_order=True)
            .agg(
                pl.col("called").min().alias("start"),
                pl.col("returned").max().alias("end"),
                pl.len().cast(pl.Int64).alias("launches"),
            )
            .join(
                stretches.filter(pl.Series(good)), on="stretch", how="inner", maintain_order="left"
            )
            .select(empty.columns)
        )
