"""Read the CSV tables of a run: rocprof v1 and v2, rocprofv3, rocprofiler-compute.

The meaning of a column does not change between versions, only its name; ``kinds`` has the sources. Traps:

* a grid is counted in work-items, in v1, v2 and counters' tables as the product of its sizes;
* v1's ``gpu-id`` is the number of the device's node, ``queue-id`` that of a queue of its own numbering, and
  ``Index`` counts dispatches of all processes;
* v1 with ``DispatchNs`` has four times: a kernel ran from ``BeginNs`` to ``EndNs``, and ``DurationNs`` is
  their difference; without times the file has counters only;
* rocprofv3's tables of kernels and copies do not name their process, that of counters does;
* rocprofv2 writes ``roctx_trace`` as events without a thread: a text where a range begins, none where it
  ends.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import polars as pl

from opscope.core.tables.impossible import NO_TIME
from opscope.readers.errors import BadInput
from opscope.readers.rows import TWICE, UNEVEN, is_appended

from . import agents
from .marks import ROCTX
from .parts import Parts
from .table import Table, whole

_START: Final = ("starttimestamp", "beginns")
_END: Final = ("endtimestamp", "stoptimestamp", "endns")
#: Calls of these interfaces are ranges: libraries and users write them.
_MARKERS: Final = re.compile(r"MARKER|ROCTX", re.IGNORECASE)
#: Calls that only end, name or control ranges.
_NO_RANGE: Final = r"^roctx(?:RangePop|RangeStop|ProfilerPause|ProfilerResume|Name\w+|GetThreadId)$"
_COLLECTIVES: Final = re.compile(r"RCCL", re.IGNORECASE)
DIRECTIONS: Final[Mapping[str, str]] = {
    "HOST_TO_DEVICE": "HtoD",
    "DEVICE_TO_HOST": "DtoH",
    "DEVICE_TO_DEVICE": "DtoD",
    "HOST_TO_HOST": "HtoH",
    "HostToDevice": "HtoD",
    "DeviceToHost": "DtoH",
    "DeviceToDevice": "DtoD",
}
#: Columns of wide tables that are not counters; a suffix of ``_`` and digits marks a merged pass.
_NO_COUNTER: Final = frozenset((
    "index", "kernelname", "gpuid", "agentid", "queueid", "queueindex", "streamid", "pid", "processid",
    "tid", "threadid", "grd", "gridsize", "wgr", "workgroupsize", "lds", "ldsperworkgroup",
    "ldsblocksize", "scr", "scratchperworkitem", "scratchsize", "archvgpr", "accumvgpr", "vgprcount",
    "accumvgprcount", "vgpr", "sgpr", "sgprcount", "wavesize", "sig", "obj", "dispatchns", "beginns",
    "endns", "completens", "durationns", "dispatchid", "starttimestamp", "endtimestamp",
    "correlationid", "kernelid", "kind", "guid", "xccindex", "nodeid", "hostname", "privatesegmentsize",
    "groupsegmentsize", "gridsizex", "gridsizey", "gridsizez", "workgroupsizex", "workgroupsizey",
    "workgroupsizez", "kernelspan", "iteration", "runnumber", "graphexecid", "graphnodeid",
))  # fmt: skip
_MERGED: Final = re.compile(
    r"(?:wave_size|obj|sig|queue-index|queue-id|pid|tid|lds|scr|grd|wgr)_[0-9]+\Z"
)
_ROUNDED: Final = (
    "kernels whose times were written with too few digits (8.1097E+14; their counters are kept),"
    f" {NO_TIME}: how long they took is not known"
)
#: The most counters of a dispatch: rocprofiler-compute writes a thousand.
_MOST_COUNTERS: Final = 20_000


def read(path: Path, kind: str, parts: Parts) -> None:
    """Add the rows of a table to ``parts``. Raises BadInput."""
    table = Table(path)
    # equal rows of one dispatch may be a counter's instances
    several = table.text("dispatchid", "index").n_unique() > 1
    if several and is_appended(table.rows.hash_rows()):
        table.rows = table.rows[: len(table) // 2]
        parts.note("warning", TWICE, len(table))
    if table.header.kind != kind:
        raise BadInput(path, "changed while it was read")
    if table.uneven:
        parts.note("warning", UNEVEN.format(path.name), table.uneven)
    _READERS[kind](table, parts)


# ------------------------------------------------------------------------------ dispatches and counters


def _dispatches(table: Table, parts: Parts) -> None:
    parts.tool = _tool(table)
    rows = _rows_of(table)
    counted = _wide_counters(table)
    linked = rows["correlation"].null_count() < len(rows)
    # without a link, a launch has only its number, by which counters find their dispatch
    if not linked:
        rows = rows.with_columns(pl.col("dispatch").alias("correlation"))
    if table.has("starttimestamp") or table.has("beginns"):
        timed = rows.drop_nulls(["start", "end"])
        rounded = int((table.is_rounded(*_START) | table.is_rounded(*_END)).sum())
        if rounded:
            parts.note("warning", _ROUNDED, rounded)
        lost = len(rows) - len(timed) - rounded
        if lost > 0:
            parts.note("warning", f"rows of kernels without a time, {NO_TIME}", lost)
        if len(timed) or not rounded:
            parts.add("dispatches", timed)
    if counted:
        _add_wide(table, rows, counted, parts)


def _tool(table: Table) -> str:
    if table.has("agentid"):
        return "rocprofv3"
    if table.has("index"):
        return "rocprof"
    compute = table.has("queueindex") or not table.has("correlationid")
    return "rocprofiler-compute" if compute else "rocprofv2"


def _rows_of(table: Table) -> pl.DataFrame:
    """Return the dispatches of a table from any of the tools."""
    axes = table.has("gridsizex", "gridsizey", "gridsizez")
    nothing = pl.Series([None], dtype=pl.Int64).new_from_index(0, len(table))
    grid = [table.whole(f"gridsize{axis}") if axes else nothing for axis in "xyz"]
    block = [table.whole(f"workgroupsize{axis}") if axes else nothing for axis in "xyz"]
    if not axes:
        grid[0], block[0] = table.whole("gridsize", "grd"), table.whole("workgroupsize", "wgr")
    dispatch = table.whole("dispatchid", "index")
    if dispatch.null_count() == len(table):
        dispatch = pl.select(pl.int_range(len(table), dtype=pl.Int64)).to_series()
    return pl.DataFrame(
        {
            "pid": table.whole("pid", "processid"),
            "guid": table.text("guid"),
            "tid": table.whole("tid", "threadid"),
            "device": table.agent("gpuid", "agentid"),
            "queue": table.whole("queueid"),
            "stream": table.whole("streamid"),
            "start": table.time(*_START),
            "end": table.time(*_END),
            "name": table.text("kernelname"),
            "correlation": table.whole("correlationid"),
            "dispatch": dispatch,
            **dict(zip(("gx", "gy", "gz"), grid, strict=True)),
            **dict(zip(("wx", "wy", "wz"), block, strict=True)),
            "lds": table.whole("lds", "ldsperworkgroup", "ldsblocksize", "groupsegmentsize"),
            "scratch": table.whole(
                "scr", "scratchperworkitem", "scratchsize", "privatesegmentsize"
            ),
            "arch_vgpr": table.whole("archvgpr", "vgprcount", "archvgprcount"),
            "accum_vgpr": table.whole("accumvgpr", "accumvgprcount"),
            "sgpr": table.whole("sgpr", "sgprcount"),
            "wave_size": table.whole("wavesize"),
            "graph": table.whole("graphexecid"),
            "graph_node": table.whole("graphnodeid"),
        }
    )


def _wide_counters(table: Table) -> list[str]:
    """The columns of a wide table that are counters, as written."""
    counters = [
        written
        for name, written in table.names.items()
        if name and name not in _NO_COUNTER and not _MERGED.fullmatch(written)
    ]
    if len(counters) > _MOST_COUNTERS:
        raise BadInput(table.path, f"over {_MOST_COUNTERS:,} columns")
    return counters


def _add_wide(table: Table, rows: pl.DataFrame, names: list[str], parts: Parts) -> None:
    keys = ["pid", "guid", "tid", "device", "correlation"]
    values = pl.DataFrame(
        {name: table.number(key) for key, name in table.names.items() if name in set(names)}
    )
    wide = pl.concat([rows.select(keys), values], how="horizontal")
    long = wide.unpivot(index=keys, on=names, variable_name="name", value_name="value")
    parts.add("counters", long.filter(pl.col("value").is_finite()))


def _counters(table: Table, parts: Parts) -> None:
    """rocprofv3's counters: a row for each dispatch and counter; times since ROCm 6.3."""
    parts.tool = "rocprofv3"
    rows = _rows_of(table).with_columns(
        table.text("countername").alias("counter"), table.number("countervalue").alias("value")
    )
    if rows["correlation"].null_count() == len(rows):
        rows = rows.with_columns(pl.col("dispatch").alias("correlation"))
    keys = ["pid", "guid", "tid", "device", "correlation"]
    measured = rows.filter(pl.col("counter").is_not_null() & pl.col("value").is_finite())
    parts.add(
        "counters",
        parts.summed(
            measured.select(*keys, "dispatch", "counter", "value"), "dispatch", *keys, "counter"
        ).select(*keys, pl.col("counter").alias("name"), "value"),
    )
    timed = rows.drop("counter", "value").drop_nulls(["start", "end"])
    timed = timed.filter(pl.col("start") > 0)
    if len(timed):
        each = timed.unique(["pid", "guid", "dispatch"], keep="first", maintain_order=True)
        parts.add("counted", each)
    elif len(rows):
        parts.note(
            "info",
            "counters without times of their kernels: this version of rocprofv3 does not write them; "
            "kernel_trace.csv of the same run has them",
            rows["dispatch"].n_unique(),
        )


