"""Read nvprof's SQLite databases (``nvprof -o``): kernels, copies, calls, and NVTX markers as ranges.

Times are Unix ns. A call's thread is the lower half of its pthread id. Markers use the same number, so
launches and ranges can be matched by thread.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Final

import polars as pl

from opscope.core.dialects.demangle import all_demangled
from opscope.core.tables.trace import Trace
from opscope.readers.errors import BadInput
from opscope.readers.nsys.cuda import COPIES, SYNCS
from opscope.readers.nsys.strings import Codes, constant, labels, named
from opscope.readers.nsys.target import capability, device_frame, product
from opscope.readers.open_ranges import CUT_OFF, open_at_end
from opscope.readers.rows import of_successful
from opscope.readers.sound import sound, sound_trace
from opscope.readers.sqlite import Column, Database, Kind, filled, is_database

from . import cuda_calls

_KERNELS: Final = (
    "CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL",
    "CUPTI_ACTIVITY_KIND_KERNEL",
)
_RUNTIME: Final = "CUPTI_ACTIVITY_KIND_RUNTIME"
_DRIVER: Final = "CUPTI_ACTIVITY_KIND_DRIVER"
_MARKER: Final = "CUPTI_ACTIVITY_KIND_MARKER"
#: CUpti_ActivityFlag, for markers.
_INSTANT, _START, _END = 1, 2, 4
#: CUpti_ActivityObjectKind.
_THREAD: Final = 2
#: The text that nvprof writes for an absent text, such as the name of the default domain.
_NULL: Final = "-- null --"
#: CUpti_ActivityMemoryKind, which counts from 1; Nsight Systems counts from 0.
_MEMORY: Final = {1: "pageable", 2: "pinned", 3: "device", 4: "array", 5: "managed"}
_DEVICE_RECORD: Final[Mapping[str, Kind]] = {
    "start": "int", "end": "int", "deviceId": "int", "contextId": "int", "streamId": "int",
    "correlationId": "int",
}  # fmt: skip
_NAMES: Final = {
    "deviceId": "device", "contextId": "context", "streamId": "stream",
    "correlationId": "correlation", "registersPerThread": "registers",
    "staticSharedMemory": "shared_static", "dynamicSharedMemory": "shared_dynamic",
    "localMemoryPerThread": "local_memory",
}  # fmt: skip


def recognise(path: str | os.PathLike[str]) -> bool:
    """Whether the file is an nvprof database. Never raises."""
    return is_database(path, _is_ours)


def _is_ours(database: Database) -> bool:
    return database.has("StringTable", "_id_", "value") and any(
        database.has(table, "_id_") for table in (*_KERNELS, _RUNTIME, _MARKER)
    )


def read(path: str | os.PathLike[str], *, gpu: str | None = None) -> Trace:
    """Return the trace in an nvprof database; ``gpu`` names devices that the database does not name.

    Raises BadInput if the file is not an nvprof database.
    """
    with Database(path) as database:
        if not _is_ours(database):
            raise BadInput(path, "not a database of nvprof (it lacks nvprof's tables)")
        strings = _Strings(database)
        tables: dict[str, pl.DataFrame] = {}
        notes: list[tuple[str, str, int]] = []
        kernels = [_kernels(database, table, strings) for table in _KERNELS if database.has(table)]
        if kernels:
            tables["kernels"] = pl.concat(kernels, how="diagonal_relaxed")
        pids = _calls(database, tables)
        _memops(database, tables)
        _syncs(database, tables)
        if database.has(_MARKER, "flags", "timestamp", "id"):
            tables["ranges"] = _ranges(database, strings)
        # nvprof writes one file per process; only its call records name the process
        pid = pids[0] if pids else None
        for name, frame in tables.items():
            tables[name] = frame.with_columns(pl.lit(0, pl.Int32).alias("process"))
        notes += sound(tables, opened=True)
        opened = open_at_end(tables, None) if "ranges" in tables else 0
        if opened:
            notes.append(("info", CUT_OFF, opened))
        if len(pids) > 1:
            notes.append(
                ("warning", "processes in one nvprof file, shown as one process", len(pids))
            )
        tables["processes"] = pl.DataFrame(
            {"process": [0], "pid": [pid], "clock_domain": [0]},
            schema={"process": pl.Int32, "pid": pl.Int64, "clock_domain": pl.Int32},
        )
        tables["clocks"] = pl.DataFrame(
            {"clock_domain": [0], "kind": ["unix"], "to_unix_ns": [0]},
            schema={"clock_domain": pl.Int32, "kind": pl.String, "to_unix_ns": pl.Int64},
        )
        tables["threads"] = _threads(tables)
        tables["devices"] = _devices(database, strings, gpu)
        notes += database.faults()
    tables["notes"] = pl.DataFrame(
        notes, schema={"severity": pl.String, "what": pl.String, "how_many": pl.Int64}, orient="row"
    )
    return sound_trace(tables, {"format": "nvprof", "tool": "nvprof", "paths": [str(path)]})


class _Strings:
    """StringTable: texts by id, as Categorical."""

    def __init__(self, database: Database) -> None:
        frame = database.rows("StringTable", {"_id_": "int", "value": "text"}).drop_nulls("_id_")
        self._texts: dict[int, str | None] = {
            key: None if text == _NULL else text for key, text in frame.iter_rows()
        }

    def categorical(self, ids: pl.Series, *, symbols: bool = False) -> pl.Series:
        """Return the texts of ids; with ``symbols``, C++ symbols among them are demangled."""
        codes = Codes()
        codes_of_ids = codes.of(ids)
        texts = [self._texts.get(key) for key in codes.keys]
        return named(codes_of_ids, all_demangled(texts) if symbols else texts)

    def text(self, identity: int | None) -> str | None:
        return None if identity is None else self._texts.get(identity)


def _scan(
    database: Database,
    table: str,
    wanted: Mapping[str, Column],
    convert: Callable[[pl.DataFrame, pl.DataFrame | None], pl.DataFrame],
) -> list[pl.DataFrame]:
    """``database.scan``; columns that a damaged table lacks are null."""
    return database.scan(table, wanted, lambda frame, rare: convert(filled(frame, wanted), rare))


def _place(frame: pl.DataFrame) -> list[pl.Series]:
    columns = []
    for column in frame.get_columns():
        if column.name in _DEVICE_RECORD or column.name in _NAMES:
            name = _NAMES.get(column.name, column.name)
            small = name in ("device", "registers")
            narrow = column.cast(pl.Int32, strict=False) if small else column
            fits = (
                narrow.null_count() == column.null_count()
            )  # ``sound`` counts values that do not fit
            columns.append((narrow if fits else column).alias(name))
    return columns


def _kernels(database: Database, table: str, strings: _Strings) -> pl.DataFrame:
    wanted: dict[str, Column] = {
        **_DEVICE_RECORD,
        **dict.fromkeys(list(_NAMES)[4:], "int"),
        "name": "int",
        "grid": ("gridX", "gridY", "gridZ"),
        "block": ("blockX", "blockY", "blockZ"),
    }

    def convert(frame: pl.DataFrame, _: pl.DataFrame | None) -> pl.DataFrame:
        columns = [*_place(frame), strings.categorical(frame["name"], symbols=True).alias("name")]
        for name in ("grid", "block"):
            codes = Codes()
            codes_of_names = codes.of(frame[name])
            texts = [f"{k >> 32},{k >> 16 & 0xFFFF},{k & 0xFFFF}" for k in codes.keys]
            columns.append(named(codes_of_names, texts).alias(name))
        return pl.DataFrame(columns)

    return pl.concat(_scan(database, table, wanted, convert), how="vertical_relaxed")


def _calls(database: Database, tables: dict[str, pl.DataFrame]) -> list[int]:
    """Fill in ``calls``; returns the pids of the processes that made them."""
    wanted: Mapping[str, Kind] = dict.fromkeys(
        ("start", "end", "cbid", "processId", "threadId", "correlationId", "returnValue"), "int"
    )
    pids = Codes()
    pieces = []
    for table, names in ((_RUNTIME, cuda_calls.RUNTIME), (_DRIVER, cuda_calls.DRIVER)):

        def convert(
            frame: pl.DataFrame, _: pl.DataFrame | None, names: Mapping[int, str] = names
        ) -> pl.DataFrame:
            pids.of(frame["processId"])
            return pl.DataFrame(
                [
                    _unsigned(frame["threadId"]).alias("thread"),
                    frame["start"],
                    frame["end"],
                    labels(frame["cbid"], names, "cbid_{}").alias("name"),
                    of_successful(frame["correlationId"], frame["returnValue"]).alias(
                        "correlation"
                    ),
                ]
            )

        pieces += _scan(database, table, wanted, convert)
    if pieces:
        tables["calls"] = pl.concat(pieces, how="vertical_relaxed")
    return pids.keys


def _unsigned(threads: pl.Series) -> pl.Series:
    """Thread ids are stored as signed 32-bit numbers; a marker's bytes give them unsigned."""
    unsigned: pl.Series = threads % (1 << 32)
    return unsigned


