"""Make the tables of a Kineto trace's CUDA calls and of its devices' work: kernels, copies, waits, memory."""

from __future__ import annotations

import re
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.tables.columns import spread

from .columns import NONE, Gathered, nullable
from .links import Launches, Placed, launches_by_external, launches_by_flow, owners

_COPY = re.compile(r"Memcpy (\w+)(?: \((\w+) -> (\w+)\))?|Copy(\w+)To(\w+)")
_SET = re.compile(r"Memset \((\w+)\)")
#: The stream number of a wait for a whole device, in older and newer Kineto (CUPTI's constant).
_NO_STREAM: Final = [(1 << 32) - 1, -1]
_LETTER: Final = {"Host": "H", "Device": "D"}


def calls(placed: Placed) -> pl.DataFrame:
    """The ``calls`` table."""
    rows = placed.columns["call"]
    return pl.DataFrame(
        {
            "process": placed.process(rows),
            "thread": placed.thread(rows),
            "start": placed.start(rows),
            "end": placed.end(rows),
            "name": placed.name(rows),
            "correlation": nullable(rows.column("correlation")),
        }
    )


def without_unused(calls: pl.DataFrame, first: int, work: list[pl.DataFrame]) -> pl.DataFrame:
    """Return ``calls`` without the ids from ``first`` on (``links.number_calls``) that no work uses."""
    if not len(calls) or (calls["correlation"] < first).fill_null(True).all():
        return calls
    used = pl.concat([table["correlation"] for table in work]).drop_nulls().unique()
    known = (pl.col("correlation") < first) | pl.col("correlation").is_in(used.implode())
    return calls.with_columns(pl.when(known).then("correlation").alias("correlation"))


def kernels(placed: Placed, calls: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    """The ``kernels`` table, and how many kernels were linked to their call without a correlation id."""
    rows = placed.columns["kernel"]
    correlation, recovered = _link(placed, "kernel", calls)
    shapes = list(placed.columns.shapes)
    frame = pl.DataFrame(
        {
            **_device(placed, rows, calls, correlation),
            "name": placed.name(rows),
            "grid": spread("grid", shapes, rows.column("grid", np.int32)),
            "block": spread("block", shapes, rows.column("block", np.int32)),
            "registers": nullable(rows.column("registers")),
            # Kineto gives the sum of static and dynamic shared memory
            "shared_dynamic": nullable(rows.column("shared")),
            "graph": nullable(rows.column("graph")),
            "graph_node": nullable(rows.column("graph_node")),
            "attrs": placed.attrs(rows),
        }
    )
    return frame, recovered


def memops(placed: Placed, calls: pl.DataFrame) -> pl.DataFrame:
    """The ``memops`` table."""
    frames = []
    for kind in ("memcpy", "memset"):
        rows = placed.columns[kind]
        correlation, _ = _link(placed, kind, calls)
        name = rows.column("name", np.int32)
        names = list(placed.columns.names)
        parts: list[tuple[str | None, ...]] = [(None, None, None)] * len(names)
        for code in np.unique(name).tolist():
            parts[code] = _memory_kinds(kind, names[code])
        frames.append(
            pl.DataFrame(
                {
                    **_device(placed, rows, calls, correlation),
                    "kind": spread("kind", [part[0] for part in parts], name),
                    "src_kind": spread("src_kind", [part[1] for part in parts], name),
                    "dst_kind": spread("dst_kind", [part[2] for part in parts], name),
                    "bytes": nullable(rows.column("bytes")),
                    "graph_node": nullable(rows.column("graph_node")),
                }
            )
        )
    return pl.concat(frames)


def syncs(placed: Placed, calls: pl.DataFrame) -> pl.DataFrame:
    """The ``syncs`` table."""
    rows = placed.columns["sync"]
    frame = pl.DataFrame(
        {
            **_device(placed, rows, calls, rows.column("correlation")),
            "kind": placed.name(rows, "kind"),
            "event_id": nullable(rows.column("event_id")),
            "record": nullable(rows.column("record")),
            "event_stream": nullable(rows.column("event_stream")),
        }
    )
    return frame.with_columns(pl.col("stream").replace(_NO_STREAM, None))


def allocations(placed: Placed) -> pl.DataFrame:
    """The ``allocations`` table."""
    rows = placed.columns["memory"]
    return pl.DataFrame(
        {
            "process": placed.process(rows),
            "device": nullable(rows.column("device")),
            "thread": placed.thread(rows),
            "time": placed.start(rows),
            "address": nullable(rows.column("address")),
            "bytes": nullable(rows.column("bytes")),
            "total": nullable(rows.column("total")),
            "reserved": nullable(rows.column("reserved")),
        }
    )


def _device(
    placed: Placed, rows: Gathered, calls: pl.DataFrame, correlation: NDArray[np.int64]
) -> dict[str, Any]:
    device, context = rows.column("device"), rows.column("context")
    start = placed.start(rows)
    launches = Launches(
        calls["process"].to_numpy(),
        calls["correlation"].fill_null(NONE).to_numpy(),
        calls["start"].to_numpy(),
    )
    # contexts are numbered from 1 in each process, so the device number distinguishes more
    owner, unknown = owners(placed.files, launches, correlation, device, start)
    placed.ambiguous += int(unknown.sum())
    return {
        "process": owner,
        "device": nullable(device),
        "context": nullable(context),
        "stream": nullable(rows.column("stream")),
        "start": start,
        "end": placed.end(rows),
        "correlation": nullable(np.where(unknown, NONE, correlation)),
    }


def _link(placed: Placed, kind: str, calls: pl.DataFrame) -> tuple[NDArray[np.int64], int]:
    """The correlation ids of a kind's rows. For rows whose own id no call has, they come from flow arrows;
    for rows without an id, from the ids of ops (``External id``)."""
    correlation = placed.columns[kind].column("correlation").copy()
    # sorted: np.isin takes a third of a second for 20,000 ids among 400,000
    distinct = np.sort(calls["correlation"].drop_nulls().to_numpy())
    index = np.searchsorted(distinct, correlation)
    index[index == len(distinct)] = 0
    missing = distinct[index] != correlation if len(distinct) else np.ones(len(index), np.bool_)
    missing |= correlation == NONE
    rows, correlations = launches_by_flow(placed.columns, placed.number, kind, missing)
    correlation[rows] = correlations
    by_id, their = launches_by_external(placed.columns, kind, correlation == NONE)
    correlation[by_id] = their
    return correlation, len(rows) + len(by_id)


def _memory_kinds(kind: str, name: str) -> tuple[str | None, str | None, str | None]:
    """Return the kind, source memory and target memory of a copy or set, from its name."""
    if kind == "memset":
        match = _SET.match(name)
        return "memset", None, match[1].lower() if match else None
    copy = _COPY.match(name)
    if copy is None:
        return None, None, None
    if copy[4]:  # ROCm: CopyHostToDevice
        ends = (_LETTER.get(copy[4]), _LETTER.get(copy[5]))
        return f"{ends[0]}to{ends[1]}" if all(ends) else None, copy[4].lower(), copy[5].lower()
    return copy[1], copy[2].lower() if copy[2] else None, copy[3].lower() if copy[3] else None
