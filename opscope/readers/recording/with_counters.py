"""Join a process's ranges with the hardware counters that CUPTI measured for each kernel, or over time. CUPTI
only numbers the measured kernels. So the n-th kernel is the n-th launch of its context during the
measurement; if that is in doubt, the values stay, without a launch."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.cupti import calls as call_names
from opscope.core.cupti import counter_files as files
from opscope.core.cupti import kinds
from opscope.core.dialects.demangle import all_demangled
from opscope.core.dialects.launches import GRAPH_LAUNCH
from opscope.core.question.units import counted
from opscope.core.tables.columns import spread
from opscope.core.tables.trace import Trace, conform, next_range_id, table_schema
from opscope.readers.errors import BadInput
from opscope.readers.recording.cupti_files import json_lines
from opscope.readers.recording.kineto_threads import unseen
from opscope.readers.recording.parts import integer
from opscope.readers.rows import frame_of

#: The domain of the marks that name the kernels, as in a Kineto trace with counters.
DOMAIN: Final = "cuda_profiler_range"
_LAUNCH: Final = ("start", "end", "context", "thread", "correlation", "call", "name")
_ABOUT: Final = ("context", "device", "began", "ended", "passes", "dropped")
_DEVICE: Final = {
    "name": str, "cc": str, "sm_count": int, "memory": int, "max_threads_per_sm": int, "clock_khz": int,
    "mem_bandwidth": int,
}  # fmt: skip
#: The most counters, contexts and names of a file that are read, and the longest text.
_MOST_COUNTERS, _MOST_CONTEXTS, _MOST_NAMES, _LONGEST = 4096, 4096, 1 << 20, 1 << 15
#: The upper bound of device numbers, in 16 bits.
_DEVICES: Final = 1 << 15


@dataclass(slots=True)
class Measured:
    """A file of counters. ``contexts``: the measurement of each context, with its ``rows`` of values."""

    path: Path
    version: int
    counters: list[str]
    contexts: dict[int, dict[str, Any]] = field(default_factory=dict)
    launches: list[list[int]] = field(default_factory=list)
    names: dict[int, str] = field(default_factory=dict)
    samples: list[tuple[int, list[Any]]] = field(default_factory=list)
    devices: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def load(path: Path) -> Measured:
    """Return the content of ``counters.jsonl``. Raises BadInput if it is damaged."""
    lines = json_lines(path)
    first = next(lines, None)
    try:
        measured = _begin(path, first)
        for line in lines:
            _add(measured, line)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        if isinstance(error, BadInput):
            raise
        raise BadInput(path, f"hardware counters cannot be read: {error!r:.200}") from None
    return measured


def _begin(path: Path, first: Any) -> Measured:
    counters = [str(name)[:_LONGEST] for name in first["counters"]]
    if len(counters) > _MOST_COUNTERS or len(set(counters)) < len(counters):
        raise ValueError("names of counters")
    return Measured(path, integer(first["version"]), counters)


def _add(measured: Measured, line: Any) -> None:
    """Add the facts of a line. Raises KeyError, TypeError, ValueError or OverflowError."""
    if not isinstance(line, dict):
        raise TypeError(f"{line!r:.40} is not an object")
    if "measured" in line:
        about = {name: integer(line["measured"][name]) for name in _ABOUT}
        _device(about["device"])
        if len(measured.contexts) >= _MOST_CONTEXTS:
            raise ValueError("too many contexts")
        measured.contexts[about["context"]] = {**about, "rows": []}
    if "values" in line:
        rows = measured.contexts[integer(line["values"]["context"])]["rows"]
        rows.extend(_row(row, len(measured.counters)) for row in line["values"]["rows"])
    if "launches" in line:
        for row in line["launches"]:
            if len(row) != len(_LAUNCH):
                raise ValueError(f"{row!r:.60} is no launch")
            measured.launches.append([integer(value) for value in row])
    if "names" in line and len(measured.names) < _MOST_NAMES:
        measured.names |= {
            integer(key): str(text)[:_LONGEST] for key, text in line["names"].items()
        }
    if "samples" in line:
        device = _device(line["samples"]["device"])
        for time, *values in line["samples"]["rows"]:
            measured.samples.append(
                (device, [integer(time), *_row(values, len(measured.counters))])
            )
    if "devices" in line:
        for row in line["devices"][:_MOST_CONTEXTS]:
            facts = {name: kind(row[name]) for name, kind in _DEVICE.items() if row.get(name)}
            measured.devices.append({"process": 0, "device": _device(row["device"]), **facts})
    if "note" in line:
        measured.notes.append(str(line["note"])[:_LONGEST])


def _row(row: Any, count: int) -> list[float | None]:
    if len(row) != count:
        raise ValueError(f"{row!r:.60} does not have {count} values")
    return [None if value is None else float(value) for value in row]


def _device(value: Any) -> int:
    number = int(value)
    if not 0 <= number < _DEVICES:
        raise ValueError(f"{value!r:.40} is not a device number")
    return number


def merge(ranges: Trace, measured: Measured) -> Trace:
    """Return the recorder's part with the tables ``calls``, ``counters``, ``devices`` and ``samples``.

    For each kernel that was measured there is a mark with its name in ``ranges``, at its launch.
    """
    tables: dict[str, Any] = {name: ranges[name] for name in ranges.present}
    launches = np.array(measured.launches, np.int64).reshape(-1, len(_LAUNCH))
    calls = _calls(launches, measured.version)
    tables["calls"] = calls
    tables["threads"] = pl.concat([ranges["threads"], unseen(calls, ranges["threads"])])
    notes: list[tuple[str, str, int]] = [("warning", text, 1) for text in measured.notes]
    marks, counters = _measure(measured, launches, calls, next_range_id(ranges["ranges"]), notes)
    if len(marks):
        tables["ranges"] = pl.concat([ranges["ranges"], conform("ranges", marks)])
    tables["counters"] = counters
    if measured.devices:
        devices = frame_of(measured.devices, table_schema("devices"), notes, "devices")
        tables["devices"] = devices.unique("device", keep="first", maintain_order=True)
    if measured.samples:
        sampled = pl.concat([ranges["samples"], conform("samples", _samples(measured))])
        tables["samples"] = sampled.sort("time", maintain_order=True)
    origin = {key: value for key, value in ranges.origin.items() if key != "probes"}
    merged = Trace.of(tables, origin)
    merged.origin["kernels"] = {"format": "cupti counters", "paths": [str(measured.path)]}
    for note in notes:
        merged.note(*note)
    return merged


def _calls(launches: NDArray[np.int64], version: int) -> pl.DataFrame:
    start, end, _, thread, correlation, call, _ = launches.T
    order = np.argsort(start, kind="stable")
    distinct, code = np.unique(call, return_inverse=True)
    texts = [_call(int(number), version) for number in distinct.tolist()]
    frame = pl.DataFrame(
        {
            "process": np.zeros(len(launches), np.int32),
            "thread": thread,
            "start": start,
            "end": end,
            "name": spread("name", texts, code.reshape(-1)),
            "correlation": correlation,
        }
    )
    return conform("calls", frame[order])


def _call(number: int, version: int) -> str:
    domain, number = number >> files.SHIFT, number & ((1 << files.SHIFT) - 1)
    names = call_names.names(kinds.RUNTIME if domain == files.RUNTIME else kinds.DRIVER, version)
    return names[number] if number < len(names) else f"cbid_{number}"


def _measure(
    measured: Measured,
    launches: NDArray[np.int64],
    calls: pl.DataFrame,
    first: int,
    notes: list[tuple[str, str, int]],
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the marks and the table ``counters``; note what is in doubt."""
    numbers = sorted(measured.names)
    names = dict(
        zip(numbers, all_demangled([measured.names[number] for number in numbers]), strict=True)
    )
    distinct, code = np.unique(launches[:, 5], return_inverse=True)
    graphs = [
        bool(re.search(GRAPH_LAUNCH, _call(call, measured.version))) for call in distinct.tolist()
    ]
    graph = np.array(graphs, bool)[code.reshape(-1)]
    marks, tables = [], []
    for context in measured.contexts.values():
        rows = context["rows"]
        linked, why = _link(context, launches, graph)
        if why is not None and rows:
            notes.append(("warning", f"counters are not linked to launches: {why}", len(rows)))
        unsure = 0 if linked is None else int((linked < 0).sum())
        if unsure:
            message = "counters not linked to a launch: two threads launched at once"
            notes.append(("warning", message, unsure))
        if context["dropped"]:
            message = "kernels whose counters had no room: they were not measured"
            notes.append(("warning", message, context["dropped"]))
        linked = np.full(len(rows), -1) if linked is None else linked
        at = np.maximum(linked, 0)
        is_linked = (linked >= 0) & (len(launches) > 0)
        taken = launches[at] if len(launches) else np.zeros((len(rows), len(_LAUNCH)), np.int64)
        time = np.where(is_linked, taken[:, 0], context["began"])
        ids = np.arange(first, first + len(rows))
        first += len(rows)
        text = [names.get(number) if sure else None
                for number, sure in zip(taken[:, 6].tolist(), is_linked.tolist(), strict=True)]  # fmt: skip
        marks.append(
            pl.DataFrame(
                {
                    "id": ids, "process": np.zeros(len(rows), np.int32), "start": time, "end": time,
                    "domain": [DOMAIN] * len(rows), "text": pl.Series(text, dtype=pl.String),
                    "kind": ["mark"] * len(rows),
                }
            )
        )  # fmt: skip
        long = _long(measured.counters, rows)
        row = long["row"].to_numpy()
        correlation = pl.Series("correlation", taken[row, 4]).set(pl.Series(~is_linked[row]), None)
        tables.append(
            long.drop("row").with_columns(
                correlation,
                pl.Series("range_id", ids[row]),
                pl.lit(context["device"]).alias("device"),
                pl.lit(0, pl.Int32).alias("process"),
            )
        )
    if not tables:
        return pl.DataFrame(), pl.DataFrame(schema=table_schema("counters"))
    return pl.concat(marks), pl.concat([conform("counters", table) for table in tables])


