"""How well kernels fill each device: utilization, SM efficiency, occupancy, Tensor Cores; figures and curves.

The definitions are those of the PyTorch profiler's TensorBoard plug-in (torch-tb-profiler 0.4.3,
``gpu_metrics_parser.py``), with its window: the steps, and what they launched.

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

from opscope.core.analysis.launches import Launches
from opscope.core.analysis.summary import ended_steps
from opscope.core.analysis.windows import bounds, captured_steps
from opscope.core.tables.columns import grouped, pairs
from opscope.core.tables.intervals import NONE, Ints, intersect, merge
from opscope.core.tables.trace import Trace

#: The columns of ``kernels`` that are needed.
NEEDED: Final = ("process", "device", "start", "end", "call_start", "tensor_core")
#: Why no utilization is known.
NO_GAPS: Final = "the source has the times that kernels took, but not when they ran"
#: The most points that a curve may have for a device.
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


@dataclass(frozen=True, slots=True)
class _Device:
    """The kernels of one process on one device, and the window in which they count, as disjoint times."""

    process: int | None
    device: int | None
    rows: Ints
    start: Ints
    end: Ints
    window: tuple[Ints, Ints]
    launched: bool  # whether the source has calls that launched something

    @property
    def made_up(self) -> bool:
        """Whether a reader laid the kernels end to end, as the source only says how long they took."""
        if self.launched:
            return False
        order = np.argsort(self.start, kind="stable")
        first, last = self.start[order], self.end[order]
        fills = (int(first[0]), int(last[-1])) == self.bounds
        return fills and bool((first[1:] == last[:-1]).all())

    @property
    def bounds(self) -> tuple[int, int]:
        return int(self.window[0][0]), int(self.window[1][-1])


def device_use(trace: Trace, kernels: pl.DataFrame, launched: Launches) -> pl.DataFrame:
    """Return one row per process and device that ran kernels: ``USE``; times in ns, shares in 0 … 1.

    ``kernels`` is ``Profile.kernels``' frame, a row for each of the trace's kernels: start, end, call_start,
    tensor_core. The window is that of ``_windows``. A figure is null if no kernel in the window tells it;
    where only some do, ``sm_efficiency`` counts the others as 0 and the occupancies leave them out:
    ``grid_known`` and ``occupancy_known`` are the parts of the kernels' time that are known.
    """
    found = []
    for device in _devices(trace, kernels):
        low, high = device.bounds
        of = _Sums.of(device, kernels, launched)
        why = launched.of_kernels("occupancy_reason").gather(device.rows).drop_nulls()
        row = of.between(np.array([low, high]), device)
        why_no_use = NO_GAPS if device.made_up else None
        codes = launched.code[device.rows]
        found.append(
            row.with_columns(
                pl.lit(device.process, pl.Int32).alias("process"),
                pl.lit(device.device, pl.Int32).alias("device"),
                pl.lit(launched.table["device_name"][int(codes[0])], pl.String).alias(
                    "device_name"
                ),
                pl.lit(launched.table["sm_count"][int(codes[0])], pl.Int64).alias("sm_count"),
                pl.col("inside").alias("window"),
                pl.lit(of.inside, pl.Int64).alias("kernels"),
                pl.lit(why_no_use, pl.String).alias("utilization_reason"),
                pl.lit(why.mode().sort()[0] if len(why) else None, pl.String).alias(
                    "occupancy_reason"
                ),
            ).select(pl.col(name).cast(kind) for name, kind in USE.items())
        )
    return pl.concat(found) if found else pl.DataFrame(schema=USE)


def device_curve(
    trace: Trace, kernels: pl.DataFrame, launched: Launches, buckets: int
) -> pl.DataFrame:
    """Return the figures of ``device_use`` over time: ``buckets`` equal parts of each device's window.

    A part is a row of ``CURVE``: start, end (ns) and what happened in it; the parts of a device add up to
    ``device_use``. Raises ValueError for fewer than 1 or more than 100,000 buckets.
    """
    if not 1 <= buckets <= MOST_BUCKETS:
        raise ValueError(f"buckets must be from 1 to {MOST_BUCKETS:,}, not {buckets}")
    found = []
    for device in _devices(trace, kernels):
        low, high = device.bounds
        if low == high:
            continue
        many = min(buckets, high - low)  # no part is shorter than 1 ns
        edges = low + np.array([(high - low) * place // many for place in range(many + 1)])
        rows = _Sums.of(device, kernels, launched).between(edges, device)
        found.append(
            rows.with_columns(
                pl.lit(device.process, pl.Int32).alias("process"),
                pl.lit(device.device, pl.Int32).alias("device"),
                pl.Series("start", edges[:-1]),
                pl.Series("end", edges[1:]),
            ).select(pl.col(name).cast(kind) for name, kind in CURVE.items())
        )
    return pl.concat(found) if found else pl.DataFrame(schema=CURVE)


@dataclass(frozen=True, slots=True)
class _Sums:
    """What is integrated over time for one device; arrays are of its kernels in the window, by start."""

    start: Ints
    end: Ints
    blocks: Ints  # -1: not known
    sm_count: int | None
    achieved: NDArray[np.float64]  # nan: not known
    theoretical: NDArray[np.float64]
    tensor_core: NDArray[np.int8]  # 1 uses them, 0 does not, -1 is not known
    inside: int

    @classmethod
    def of(cls, device: _Device, kernels: pl.DataFrame, launched: Launches) -> _Sums:
        low, high = device.bounds
        start, end = np.maximum(device.start, low), np.minimum(device.end, high)
        here = np.flatnonzero((end > start) | ((device.start >= low) & (device.end <= high)))
        start, end = start[here], end[here]
        if np.any(start[1:] < start[:-1]):  # those of one stream come in order
            order = np.argsort(start, kind="stable")
            here, start, end = here[order], start[order], end[order]
        rows = device.rows[here]
        code = launched.code[rows]
        table = launched.table

        def share(name: str) -> NDArray[np.float64]:
            values: NDArray[np.float64] = table[name].fill_null(np.nan).to_numpy()
            return values[code]

        per_sm, blocks = table["blocks_per_sm"], table["blocks"].fill_null(NONE).to_numpy()
        blocks = np.where(per_sm.is_null().to_numpy(), NONE, blocks)
        return cls(
            start,
            end,
            blocks[code],
            table["sm_count"][int(code[0])] if len(code) else None,
            share("achieved_occupancy"),
            share("theoretical_occupancy"),
            kernels["tensor_core"].gather(rows).cast(pl.Int8).fill_null(NONE).to_numpy(),
            len(rows),
        )

    def between(self, edges: Ints, device: _Device) -> pl.DataFrame:
        """Return the sums between each edge and the next, and the figures that follow."""
        times = _Times.of(self.start, self.end, edges)
        lasted = times.sums()
        inside = _integral(*device.window, edges)
        busy = _Times.of(*merge(self.start, self.end), edges).sums()
        sized, rated = self.blocks >= 0, ~np.isnan(self.achieved)
        fits = ~np.isnan(self.theoretical)

        def part(
            chosen: NDArray[np.bool_], weight: NDArray[np.float64] | None = None
        ) -> NDArray[np.generic]:
            return lasted if weight is None and chosen.all() else times.sums(chosen, weight)

        on_tensor_cores, unsure = part(self.tensor_core == 1), part(self.tensor_core < 0)
        known, occupied = part(sized), part(rated)
        frame = pl.DataFrame(
            {
                "inside": inside,
                "kernel_busy": busy,
                "kernel_time": lasted,
                "tensor_core_time": on_tensor_cores,
                "tensor_core_undetermined_time": unsure,
                "known": known,
                "occupied": occupied,
                "fitting": part(fits),
                "sm_time": self._occupying(times, sized),
                "achieved": part(rated, self.achieved),
                "theoretical": part(fits, self.theoretical),
            }
        )
        nothing = pl.lit(None, pl.Int64)
        decided = bool((self.tensor_core >= 0).any())
        sized_at_all = bool(sized.any())
        placed = pl.lit(not device.made_up)
        efficiency = pl.col("sm_time") / pl.col("inside")
        return frame.with_columns(
            pl.when(placed).then(_over("kernel_busy", "inside")).alias("gpu_utilization"),
            pl.when((pl.col("inside") > 0) & sized_at_all & placed)
            .then(efficiency)
            .alias("sm_efficiency"),
            _over("achieved", "occupied").alias("achieved_occupancy"),
            _over("theoretical", "fitting").alias("theoretical_occupancy"),
            _over("known", "kernel_time").alias("grid_known"),
            _over("occupied", "kernel_time").alias("occupancy_known"),
            (pl.col("tensor_core_time") if decided else nothing).alias("tensor_core_time"),
        ).with_columns(_over("tensor_core_time", "kernel_time").alias("tensor_core_share"))

    def _occupying(self, times: _Times, sized: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Return the time (ns) of multiprocessors that have a block, over their number.

        At each instant they are the blocks of all that runs, at most ``sm_count``: whole numbers, added up
        exactly. Of a kernel that runs alone they need no count instant by instant.
        """
        if not self.sm_count:
            return np.zeros(len(times.edges) - 1)
        reach = np.maximum.accumulate(self.end)
        apart = self.start[1:] >= reach[:-1]
        alone = sized & np.append(True, apart)[: len(sized)] & np.append(apart, True)[: len(sized)]
        rest = np.flatnonzero(sized & ~alone)
        found = times.sums(alone, np.minimum(self.blocks, self.sm_count))
        found = found + _capped(
            self.start[rest], self.end[rest], self.blocks[rest], self.sm_count, times.edges
        )
        share: NDArray[np.float64] = found / self.sm_count
        return share


