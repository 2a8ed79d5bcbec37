"""Make a trace from the files of a run: processes, devices, geometry of launches, names, ranges.

Every reader here fills frames with the columns below; null where its format has nothing.

* ``dispatches``: pid, guid, tid, device, queue, stream, start, end, name, correlation, dispatch, work-items
  of the grid by axis (gx gy gz) or in all (gx), of a work-group (wx wy wz), lds, lds_dynamic, scratch,
  arch_vgpr, accum_vgpr, sgpr, wave_size, graph, graph_node;
* ``copies``: pid, guid, tid, device, stream, start, end, kind, peer, bytes, correlation;
* ``calls``: pid, guid, tid, start, end, name, correlation; ``ranges``: also domain, category, text, kind,
  seq;
* ``counters``: pid, guid, tid, device, correlation, name, value; ``allocations`` and ``samples`` as the
  trace's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import polars as pl

from opscope.core.dialects.demangle import all_demangled
from opscope.core.perf.devices.unnamed import UNNAMED
from opscope.core.tables.columns import distinct_values
from opscope.core.tables.numbered import FILTERED, MISSING_NUMBERS, missing_numbers
from opscope.core.tables.trace import Trace, table_schema
from opscope.readers.errors import BadInput
from opscope.readers.nsys.target import device_frame
from opscope.readers.rows import TWICE, is_appended
from opscope.readers.sound import sound_trace

from .marks import ranges_of

#: The clock of rocprofiler: ns since the machine started. No file relates it to Unix time.
CLOCK: Final = "rocprofiler"
ONE_PRODUCT: Final = (
    "grids and blocks are products of their sizes: this file has no sizes by axis (harmless: the numbers of "
    "blocks and threads are right)"
)
NO_SIZES: Final = (
    "copies without sizes: rocprofv3's CSV has none; --output-format rocpd or json has them"
)
NO_DEVICE: Final = (
    UNNAMED + "; give their name with --gpu, or agent_info.csv of the run beside its files"
)
NO_CALLS: Final = (
    "no calls of HIP were recorded, so no kernel can be tied to an op; record them with --hip-trace and "
    "--marker-trace"
)
#: AMD's name of a kernel's descriptor, which rocprof writes instead of the kernel's name.
_DESCRIPTOR: Final = r"(?:\s*\[clone \.kd\]|\s*\(\.kd\)|\.kd)$"
_SIZES: Final = ("gx", "gy", "gz", "wx", "wy", "wz")
_MORE: Final = ("queue", "arch_vgpr", "accum_vgpr", "sgpr", "wave_size")
_OWNER: Final = ("pid", "guid", "tid")
_ALIKE: Final = (
    "dispatches whose counters are all in the file again with the same values, as a counter's instances may "
    "be: counted each"
)


@dataclass(slots=True)
class Parts:
    """The rows from a run's files. ``devices``: their facts by number; ``processes``: facts by pid and guid.
    ``only_counted``: kernels come only from tables of counters."""

    path: Path
    tool: str
    pid: int | None = None
    frames: dict[str, list[pl.DataFrame]] = field(default_factory=dict)
    devices: dict[int, dict[str, Any]] = field(default_factory=dict)
    processes: dict[tuple[int, str], dict[str, Any]] = field(default_factory=dict)
    thread_names: dict[tuple[int | None, int], str] = field(default_factory=dict)
    notes: list[tuple[str, str, int]] = field(default_factory=list)
    origin: dict[str, Any] = field(default_factory=dict)
    only_counted: bool = False

    def add(self, name: str, frame: pl.DataFrame) -> None:
        """Add rows; an empty table counts as recorded."""
        self.frames.setdefault(name, []).append(frame)

    def note(self, severity: str, message: str, count: int = 1) -> None:
        """Add a note."""
        self.notes.append((severity, message, count))

    def summed(self, counted: pl.DataFrame, dispatch: str, *keys: str) -> pl.DataFrame:
        """Return each counter of a dispatch once, with the sum of its instances; ``keys``: its other columns.
        If all rows of a dispatch are there again, they may be instances: they are added up, and noted."""
        alone = counted[dispatch].n_unique() == 1
        if not alone and is_appended(counted.hash_rows()):
            counted = counted[: len(counted) // 2]
            self.note("warning", TWICE, len(counted))
        times = (
            counted.group_by(dispatch, *keys, "value").len().group_by(dispatch).agg(pl.min("len"))
        )
        again = int((times["len"] > 1).sum())
        # instances of all dispatches may be equal; a lone one, or a few of them, are in doubt
        if again and (alone or again < len(times)):
            self.note("warning", _ALIKE, again)
        return counted.group_by(dispatch, *keys, maintain_order=True).agg(pl.col("value").sum())

    def has(self, name: str) -> bool:
        """Whether rows of this kind were added."""
        return any(len(frame) for frame in self.frames.get(name, ()))


def trace_of(parts: Parts) -> Trace:
    """Return the trace of a run. Raises BadInput if nothing was found."""
    if not parts.frames:
        raise BadInput(parts.path, "no table of these files has anything that ran")
    joined = {
        name: pl.concat(frames, how="diagonal_relaxed") for name, frames in parts.frames.items()
    }
    processes = _owned(joined, parts)
    tables: dict[str, pl.DataFrame] = {}
    if "dispatches" in joined:
        tables["kernels"] = _kernels(joined["dispatches"], parts)
        parts.origin |= _missing(joined["dispatches"], parts)
    if "copies" in joined:
        tables["memops"] = _memops(joined["copies"], parts)
    for name in ("calls", "counters", "allocations", "samples", "syncs"):
        if name in joined:
            tables[name] = _fitting(name, _threaded(joined[name]))
    if "ranges" in joined:
        tables["ranges"] = _fitting("ranges", ranges_of(_threaded(joined["ranges"])))
    tables["processes"] = processes
    tables["clocks"] = pl.DataFrame(
        {"clock_domain": [0], "kind": [CLOCK]},
        schema={"clock_domain": pl.Int32, "kind": pl.String},
    )
    tables["threads"] = _threads(tables, parts, processes)
    tables["devices"] = _devices(tables, parts)
    if len(tables.get("kernels", ())) and "calls" not in tables:
        parts.note("info", NO_CALLS, len(tables["kernels"]))
    tables["notes"] = pl.DataFrame(
        parts.notes,
        schema={"severity": pl.String, "what": pl.String, "how_many": pl.Int64},
        orient="row",
    )
    origin = {"format": "rocm", "tool": parts.tool, "paths": [str(parts.path)], **parts.origin}
    return sound_trace(tables, origin)


# ------------------------------------------------------------------------------ processes


def _owned(joined: dict[str, pl.DataFrame], parts: Parts) -> pl.DataFrame:
    """Add ``process`` to every frame and return the table of processes.

    A row names its process by a database's guid or a pid. rocprofv3's tables of kernels and of copies name
    neither: their process is that of the same thread in another table, else the only process of the run.
    """
    for name, frame in joined.items():
        absent = [column_name for column_name in _OWNER if column_name not in frame.columns]
        joined[name] = frame.with_columns(
            *(
                pl.lit(None, pl.String if column_name == "guid" else pl.Int64).alias(column_name)
                for column_name in absent
            )
        ).with_columns(pl.col("pid", "tid").cast(pl.Int64), pl.col("guid").cast(pl.String))
    both = pl.concat([frame.select(_OWNER).unique() for frame in joined.values()]).unique()
    of_guid = _single(both, "guid", "pid")
    of_thread = _single(both, "tid", "pid")
    pids = both["pid"].drop_nulls().unique().to_list()
    only = pids[0] if len(pids) == 1 else (parts.pid if not pids else None)
    keys: set[tuple[int, str]] = set()
    for name, frame in joined.items():
        owner = pl.coalesce(
            "pid",
            pl.col("guid").replace_strict(of_guid, default=None, return_dtype=pl.Int64),
            pl.col("tid").replace_strict(of_thread, default=None, return_dtype=pl.Int64),
            pl.lit(only, pl.Int64),
        )
        joined[name] = frame.with_columns(
            owner.fill_null(-1).alias("pid"), pl.col("guid").fill_null("")
        )
        keys |= set(joined[name].select("pid", "guid").unique().iter_rows())
    # a database has one guid per process; a table without a guid belongs to the process with the same pid
    pids_with_guid = {pid for pid, guid in keys if guid}
    order = sorted({(pid, guid) for pid, guid in keys if guid or pid not in pids_with_guid})
    number = {key: index for index, key in enumerate(order)}
    first = {pid: index for (pid, _), index in reversed(list(number.items()))}
    pairs = sorted(keys)
    codes = pl.DataFrame(
        {
            "pid": [pid for pid, _ in pairs],
            "guid": [guid for _, guid in pairs],
            "process": [number.get(key, first[key[0]]) for key in pairs],
        },
        schema={"pid": pl.Int64, "guid": pl.String, "process": pl.Int32},
    )
    for name, frame in joined.items():
        if len(pairs) == 1:
            process: Any = pl.lit(codes["process"][0], pl.Int32).alias("process")
            joined[name] = frame.with_columns(process).drop("pid", "guid")
        else:
            joined[name] = frame.join(
                codes, on=["pid", "guid"], how="left", maintain_order="left"
            ).drop("pid", "guid")
    if -1 in first and len(order) > 1:
        parts.note(
            "warning",
            "records whose process the files do not name: shown as one more process",
        )
    rows = [
        {
            "process": index,
            "pid": None if pid < 0 else pid,
            "clock_domain": 0,
            **parts.processes.get((pid, guid), {}),
        }
        for (pid, guid), index in number.items()
    ]
    schema = table_schema("processes")
    return pl.DataFrame(
        rows,
        schema={name: schema[name] for name in schema if any(name in row for row in rows)},
    )


def _single(both: pl.DataFrame, key: str, value: str) -> dict[Any, Any]:
    """Return key → value for keys that have a single value."""
    pairs = both.select(key, value).drop_nulls().unique()
    value_of_key = pairs.group_by(key).agg(pl.col(value).first(), pl.len().alias("many"))
    return dict(value_of_key.filter(pl.col("many") == 1).select(key, value).iter_rows())


def _threaded(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.rename({"tid": "thread"})


def _threads(
    tables: Mapping[str, pl.DataFrame], parts: Parts, processes: pl.DataFrame
) -> pl.DataFrame:
    columns = [
        tables[name].select("process", "thread") for name in ("ranges", "calls") if name in tables
    ]
    if not columns:
        return pl.DataFrame(schema={"process": pl.Int32, "thread": pl.Int64})
    ids = pl.concat(columns).drop_nulls().unique().sort("process", "thread")
    pids = dict(processes.select("process", "pid").iter_rows())
    names = [
        parts.thread_names.get((pids.get(process), thread)) for process, thread in ids.iter_rows()
    ]
    return ids.with_columns(
        pl.col("thread").alias("os_tid"), pl.Series("name", names, dtype=pl.String)
    )


def _fitting(table: str, frame: pl.DataFrame) -> pl.DataFrame:
    """Return the columns that the trace's table has; integers keep 64 bits, which ``sound`` narrows."""
    schema = table_schema(table)
    kept = [name for name in schema if name in frame.columns]
    return frame.select(
        pl.col(name).cast(schema[name]) if schema[name] == pl.Categorical else pl.col(name)
        for name in kept
    )


