"""Check the values of a trace: drop rows with impossible times, and set other impossible values to null.

Notes count both. Every reader passes its tables through here before they become a trace.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import polars as pl

from opscope.core.schema import TABLES
from opscope.core.sizes import NONE_GIVEN, as_floats, is_size
from opscope.core.tables.columns import distinct_values, least, most, pieces
from opscope.core.tables.impossible import (
    DEVICE,
    NO_TIME,
    NOWHERE,
    without_device,
    without_timeless,
)
from opscope.core.tables.trace import Trace, conform, table_schema
from opscope.core.waits import is_wait

#: Largest time, ns: Unix time reaches it in 2043, and sums of three such times stay within 64 bits.
LATEST: Final = 1 << 61
#: Longest duration, ns: 104 days. A thousand of them add up within 64 bits.
LONGEST: Final = 1 << 53
#: Bounds of optional columns, inclusive; values outside become null.
_BYTES: Final = (0, 1 << 50)
#: Bounds of one block of memory, allocated or released, in bytes.
CHANGE: Final = (-(1 << 44), 1 << 44)
#: Times and counts of opscope's own cost.
_OWN: Final = ("time", "calls", "one_in", "span", "steps_span", "steps_time")
_ANY_TIME: Final = (-LATEST, LATEST)
_BOUNDS: Final[Mapping[tuple[str, str], tuple[int, int]]] = {
    ("processes", "start_time"): _ANY_TIME,
    ("processes", "processor_time"): (0, LONGEST),
    ("clocks", "to_unix_ns"): _ANY_TIME,
    ("clocks", "error_ns"): (0, LATEST),
    ("clocks", "offset_ns"): _ANY_TIME,
    ("clocks", "spread_ns"): (0, LATEST),
    ("notes", "how_many"): (0, LONGEST),
    ("devices", "sm_count"): (0, 1 << 16),
    ("devices", "memory"): _BYTES,
    ("devices", "max_threads_per_sm"): (0, 1 << 16),
    ("devices", "clock_khz"): (0, 100_000_000),
    ("devices", "mem_bandwidth"): (0, 1 << 53),
    # CUDA has 255 and AMD's CDNA 512 of each kind; ROCm writes 2,191,500,840 if it does not know the number
    ("kernels", "registers"): (0, 1 << 16),
    ("kernels", "shared_static"): (0, 1 << 31),
    ("kernels", "shared_dynamic"): (0, 1 << 31),
    ("kernels", "local_memory"): _BYTES,
    ("memops", "bytes"): _BYTES,
    ("allocations", "bytes"): CHANGE,
    ("allocations", "total"): (-(1 << 50), 1 << 50),
    ("allocations", "reserved"): (-(1 << 50), 1 << 50),
    **{("memory_blocks", column): _BYTES for column in ("bytes", "requested")},
    ("memory_segments", "bytes"): _BYTES,
    ("host_samples", "samples"): (0, LONGEST),
    ("host_samples", "cpu"): (0, LONGEST),
    **{("own_costs", column): (0, LONGEST) for column in _OWN},
}
#: A column cannot hold unsigned 64-bit integers.
_NO_SIZES: Final = NONE_GIVEN[:3]
#: The most characters of a device's name; the longest real one has 60.
_LONGEST_NAME: Final = 256
#: A grid or block: up to three numbers.
_EXTENT: Final = r"^\s*[0-9]{1,10}\s*(?:,\s*[0-9]{1,10}\s*){0,2}$"
#: The note on waits among the kernels.
_SYNC: Final = ("process", "device", "context", "stream", "start", "end", "kind", "correlation")
#: Tables whose ``time`` may be null: specs, and opscope's own cost.
_MAY_LACK: Final = ("specs", "own_costs")
#: The note on kernels, copies and sets without a stream, on which critical paths and replays rest.
STREAMLESS: Final = (
    "work whose stream is not known: on each device it is taken as one stream's, in order"
)
Note = tuple[str, str, int]
#: The note on kernels without a name: their time counts, but it is not known what they did.
NAMELESS: Final = "kernels without a name"


def sound(tables: dict[str, pl.DataFrame], *, opened: bool = False) -> list[Note]:
    """Correct the tables in place; returns notes on what was wrong.

    Columns may be missing. With ``opened``, a range without an end stays, because it is cut later. A device's
    name is cut to ``_LONGEST_NAME`` characters: each pattern of the table of devices is tried on it.
    """
    notes: list[Note] = []
    for name, frame in tables.items():
        mended = _small(name, _time(name, frame, notes, opened), notes)
        tables[name] = _extents(name, _bounded(name, mended, notes), notes)
    if "name" in tables.get("devices", pl.DataFrame()).columns:
        short = pl.col("name").cast(pl.String).str.head(_LONGEST_NAME)
        tables["devices"] = tables["devices"].with_columns(short)
    return notes


def sound_trace(tables: dict[str, pl.DataFrame], origin: Mapping[str, Any]) -> Trace:
    """Return the trace of the corrected tables, with notes on what was wrong."""
    recorded = {name for name in DEVICE if len(tables.get(name, ()))}
    notes = sound(tables)
    trace = without_timeless(_with_waits_apart(Trace.of(tables, origin)), recorded)
    names = trace["kernels"]["name"]
    nameless = names.null_count()
    if distinct_values(names).cast(pl.String).eq("").any():
        nameless += int(names.eq("").sum())
    if nameless:
        notes.append(("warning", NAMELESS, nameless))
    if nowhere := without_device(trace):
        notes.append(("warning", NOWHERE, nowhere))
    adrift = sum(trace[name]["stream"].null_count() for name in DEVICE)
    if adrift and not origin.get("times"):  # totals have no order
        notes.append(("info", STREAMLESS, adrift))
    for note in notes:
        trace.note(*note)
    return trace


def _with_waits_apart(trace: Trace) -> Trace:
    """Return the trace with rows that only wait or signal moved to ``syncs``, because they are not kernels.
    Rows with a grid were launched as kernels, whatever their names."""
    kernels = trace["kernels"]
    names = distinct_values(kernels["name"]).drop_nulls()
    waits = names.filter(
        pl.Series([is_wait(name) for name in names.cast(pl.String)], dtype=pl.Boolean)
    )
    if waits.is_empty():
        return trace
    waiting = kernels["name"].is_in(waits.implode()).fill_null(False) & kernels["grid"].is_null()
    syncs = kernels.filter(waiting).rename({"name": "kind"})
    return trace.replace(
        kernels=kernels.filter(~waiting),
        syncs=pl.concat(
            [trace["syncs"], conform("syncs", syncs.select(_SYNC))], how="vertical_relaxed"
        ),
    )


def _time(name: str, frame: pl.DataFrame, notes: list[Note], opened: bool) -> pl.DataFrame:
    """The rows with possible times."""
    if name in DEVICE and len(frame):  # a table may lack a column of times
        absent = {"start", "end"} - set(frame.columns)
        frame = frame.with_columns(pl.lit(None, pl.Int64).alias(column) for column in absent)
    times = [c for c in ("start", "end", "time") if c in frame.columns and c in TABLES[name]]
    if not times or not len(frame):
        return frame
    ends = {"start", "end"} <= set(times)
    low, high = _least([least(frame[c]) for c in times]), _most([most(frame[c]) for c in times])
    if low < -LATEST or high > LATEST or (ends and high - low > LONGEST):
        far = pl.any_horizontal(~pl.col(times).is_between(-LATEST, LATEST))
        if ends:  # between times within the bounds the difference fits in 64 bits
            far |= pl.col("end") - pl.col("start") > LONGEST
        message = f"rows of {name} whose time is out of range, {NO_TIME}"
        frame = _without(frame, far.fill_null(False), message, notes)
    wrong = pl.any_horizontal(pl.col([c for c in times if c != "end"]).is_null())
    if ends:
        wrong |= (pl.col("end") < pl.col("start")).fill_null(not opened or name != "ranges")
    if name in _MAY_LACK:
        return frame
    message = (
        f"rows of {name} whose end is missing or before its start (a negative duration), {NO_TIME}"
    )
    return _without(frame, wrong, message, notes)


def _without(frame: pl.DataFrame, wrong: pl.Expr, message: str, notes: list[Note]) -> pl.DataFrame:
    parts = (frame[part].select(wrong.alias("bad")).to_series() for part in pieces(len(frame)))
    count = sum(int(part.sum()) for part in parts)
    if not count:
        return frame
    bad = frame.select(wrong.alias("bad")).to_series()
    notes.append(("warning", message, count))
    return frame.filter(~bad)


def _least(values: list[Any]) -> int:
    return min((int(value) for value in values if value is not None), default=0)


def _most(values: list[Any]) -> int:
    return max((int(value) for value in values if value is not None), default=0)


def _small(name: str, frame: pl.DataFrame, notes: list[Note]) -> pl.DataFrame:
    """Cast integers to the column's narrower type, also from text; null if a value does not fit."""
    for column, dtype in table_schema(name).items():
        recorded_dtype = frame.schema.get(column)
        if recorded_dtype in (None, dtype):
            continue
        if recorded_dtype.is_nested() or recorded_dtype == pl.Object:
            small = pl.Series(column, [None], dtype=dtype).new_from_index(0, len(frame))
        elif dtype.is_integer():
            small = frame[column].cast(dtype, strict=False)
        else:
            continue
        _count(name, column, small.null_count() - frame[column].null_count(), notes)
        frame = frame.with_columns(small)
    return frame