# ------------------------------------------------------------------------------ calls, ranges, copies


def _api(table: Table, parts: Parts) -> None:
    domain = table.text("domain")
    rows = pl.DataFrame(
        {
            "pid": table.whole("processid"),
            "guid": table.text("guid"),
            "tid": table.whole("threadid"),
            "start": table.whole(*_START),
            "end": table.whole(*_END),
            "name": table.text("function", "name"),
            "correlation": table.whole("correlationid"),
            "domain": domain,
        }
    )
    if table.has("processid"):
        parts.tool = "rocprofv3"
    named = domain.unique().drop_nulls().to_list()
    marks = [name for name in named if _MARKERS.search(name)]
    collectives = [name for name in named if _COLLECTIVES.search(name)]
    if marks:
        ours = rows.filter(pl.col("domain").is_in(marks))
        parts.add(
            "ranges",
            ours.filter(~pl.col("name").str.contains(_NO_RANGE).fill_null(True))
            .rename({"name": "text"})
            .with_columns(pl.lit(ROCTX).alias("domain"))
            .drop("correlation"),
        )
    if collectives:
        parts.add(
            "ranges",
            rows.filter(pl.col("domain").is_in(collectives))
            .rename({"name": "text"})
            .with_columns(pl.lit("NCCL").alias("domain"))
            .drop("correlation"),
        )
    rest = rows.filter(~pl.col("domain").is_in([*marks, *collectives]).fill_null(False))
    if len(rest) or not (marks or collectives):
        parts.add("calls", rest.drop("domain"))


