"""Decode buffers of CUPTI's activity into columns: for each kind of record, the fields that tables need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from opscope.core.cupti import kinds
from opscope.core.cupti.layouts import SLOT, Layout
from opscope.core.cupti.walk import Region, stopper, taken, walk_region
from opscope.readers.recording.cupti_files import Buffers, Note

#: The column with the number of a record's buffer, from 1 on.
BUFFER: Final = "buffer"
#: The most buffers of a region whose unknown kinds a note names.
_MOST_NAMED: Final = 64
_PLACE: Final = ("start", "end", "deviceId", "contextId", "streamId", "correlationId")
_API: Final = ("cbid", "start", "end", "threadId", "correlationId", "returnValue")
_KERNEL: Final = (
    *_PLACE, "name", "gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ", "clusterX", "clusterY",
    "clusterZ", "registersPerThread", "staticSharedMemory", "dynamicSharedMemory",
    "localMemoryPerThread", "graphId", "graphNodeId", "sharedMemoryExecuted", "launchType",
    "channelID", "channelType", "priority", "isDeviceLaunched", "queued", "submitted",
    "sourceGraphNodeId",
)  # fmt: skip
_COPY: Final = (
    *_PLACE, "copyKind", "srcKind", "dstKind", "bytes", "graphId", "graphNodeId", "sourceGraphNodeId",
)  # fmt: skip
#: The fields of each kind that tables are made of. Devices have few rows, so all their fields are read.
FIELDS: Final[Mapping[int, tuple[str, ...]]] = {
    kinds.MEMCPY: _COPY,
    kinds.MEMCPY2: (*_COPY, "srcDeviceId", "dstDeviceId"),
    kinds.MEMSET: (*_PLACE, "bytes", "memoryKind", "graphId", "graphNodeId", "sourceGraphNodeId"),
    kinds.KERNEL: _KERNEL,
    kinds.CONCURRENT_KERNEL: _KERNEL,
    kinds.DRIVER: _API,
    kinds.RUNTIME: _API,
    kinds.CONTEXT: ("contextId", "deviceId", "parentContextId", "isGreenContext"),
    kinds.OVERHEAD: ("overheadKind", "start", "end"),
    kinds.UNIFIED_MEMORY_COUNTER: (
        "counterKind", "value", "start", "end", "srcId", "dstId", "streamId",
    ),
    kinds.CUDA_EVENT: (
        "correlationId", "contextId", "streamId", "eventId", "deviceId", "cudaEventSyncId",
    ),
    kinds.SYNCHRONIZATION: (
        "type", "start", "end", "correlationId", "contextId", "streamId", "cudaEventId",
        "cudaEventSyncId",
    ),
    kinds.EXTERNAL_CORRELATION: ("externalKind", "externalId", "correlationId"),
    kinds.MEMORY2: (
        "memoryOperationType", "memoryKind", "correlationId", "address", "bytes", "timestamp",
        "processId", "deviceId", "memoryPoolConfig.memoryPoolType", "memoryPoolConfig.address",
        "memoryPoolConfig.pool.size",
    ),
    kinds.MEMORY_POOL: (
        "memoryPoolOperationType", "memoryPoolType", "correlationId", "processId", "deviceId",
        "address", "size", "timestamp",
    ),
    kinds.GRAPH_TRACE: (*_PLACE, "graphId"),
    kinds.DEVICE_GRAPH_TRACE: ("start", "end", "deviceId", "contextId", "streamId", "graphId"),
    kinds.MEM_DECOMPRESS: (*_PLACE, "sourceBytes"),
}  # fmt: skip
#: Known kinds without a table; records of other kinds without a table are counted in a note.
_QUIET: Final = (
    kinds.NAME, kinds.STREAM, kinds.GREEN_CONTEXT, kinds.MARKER, kinds.DEVICE, *FIELDS,
)  # fmt: skip


@dataclass(slots=True)
class Columns:
    """The decoded records of one kind; fields that the version lacks are absent, all numbers are int64."""

    many: int
    by_name: dict[str, NDArray[Any]]

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self.by_name[name]

    def __contains__(self, name: str) -> bool:
        return name in self.by_name


@dataclass(slots=True)
class _Pieces:
    by_kind: dict[int, dict[str, list[NDArray[Any]]]] = field(default_factory=dict)
    others: dict[int, int] = field(default_factory=dict)
    stopped: dict[int, int] = field(default_factory=dict)
    unread: int = 0
    damaged: int = 0


def decoded(
    files: Sequence[tuple[int, Buffers]], layout: Layout, notes: list[Note], numbered: bool
) -> dict[int, Columns]:
    """Return by kind the columns of all records of the buffers, in the order of the files. Each file comes
    with the number of buffers before its first one. ``numbered``: whether each record of a kernel gets the
    number of its buffer. Unreadable records are counted in ``notes``."""
    pieces = _Pieces()
    for before, buffers in files:
        for number, region in buffers.regions():
            _add(region, layout, pieces, before + number + 1 if numbered else None)
    notes += _notes(pieces)
    return {
        kind: Columns(
            sum(map(len, next(iter(columns.values())))),
            {name: np.concatenate(parts) for name, parts in columns.items()},
        )
        for kind, columns in pieces.by_kind.items()
    }


def _add(region: Buffers, layout: Layout, pieces: _Pieces, first: int | None) -> None:
    """Add the records of a region; ``first``: the number of its first buffer, if records get numbers."""
    ends = region.ends // SLOT
    walked = walk_region(region.data, region.begins // SLOT, ends, layout)
    _note_rest(region, walked, layout, pieces)
    counts = np.bincount(walked.kinds)
    kinds_there = np.flatnonzero(counts).tolist()
    for kind in kinds_there:
        if kind not in FIELDS and kind != kinds.DEVICE:
            pieces.others[kind] = pieces.others.get(kind, 0) + int(counts[kind])
    wanted = [kind for kind in kinds_there if kind in FIELDS or kind == kinds.DEVICE]
    for kind, records in taken(region.data, walked, layout, wanted).items():
        columns = pieces.by_kind.setdefault(kind, {})
        names_there = records.dtype.names or ()
        for name in FIELDS.get(kind, names_there):
            if name in names_there:
                # a separate column, so that the complete records can be freed
                columns.setdefault(name, []).append(_signed(records[name]))
        if first is not None and kind in (kinds.KERNEL, kinds.CONCURRENT_KERNEL):
            of = np.searchsorted(ends, walked.places[walked.kinds == kind], side="right")
            columns.setdefault(BUFFER, []).append(of + first)


def _note_rest(region: Buffers, walked: Region, layout: Layout, pieces: _Pieces) -> None:
    unread = region.ends - walked.reached * SLOT
    rows = np.flatnonzero(unread)
    pieces.unread += int(unread[rows].sum())
    pieces.damaged += len(rows)
    for row in rows[:_MOST_NAMED].tolist():
        end = int(region.ends[row]) // SLOT
        kind = stopper(region.data, int(walked.reached[row]), end, layout)
        if kind is not None:
            pieces.stopped[kind] = pieces.stopped.get(kind, 0) + 1


def _notes(pieces: _Pieces) -> list[Note]:
    notes: list[Note] = []
    if pieces.unread:
        count = len(pieces.stopped)
        named = ", ".join(map(str, sorted(pieces.stopped)[:4])) + (", …" if count > 4 else "")
        why = f" (records of kind {named} are not known)" if count else ""
        message = f"bytes of CUPTI's records cannot be read, in {pieces.damaged} buffers{why}"
        notes.append(("warning", message, pieces.unread))
    left = {kind: other for kind, other in pieces.others.items() if kind not in _QUIET}
    if left:
        listed = ", ".join(str(kind) for kind in sorted(left))
        message = f"records of CUPTI that no table has (of kinds {listed})"
        notes.append(("info", message, sum(left.values())))
    return notes


def _signed(column: NDArray[Any]) -> NDArray[Any]:
    """Return the column as signed 64-bit integers, as in tables."""
    if column.dtype.kind not in "ui" or column.ndim != 1:
        return np.ascontiguousarray(column)
    if column.dtype.itemsize == 8:
        return np.ascontiguousarray(column).view(np.int64)
    return column.astype(np.int64)