# ------------------------------------------------------------------------------ kernels and copies


def _kernels(frame: pl.DataFrame, parts: Parts) -> pl.DataFrame:
    names = ("gx", "gy", "gz", "wx", "wy", "wz", *_MORE)
    frame = _with(
        frame,
        *names,
        "device",
        "lds",
        "lds_dynamic",
        "scratch",
        "stream",
        "correlation",
        "graph",
        "graph_node",
    )
    sizes = _spread(frame, _SIZES, _geometry)
    more = _spread(frame, _MORE, _attributes)
    if len(frame) and frame["gx"].null_count() < len(frame) and frame["gy"].null_count():
        parts.note("info", ONE_PRODUCT, int(frame["gy"].null_count()))
    vgpr = pl.col("arch_vgpr") + pl.col("accum_vgpr").fill_null(0)
    own = pl.coalesce("stream", "queue")
    kernels = frame.select(
        "process",
        "device",
        own.alias("stream"),
        "start",
        "end",
        kernel_names(frame["name"]).alias("name"),
        "correlation",
        *sizes,
        # 0 means that the tool did not know the number: every kernel has registers
        pl.when(vgpr > 0).then(vgpr).alias("registers"),
        pl.col("lds").alias("shared_static"),
        pl.col("lds_dynamic").alias("shared_dynamic"),
        pl.col("scratch").alias("local_memory"),
        "graph",
        "graph_node",
        *more,
    )
    return _fitting("kernels", kernels)


