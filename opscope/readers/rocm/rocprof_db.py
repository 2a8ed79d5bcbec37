"""Read rocprof v1's ``results.db``: kernels, and with --hip-trace calls, ops, copies and roctx ranges.

Written by ``bin/tblextr.py`` and ``bin/sqlitedb.py`` of ROCm/rocprofiler. ``Index`` of an API's row is the
correlation id, which rows of ``OPS`` and ``COPY`` repeat. Names of kernels are stored with their quotes.
"""

from __future__ import annotations

import polars as pl

from opscope.readers.sqlite import Column, Database, filled

from .csv_runs import copies_of
from .marks import ROCTX
from .parts import Parts

_WAIT = r"(?i)barrier|^marker"
_KERN: dict[str, str] = {
    "pid": "pid", "tid": "tid", "gpu-id": "device", "queue-id": "queue", "grd": "gx", "wgr": "wx",
    "lds": "lds", "scr": "scratch", "arch_vgpr": "arch_vgpr", "vgpr": "vgpr", "accum_vgpr": "accum_vgpr",
    "sgpr": "sgpr", "wave_size": "wave_size", "BeginNs": "start", "EndNs": "end", "Index": "dispatch",
}  # fmt: skip


def read(database: Database, parts: Parts) -> None:
    """Add the data of the database to ``parts``. Raises BadInput."""
    parts.tool = "rocprof"
    for table in ("HIP", "HSA"):
        if database.has(table, "BeginNs", "EndNs", "Name"):
            frame = _rows(database, table)
            parts.add(
                "calls",
                frame.select(
                    "pid", "tid", "start", "end", "name", pl.col("Index").alias("correlation")
                ),
            )
    for table in ("rocTX", "ROCTX", "EXT"):
        if database.has(table, "BeginNs", "EndNs", "Name"):
            frame = _rows(database, table)
            # a mark is stored as one ns long
            mark = pl.col("end") - pl.col("start") <= 1
            lane = pl.col("__lane") == 0
            parts.add(
                "ranges",
                frame.select(
                    "pid", "tid", "start",
                    pl.when(mark).then("start").otherwise("end").alias("end"),
                    pl.col("name").alias("text"),
                    pl.when(mark).then(pl.lit("mark")).when(lane).then(pl.lit("startend")).alias("kind"),
                    pl.lit(ROCTX).alias("domain"),
                ),
            )  # fmt: skip
    ran = _ops(database, parts)
    if database.has("COPY", "BeginNs", "EndNs"):
        frame = _rows(database, "COPY")
        parts.add("copies", _copy(frame.with_columns(pl.lit(None, pl.Int64).alias("device"))))
    if database.has("KERN", "KernelName"):
        kernels = _kernels(database)
        if ran and len(kernels):
            parts.note(
                "info",
                "kernels recorded twice, with and without their launches: counted once",
                len(kernels),
            )
        elif len(kernels):
            parts.add("dispatches", kernels)


def _rows(database: Database, table: str) -> pl.DataFrame:
    wanted: dict[str, Column] = {
        **dict.fromkeys(("BeginNs", "EndNs", "pid", "tid", "Index", "dev-id", "queue-id", "stream-id",
                         "__lane"), "int"),
        "Name": "text",
    }  # fmt: skip
    pieces = database.scan(table, wanted, lambda frame, _: filled(frame, wanted))
    frame = pl.concat(pieces, how="vertical_relaxed") if pieces else filled(pl.DataFrame(), wanted)
    return frame.rename({"BeginNs": "start", "EndNs": "end", "Name": "name"})


def _ops(database: Database, parts: Parts) -> bool:
    """Add kernels and copies of ``OPS``; return whether it had kernels."""
    if not database.has("OPS", "BeginNs", "EndNs", "Name"):
        return False
    frame = _rows(database, "OPS").with_columns(pl.col("dev-id").alias("device"))
    name = pl.col("name").fill_null("")
    # hcCommandKernel and KernelExecution mean a kernel whose name was not recorded
    copy = name.str.contains(
        r"^(?:hcMemcpy|Copy|Memcpy|Fill|hcCommandCopy|MemoryCopy)"
    ) & ~name.str.contains(r"\(")
    wait = name.str.contains(_WAIT) | (name == "hcCommandMarker")
    kernels = frame.filter(~(copy | wait))
    waits = len(frame.filter(wait))
    if waits:
        parts.note("info", "barriers between kernels, which are no work, left out", waits)
    parts.add(
        "dispatches",
        kernels.select(
            "pid", "tid", "device", "start", "end", "name",
            pl.col("queue-id").alias("queue"),
            pl.col("stream-id").alias("stream"),
            pl.col("Index").alias("correlation"),
        ),
    )  # fmt: skip
    parts.add("copies", _copy(frame.filter(copy)))
    return bool(len(kernels))


def _copy(frame: pl.DataFrame) -> pl.DataFrame:
    device = pl.col("device")
    return copies_of(
        frame.select(
            "pid", "tid", "start", "end",
            pl.col("stream-id").alias("stream"),
            pl.col("Index").alias("correlation"),
            pl.col("name").alias("direction"),
            device.alias("source"),
            device.alias("target"),
        )
    )  # fmt: skip


def _kernels(database: Database) -> pl.DataFrame:
    wanted: dict[str, Column] = {**dict.fromkeys(_KERN, "int"), "KernelName": "text"}
    pieces = database.scan("KERN", wanted, lambda frame, _: filled(frame, wanted))
    frame = pl.concat(pieces, how="vertical_relaxed") if pieces else filled(pl.DataFrame(), wanted)
    frame = frame.rename({**_KERN, "KernelName": "name"})
    return frame.with_columns(
        pl.col("name").str.strip_chars('"'),
        pl.coalesce("arch_vgpr", "vgpr").alias("arch_vgpr"),
        pl.col("dispatch").alias("correlation"),
    ).drop("vgpr")
