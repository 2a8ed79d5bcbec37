"""How well kernels fill each device: utilization, SM efficiency, occupancy, Tensor Cores; figures and curves.

The definitions are those of the PyTorch profiler's TensorBoard plug-in (torch-tb-profiler 0.4.3,
``gpu_metrics_parser.py``), with its window: the steps, and the work that they launched.

- utilization: time in which a kernel ran / window;
- SM efficiency, estimated: at each instant the blocks of the kernels that run, at most one a multiprocessor,
  over the multiprocessors; the mean over the window;
- achieved occupancy, estimated (``launches.py``): the mean over the kernels' time;
- Tensor Core time: durations of kernels that use Tensor Cores.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.analysis.answers import Answers
from opscope.core.analysis.device.device_columns import FORMS
from opscope.core.analysis.device.launches import Launches, launch_configurations
from opscope.core.analysis.ops.executed import uses_tensor_cores
from opscope.core.analysis.ops.lost_kernels import idle_unknown
from opscope.core.analysis.ops.ops import Ops, op_index
from opscope.core.analysis.ops.windows import bounds, captured_steps
from opscope.core.analysis.summary.summary import ended_steps
from opscope.core.question import lacking, parameters, units
from opscope.core.question.column import Frame
from opscope.core.question.layout import Table
from opscope.core.question.record import Question, Report, Rows, View
from opscope.core.question.tables import listed
from opscope.core.question.words import columns
from opscope.core.tables.columns import gather, pieces
from opscope.core.tables.intervals import NONE, Ints, in_order, intersect, merge
from opscope.core.tables.lanes import numbered_by, rows_of
from opscope.core.tables.trace import Trace

#: The columns of ``kernels`` that are needed.
NEEDED: Final = ("process", "device", "start", "end", "call_start", "tensor_core")
#: Reason for an unknown utilization.
NO_GAPS: Final = "the source has the times that kernels took, but not when they ran"
#: The most points of a device's curve.
MOST_BUCKETS: Final = 100_000
_SUMS: Final = {
    "kernel_busy": pl.Int64,
    "gpu_utilization": pl.Float64,
    "sm_efficiency": pl.Float64,
    "achieved_occupancy": pl.Float64,
    "theoretical_occupancy": pl.Float64,
    "kernel_time": pl.Int64,
    "tensor_core_time": pl.Int64,
    "tensor_core_undetermined_time": pl.Int64,
    "tensor_core_share": pl.Float64,
    "grid_known": pl.Float64,
    "occupancy_known": pl.Float64,
}
USE: Final = {
    "process": pl.Int32,
    "device": pl.Int32,
    "device_name": pl.String,
    "sm_count": pl.Int64,
    "window": pl.Int64,
    **_SUMS,
    "kernels": pl.Int64,
    "utilization_reason": pl.String,
    "occupancy_reason": pl.String,
}
CURVE: Final = {
    "process": pl.Int32,
    "device": pl.Int32,
    "start": pl.Int64,
    "end": pl.Int64,
    **_SUMS,
}


def used_kernels(ops: Ops) -> pl.DataFrame:
    """Return the columns ``NEEDED`` of ``Profile.kernels``, without computing the others."""
    trace, launched = ops.attribution.trace, ops.attribution.kernels
    call_start = gather(trace["calls"]["start"], launched.call).alias("call_start")
    return (
        trace["kernels"]
        .select("process", "device", "start", "end")
        .with_columns(call_start, uses_tensor_cores(ops))
    )


@dataclass(frozen=True, slots=True)
class _Device:
    """The kernels of one process on one device, and the disjoint times in which they count.

    ``rows``: the kernels' rows, by start; ``start``, ``end``: of all kernels.
    """

    process: int | None
    device: int | None
    rows: NDArray[np.int32]
    start: Ints
    end: Ints
    window: tuple[Ints, Ints]
    launched: bool  # whether the source has calls that launched something

    @property
    def made_up(self) -> bool:
        """Whether a reader laid the kernels end to end, because the source only has their durations."""
        if self.launched:
            return False
        low, high = self.bounds
        if (self.start[self.rows[0]], self.end[self.rows[-1]]) != (low, high):
            return False
        return all(
            bool(
                (self.start[self.rows[part_rows][1:]] == self.end[self.rows[part_rows][:-1]]).all()
            )
            for part in pieces(len(self.rows) - 1)
            for part_rows in [slice(part.start, part.stop + 1)]
        )

    @property
    def bounds(self) -> tuple[int, int]:
        return int(self.window[0][0]), int(self.window[1][-1])

    def segments(self) -> Iterator[_Segment]:
        """Yield parts of the window in which some 250,000 kernels start each, with the kernels that run in
        them.

        Integrals over time add up over the parts; for ten million kernels at once they would take 1 GB more.
        """
        low, high = self.bounds
        since, open_rows = low, self.rows[:0]
        for part in pieces(len(self.rows)):
            fresh = self.rows[part]
            last = part.stop >= len(self.rows)
            until = high if last else int(self.start[self.rows[part.stop]].clip(since, high))
            rows = np.concatenate((open_rows, fresh))
            start, end = self.start[rows].clip(since, until), self.end[rows]
            open_rows = rows[end > until]
            here = np.flatnonzero(end.clip(since, until) > start)
            begun, done = self.start[fresh], self.end[fresh]
            counted = (done.clip(max=high) > begun.clip(low)) | ((begun >= low) & (done <= high))
            yield _Segment(
                (since, until), rows[here], start[here], end[here].clip(max=until), fresh[counted]
            )
            since = until


@dataclass(frozen=True, slots=True)
class _Segment:
    """A part of a device's window: its ``bounds``, the kernels that run in it (by start) with their times,
    and ``counted``: the kernels that begin in it and are in the window."""

    bounds: tuple[int, int]
    rows: NDArray[np.int32]
    start: Ints
    end: Ints
    counted: NDArray[np.int32]


def device_use(trace: Trace, kernels: pl.DataFrame, launched: Launches) -> pl.DataFrame:
    """Return one row per process and device that ran kernels: ``USE``; times in ns, shares in 0 … 1.

    ``kernels`` is ``Profile.kernels``' frame, a row for each of the trace's kernels: start, end, call_start,
    tensor_core. The window is that of ``_windows``. A figure is null if no kernel in the window has its data.
    If only some have, ``sm_efficiency`` counts the others as 0 and the occupancies leave them out;
    ``grid_known`` and ``occupancy_known`` are the known shares of the kernels' time.
    """
    tables = []
    for device in _devices(trace, kernels):
        of = _Sums.of(device, kernels, launched, np.array(device.bounds))
        why = launched.of_kernels("occupancy_reason").gather(device.rows).drop_nulls()
        row = of.figures(device)
        why_no_use = NO_GAPS if device.made_up else None
        first = int(launched.code[device.rows[0]])
        tables.append(
            row.with_columns(
                pl.lit(device.process, pl.Int32).alias("process"),
                pl.lit(device.device, pl.Int32).alias("device"),
                pl.lit(launched.table["device_name"][first], pl.String).alias("device_name"),
                pl.lit(launched.table["sm_count"][first], pl.Int64).alias("sm_count"),
                pl.col("inside").alias("window"),
                pl.lit(of.inside, pl.Int64).alias("kernels"),
                pl.lit(why_no_use, pl.String).alias("utilization_reason"),
                pl.lit(why.mode().sort()[0] if len(why) else None, pl.String).alias(
                    "occupancy_reason"
                ),
            ).select(pl.col(name).cast(kind) for name, kind in USE.items())
        )
    return pl.concat(tables) if tables else pl.DataFrame(schema=USE)


def device_curve(
    trace: Trace, kernels: pl.DataFrame, launched: Launches, buckets: int
) -> pl.DataFrame:
    """Return the figures of ``device_use`` over time: ``buckets`` equal parts of each device's window.

    A part is a row of ``CURVE``: start, end (ns) and its figures; the parts of a device add up to
    ``device_use``. Raises ValueError for fewer than 1 or more than 100,000 buckets.
    """
    if not 1 <= buckets <= MOST_BUCKETS:
        raise ValueError(f"buckets must be from 1 to {MOST_BUCKETS:,}, not {buckets}")
    tables = []
    for device in _devices(trace, kernels):
        low, high = device.bounds
        if low == high:
            continue
        count = min(buckets, high - low)  # no part is shorter than 1 ns
        edges = low + np.array([(high - low) * index // count for index in range(count + 1)])
        rows = _Sums.of(device, kernels, launched, edges).figures(device)
        tables.append(
            rows.with_columns(
                pl.lit(device.process, pl.Int32).alias("process"),
                pl.lit(device.device, pl.Int32).alias("device"),
                pl.Series("start", edges[:-1]),
                pl.Series("end", edges[1:]),
            ).select(pl.col(name).cast(kind) for name, kind in CURVE.items())
        )
    return pl.concat(tables) if tables else pl.DataFrame(schema=CURVE)


@dataclass(slots=True)
class _Sums:
    """The integrals over the time of a device, between each edge (ns) and the next: ``sums``.

    ``sized``, ``decided``: whether the number of blocks, or the use of Tensor Cores, is known for any kernel;
    ``inside``: the number of kernels in the window.
    """

    edges: Ints
    sums: dict[str, NDArray[Any]]
    sm_count: int | None = None
    sized: bool = False
    decided: bool = False
    inside: int = 0

    @classmethod
    def of(cls, device: _Device, kernels: pl.DataFrame, launched: Launches, edges: Ints) -> _Sums:
        kernel_facts = _Known.of(kernels, launched)
        count = len(edges) - 1
        sums = {
            name: np.zeros(count, np.float64 if name in _RATES else np.int64) for name in _INTEGRALS
        }
        found = cls(edges, sums)
        for segment in device.segments():
            if len(segment.counted):
                code = launched.code[segment.counted]
                if not found.inside:
                    found.sm_count = launched.table["sm_count"][int(code[0])]
                found.inside += len(code)
                found.sized |= bool((kernel_facts.blocks[code] >= 0).any())
                found.decided |= bool((kernel_facts.tensor_core(segment.counted) >= 0).any())
            since, until = segment.bounds
            if len(segment.rows):
                inner = edges[(edges > since) & (edges < until)]
                part = _integrals(
                    segment, np.concatenate(([since], inner, [until])), kernel_facts, found.sm_count
                )
                index = int(np.searchsorted(edges, since, side="right")) - 1
                for name, values in part.items():
                    sums[name][index : index + len(values)] += values
        return found

    def figures(self, device: _Device) -> pl.DataFrame:
        """Return the sums between each edge and the next, and the figures computed from them."""
        sms = {"sm_time": self.sums["sm_time"] / (self.sm_count or 1)}
        inside = {"inside": _integral(*device.window, self.edges)}
        frame = pl.DataFrame({**inside, **self.sums, **sms})
        nothing = pl.lit(None, pl.Int64)
        placed = pl.lit(not device.made_up)
        efficiency = pl.col("sm_time") / pl.col("inside")
        return frame.with_columns(
            pl.when(placed).then(_over("kernel_busy", "inside")).alias("gpu_utilization"),
            pl.when((pl.col("inside") > 0) & self.sized & placed)
            .then(efficiency)
            .alias("sm_efficiency"),
            _over("achieved", "occupied").alias("achieved_occupancy"),
            _over("theoretical", "fitting").alias("theoretical_occupancy"),
            _over("known", "kernel_time").alias("grid_known"),
            _over("occupied", "kernel_time").alias("occupancy_known"),
            (pl.col("tensor_core_time") if self.decided else nothing).alias("tensor_core_time"),
        ).with_columns(_over("tensor_core_time", "kernel_time").alias("tensor_core_share"))


#: Quantities of which there is also the kernel time for which they are known.
_RATES: Final = ("achieved", "theoretical")
_INTEGRALS: Final = (
    *("kernel_busy", "kernel_time", "tensor_core_time", "tensor_core_undetermined_time"),
    *("known", "occupied", "fitting", "sm_time", *_RATES),
)


@dataclass(frozen=True, slots=True)
class _Known:
    """Known facts about kernels: from their launch configuration, and whether they use Tensor Cores."""

    code: NDArray[np.int32]
    blocks: Ints  # -1: not known
    achieved: NDArray[np.float64]  # nan: not known
    theoretical: NDArray[np.float64]
    on_tensor_cores: pl.Series

    @classmethod
    def of(cls, kernels: pl.DataFrame, launched: Launches) -> _Known:
        table = launched.table
        blocks = table["blocks"].fill_null(NONE).to_numpy()
        return cls(
            launched.code,
            np.where(table["blocks_per_sm"].is_null().to_numpy(), NONE, blocks),
            table["achieved_occupancy"].fill_null(np.nan).to_numpy(),
            table["theoretical_occupancy"].fill_null(np.nan).to_numpy(),
            kernels["tensor_core"],
        )

    def tensor_core(self, rows: NDArray[np.int32]) -> NDArray[np.int8]:
        """Return whether kernels use Tensor Cores: 1, 0, or -1 if unknown."""
        flags: NDArray[np.int8] = (
            self.on_tensor_cores.gather(rows).cast(pl.Int8).fill_null(NONE).to_numpy()
        )
        return flags


def _integrals(
    segment: _Segment, edges: Ints, kernel_facts: _Known, sm_count: int | None
) -> dict[str, NDArray[Any]]:
    """Return ``_INTEGRALS`` between each edge and the next, all within the segment."""
    times = _Times.of(segment.start, segment.end, edges)
    code, tensor_core = kernel_facts.code[segment.rows], kernel_facts.tensor_core(segment.rows)
    blocks, achieved, theoretical = (
        kernel_facts.blocks[code],
        kernel_facts.achieved[code],
        kernel_facts.theoretical[code],
    )
    lasted = times.sums()
    sized, rated, fits = blocks >= 0, ~np.isnan(achieved), ~np.isnan(theoretical)

    def part(
        chosen: NDArray[np.bool_], weight: NDArray[np.float64] | None = None
    ) -> NDArray[np.generic]:
        if not chosen.any():
            return np.zeros(len(edges) - 1, np.int64)
        return lasted if weight is None and chosen.all() else times.sums(chosen, weight)

    return {
        "kernel_busy": _Times.of(*merge(segment.start, segment.end), edges).sums(),
        "kernel_time": lasted,
        "tensor_core_time": part(tensor_core == 1),
        "tensor_core_undetermined_time": part(tensor_core < 0),
        "known": part(sized),
        "occupied": part(rated),
        "fitting": part(fits),
        "sm_time": _occupying(segment, blocks, sm_count, times),
        "achieved": part(rated, achieved),
        "theoretical": part(fits, theoretical),
    }


def _occupying(segment: _Segment, blocks: Ints, sm_count: int | None, times: _Times) -> Ints:
    """Return the time (ns) of multiprocessors that have a block.

    At each instant, this is the number of blocks of all running kernels, at most ``sm_count``: whole numbers,
    added up exactly. A kernel that runs alone needs no count at each instant.
    """
    if not sm_count:
        return np.zeros(len(times.edges) - 1, np.int64)
    start, end, sized = segment.start, segment.end, blocks >= 0
    apart = start[1:] >= np.maximum.accumulate(end)[:-1]
    alone = sized & np.append(True, apart)[: len(sized)] & np.append(apart, True)[: len(sized)]
    rest = np.flatnonzero(sized & ~alone)
    occupied: Ints = times.sums(alone, np.minimum(blocks, sm_count))
    return occupied + _cap(start[rest], end[rest], blocks[rest], sm_count, times.edges)


@dataclass(frozen=True, slots=True)
class _Times:
    """How long intervals, by start, are open between each edge and the next; all intervals are inside the
    edges."""

    edges: Ints
    cuts: Ints  # the intervals cuts[i] to cuts[i + 1] start in part i
    first: Ints  # how long each is open in the part in which it starts
    over: Ints  # intervals that are open in later parts too
    since: Ints  # from when they are open
    end: Ints

    @classmethod
    def of(cls, start: Ints, end: Ints, edges: Ints) -> _Times:
        inner = np.searchsorted(start, edges[1:-1])
        cuts = np.concatenate(([0], inner, [len(start)]))
        limit = np.repeat(edges[1:], np.diff(cuts))
        over = np.flatnonzero(end > limit)
        return cls(edges, cuts, np.minimum(end, limit) - start, over, limit[over], end[over])

    def sums(
        self, chosen: NDArray[np.bool_] | None = None, weight: NDArray[Any] | None = None
    ) -> NDArray[Any]:
        """Return the sum (ns, weighted) between each edge and the next, of all or of those ``chosen``."""
        scale: NDArray[Any] | None = chosen if weight is None else weight
        if weight is not None and chosen is not None and not chosen.all():
            scale = np.where(chosen, weight, 0)
        each = self.first if scale is None else self.first * scale
        before = np.concatenate(([0], np.cumsum(each)))
        sums: NDArray[Any] = np.diff(before[self.cuts])
        if len(self.over):
            factor = None if scale is None else scale[self.over].astype(before.dtype)
            sums = sums + _integral(self.since, self.end, self.edges, factor)
        return sums


def _over(part: str, total: str) -> pl.Expr:
    return pl.when(pl.col(total) > 0).then(pl.col(part) / pl.col(total))


def _integral(
    start: Ints, end: Ints, edges: Ints, weight: NDArray[Any] | None = None
) -> NDArray[np.generic]:
    """Return how long (ns, weighted) intervals are open between each edge and the next, added up.

    Up to a time t, this is the sum of t - start over all started intervals minus the sum of t - end over all
    ended ones: two sorted columns and their prefix sums, exact for any overlaps.
    """
    total = np.zeros(len(edges), np.int64 if weight is None else weight.dtype)
    for times, sign in ((start, 1), (end, -1)):
        order = np.argsort(times, kind="stable")
        offset = times[order] - edges[0]
        each = np.ones(len(order), np.int64) if weight is None else weight[order]
        counts = np.concatenate(([0], np.cumsum(each)))
        sums = np.concatenate(([0], np.cumsum(each * offset)))
        until = np.searchsorted(times[order], edges, side="right")
        total = total + sign * (counts[until] * (edges - edges[0]) - sums[until])
    return np.diff(total)


def _cap(start: Ints, end: Ints, blocks: Ints, sm_count: int, edges: Ints) -> Ints:
    """Return the block time (ns) between the edges, counting at each instant at most ``sm_count`` blocks."""
    if not len(start):
        return np.zeros(len(edges) - 1, np.int64)
    time = np.concatenate((start, end))
    most = np.minimum(blocks, sm_count)
    change = np.concatenate((most, -most))
    order = np.argsort(time, kind="stable")
    time = time[order]
    level = np.minimum(np.cumsum(change[order]), sm_count)
    sums = np.concatenate(([0], np.cumsum(level[:-1] * np.diff(time))))
    index = np.clip(np.searchsorted(time, edges, side="right") - 1, 0, len(time) - 1)
    past = np.clip(edges, time[0], time[-1]) - time[index]
    until = sums[index] + np.where(edges >= time[0], level[index] * past, 0)
    areas: Ints = np.diff(until)
    return areas


def _devices(trace: Trace, kernels: pl.DataFrame) -> Iterator[_Device]:
    """Yield the kernels of each process and device."""
    if kernels.is_empty():
        return
    windows = _windows(trace, kernels)
    keys, of = numbered_by(kernels, ("process", "device"))
    start, end = kernels["start"].to_numpy(), kernels["end"].to_numpy()
    launching = set(trace["calls"]["process"].unique().to_list())
    devices = {
        keys[number]: in_order(start, rows).astype(np.int32)
        for number, rows in rows_of(len(keys), of)
    }
    for process, device in sorted(
        devices, key=lambda key: [NONE if number is None else number for number in key]
    ):
        rows = devices.pop((process, device))
        yield _Device(
            process,
            device,
            rows,
            start,
            end,
            windows[NONE if process is None else process],
            process in launching,
        )


def _windows(trace: Trace, kernels: pl.DataFrame) -> dict[int, tuple[Ints, Ints]]:
    """Return the time of each process in which its kernels count, as disjoint intervals.

    It is the time from the first step's start until the last step and all work launched by the steps have
    ended; without steps, from the first event to the last, on host and device. If the kernels were captured
    only in windows, it is the part of that time inside them.
    """
    windows: dict[int, tuple[Ints, Ints]] = {}
    steps = captured_steps(trace, ended_steps(trace["ranges"]))
    spans = _spans(trace)
    for process in kernels["process"].unique():
        own = pl.col("process").eq_missing(process)
        mine = steps.filter(own)
        low, high = spans.get(process, (0, 0))
        if len(mine):
            low, last = int(mine["start"].min()), int(mine["end"].max())  # type: ignore[arg-type]
            begun = (pl.col("call_start") >= low) & (pl.col("call_start") < last)
            ended: Any = kernels.select(pl.col("end").filter(own & begun).max()).item()
            high = last if ended is None else max(last, ended)
        window = (np.array([low]), np.array([high]))
        captured = trace["windows"].filter(own & pl.col("source").is_not_null())
        if len(captured):
            parts = merge(captured["start"].to_numpy(), captured["end"].to_numpy())
            # kernels that were launched in a window may end after it
            latest: Any = kernels.select(pl.col("end").filter(own).max()).item()
            parts = (parts[0], np.append(parts[1][:-1], max(int(parts[1][-1]), latest)))
            window = intersect(parts, window)
        if not len(window[0]):
            window = (np.array([low]), np.array([low]))
        windows[NONE if process is None else process] = window
    return windows


def _spans(trace: Trace) -> dict[int, tuple[int, int]]:
    """Return the first start and the last end of each process's events."""
    rows = bounds(trace).rows()
    return {process: (low, high) for process, low, high in rows if low is not None}


