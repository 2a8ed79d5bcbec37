"""Turn measurements of Nsight Compute into a trace: kernels, counters, and the ranges around their launches.

ncu runs one kernel at a time and many times over, and does not say when: launches are laid end to end in
their order, each as long as ``gpu__time_duration.sum`` says. A range spans the launches during which it was
open; equal ranges around successive launches become one, since nothing distinguishes them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl

from opscope.core.sizes import HOUR, as_floats
from opscope.core.tables.trace import Trace
from opscope.readers.errors import BadInput
from opscope.readers.heads import NSIGHT_COMPUTE, PACKED
from opscope.readers.kineto.json_events import whole_file
from opscope.readers.rows import frame_of
from opscope.readers.sound import sound_trace

from .csv_file import parse, read_csv
from .exporter import export
from .measured import Measured, Open
from .report_file import UnknownReport, read_report

#: The counter of a kernel's duration, in ns.
DURATION: Final = "gpu__time_duration.sum"
#: The domain of the marks that name kernels of unknown duration.
MARKS: Final = "ncu"
#: The most bytes of a report, decompressed, that are read.
MOST: Final = 2 << 30
#: A launch of unknown duration takes this long in the made-up order (ns).
_UNTIMED: Final = 10
_LAUNCH: Final = "kernel launch"
_SHAPE: Final = {
    "registers": "launch__registers_per_thread",
    "shared_static": "launch__shared_mem_per_block_static",
    "shared_dynamic": "launch__shared_mem_per_block_dynamic",
}


def read(path: Path) -> Trace:
    """Return the trace in ncu's CSV or report. Raises BadInput."""
    found = measured(path)
    timed = _durations(found)
    complete = timed.null_count() == 0
    length = timed.fill_null(_UNTIMED).cast(pl.Int64).to_numpy()
    deep = max(map(len, found.stacks), default=0)
    # leaves room for the begins and ends of ranges
    start = np.cumsum(length + 2 * deep + 2) - length
    launches, process = _processes(found.launches)
    ranges = _ranges(found, launches, start, start + length)
    has_calls = any(found.stacks)
    tables: dict[str, pl.DataFrame] = {"processes": process}
    tables["devices"] = _devices(found, launches)
    tables["clocks"] = pl.DataFrame(
        {"clock_domain": [0], "kind": ["unknown"]},
        schema={"clock_domain": pl.Int32, "kind": pl.String},
    )
    mark = pl.Series([None], dtype=pl.Int64).new_from_index(0, len(launches))
    if complete:
        tables["kernels"] = _kernels(found, launches, start, length)
    else:
        mark = pl.int_range(len(ranges), len(ranges) + len(launches), eager=True, dtype=pl.Int64)
        ranges = pl.concat([ranges, _marks(launches, mark, start)], how="diagonal_relaxed")
    tables["ranges"] = ranges
    if has_calls:
        tables["calls"] = _calls(launches, start)
    tables["counters"] = _counters(found, launches, mark)
    origin = {
        "format": "ncu",
        "tool": "Nsight Compute",
        "version": found.version,
        "paths": [str(path)],
        "times": "of kernels as ncu measured them, laid end to end in the order of the launches",
        "gpu": True,
    }
    trace = sound_trace(tables, origin)
    for note in found.notes:
        trace.note(*note)
    trace.note("info", "ncu does not say when kernels ran: they are laid end to end", len(launches))
    if not complete:
        message = f"kernels without a duration ({DURATION} was not measured): no kernel has a time"
        trace.note("warning", message, int(timed.null_count()))
    if has_calls:
        message = "NVTX ranges are those open at launches: equal ranges around successive launches are one"
        trace.note("info", message, len(ranges))
    return trace


def measured(path: Path) -> Measured:
    """Return the content of a file of ncu: a report is read by our own reader, or by ncu itself if ours
    does not know its form. Raises BadInput."""
    try:
        with path.open("rb") as file:
            head = file.read(4)
    except OSError as error:
        raise BadInput(path, error.strerror or type(error).__name__) from None
    if head.startswith((NSIGHT_COMPUTE, *PACKED)):
        data = whole_file(path, MOST, f"a report of more than {MOST:,} bytes")
        if not data.startswith(NSIGHT_COMPUTE):
            raise BadInput(path, "a compressed file that is no report of Nsight Compute")
        try:
            return read_report(data, path)
        except UnknownReport:
            return parse(export(path), path)
    return read_csv(path)


def _durations(measured: Measured) -> pl.Series:
    """Return the duration of each launch in whole ns; null if it was not measured."""
    mine = measured.values.filter(pl.col("name") == DURATION).unique("launch", keep="first")
    both = measured.launches.select("launch").join(
        mine, on="launch", how="left", maintain_order="left"
    )
    value = both["value"]
    usable = value.is_between(0, HOUR, closed="right") & ~value.is_in(as_floats())
    rounded: pl.Series = value.set(~usable.fill_null(True), None).round().cast(pl.Int64)
    return rounded


