"""Divide the steps' time by what bounds it: the device's work and, while the device was idle, the cause. The
parts of a stretch of time exclude each other and add up to it exactly. Where several apply at once, the first
in the list counts. On a GPU they are ``GPU_PARTS``, on a CPU-only trace ``CPU_PARTS``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.analysis.device.device_work import (
    COMMUNICATION,
    COMPUTATION,
    COPY,
    DeviceWork,
    spans,
)
from opscope.core.analysis.device.idle import HOST, KERNEL, KERNEL_WAIT, UNKNOWN, Gaps, gaps_between
from opscope.core.analysis.ops.ops import Ops
from opscope.core.analysis.steps.step_times import Spans, covered, loads, split
from opscope.core.analysis.steps.warm_up import warm_up_of_job
from opscope.core.analysis.summary.summary import compiles
from opscope.core.job.exchanges import computing, on_host
from opscope.core.schema import COMPILE
from opscope.core.tables.columns import at, matching
from opscope.core.tables.intervals import NONE, merge, subtract
from opscope.core.tables.trace import Trace

#: ``computation``; ``communication`` that no computation hides: on the device or, while the device is idle,
#: by a backend on the host; ``copying``: copies and sets that nothing else hides. In the other parts the
#: device is idle: the program waits for its ``input``; a program is ``compiling``; the host, which waited for
#: the device, launches too late (``synchronising``); the host launches too late for other reasons (``host``);
#: a copy was requested and has not begun (``staging``); a kernel starts (``starting``: the gap is under 30
#: µs); launched work waits for other work (``queued``); the cause is not known (``unknown``).
GPU_PARTS: Final = (
    *("computation", "communication", "copying", "input", "compiling", "synchronising", "host"),
    *("staging", "starting", "queued", "unknown"),
)
#: ``input``, ``compiling`` (until another event begins), ``computation`` (ops), ``communication`` beside no
#: op, time ``outside`` any op.
CPU_PARTS: Final = ("input", "compiling", "computation", "communication", "outside")
#: Calls of CUDA and HIP in which the host waits for the device.
SYNCHRONISES: Final = (
    r"\A(cuda|hip|cu)(Device|Stream|Event|Ctx)Synchronize|\A(cuda|hip)Memcpy(_v\d+)?\z"
)
#: A step longer than this many medians is slow; the parts of a median step leave it out.
SLOW: Final = 1.5
_NOTHING: Final[Spans] = (np.empty(0, np.int64), np.empty(0, np.int64))


@dataclass(frozen=True, slots=True)
class Stretch:
    """The judged stretches of time of one process: disjoint, in order (ns)."""

    spans: Spans
    #: The number of steps; 0 where no steps are known.
    steps: int
    #: The start and end of each step (ns); steps that touch are one stretch.
    each: Spans = _NOTHING


@dataclass(frozen=True, slots=True)
class Steps:
    """The judged steps, by process, and how much longer the first ones took than later ones (ns)."""

    of: dict[int, Stretch]
    #: Time of all steps, including the first ones, and by how much the first ones exceeded the median.
    whole: int = 0
    starting: int = 0
    started: int = 0
    #: The time (ns) for which the first ones compiled.
    compiling: int = 0
    #: The number of judged steps in which a program was compiled.
    compiled: int = 0
    #: The steps in ``of`` that are not slow (``SLOW``), which make up a median step; ``of`` itself if none is
    #: slow.
    usual: dict[int, Stretch] = field(default_factory=dict)
    #: The median of the judged steps (ns), and the number of steps of a process.
    median: int = 0
    many: int = 0


@dataclass(frozen=True, slots=True)
class Divided:
    """The time of one device, or on a CPU of one process, by parts (ns); they add up to ``time``."""

    process: int
    device: int | None
    time: int
    steps: int
    parts: dict[str, int]
    #: The longest gap (ns) in which the device waited for the host; 0 on a CPU.
    longest: int = 0
    #: On a CPU: the standard error (ns) of the time ``outside``, from how much its part of a step varies.
    error: float = 0.0


def steps_to_judge(
    table: pl.DataFrame, asked: pl.DataFrame, work: DeviceWork | None, host: Host
) -> Steps:
    """Return the steps that ended and were captured, without the first ones if these are slow (warm-up) or
    only they compile.

    ``table`` is ``step_times.steps_of``, ``asked`` is ``input_waits.input_waits``: a step begins when it asks
    for its input. Steps in which the device ran nothing are left out: MindSpore's device traces mark ten
    steps but have the work of one.
    """
    rows = table.filter(pl.col("step").is_not_null())
    if rows.is_empty():
        none: dict[int, Stretch] = {}
        return Steps(none, usual=none)
    waited = asked.group_by("process", "start").agg(pl.col("duration").max())
    rows = rows.join(waited, on=["process", "start"], how="left", maintain_order="left")
    rows = rows.with_columns(
        (pl.col("end") - pl.max_horizontal("time", "duration")).alias("begin"),
        pl.max_horizontal("time", "duration").alias("time"),
    )
    if work is not None:
        rows = rows.filter(_with_work(rows, work))
    rows = rows.with_columns(warm_up_of_job(rows), _compiles_first(rows, host))
    rows = rows.filter(pl.col("seen") | ~pl.col("seen").any().over("process"))
    warm = pl.col("warm_up").fill_null(False) | pl.col("compiles_first")
    later = rows.filter(~warm)
    usual = later.group_by("process").agg(pl.col("time").median().alias("usual"))
    first = rows.filter(warm).join(usual, on="process", how="left")
    kept = later if len(later) else rows
    of = _stretches(kept)
    compiled = 0
    for process, judged in of.items():
        spent = covered(host.compiling.get(process, _NOTHING), *judged.each)
        compiled += int(np.count_nonzero(spent))
    usual_ones = kept.filter(pl.col("time") <= SLOW * pl.col("time").median().over("process"))
    # ranks start at the same time, so the slowest rank's start counts for the job
    by_process = first.group_by("process").agg(
        (pl.col("time") - pl.col("usual")).sum().alias("more"), pl.len()
    )
    return Steps(
        of,
        _most(rows.group_by("process").agg(pl.col("time").sum())["time"]),
        _most(by_process["more"]),
        _most(by_process["len"]),
        _most(first.select(_compiling(first, host)).group_by("process").sum()["compiling"]),
        compiled,
        of if len(usual_ones) == len(kept) else _stretches(usual_ones),
        round(float(np.median(kept["time"].to_numpy()))) if len(kept) else 0,
        max((judged.steps for judged in of.values()), default=0),
    )


def _compiling(steps: pl.DataFrame, host: Host) -> list[pl.Series]:
    """Return the process of each step, and how long (ns) it compiled in the step."""
    spent = np.zeros(len(steps), np.int64)
    start, end = (steps[name].to_numpy() for name in ("begin", "end"))
    for process, compiling in host.compiling.items():
        rows = np.flatnonzero((steps["process"] == process).fill_null(False).to_numpy())
        spent[rows] = covered(compiling, start[rows], end[rows])
    return [steps["process"], pl.Series("compiling", spent)]


def _most(column: pl.Series) -> int:
    """Return the largest number of a column; 0 for an empty one."""
    return round(float(column.max() or 0))  # type: ignore[arg-type]


def _stretches(rows: pl.DataFrame) -> dict[int, Stretch]:
    of = {}
    for (process,), part in rows.drop_nulls("process").group_by("process", maintain_order=True):
        begins, ends = part["begin"].to_numpy(), part["end"].to_numpy()
        of[int(process)] = Stretch(merge(begins, ends), len(part), (begins, ends))
    return of


def _compiles_first(steps: pl.DataFrame, host: Host) -> pl.Series:
    """Return whether each step is among the first ones (at most half) of its process, if only these
    compile."""
    is_first = np.zeros(len(steps), bool)
    for process, compiling in host.compiling.items():
        rows = np.flatnonzero((steps["process"] == process).fill_null(False).to_numpy())
        rows = rows[np.argsort(steps["begin"].to_numpy()[rows], kind="stable")]
        start, end = (steps[name].to_numpy()[rows] for name in ("begin", "end"))
        compiles = covered(compiling, start, end) > 0
        first = int(np.argmin(np.append(compiles, False)))
        if 2 * first <= len(rows) and not compiles[first:].any():
            is_first[rows[:first]] = True
    return pl.Series("compiles_first", is_first, dtype=pl.Boolean)


def _with_work(steps: pl.DataFrame, work: DeviceWork) -> pl.Series:
    """Return whether a device of the step's process ran anything in each step."""
    process = work.devices["process"].fill_null(NONE).to_numpy()[work.device]
    works = np.zeros(len(steps), bool)
    for number in np.unique(process).tolist():
        rows = np.flatnonzero((steps["process"] == number).fill_null(False).to_numpy())
        start, end = (steps[name].to_numpy()[rows] for name in ("begin", "end"))
        works[rows] = covered(spans(work, process == number), start, end) > 0
    return pl.Series(works, dtype=pl.Boolean)