def windowed_kernels(profile: Answers) -> pl.DataFrame:
    """The kernels with the columns that the use of devices needs."""
    if profile._is_at_hand("kernels"):
        return profile._columns_of("kernels", NEEDED)
    return used_kernels(profile.of(op_index))


#: Figures that are unknown if kernels are missing; others are lower bounds.
_NOT_USED: Final = tuple(
    pl.lit(None, _SUMS[name]).alias(name)
    for name in ("kernel_busy", "gpu_utilization", "sm_efficiency")
)


def answer(profile: Answers) -> pl.DataFrame:
    """How each device was used: GPU utilization, SM efficiency, occupancy, Tensor Core time.

    The window is the time from the first step's start until the last step, and what the steps launched,
    has ended; without steps, from the process's first event to its last. SM efficiency and occupancies
    are estimates from how the kernels were launched; they are null, with the reason, if that or the
    device is not known.
    """
    launched = profile.of(launch_configurations)
    frame = device_use(profile.trace, windowed_kernels(profile), launched)
    why = profile.of(idle_unknown)
    if why is not None:
        frame = frame.with_columns(*_NOT_USED, pl.lit(why).alias("utilization_reason"))
    return frame


#: Name of each unknown figure, by its column.
_KNOWN: Final = (
    ("grid_known", "SM efficiency is a lower bound: the grids of {} of kernel time are known"),
    ("occupancy_known", "the occupancies are those of {} of kernel time"),
)


