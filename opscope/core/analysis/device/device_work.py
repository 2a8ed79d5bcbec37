"""All work on devices as one table of arrays: kernels, copies and sets by start, with their launch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.analysis.answers import Answers
from opscope.core.analysis.ops.lost_kernels import idle_unknown, launches_unknown, totals_only
from opscope.core.analysis.ops.ops import Ops, op_index
from opscope.core.attribution.attribute import Launched
from opscope.core.attribution.early_kernels import CLOCKS, LATE, early, late
from opscope.core.job.exchanges import communicating
from opscope.core.tables.columns import at, hand_back, pairs
from opscope.core.tables.intervals import NONE, Ints, merge
from opscope.core.tables.trace import Trace

#: Reason for unknown idle time: the file has only totals.
NOT_TIMED: Final = "the file has totals and no times: when each kernel ran is not known"
#: Kinds of rows.
COMPUTATION: Final = 0
COMMUNICATION: Final = 1
COPY: Final = 2
_NULL: Final = -(1 << 40)  # not the number of any process, device or stream


#: If this many kernels, copies and sets all lack a launch, the recorded calls show nothing.
_MANY: Final = 20


@dataclass(frozen=True, slots=True)
class DeviceWork:
    """Kernels, copies and sets by start; every array has one entry a row.

    ``kind``: COMPUTATION, COMMUNICATION (kernels of collectives) or COPY (copies and sets). ``row``: the row
    of ``kernels``, or of ``memops`` if ``kind`` is COPY. ``start``, ``end`` (ns). ``call``: the row of
    ``calls`` that launched it (-1: not recorded); a CUDA graph's launch launches many. ``called``,
    ``returned`` (ns): when that call began and ended; 0 without a call. ``stream``: the row of ``streams``
    (process, device, stream), ``device``: the row of ``devices`` (process, device). ``part``: the captured
    window in which it began, because time between two windows is not idle time. ``with_calls``: whether the
    trace records launches, which show what the work waited for; ``unlinked``: why the recorded launches
    cannot be used (``call`` is then -1), else None. ``untimed``: why it is unknown what ran when (files of
    totals have only durations; lost kernels may have run in time that looks idle), else None. ``waits``: when
    each stream waited, as far as recorded, by the row of ``streams``.
    """

    kind: NDArray[np.uint8]
    row: NDArray[np.int32]
    start: Ints
    end: Ints
    call: NDArray[np.int32]
    called: Ints
    returned: Ints
    stream: NDArray[np.int32]
    device: NDArray[np.int32]
    part: NDArray[np.int32]
    streams: pl.DataFrame
    devices: pl.DataFrame
    with_calls: bool
    untimed: str | None
    waits: Mapping[int, tuple[Ints, Ints]] = field(default_factory=dict)
    unlinked: str | None = None

    @property
    def timed(self) -> bool:
        """Whether it is known when work ran, and therefore when the device was idle."""
        return self.untimed is None

    def lanes(self, key: NDArray[np.int32]) -> Iterator[tuple[int, Ints]]:
        """Yield each number in ``key`` (``stream`` or ``device``) and its rows, by start."""
        if not len(key):
            return
        lane_count = int(key.max()) + 1
        # a stable sort of 16 bits is a radix sort: one pass
        order = np.argsort(key.astype(np.uint16) if lane_count < 1 << 16 else key, kind="stable")
        edges = np.searchsorted(key[order], np.arange(lane_count + 1))
        for number in range(lane_count):
            yield number, order[edges[number] : edges[number + 1]]


def device_work(ops: Ops, unknown: str | None = None) -> DeviceWork:
    """Return the kernels, copies and sets of a trace by start; ``unknown``: why idle time is unknown."""
    attribution = ops.attribution
    trace = attribution.trace
    tables = ((trace["kernels"], attribution.kernels), (trace["memops"], attribution.memops))
    kernels, copies = (len(table) for table, _ in tables)
    start, end = (
        np.concatenate([table[name].to_numpy() for table, _ in tables]) for name in ("start", "end")
    )
    kind = np.zeros(kernels + copies, np.uint8)
    kind[:kernels][communicating(attribution)] = COMMUNICATION
    kind[kernels:] = COPY
    row = np.concatenate([np.arange(kernels, dtype=np.int32), np.arange(copies, dtype=np.int32)])
    call = np.concatenate([_calls(launched) for _, launched in tables])

    def column(name: str) -> Ints:  # 8 bytes a row: each column is released once it is paired
        return np.concatenate(
            [table[name].cast(pl.Int64).fill_null(_NULL).to_numpy() for table, _ in tables]
        )

    of_process, of_device, on = pairs(column("process"), column("device"))
    of, of_stream, lane = pairs(on, column("stream"))
    devices = _name({"process": of_process, "device": of_device})
    streams = devices[of].with_columns(_name({"stream": of_stream})["stream"])
    order = _by_start(start)
    call, process = call[order], column("process")[order]
    begun, ended = (trace["calls"][name].to_numpy() for name in ("start", "end"))
    launched = (at(begun, call, 0), start[order], call >= 0, process)
    wrong, why = early(*launched), CLOCKS
    if not wrong.any():
        wrong, why = late(*launched), LATE
    if wrong.any():
        call = np.where(wrong, np.int32(NONE), call)
    linked = bool((call >= 0).any())
    return DeviceWork(
        kind[order],
        row[order],
        start[order],
        end[order],
        call,
        at(begun, call, 0),
        at(ended, call, 0),
        lane[order],
        on[order],
        _parts(trace, process, start[order]),
        streams,
        devices,
        trace.has("calls") and (linked or (len(call) < _MANY and not wrong.any())),
        NOT_TIMED if totals_only(trace) else unknown,
        _waits(trace, streams),
        why if wrong.any() else None,
    )


def _waits(trace: Trace, streams: pl.DataFrame) -> dict[int, tuple[Ints, Ints]]:
    """Return the union of the waits of each stream that ran anything, by the row of ``streams``."""
    waits = trace.queue_waits().join(
        streams.with_row_index("lane"), on=streams.columns, nulls_equal=True
    )
    return {
        int(lane): merge(part["start"].to_numpy(), part["end"].to_numpy())
        for (lane,), part in waits.group_by("lane")
    }


def _calls(launched: Launched) -> NDArray[np.int32]:
    """Return the call that launched each row: for the work of a CUDA graph, the call that replayed the
    graph."""
    return np.where(launched.replay >= 0, launched.replay, launched.call).astype(np.int32)


def _by_start(start: Ints) -> Ints | slice:
    """Return the rows by start; a slice if they are in order already, because NumPy then copies nothing."""
    if not len(start) or bool((start[1:] >= start[:-1]).all()):
        return slice(None)
    return np.argsort(start, kind="stable")


def _name(columns: dict[str, NDArray[Any]]) -> pl.DataFrame:
    types = {"process": pl.Int32, "device": pl.Int32, "stream": pl.Int64}
    return pl.DataFrame(columns).select(
        pl.when(pl.col(name) != _NULL).then(name).cast(types[name]).alias(name) for name in columns
    )


def _parts(trace: Trace, process: Ints, start: Ints) -> NDArray[np.int32]:
    """Return the number of the captured window in which each row begins; 0 if everything was captured."""
    parts = np.zeros(len(start), np.int32)
    for (number,), windows in trace["windows"].group_by("process"):
        low, _ = merge(windows["start"].to_numpy(), windows["end"].to_numpy())
        here = np.flatnonzero(process == number)
        parts[here] = np.searchsorted(low, start[here], side="right")
    return parts


def spans(work: DeviceWork, rows: Ints | NDArray[np.bool_]) -> tuple[Ints, Ints]:
    """Return the union of the times of these rows, as ``intervals.merge`` returns it."""
    return merge(work.start[rows], work.end[rows])


__all__ = ["COMMUNICATION", "COMPUTATION", "COPY", "NONE", "DeviceWork", "device_work", "spans"]


def work_on_devices(profile: Answers) -> DeviceWork:
    """All that ran on devices, by start."""
    work = device_work(profile.of(op_index), profile.of(idle_unknown))
    hand_back()  # free memory: for a million kernels, 0.05 GB
    return work


def linked_work(profile: Answers) -> DeviceWork:
    """All work on devices, for analyses that explain it: without any launch if too many are missing."""
    work = profile.of(work_on_devices)
    why = None if work.unlinked else launches_unknown(profile)
    if why is None:
        return work
    none = np.full_like(work.call, NONE)
    return replace(work, call=none, with_calls=False, unlinked=why)