def on_gpu(
    work: DeviceWork, trace: Trace, host: Host, steps: Mapping[int, Stretch]
) -> list[Divided]:
    """Return the time of each device of each process with ``steps``; without steps, of all devices, each from
    its first work to its last."""
    gaps = gaps_between(work)
    waits = _waited_for(work, trace)
    devices = []
    for lane, rows in work.lanes(work.device):
        process, device = work.devices.row(lane)
        process = NONE if process is None else int(process)
        mine = gaps.lane == lane
        if steps:
            judged = steps.get(process)
            if judged is None:
                continue
        else:
            here = gaps.of == lane
            judged = Stretch(merge(gaps.low[here], gaps.high[here]), 0)
        kind = work.kind[rows]
        unions = [
            spans(work, rows[kind == kind_number])
            for kind_number in (COMPUTATION, COMMUNICATION, COPY)
        ]
        parts = dict.fromkeys(GPU_PARTS, 0)
        start, end = judged.spans
        time = int((end - start).sum())
        for name, part in zip(GPU_PARTS, split(unions, start, end), strict=False):
            parts[name] = 0 if part is None else int(part.sum())
        busy = _all(unions)
        idle = subtract(judged.spans, busy)
        held_up = [
            one.get(process, _NOTHING) for one in (host.loading, host.compiling, host.talking)
        ]
        for name, part in zip(
            ("input", "compiling", "communication"), split(held_up, *idle), strict=True
        ):
            parts[name] += 0 if part is None else int(part.sum())
        rest = subtract(judged.spans, _all(held_up))
        gap_times = _gaps(work, gaps, mine, rest, waits.get(process, _NOTHING))
        late = mine & (gaps.kind == HOST)
        longest = int((gaps.end - gaps.start)[late].max()) if late.any() else 0
        parts |= gap_times
        # before the first work of the trace, and after the last
        edge = time - sum(parts.values())
        parts["host" if work.with_calls and judged.steps else "unknown"] += edge
        devices.append(Divided(process, device, time, judged.steps, parts, longest))
    return devices


