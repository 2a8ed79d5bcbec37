"""One step drawn: when each phase ran and when each device was busy, of the step nearest to the median.

Times are offsets in ns from the step's begin. Each moment of a lane is in one segment, or is idle.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import polars as pl

from opscope.core.analysis.host.wall_time import OTHER, RUN, STEPS, layered, layers_of, ops_open
from opscope.core.analysis.ops.lost_kernels import idle_unknown
from opscope.core.question.registry import reports
from opscope.core.tables.intervals import clip, intersect, merge, subtract

from .rows import plain

if TYPE_CHECKING:
    from opscope.core.analysis.steps.step_times import Spans
    from opscope.profile import Profile

#: Segments and gaps shorter than this part of the step are not drawn: they are below a pixel.
_PIXEL: Final = 1 / 1_500
#: Devices of the step's process that are drawn.
_DEVICES: Final = 4


def step_picture(profile: Profile) -> dict[str, Any]:
    """Return the picture as ``StepPicture`` of ``web/src/pages/step_picture.tsx``; without a step, the
    reason."""
    row = None if profile.merged_of is not None else _step(profile)
    if row is None:
        return {"why": reports()["steps"].empty, "lanes": []}
    extent = int(row["start"]), int(row["end"])
    phases = _phases(profile, row["process"], extent)
    lanes = [_lane("program", phases, extent)]
    working = {}
    if profile.cpu_only:
        opened = profile.of(ops_open).get(row["process"])
        working = {} if opened is None else {"ops": clip(opened, *extent)}
    elif profile.of(idle_unknown) is None:
        working = _devices(profile, row["process"], extent)
    for name, busy in working.items():
        lanes.append(_lane(name, [("busy", busy)], extent))
        rest = subtract(_as_spans(*extent), busy)
        lanes[-1]["idle"] = _length(rest)
        lanes[-1]["idle_in"] = _idle_in(rest, phases)
    return {
        "why": None,
        "step": row["step"],
        "process": row["process"],
        "rank": row["rank"],
        "start": plain(extent[0]),
        "end": plain(extent[1]),
        "time": extent[1] - extent[0],
        "lanes": lanes,
    }


def _step(profile: Profile) -> dict[str, Any] | None:
    """Return the step whose time is nearest to the median, of the process with the longest median."""
    steps = profile.steps().drop_nulls(["start", "end", "time"]).filter(pl.col("time") > 0)
    if "warm_up" in steps.columns:
        warm = steps.filter(~pl.col("warm_up").fill_null(False))
        steps = steps if warm.is_empty() else warm
    if steps.is_empty():
        return None
    by_process = pl.col("time").median().over("process")
    near = steps.with_columns(median=by_process, off=(pl.col("time") - by_process).abs())
    return near.sort(["median", "off", "start"], descending=[True, False, False]).row(0, named=True)


def _phases(profile: Profile, process: int, extent: tuple[int, int]) -> list[tuple[str, Spans]]:
    layers = [
        (part or section, spans)
        for section, part, spans in profile.of(layers_of).get(process, [])
        if section in (STEPS, RUN) or part is None
    ]
    own = layered(extent, [spans for _, spans in layers])
    joined: dict[str, list[Spans]] = {}
    for (name, _), spans in zip([*layers, (OTHER, None)], own, strict=True):
        joined.setdefault(name, []).append(spans)
    merged = {
        name: merge(*(np.concatenate(both) for both in zip(*several, strict=True)))
        for name, several in joined.items()
    }
    return [(name, spans) for name, spans in merged.items() if len(spans[0])]


def _devices(profile: Profile, process: int, extent: tuple[int, int]) -> dict[str, Spans]:
    """Return when something ran on each device of the process; the first few devices."""
    parts = []
    for table in ("kernels", "memops"):
        if profile.trace.has(table):
            columns = profile._own_columns(table, ["process", "device", "start", "end"])[0]
            parts.append(
                columns.select(pl.col("process", "device", "start", "end").cast(pl.Int64)).filter(
                    (pl.col("process") == process)
                    & (pl.col("start") < extent[1])
                    & (pl.col("end") > extent[0])
                )
            )
    work = pl.concat(parts).drop_nulls() if parts else pl.DataFrame()
    if work.is_empty():
        return {}
    devices = work.sort("device").partition_by("device", maintain_order=True)[:_DEVICES]
    return {
        f"device {lane['device'][0]}": clip(
            merge(lane["start"].to_numpy(), lane["end"].to_numpy()), *extent
        )
        for lane in devices
    }


def _lane(name: str, parts: list[tuple[str, Spans]], extent: tuple[int, int]) -> dict[str, Any]:
    least = max(1, int((extent[1] - extent[0]) * _PIXEL))
    drawn, sums = [], {}
    for part, spans in parts:
        sums[part] = _length(spans)
        for begin, end in _joined(spans, least):
            drawn.append([begin - extent[0], end - extent[0], part])
    return {"name": name, "segments": sorted(drawn), "sums": sums}


def _joined(spans: Spans, least: int) -> list[tuple[int, int]]:
    """Return the spans, merged where gaps are shorter than ``least``, without results shorter than
    ``least``."""
    start, end = (edge.astype(np.int64) for edge in spans)
    if not len(start):
        return []
    breaks = np.flatnonzero(start[1:] - end[:-1] >= least) + 1
    first = start[np.concatenate(([0], breaks))]
    last = end[np.concatenate((breaks - 1, [len(end) - 1]))]
    long = last - first >= least
    return list(zip(first[long].tolist(), last[long].tolist(), strict=True))


def _idle_in(idle: Spans, phases: list[tuple[str, Spans]]) -> dict[str, int]:
    """Return how long the device was idle in each phase (ns); the parts add up to its idle time."""
    times = {name: _length(intersect(idle, spans)) for name, spans in phases}
    return {name: time for name, time in times.items() if time}


def _as_spans(begin: int, end: int) -> Spans:
    return np.array([begin], np.int64), np.array([end], np.int64)


def _length(spans: Spans) -> int:
    return int((spans[1] - spans[0]).sum())