def _roctx(table: Table, parts: Parts) -> None:
    """Return rocprofv2's ranges from events. They name no thread: ranges are paired as if on one thread."""
    parts.tool = "rocprofv2"
    text, time = table.text("message").to_list(), table.whole("timestamp").to_list()
    ids = table.whole("roctxid").to_list()
    opened: list[tuple[int, str]] = []
    begun: dict[int, tuple[int, str]] = {}
    rows: list[tuple[int, int, str]] = []
    lost = 0
    for words, at, number in zip(text, time, ids, strict=True):
        if at is None:
            lost += 1
        elif words is not None:
            (begun.__setitem__(number, (at, words)) if number else opened.append((at, words)))
        elif number and number in begun:
            start, message = begun.pop(number)
            rows.append((start, at, message))
        elif opened:
            start, message = opened.pop()
            rows.append((start, at, message))
        else:
            lost += 1
    lost += len(opened) + len(begun)
    if lost:
        parts.note("warning", "roctx ranges without a beginning or an end, left out", lost)
    frame = pl.DataFrame(
        rows, schema={"start": pl.Int64, "end": pl.Int64, "text": pl.String}, orient="row"
    )
    parts.add("ranges", frame.with_columns(pl.lit(ROCTX).alias("domain")))


def _copies(table: Table, parts: Parts) -> None:
    parts.tool = "rocprofv3"
    parts.add(
        "copies",
        copies_of(
            pl.DataFrame(
                {
                    "guid": table.text("guid"),
                    "tid": table.whole("threadid"),
                    "stream": table.whole("streamid"),
                    "start": table.whole(*_START),
                    "end": table.whole(*_END),
                    "direction": table.text("direction"),
                    "source": table.agent("sourceagentid"),
                    "target": table.agent("destinationagentid"),
                    "correlation": table.whole("correlationid"),
                    "bytes": table.whole("copybytes", "bytes", "size"),
                }
            )
        ),
    )


def copies_of(frame: pl.DataFrame) -> pl.DataFrame:
    """Return ``copies`` from rows with direction, source and target (numbers of devices). A copy with the
    host belongs to the other device. A copy between two devices belongs to the source, and the target is its
    peer."""
    direction = (
        pl.col("direction")
        .cast(pl.String)
        .str.extract(r"((?:HOST|DEVICE)_TO_(?:HOST|DEVICE)|(?:Host|Device)To(?:Host|Device))")
    )
    kind = direction.replace_strict(dict(DIRECTIONS), default=None, return_dtype=pl.String)
    frame = frame.with_columns(kind.alias("kind"))
    between = (pl.col("kind") == "DtoD") & (pl.col("source") != pl.col("target")).fill_null(False)
    return frame.with_columns(
        pl.when(pl.col("kind") == "HtoD").then("target").otherwise("source").alias("device"),
        pl.when(between).then("target").alias("peer"),
        pl.when(between)
        .then(pl.lit("PtoP"))
        .otherwise(pl.coalesce("kind", pl.lit("unknown")))
        .alias("kind"),
    ).drop("direction", "source", "target")