def _all(unions: list[Spans]) -> Spans:
    return merge(*(np.concatenate([union[side] for union in unions]) for side in (0, 1)))


def _gaps(
    work: DeviceWork, gaps: Gaps, mine: NDArray[np.bool_], judged: Spans, waits: Spans
) -> dict[str, int]:
    """Return the parts of the gaps of one device (ns) within ``judged``."""
    start, end, after = (column[mine] for column in (gaps.start, gaps.end, gaps.after))
    kind = gaps.kind[mine]
    total = covered(judged, start, end)
    called = work.called[after]
    # a copy's call blocks the host until the copy is made, or its memory was copied
    copies = (work.kind[after] == COPY) & (work.call[after] >= 0) & (end - start >= KERNEL_WAIT)
    begun = np.clip(called, start, end)
    held_up = copies & (work.returned[after] >= end)
    staging = np.where(held_up, covered(judged, begun, end), 0)
    rest = total - staging
    index = np.searchsorted(waits[0], start, side="right") - 1
    waited = np.zeros(len(start), bool)
    if len(waits[0]):
        waited = (index >= 0) & (at(waits[1], index, 0) >= start)
    sums = {"staging": int(staging.sum())}
    for name, chosen in (
        ("synchronising", (kind == HOST) & waited),
        ("host", (kind == HOST) & ~waited),
        ("starting", kind == KERNEL),
        ("queued", (kind != HOST) & (kind != KERNEL) & (kind != UNKNOWN)),
        ("unknown", kind == UNKNOWN),
    ):
        sums[name] = int(rest[chosen].sum())
    return sums


def _waited_for(work: DeviceWork, trace: Trace) -> dict[int, Spans]:
    """Return by process the times (ns) in which a thread waited for the device: in synchronising calls, and
    in calls of copies to the host that returned when the copy was made."""
    calls, memops = trace["calls"], trace["memops"]
    if calls.is_empty():
        return {}
    waiting = matching(calls["name"], SYNCHRONISES)
    to_host = (memops["kind"].cast(pl.String) == "DtoH").fill_null(False).to_numpy()
    made = (work.kind == COPY) & (work.call >= 0) & (work.returned >= work.end)
    made &= at(to_host, np.where(work.kind == COPY, work.row, NONE).astype(np.int64), False)
    waiting[work.call[made]] = True
    chosen = calls[np.flatnonzero(waiting)].select("process", "start", "end").drop_nulls("process")
    return {
        int(process): merge(part["start"].to_numpy(), part["end"].to_numpy())
        for (process,), part in chosen.group_by("process")
    }