def _link(
    context: dict[str, Any], launches: NDArray[np.int64], graph: NDArray[np.bool_]
) -> tuple[NDArray[np.int64] | None, str | None]:
    """Return the launch of each kernel (-1: in doubt); or None, and the reason why all are in doubt."""
    mine = (launches[:, 2] == context["context"]) & (launches[:, 1] > context["began"])
    mine &= launches[:, 0] < context["ended"]
    rows = np.flatnonzero(mine)
    rows = rows[np.argsort(launches[rows, 0], kind="stable")]
    start, end, thread = launches[rows, 0], launches[rows, 1], launches[rows, 3]
    if graph[rows].any():
        count = int(graph[rows].sum())
        return (
            None,
            f"{counted(count, 'launch', 'launches')} of CUDA graphs ran an unknown number of kernels",
        )
    ranges = len(context["rows"]) + context["dropped"]
    if len(rows) != ranges:
        return (
            None,
            f"{counted(len(rows), 'launch', 'launches')}, and CUPTI measured {counted(ranges, 'kernel')}",
        )
    latest = np.maximum.accumulate(end) if len(end) else end
    # launches of several threads that overlap or touch may have reached the device in any order
    crossed = np.zeros(len(rows) + 1, bool)
    crossed[1:-1] = start[1:] <= latest[:-1]
    unsure = crossed[:-1] | crossed[1:]
    if len(np.unique(thread)) < 2:  # a thread's own launches follow each other
        unsure[:] = False
    linked_rows = np.where(unsure, -1, rows)
    return linked_rows[: len(context["rows"])], None


def _samples(measured: Measured) -> pl.DataFrame:
    devices = np.array([device for device, _ in measured.samples], np.int64)
    times = np.array([row[0] for _, row in measured.samples], np.int64)
    long = _long(measured.counters, [row[1:] for _, row in measured.samples])
    at = long["row"].to_numpy()
    return long.drop("row").with_columns(
        pl.lit(0, pl.Int32).alias("process"),
        pl.Series("device", devices[at]),
        pl.Series("time", times[at]),
    )


def _long(counters: list[str], rows: list[list[float | None]]) -> pl.DataFrame:
    """Return a row for each value: ``row``, ``name``, ``value``; values that are not numbers are left out."""
    values = np.array(rows, np.float64).reshape(-1, len(counters))
    frame = pl.DataFrame(
        {
            "row": np.repeat(np.arange(len(values)), len(counters)),
            "name": spread("name", counters, np.tile(np.arange(len(counters)), len(values))),
            "value": values.reshape(-1),
        }
    )
    return frame.filter(pl.col("value").is_finite())