def _memops(database: Database, tables: dict[str, pl.DataFrame]) -> None:
    extra: dict[str, Kind] = {"bytes": "int"}

    def copies(frame: pl.DataFrame, _: pl.DataFrame | None) -> pl.DataFrame:
        columns = [*_place(frame), frame["bytes"]]
        columns.append(labels(frame["copyKind"], COPIES, "kind {}").alias("kind"))
        columns.append(labels(frame["srcKind"], _MEMORY, "unknown").alias("src_kind"))
        columns.append(labels(frame["dstKind"], _MEMORY, "unknown").alias("dst_kind"))
        return pl.DataFrame(columns)

    def sets(frame: pl.DataFrame, _: pl.DataFrame | None) -> pl.DataFrame:
        columns = [*_place(frame), frame["bytes"]]
        columns.append(constant("kind", "memset", pl.Categorical, frame.height))
        if "memoryKind" in frame.columns:
            columns.append(labels(frame["memoryKind"], _MEMORY, "unknown").alias("dst_kind"))
        return pl.DataFrame(columns)

    kinds: dict[str, Kind] = {"copyKind": "int", "srcKind": "int", "dstKind": "int"}
    pieces = _scan(
        database, "CUPTI_ACTIVITY_KIND_MEMCPY", {**_DEVICE_RECORD, **extra, **kinds}, copies
    )
    pieces += _scan(
        database,
        "CUPTI_ACTIVITY_KIND_MEMCPY2",
        {**_DEVICE_RECORD, **extra, **kinds},
        copies,
    )
    pieces += _scan(
        database,
        "CUPTI_ACTIVITY_KIND_MEMSET",
        {**_DEVICE_RECORD, **extra, "memoryKind": "int"},
        sets,
    )
    if pieces:
        tables["memops"] = pl.concat(pieces, how="diagonal_relaxed")