@dataclass(frozen=True, slots=True)
class Host:
    """The facts in the host's ranges, by process (ns): waits for input, compilations, collectives that a
    backend ran on the host's threads, outermost ops."""

    loading: dict[int, Spans]
    compiling: dict[int, Spans]
    talking: dict[int, Spans]
    ops: dict[int, Spans]
    #: The number of the outermost ops, and their median length.
    many: int
    median: float


def host_of(ops: Ops, waits: pl.DataFrame, compilations: pl.DataFrame, cpu_only: bool) -> Host:
    """Return the facts in the host's ranges. Ops are included only if the CPU is the device. ``waits`` is
    ``input_waits.waits``, ``compilations`` is ``wall_time.compilations``."""
    trace = ops.attribution.trace
    loading = _by_process(waits.filter("timed"))
    compiling = _by_process(compilations)
    if not cpu_only:
        return Host(loading, compiling, on_host(ops.attribution), {}, 0, 0.0)
    ranges, meaning = trace["ranges"], ops.attribution.meaning
    talks = meaning.talks
    outer = np.zeros(len(ranges), bool)
    outer[ops.rows[ops.times.parent < 0]] = True
    outer &= ~loads(ops) & ~at(talks, meaning.reading.astype(np.int64), False)
    rows = ranges[np.flatnonzero(outer)].select("process", "thread", "start", "end")
    when = (rows[name].fill_null(NONE).to_numpy() for name in ("process", "thread", "start"))
    rows = rows.filter(~ops.phase(*when).str.starts_with(COMPILE).fill_null(False))
    length = (rows["end"] - rows["start"]).median()
    outermost = computing(ops.attribution, outer)
    # a compiler is at work until something runs; a session is ready when its phase ends
    for process, mine in _by_process(compiles(trace)).items():
        both = [table.get(process, _NOTHING) for table in (loading, outermost)]
        compiling[process] = _all([compiling[process], _until_run(mine, _all(both))])
    return Host(loading, compiling, {}, outermost, len(rows), float(length or 0))


def _by_process(rows: pl.DataFrame) -> dict[int, Spans]:
    return {
        NONE if process is None else int(process): merge(
            part["start"].to_numpy(), part["end"].to_numpy()
        )
        for (process,), part in rows.select("process", "start", "end").group_by("process")
    }


def on_cpu(host: Host, exchanged: pl.DataFrame, steps: Mapping[int, Stretch]) -> list[Divided]:
    """Return the time of each process that made ``steps`` or, if none did, ran ops: from its first op to its
    last. ``exchanged`` is ``timed.exchanged``."""
    talking = _by_process(
        exchanged.filter(pl.col("end").is_not_null() & pl.col("start").is_not_null())
    )
    judged = dict(steps) or {
        process: Stretch((first[:1], last[-1:]), 0)
        for process, (first, last) in host.ops.items()
        if len(first)
    }
    lanes = []
    for process, stretch in sorted(judged.items()):
        start, end = stretch.spans
        kinds = [
            table.get(process, _NOTHING)
            for table in (host.loading, host.compiling, host.ops, talking)
        ]
        sums = [0 if part is None else int(part.sum()) for part in split(kinds, start, end)]
        time = int((end - start).sum())
        parts = dict(zip(CPU_PARTS, [*sums, time - sum(sums)], strict=True))
        error = _error(stretch.each, _all([kind for kind in kinds if kind is not None]))
        lanes.append(Divided(process, None, time, stretch.steps, parts, error=error))
    return lanes


def _error(steps: Spans, spans: Spans) -> float:
    """Return the standard error (ns) of the steps' time outside ``spans``, as that of a ratio of sums
    (Cochran, Sampling Techniques, 1977, 6.3); infinite for one step."""
    start, end = steps
    count = len(start)
    if not count:
        return 0.0
    length = (end - start).astype(np.float64)
    outside = length - covered(spans, start, end)
    if count < 2 or not length.sum():
        return float("inf")
    off = outside - outside.sum() / length.sum() * length
    return float(np.sqrt(count / (count - 1) * (off**2).sum()))


def _until_run(compiling: Spans, others: Spans) -> Spans:
    """Return the compilations, each until another event begins: TensorFlow optimises a graph, outside any
    range, when it first runs it."""
    if not len(compiling[0]) or not len(others[0]):
        return compiling
    index = np.searchsorted(others[0], compiling[1], side="left")
    after = others[0][np.minimum(index, len(others[0]) - 1)]
    return merge(compiling[0], np.maximum(compiling[1], after))