def device_use_table(report: Report, profile: Answers, view: View) -> Table:
    """Return the devices, with notes on the meaning of the figures and on missing data."""
    frame = report.frame(profile)
    table = listed(report, frame, view)
    notes = list(table.footnotes)
    if len(frame):
        notes.append(
            "estimates from how kernels were launched: SM efficiency (multiprocessors that have a block) and "
            "occupancy (warps that they hold); Tensor Core time is of kernels whose name or op proves it"
        )
        for column, text in _KNOWN:
            least = frame[column].min()
            if isinstance(least, float) and 0 < least < 1:
                notes.append(text.format(units.share(least)))
        for why in frame["utilization_reason"].drop_nulls().unique():
            notes.append(f"no utilization: {why}")
        for why in frame["occupancy_reason"].drop_nulls().unique().sort():
            notes.append(f"no occupancy of these or some of their kernels: {why}")
    return Table(table.title, table.columns, table.rows, notes)


def answer_curve(profile: Answers, buckets: int = 100) -> pl.DataFrame:
    """The figures of ``device_use`` over time, in equal parts of each device's window.

    Times of all parts add up to those of ``device_use``. Raises ValueError for ``buckets`` less than 1 or
    more than 100,000.
    """
    launched = profile.of(launch_configurations)
    frame = device_curve(profile.trace, windowed_kernels(profile), launched, buckets)
    return frame if profile.of(idle_unknown) is None else frame.with_columns(*_NOT_USED)