def _missing(frame: pl.DataFrame, parts: Parts) -> dict[str, Any]:
    """Return the origin's facts on dispatches whose numbers are missing. rocprof numbers from 0 and rocprofv3
    from 1; the older tool also numbers kernels that ``kernel:`` and ``range:`` of its input file leave
    out."""
    first = {"rocprof": 0, "rocprofv3": 1}.get(parts.tool)
    if first is None or "dispatch" not in frame.columns:
        return {}
    # rocprofv3's filters leave kernels out of tables of counters alone
    filtered = not first or parts.only_counted
    if not first and frame["process"].n_unique() > 1:
        return {}  # the tool numbers the dispatches of all processes together
    by_process = {
        str(process): missing_numbers(rows["dispatch"], first)
        for (process,), rows in frame.select("process", "dispatch").group_by("process")
    }
    return {MISSING_NUMBERS: by_process, FILTERED: filtered}


def kernel_names(column: pl.Series) -> pl.Series:
    """Return kernels' names as Categorical: demangled, without AMD's mark of a descriptor (``.kd``)."""
    names: pl.Series = column.cast(pl.Categorical)
    distinct = distinct_values(names).drop_nulls()
    texts = distinct.cast(pl.String)
    read = pl.Series(
        "name", all_demangled(texts.str.strip_chars('"').to_list()), dtype=pl.String
    ).str.replace(_DESCRIPTOR, "")
    if read.equals(texts):
        return names
    named: pl.Series = names.cast(pl.String).replace(texts, read).cast(pl.Categorical)
    return named