@dataclass(frozen=True, slots=True)
class _Times:
    """How long intervals, by start, are open between each edge and the next; all are inside the edges."""

    edges: Ints
    cuts: Ints  # those that start in part i are the ones from cuts[i] to cuts[i + 1]
    first: Ints  # how long each is open in the part in which it starts
    over: Ints  # those that are open in later parts too
    since: Ints  # from when
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
        found: NDArray[Any] = np.diff(before[self.cuts])
        if len(self.over):
            factor = None if scale is None else scale[self.over].astype(before.dtype)
            found = found + _integral(self.since, self.end, self.edges, factor)
        return found


def _over(part: str, whole: str) -> pl.Expr:
    return pl.when(pl.col(whole) > 0).then(pl.col(part) / pl.col(whole))


def _integral(
    start: Ints, end: Ints, edges: Ints, weight: NDArray[Any] | None = None
) -> NDArray[np.generic]:
    """Return how long (ns, weighted) intervals are open between each edge and the next, added up.

    Until a time t that is the sum of t - start over what has started, less that of t - end over what has
    ended: two sorted columns and their prefix sums, exact for any overlaps.
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


def _capped(start: Ints, end: Ints, blocks: Ints, sm_count: int, edges: Ints) -> Ints:
    """Return the time (ns) of blocks, at each instant at most ``sm_count``, between the edges."""
    if not len(start):
        return np.zeros(len(edges) - 1, np.int64)
    time = np.concatenate((start, end))
    most = np.minimum(blocks, sm_count)
    change = np.concatenate((most, -most))
    order = np.argsort(time, kind="stable")
    time = time[order]
    level = np.minimum(np.cumsum(change[order]), sm_count)
    sums = np.concatenate(([0], np.cumsum(level[:-1] * np.diff(time))))
    place = np.clip(np.searchsorted(time, edges, side="right") - 1, 0, len(time) - 1)
    past = np.clip(edges, time[0], time[-1]) - time[place]
    until = sums[place] + np.where(edges >= time[0], level[place] * past, 0)
    found: Ints = np.diff(until)
    return found


def _devices(trace: Trace, kernels: pl.DataFrame) -> Iterator[_Device]:
    """Yield the kernels of each process and device."""
    if kernels.is_empty():
        return
    windows = _windows(trace, kernels)
    owner = [
        kernels[name].cast(pl.Int64).fill_null(NONE).to_numpy() for name in ("process", "device")
    ]
    processes, devices, number = pairs(*owner)
    start, end = kernels["start"].to_numpy(), kernels["end"].to_numpy()
    launching = set(trace["calls"]["process"].unique().to_list())
    for place, rows in grouped(number.astype(np.int64)):
        process, device = int(processes[place]), int(devices[place])
        yield _Device(
            None if process == NONE else process,
            None if device == NONE else device,
            rows,
            start[rows],
            end[rows],
            windows[process],
            process in launching,
        )


def _windows(trace: Trace, kernels: pl.DataFrame) -> dict[int, tuple[Ints, Ints]]:
    """Return the time of each process in which its kernels count, as disjoint intervals.

    It is the time from the first step's start until the last step has ended and so has what the steps
    launched; without steps, from the first event to the last, on host and device. If the kernels were
    captured only in windows, it is the part of that time inside them.
    """
    found: dict[int, tuple[Ints, Ints]] = {}
    steps = captured_steps(trace, ended_steps(trace["ranges"]))
    spans = _spans(trace)
    for process in kernels["process"].unique():
        own = pl.col("process").eq_missing(process)
        mine = steps.filter(own)
        low, high = spans.get(process, (0, 0))
        if len(mine):
            low, last = int(mine["start"].min()), int(mine["end"].max())  # type: ignore[arg-type]
            begun = (pl.col("call_start") >= low) & (pl.col("call_start") < last)
            ended: Any = kernels.filter(own & begun)["end"].max()
            high = last if ended is None else max(last, ended)
        whole = (np.array([low]), np.array([high]))
        captured = trace["windows"].filter(own & pl.col("source").is_not_null())
        if len(captured):
            parts = merge(captured["start"].to_numpy(), captured["end"].to_numpy())
            # kernels that were launched in a window may end after it
            latest: Any = kernels.filter(own)["end"].max()
            parts = (parts[0], np.append(parts[1][:-1], max(int(parts[1][-1]), latest)))
            whole = intersect(parts, whole)
        if not len(whole[0]):
            whole = (np.array([low]), np.array([low]))
        found[NONE if process is None else process] = whole
    return found


def _spans(trace: Trace) -> dict[int, tuple[int, int]]:
    """Return the first start and the last end of each process's events."""
    rows = bounds(trace).rows()
    return {process: (low, high) for process, low, high in rows if low is not None}