def _bounded(name: str, frame: pl.DataFrame, notes: list[Note]) -> pl.DataFrame:
    for (table, column), (low, high) in _BOUNDS.items():
        if table != name or column not in frame.columns or not frame.schema[column].is_integer():
            continue
        values = frame[column]
        largest = _most([values.max()])
        if _least([values.min()]) >= low and largest <= high and largest < _NO_SIZES[0]:
            continue
        fits = pl.col(column).is_between(low, high) & pl.col(column).is_in(_NO_SIZES).not_()
        frame = frame.with_columns(pl.when(fits).then(column).alias(column))
        _count(name, column, frame[column].null_count() - values.null_count(), notes)
    return frame


def _extents(name: str, frame: pl.DataFrame, notes: list[Note]) -> pl.DataFrame:
    """Return the frame without grids and blocks (``x,y,z``) whose numbers are not sizes, and without invalid
    values of counters."""
    for column in ("grid", "block") if name == "kernels" else ():
        if column not in frame.columns or frame[column].null_count() == len(frame):
            continue
        texts = distinct_values(frame[column]).cast(pl.String)
        odd = texts.filter(
            pl.Series([_odd_extent(text) for text in texts.to_list()], dtype=pl.Boolean)
        )
        if len(odd):
            wrong = frame[column].cast(pl.String).is_in(odd.implode()).fill_null(False)
            frame = frame.with_columns(
                pl.when(~wrong).then(pl.col(column)).otherwise(None).alias(column)
            )
            _count(name, column, int(wrong.sum()), notes)
    if name == "counters" and frame.schema.get("value") == pl.Float64:
        value = pl.col("value")
        wrong = frame.select((value.is_in(as_floats()) | (value >= 2.0**63)).fill_null(False))
        count = int(wrong["value"].sum())
        if count:
            notes.append(("warning", "values of counters that are no measurement, left out", count))
            frame = frame.filter(~wrong["value"])
    return frame


def _odd_extent(text: str | None) -> bool:
    """Return whether a grid or block is not up to three sizes (``900,1,1``)."""
    if text is None:
        return False
    return re.match(_EXTENT, text) is None or not all(
        is_size(int(part)) for part in text.split(",")
    )


def _count(name: str, column: str, count: int, notes: list[Note]) -> None:
    if count:
        notes.append(("warning", f"values of {name}.{column} out of range, read as null", count))