def _syncs(database: Database, tables: dict[str, pl.DataFrame]) -> None:
    def convert(frame: pl.DataFrame, _: pl.DataFrame | None) -> pl.DataFrame:
        columns = [*_place(frame), labels(frame["type"], SYNCS, "unknown").alias("kind")]
        return pl.DataFrame(columns)

    table = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"
    pieces = _scan(database, table, {**_DEVICE_RECORD, "type": "int"}, convert)
    if pieces:
        tables["syncs"] = pl.concat(pieces, how="vertical_relaxed")


def _ranges(database: Database, strings: _Strings) -> pl.DataFrame:
    """Pair markers by id. A range has a row for its start and one for its end; an instant has one row.

    A range that was open at the end of the capture has no end. A thread's ``objectId`` has 12 bytes:
    process, thread, and one unused, 32 bits each.
    """
    wanted: dict[str, Kind] = {
        "flags": "int", "timestamp": "int", "id": "int", "objectKind": "int", "objectId": "blob",
        "name": "int", "domain": "int",
    }  # fmt: skip
    marks = filled(database.rows(_MARKER, wanted), wanted).with_columns(
        pl.when(pl.col("objectKind") == _THREAD)
        .then(
            pl.col("objectId").bin.slice(4, 4).bin.reinterpret(dtype=pl.UInt32, endianness="little")
        )
        .cast(pl.Int64)
        .alias("thread")
    )  # fmt: skip
    first = marks.filter((pl.col("flags") & _START) != 0).unique(
        "id", keep="first", maintain_order=True
    )
    last = (
        marks.filter((pl.col("flags") & _END) != 0)
        .unique("id", keep="first")
        .select("id", end="timestamp", end_thread="thread")
    )
    instants = marks.filter((pl.col("flags") & _INSTANT) != 0).with_columns(
        end="timestamp", kind=pl.lit("mark")
    )
    pairs = first.join(last, on="id", how="left", maintain_order="left").with_columns(
        kind=pl.lit("pushpop")
    )
    both = pl.concat([pairs, instants], how="diagonal").sort("timestamp", maintain_order=True)
    domain = strings.categorical(both["domain"]).cast(pl.String).fill_null("")
    kind = pl.when(pl.col("end_thread") != pl.col("thread")).then(pl.lit("startend"))
    return both.with_columns(
        strings.categorical(both["name"]).alias("text"),
        domain.alias("domain_name"),
    ).select(
        pl.int_range(pl.len(), dtype=pl.Int64).alias("id"),
        "thread",
        "end_thread",
        pl.col("timestamp").alias("start"),
        "end",
        pl.col("domain_name").cast(pl.Categorical).alias("domain"),
        "text",
        kind.otherwise("kind").cast(pl.Categorical).alias("kind"),
    )