QUESTION = (
    Question(
        answer=answer,
        frames=(
            Frame(
                "device_use()",
                "one row per process and device that ran kernels",
                columns(
                    "process device device_name sm_count window kernel_busy gpu_utilization "
                    "sm_efficiency achieved_occupancy theoretical_occupancy kernel_time "
                    "tensor_core_time tensor_core_undetermined_time tensor_core_share "
                    "grid_known occupancy_known kernels utilization_reason occupancy_reason",
                    """
                    window: ns: from the first step's start until the last step and what the steps
                        launched have ended; without steps, from the process's first event to its last
                    kernel_time: ns: durations of the kernels added up, of each the part inside
                    kernels: count: kernels of which a part is inside the window
                    utilization_reason: text: why gpu_utilization is not known; null if it is
                    occupancy_reason: text: why the occupancy of most kernels without one is not known,
                        from a closed list
                    """,
                ),
            ),
        ),
        merged=(Rows(),),
        reports=(
            Report(
                name="device_use",
                title="Use of the devices",
                empty="no kernels in this profile: no GPU was used, or kernels were not captured",
                shown=(
                    "process device device_name window gpu_utilization sm_efficiency "
                    "achieved_occupancy theoretical_occupancy tensor_core_share tensor_core_time "
                    "tensor_core_undetermined_time kernels"
                ),
                forms=FORMS,
                table=device_use_table,
                sums="",
                gpu_only=True,
                aliases=("gpu_utilization",),
            ),
        ),
    ),
    Question(
        answer=answer_curve,
        frames=(
            Frame(
                "device_curve()",
                "one row per process, device and part of its window, in order",
                columns(
                    "process device start end kernel_busy gpu_utilization sm_efficiency "
                    "achieved_occupancy theoretical_occupancy kernel_time tensor_core_time "
                    "tensor_core_undetermined_time tensor_core_share grid_known occupancy_known",
                    """
                    kernel_time: ns: durations of the kernels added up, of each the part inside
                    """,
                ),
            ),
        ),
        parameters={"buckets": parameters.count("parts of each window", least=1, most=100_000)},
        merged=lacking.MOMENTS,
        reports=(
            Report(
                name="device_curve",
                title="Use of the devices over time",
                empty="no kernels in this profile: no GPU was used, or kernels were not captured",
                shown=(
                    "process device start gpu_utilization sm_efficiency achieved_occupancy "
                    "tensor_core_share"
                ),
                forms=FORMS,
                written=False,
                gpu_only=True,
            ),
        ),
    ),
)
