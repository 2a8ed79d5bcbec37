"""The curves above the lanes: use of devices, memory, sampled counters, over the columns of a window.

The answer has the form of ``window``: a header (``start``, ``span``, ``columns``, ``curves``: each
with ``title``, ``process``, ``device``, ``unit``, ``most``: its largest value anywhere, ``how``:
how the value of a column is made; ``left``: how many more curves there are) and per curve an array
f32, a value per column, NaN where it is unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.once import lock_of
from opscope.core.tables.columns import hand_back
from opscope.core.tables.intervals import NONE, Ints

from .index import Timeline
from .op_kinds import own_columns
from .strip import busy_before, edges_of
from .window import Buffers

#: Points of a device's curve over the whole profile.
_POINTS: Final = 2_000
#: At most this many counters are drawn, the first ones.
_COUNTERS: Final = 16
Values = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Series:
    """Values that each last until the next time (ns)."""

    title: str
    process: int
    device: int
    unit: str
    time: Ints
    value: Values


def curves(timeline: Timeline, of: str, low: int, high: int, columns: int) -> bytes:
    """Return the curves ``of`` a kind (a key of KINDS) in the window ``[low, high)`` ns."""
    edges = edges_of(low, high, min(columns, high - low))
    buffers = Buffers()
    said: list[dict[str, Any]] = []
    left = 0
    if of == "busy":
        width = np.diff(edges)
        for (process, device), (start, before) in sorted(timeline.busy.items()):
            share = np.diff(busy_before(start, before, edges)) / width
            buffers.add(share, "<f4")
            said.append(
                {
                    "title": "device busy",
                    "process": process,
                    "device": device,
                    "unit": "fraction",
                    "most": 1.0,
                    "how": "share of the column in which a kernel or copy ran, on any stream",
                }
            )
    else:
        with lock_of(timeline, f"curves of {of}"):
            kept = timeline.__dict__.setdefault("_curves", {})
            if of not in kept:
                kept[of] = list(KINDS[of](timeline))
                hand_back()
            series = kept[of]
        left = max(0, len(series) - _COUNTERS)
        for series_shown in series[:_COUNTERS]:
            buffers.add(_columns(series_shown, edges), "<f4")
            finite = series_shown.value[np.isfinite(series_shown.value)]
            said.append(
                {
                    "title": series_shown.title,
                    "process": series_shown.process,
                    "device": series_shown.device,
                    "unit": series_shown.unit,
                    "most": float(finite.max()) if len(finite) else None,
                    "how": "largest value in the column",
                }
            )
    header = {"start": str(low), "span": high - low, "columns": len(edges) - 1, "curves": said}
    return buffers.under({**header, "left": left})


def _columns(series: Series, edges: Ints) -> Values:
    """Return the largest value of each column; values that began before the column and still last count,
    too."""
    first = np.searchsorted(series.time, edges)
    low, high = first[:-1], first[1:]
    value = np.where(np.isfinite(series.value), series.value, -np.inf)
    maxima = np.full(len(low), -np.inf)
    running = np.searchsorted(series.time, edges[:-1], side="right") - 1
    is_running = running >= 0
    maxima[is_running] = value[running[is_running]]
    filled = np.flatnonzero(high > low)
    if len(filled):
        inside = np.maximum.reduceat(value[: int(high[filled[-1]])], low[filled])
        maxima[filled] = np.maximum(maxima[filled], inside)
    return np.where(np.isfinite(maxima), maxima, np.nan)


def _use(timeline: Timeline) -> Iterator[Series]:
    shape = own_columns(timeline.profile, "kernels", ["grid", "block"])
    if shape["grid"].null_count() == len(shape) or shape["block"].null_count() == len(shape):
        return  # without launch records the queue is unknown, and reading them takes 1 GB
    del shape
    frame = timeline.profile.device_curve(_POINTS)
    for (process, device), part in frame.group_by(["process", "device"], maintain_order=True):
        part = part.sort("start")
        time = np.append(part["start"].to_numpy(), part["end"].to_numpy()[-1:])
        for column, title in (
            ("sm_efficiency", "SM efficiency, estimated"),
            ("achieved_occupancy", "occupancy, estimated"),
        ):
            if part[column].null_count() < len(part):
                value = part[column].cast(pl.Float64).to_numpy()
                yield _series(title, process, device, "fraction", time, np.append(value, np.nan))


def _memory(timeline: Timeline) -> Iterator[Series]:
    frame = timeline.profile.memory_curve(12_000)
    for (process, device), part in frame.group_by(["process", "device"], maintain_order=True):
        part = part.sort("time")
        for column, title in (("in_use", "memory in use"), ("reserved", "memory reserved")):
            if part[column].null_count() < len(part):
                value = part[column].cast(pl.Float64).to_numpy()
                yield _series(title, process, device, "bytes", part["time"].to_numpy(), value)


def _queue(timeline: Timeline) -> Iterator[Series]:
    frame = timeline.profile.queue_curve()
    keys = ["process", "device", "stream"]
    for (process, device, stream), part in frame.group_by(keys, maintain_order=True):
        part = part.sort("time")
        title = f"launches that wait on stream {stream}"
        value = part["queued"].cast(pl.Float64).to_numpy()
        yield _series(title, process, device, "count", part["time"].to_numpy(), value)


def _samples(timeline: Timeline) -> Iterator[Series]:
    frame = timeline.profile.trace["samples"].filter(pl.col("value").is_not_null())
    keys = ["process", "device", "name"]
    for (process, device, name), part in frame.group_by(keys, maintain_order=True):
        part = part.sort("time")
        said, bracket, unit = str(name).rpartition(" [")
        if not (bracket and unit.endswith("]")):
            said, unit = str(name), ""
        value = part["value"].cast(pl.Float64).to_numpy()
        time = part["time"].to_numpy()
        yield _series(said[:200], process, device, unit.rstrip("]")[:20], time, value)


def _series(title: str, process: Any, device: Any, unit: str, time: Any, value: Any) -> Series:
    on, at = (NONE if number is None else int(number) for number in (process, device))
    return Series(title, on, at, unit, time, value)


def _nothing(timeline: Timeline) -> Iterator[Series]:
    return iter(())


#: The kinds of curves.
KINDS: Final[dict[str, Callable[[Timeline], Iterator[Series]]]] = {
    "busy": _nothing,
    "use": _use,
    "memory": _memory,
    "queue": _queue,
    "samples": _samples,
}