def _geometry(sizes: pl.DataFrame) -> dict[str, pl.Series]:
    """Return grid and block of distinct sizes. HSA counts a grid in work-items; a trace counts blocks.

    A last work-group may be partial, so quotients are rounded up.
    """

    def groups(of: str, by: str) -> pl.Expr:
        grid, block = pl.col(of), pl.col(by).fill_null(1)
        return pl.when((grid > 0) & (block > 0)).then((grid + block - 1) // block)

    blocks = [groups(g, w) for g, w in (("gx", "wx"), ("gy", "wy"), ("gz", "wz"))]
    unit = pl.lit(1, pl.Int64)
    per_axis = pl.col("gy").is_not_null()
    grid = [blocks[0], *(pl.when(per_axis).then(each).otherwise(unit) for each in blocks[1:])]
    flat = pl.col("wy").is_not_null()
    block = [
        pl.when(pl.col("wx") > 0).then("wx"),
        *(
            pl.when(flat).then(pl.when(pl.col(name) > 0).then(name)).otherwise(unit)
            for name in ("wy", "wz")
        ),
    ]
    geometry = sizes.select(
        pl.format("{},{},{}", *grid).cast(pl.Categorical).alias("grid"),
        pl.format("{},{},{}", *block).cast(pl.Categorical).alias("block"),
    )
    return {name: geometry[name] for name in ("grid", "block")}


def _attributes(facts: pl.DataFrame) -> dict[str, pl.Series]:
    """Return ``attrs`` of distinct facts without a column in the trace."""
    import json

    texts = []
    for row in facts.iter_rows(named=True):
        attributes = {name: value for name, value in row.items() if value is not None}
        texts.append(json.dumps(attributes, separators=(",", ":")) if attributes else None)
    return {"attrs": pl.Series("attrs", texts, pl.String)}


def _spread(frame: pl.DataFrame, names: Iterable[str], make: Any) -> list[pl.Series]:
    """Return the columns that ``make`` makes of the distinct rows, for all rows."""
    keys = list(names)
    distinct = frame.select(keys).unique(maintain_order=True)
    columns_made = make(distinct)
    if len(distinct) == 1:
        return [
            column.new_from_index(0, len(frame)).alias(name)
            for name, column in columns_made.items()
        ]
    index = (
        frame.select(keys)
        .join(
            distinct.with_row_index("place"),
            on=keys,
            how="left",
            nulls_equal=True,
            maintain_order="left",
        )
        .get_column("place")
    )
    return [column.gather(index).alias(name) for name, column in columns_made.items()]


def _memops(frame: pl.DataFrame, parts: Parts) -> pl.DataFrame:
    frame = _with(frame, "device", "stream", "correlation", "bytes", "peer", "graph_node")
    unknown = int(frame["bytes"].null_count())
    if unknown and parts.tool == "rocprofv3":
        parts.note("info", NO_SIZES, unknown)
    return _fitting("memops", frame)


def _with(frame: pl.DataFrame, *names: str) -> pl.DataFrame:
    absent = [name for name in names if name not in frame.columns]
    frame = frame.with_columns(pl.lit(None, pl.Int64).alias(name) for name in absent)
    return frame.with_columns(pl.col(name).cast(pl.Int64) for name in names)


# ------------------------------------------------------------------------------ devices


def _devices(tables: Mapping[str, pl.DataFrame], parts: Parts) -> pl.DataFrame:
    """Return ``devices``: for each process the devices that it used, with the facts in the files."""
    used = [
        tables[name].select("process", pl.col("device").cast(pl.Int64))
        for name in ("kernels", "memops", "counters")
        if name in tables and "device" in tables[name].columns
    ]
    rows = []
    system: dict[str, Any] = parts.origin.pop("system", {})
    if used:
        pairs = pl.concat(used).drop_nulls().unique().sort("process", "device")
        for process, device in pairs.iter_rows():
            rows.append({**parts.devices.get(device, system), "process": process, "device": device})
    unnamed = sum(row.get("name") is None for row in rows)
    if unnamed:
        parts.note("warning", NO_DEVICE, unnamed)
    return device_frame(rows)