def _threads(tables: dict[str, pl.DataFrame]) -> pl.DataFrame:
    parts = [tables[name].select("thread") for name in ("ranges", "calls") if name in tables]
    if not parts:
        return pl.DataFrame(schema={"process": pl.Int32, "thread": pl.Int64})
    ids = pl.concat(parts)["thread"].drop_nulls().unique().sort()
    return pl.DataFrame({"thread": ids, "pthread_id": ids}).with_columns(
        pl.lit(0, pl.Int32).alias("process")
    )


def _devices(database: Database, strings: _Strings, gpu: str | None) -> pl.DataFrame:
    """CUPTI_ACTIVITY_KIND_DEVICE: bandwidth in kB/s, clock in kHz, memory in bytes."""
    wanted: dict[str, Kind] = dict.fromkeys(
        ("id", "name", "globalMemoryBandwidth", "globalMemorySize", "coreClockRate",
         "numMultiprocessors", "maxWarpsPerMultiprocessor", "numThreadsPerWarp",
         "computeCapabilityMajor", "computeCapabilityMinor"), "int"
    )  # fmt: skip
    wanted["uuid"] = "blob"
    frame = filled(database.rows("CUPTI_ACTIVITY_KIND_DEVICE", wanted), wanted)
    rows = []
    for row in frame.iter_rows(named=True):
        rows.append(
            {
                "process": 0,
                "device": row["id"],
                "name": strings.text(row["name"]) or gpu,
                "uuid": row["uuid"].hex() if row.get("uuid") else None,
                "cc": capability(row["computeCapabilityMajor"], row["computeCapabilityMinor"]),
                "sm_count": row["numMultiprocessors"],
                "memory": row["globalMemorySize"],
                "max_threads_per_sm": product(
                    row["maxWarpsPerMultiprocessor"], row["numThreadsPerWarp"]
                ),
                "clock_khz": row["coreClockRate"],
                "mem_bandwidth": product(row["globalMemoryBandwidth"], 1000),
            }
        )
    return device_frame(rows)