def _operations(table: Table, parts: Parts) -> None:
    """Return rocprofv2's ``hcc_ops_trace`` and ``async_copy_trace``: kernels, copies and barriers by name
    only."""
    parts.tool = "rocprofv2"
    rows = pl.DataFrame(
        {
            "start": table.whole(*_START),
            "end": table.whole(*_END),
            "operation": table.text("operation"),
            "name": table.text("kernelname"),
            "correlation": table.whole("correlationid"),
        }
    )
    copy = pl.col("operation").str.contains(r"(?i)copy|fill|memset")
    barrier = pl.col("operation").str.contains(r"(?i)barrier|marker")
    kernel = pl.col("name").is_not_null() & ~copy.fill_null(False) & ~barrier.fill_null(False)
    kernels = rows.filter(kernel).drop("operation")
    if parts.has("dispatches") and len(kernels):
        parts.note(
            "info",
            "kernels recorded twice, with and without their sizes: counted once",
            len(kernels),
        )
    else:
        parts.add("dispatches", kernels)
    copied = rows.filter(copy.fill_null(False))
    if len(copied) or table.path.name.startswith("async_copy"):
        unknown = pl.lit(None, pl.Int64)
        parts.add(
            "copies",
            copies_of(
                copied.select(
                    "start",
                    "end",
                    "correlation",
                    pl.col("operation").alias("direction"),
                    unknown.alias("source"),
                    unknown.alias("target"),
                )
            ),
        )
    waits = int(rows.select(barrier.fill_null(False).sum()).item())
    if waits:
        parts.note("info", "barriers between kernels, which are no work, left out", waits)


def _allocations(table: Table, parts: Parts) -> None:
    """Return rocprofv3's allocations of memory; scratch memory has no size, so only a note counts it."""
    if not table.has("allocationsize"):
        parts.note("info", "allocations of scratch memory, which have no size here", len(table))
        return
    parts.tool = "rocprofv3"
    address = table.text("address").str.strip_prefix("0x").str.to_integer(base=16, strict=False)
    plain = whole(table.text("address"))
    parts.add(
        "allocations",
        allocations_of(
            pl.DataFrame(
                {
                    "guid": table.text("guid"),
                    "tid": table.whole("threadid"),
                    "time": table.whole(*_START),
                    "operation": table.text("operation"),
                    "device": table.agent("agentid"),
                    "bytes": table.whole("allocationsize"),
                    "address": address.zip_with(address.is_not_null(), plain).cast(pl.Int64),
                }
            )
        ),
    )


def allocations_of(frame: pl.DataFrame) -> pl.DataFrame:
    """Return ``allocations`` from rows with an operation. A release has no size: its address gives it."""
    operation = pl.col("operation").cast(pl.String)
    freed = operation.str.contains("(?i)free").fill_null(False)
    taken = operation.str.contains("(?i)alloc").fill_null(False) & ~operation.str.contains(
        "(?i)_free"
    ).fill_null(False)
    rows = frame.filter(freed | taken).sort("time", maintain_order=True)
    rows = rows.with_columns(freed.alias("freed"))
    size = pl.when(~pl.col("freed")).then("bytes").forward_fill().over("address")
    device_before = pl.when(~pl.col("freed")).then("device").forward_fill().over("address")
    return (
        rows.with_columns(
            pl.when("freed").then(-size).otherwise("bytes").alias("bytes"),
            pl.coalesce("device", device_before).alias("device"),
        )
        .drop("freed", "operation")
        .filter(pl.col("bytes").is_not_null())
    )


# ------------------------------------------------------------------------------ what is beside


def _agents(table: Table, parts: Parts) -> None:
    parts.devices |= agents.of_table(table)


def _system(table: Table, parts: Parts) -> None:
    parts.origin["system"] = agents.of_system(table)


_READERS: Final[Mapping[str, Callable[[Table, Parts], None]]] = {
    "dispatches": _dispatches,
    "counters": _counters,
    "api": _api,
    "roctx": _roctx,
    "copies": _copies,
    "operations": _operations,
    "allocations": _allocations,
    "agents": _agents,
    "system": _system,
}
