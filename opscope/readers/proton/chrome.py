"""Make tables of Proton's Chrome trace: kernels by stream, and the program's scopes by thread."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import polars as pl

from opscope.core.tables.trace import Trace
from opscope.readers.errors import BadInput
from opscope.readers.rows import frame_of
from opscope.readers.sound import sound_trace

from .values import processes

_LANE: Final = re.compile(r"(?:GPU Stream |Graph: Stream |CPU Thread |stream)([0-9]{1,18})\Z")
_GRAPH: Final = "Graph: "
_SCOPES: Final = ("scope", "metric")
_KERNEL: Final = "kernel"
_PLACED: Final = {"start": pl.Int64, "end": pl.Int64, "name": pl.String}
_INSIDE: Final = (
    "Triton's Proton, of the inside of kernels (what each warp did): opscope reads kernels; give the trace "
    "of proton.start without instrumentation"
)


def trace_of(events: list[Any], path: Path) -> Trace:
    """Return the trace of these events. Raises BadInput. Proton records no CUDA calls, so an arrow from a
    scope is the launch of a kernel and becomes a call of 1 ns. A kernel without an arrow has no launch."""
    lanes: dict[Any, str] = {}
    kernels: list[dict[str, Any]] = []
    scopes: list[dict[str, Any]] = []
    arrows: dict[Any, dict[str, int]] = {}
    odd = inside = 0
    for event in events:
        if not isinstance(event, dict):
            odd += 1
            continue
        kind, lane = event.get("ph"), event.get("tid")
        if kind == "M":
            is_name = event.get("name") == "thread_name" and _key(lane) is not None
            if is_name and isinstance(event.get("args"), dict):
                lanes[_key(lane)] = str(event["args"].get("name", ""))[:256]
        elif kind in ("s", "f"):
            at, arrow = _ns(event.get("ts")), _key(event.get("id"))
            if at is not None and arrow is not None:  # two ends without an id do not form an arrow
                arrows.setdefault(arrow, {}).setdefault(str(kind), at)
        elif kind == "X":
            row = _row(event)
            inside += isinstance(lane, str) and lane.startswith("warp ")
            if row is None:
                odd += 1
            elif event.get("cat") == _KERNEL:
                kernels.append(row)
            elif event.get("cat") in _SCOPES:
                scopes.append(row)
    if inside and inside >= len(kernels):
        raise BadInput(path, _INSIDE)
    tables = {**processes(), **_tables(kernels, scopes, lanes, arrows)}
    origin = {
        "format": "proton",
        "tool": "Triton's Proton",
        "version": None,
        "paths": [str(path)],
        "gpu": True,
    }
    trace = sound_trace(tables, origin)
    if kernels:
        trace.note(
            "info",
            "Proton's trace does not name devices: kernels are taken as those of device 0",
            len(kernels),
        )
    if odd:
        trace.note("warning", "events that cannot be read, left out", odd)
    return trace


def _key(value: Any) -> Any:
    """Return the key of a lane or an arrow; None if the value is not a key: ``true`` is not lane 1."""
    return value if type(value) in (int, str) else None


def _ns(value: Any) -> int | None:
    """Return a time in microseconds as ns; None if it is not a time."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return None
    # compare first: an integer may have any number of digits
    return round(value * 1000) if abs(value) < 1 << 51 and math.isfinite(value) else None


def _row(event: Mapping[str, Any]) -> dict[str, Any] | None:
    start, lasted, name = _ns(event.get("ts")), _ns(event.get("dur")), event.get("name")
    if start is None or lasted is None or not isinstance(name, str):
        return None
    return {
        "start": start,
        "end": start + lasted,
        "name": name[:8192],
        "lane": _key(event.get("tid")),
    }


def _number(lane: Any, lanes: Mapping[Any, str]) -> int | None:
    """Return the number of a lane's thread or stream, from its name."""
    name = lanes.get(lane, lane if isinstance(lane, str) else "")
    match = _LANE.match(name)
    if match is not None:
        return int(match[1])
    return lane if isinstance(lane, int) and 0 <= lane < 1 << 62 else None


def _tables(
    kernels: list[dict[str, Any]],
    scopes: list[dict[str, Any]],
    lanes: Mapping[Any, str],
    arrows: Mapping[Any, Mapping[str, int]],
) -> dict[str, pl.DataFrame]:
    process = pl.lit(0, pl.Int32).alias("process")
    for row in kernels:
        row["stream"] = _number(row["lane"], lanes)
    # work of a graph's replay is on no thread of the host
    hosted = [row for row in scopes if not lanes.get(row["lane"], "").startswith(_GRAPH)]
    for row in hosted:
        row["thread"] = _number(row["lane"], lanes) or 0
    ran = frame_of(kernels, {**_PLACED, "stream": pl.Int64}).sort("start", maintain_order=True)
    on = frame_of(hosted, {**_PLACED, "thread": pl.Int64}).sort(
        "start", "end", descending=[False, True], maintain_order=True
    )
    # by arrow, not by row: an event that is in the file twice is one kernel
    met = [both for both in arrows.values() if "s" in both and "f" in both]
    number = {both["f"]: index for index, both in enumerate(met, 1)}
    called = {both["f"]: both["s"] for both in met}
    launched = ran.with_columns(
        pl.col("start")
        .replace_strict(number, default=None, return_dtype=pl.Int64)
        .alias("correlation"),
        pl.col("start").replace_strict(called, default=None, return_dtype=pl.Int64).alias("called"),
    )
    threads = {row["start"]: row["thread"] for row in hosted}
    calls = (
        launched.drop_nulls("called")
        .unique("correlation", maintain_order=True)
        .select(
            process,
            pl.col("called")
            .replace_strict(threads, default=0, return_dtype=pl.Int64)
            .alias("thread"),
            pl.col("called").alias("start"),
            (pl.col("called") + 1).alias("end"),
            pl.lit("launch").alias("name"),
            "correlation",
        )
    )
    return {
        "devices": pl.DataFrame({"process": [0], "device": [0]}),
        "kernels": launched.drop("called").with_columns(
            process, pl.lit(0, pl.Int32).alias("device")
        ),
        "calls": calls,
        "ranges": on.rename({"name": "text"}).with_columns(
            process,
            pl.int_range(pl.len(), dtype=pl.Int64).alias("id"),
            pl.lit("user").alias("domain"),
            pl.lit("pushpop").alias("kind"),
        ),
    }