def _processes(launches: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the launches with their process' number, and the table of processes."""
    key = ["host", "pid"]
    distinct = launches.select(*key, "program").unique(key, keep="first", maintain_order=True)
    numbered = distinct.with_row_index("process").with_columns(pl.col("process").cast(pl.Int32))
    placed = launches.join(
        numbered.select("process", *key),
        on=key,
        how="left",
        nulls_equal=True,
        maintain_order="left",
    )
    table = numbered.select("process", "host", "pid", pl.col("program").alias("name"))
    return placed.with_columns((pl.col("launch") + 1).alias("correlation")), table


def _devices(measured: Measured, launches: pl.DataFrame) -> pl.DataFrame:
    pairs = launches.select("process", pl.col("device").fill_null(0), "cc")
    pairs = pairs.unique(["process", "device"], keep="first", maintain_order=True)
    rows = [{**row, **measured.devices.get(row["device"], {})} for row in pairs.to_dicts()]
    schema = {"process": pl.Int32, "device": pl.Int32, "cc": pl.String, "name": pl.String,
              "sm_count": pl.Int64, "memory": pl.Int64, "max_threads_per_sm": pl.Int64}  # fmt: skip
    return frame_of(rows, schema)


def _value_of(measured: Measured, name: str) -> pl.Series:
    mine = measured.values.filter(pl.col("name") == name).unique("launch", keep="first")
    both = measured.launches.select("launch").join(
        mine, on="launch", how="left", maintain_order="left"
    )
    column: pl.Series = both["value"].round().cast(pl.Int64, strict=False)
    return column


def _kernels(
    measured: Measured,
    launches: pl.DataFrame,
    start: np.ndarray[Any, Any],
    length: np.ndarray[Any, Any],
) -> pl.DataFrame:
    return launches.select(
        "process",
        pl.col("device").fill_null(0),
        "context",
        "stream",
        pl.Series("start", start),
        pl.Series("end", start + length),
        "name",
        "correlation",
        "grid",
        "block",
    ).with_columns(_value_of(measured, name).alias(column) for column, name in _SHAPE.items())


def _marks(launches: pl.DataFrame, ids: pl.Series, start: np.ndarray[Any, Any]) -> pl.DataFrame:
    return launches.select(
        ids.alias("id"),
        "process",
        pl.Series("start", start),
        pl.Series("end", start),
        pl.lit(MARKS).alias("domain"),
        pl.col("name").alias("text"),
        pl.lit("mark").alias("kind"),
    )


def _counters(measured: Measured, launches: pl.DataFrame, mark: pl.Series) -> pl.DataFrame:
    about = launches.select(
        "launch", "process", pl.col("device").fill_null(0), "correlation", mark.alias("range_id")
    )
    both = measured.values.join(about, on="launch", how="left", maintain_order="left")
    return both.select("process", "device", "correlation", "range_id", "name", "value")


def _calls(launches: pl.DataFrame, start: np.ndarray[Any, Any]) -> pl.DataFrame:
    """Return the launches as calls inside the ranges that were open; which function was called is not
    recorded."""
    return launches.select(
        "process",
        pl.lit(0, pl.Int64).alias("thread"),
        pl.Series("start", start - 1),
        pl.Series("end", start),
        pl.lit(_LAUNCH).alias("name"),
        "correlation",
    )


def _ranges(
    measured: Measured,
    launches: pl.DataFrame,
    start: np.ndarray[Any, Any],
    end: np.ndarray[Any, Any],
) -> pl.DataFrame:
    """Return the ranges that were open at the launches, on one thread for each process.

    ncu says which threads had ranges open, not which of them launched: a launch is taken to be in all of
    them.
    """
    closed: list[tuple[int, int, Open, int, int]] = []
    opened: dict[int, list[tuple[Open, int, int]]] = {}

    def close(number: int, keep: int) -> None:
        open_now = opened[number]
        while len(open_now) > keep:
            closed.append((number, len(open_now) - 1, *open_now.pop()))

    rows = zip(launches["process"].to_list(), launches["stack"].to_list(), strict=True)
    for index, (number, stack) in enumerate(rows):
        now = measured.stacks[stack] if stack is not None else ()
        before = opened.setdefault(number, [])
        same = 0
        while same < min(len(now), len(before)) and now[same] == before[same][0]:
            same += 1
        close(number, same)
        before[:] = [(range_, first, index) for range_, first, _ in before]
        before += [(range_, index, index) for range_ in now[same:]]
    for number in opened:
        close(number, 0)
    deep = max(map(len, measured.stacks), default=0)
    closed.sort(key=lambda row: (row[3], row[1]))
    rows_made = [
        {
            "id": count,
            "process": number,
            "thread": 0,
            "start": int(start[first]) - 1 - (deep - level),
            "end": int(end[last]) + deep - level,
            "domain": range_.domain,
            "category": range_.category,
            "text": range_.text,
            "payload": range_.payload,
            "kind": "pushpop",
        }
        for count, (number, level, range_, first, last) in enumerate(closed)
    ]
    schema = {"id": pl.Int64, "process": pl.Int32, "thread": pl.Int64, "start": pl.Int64, "end": pl.Int64,
              "domain": pl.String, "category": pl.String, "text": pl.String, "payload": pl.Int64,
              "kind": pl.String}  # fmt: skip
    return pl.DataFrame(rows_made, schema=schema)
