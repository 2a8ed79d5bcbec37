"""Read the values over time of an Nsight Systems export: GPU metrics, CPU samples and device memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import polars as pl

from opscope.readers.sound import CHANGE
from opscope.readers.sqlite import Kind

from .cuda import scan
from .source import Source
from .strings import Codes, Strings, Threads, constant, named

#: The lowest byte of a GPU metric's typeId is the GPU number.
_GPU_BITS: Final = 8


def read_samples(source: Source, strings: Strings, threads: Threads) -> pl.DataFrame | None:
    """Return the ``samples`` table: GPU metrics, and CPU samples by the function that was running.

    Returns None if the export has neither. A GPU metric has no process. A CPU sample has no device, the
    name ``cpu: `` and its innermost function, and the value 1.
    """
    parts = [
        part
        for part in (_gpu_metrics(source), _cpu_samples(source, strings, threads))
        if part is not None
    ]
    return pl.concat(parts, how="diagonal") if parts else None


def _gpu_metrics(source: Source) -> pl.DataFrame | None:
    if not source.has("GPU_METRICS", "timestamp", "metricId", "value"):
        return None
    wanted: dict[str, Kind] = {"typeId": "int", "metricId": "int", "metricName": "text"}
    info = source.rows("TARGET_INFO_GPU_METRICS", wanted)
    names: dict[tuple[int | None, int | None], str] = {}
    if {"metricId", "metricName"} <= set(info.columns):
        for row in info.iter_rows(named=True):
            names.setdefault((row.get("typeId"), row["metricId"]), row["metricName"])
            names.setdefault((None, row["metricId"]), row["metricName"])
    codes = Codes()

    def convert(frame: pl.DataFrame, _: pl.DataFrame | None) -> pl.DataFrame:
        types = (
            frame["typeId"].fill_null(0)
            if "typeId" in frame.columns
            else constant("typeId", 0, pl.Int64, frame.height)
        )
        # the low half of the type, with the metric, identifies a series of values; both fit in 32 bits
        key = (types % (1 << 31)) * (1 << 32) + frame["metricId"] % (1 << 32)
        return pl.DataFrame(
            [
                (types % (1 << _GPU_BITS)).cast(pl.Int32).alias("device"),
                frame["timestamp"].alias("time"),
                codes.of(key).alias("name"),
                frame["value"].cast(pl.Float64),
            ]
        )

    pieces = source.scan(
        "GPU_METRICS",
        {"timestamp": "int", "typeId": "int", "metricId": "int", "value": "real"},
        convert,
    )
    frame = pl.concat(pieces)
    by_low = {
        (kind % (1 << 31) if kind is not None else None, metric): name
        for (kind, metric), name in names.items()
    }
    texts = []
    for key in codes.keys:
        metric = key % (1 << 32)
        name = by_low.get((key >> 32, metric)) or by_low.get((None, metric))
        texts.append(name or f"metric {metric}")
    return frame.with_columns(named(frame["name"], texts))


def _cpu_samples(source: Source, strings: Strings, threads: Threads) -> pl.DataFrame | None:
    table = "COMPOSITE_EVENTS"
    if not source.has(table, "id", "start", "globalTid"):
        return None
    wanted: dict[str, Kind] = {"id": "int", "symbol": "int", "stackDepth": "int"}
    leaves = pl.DataFrame()
    if source.has("SAMPLING_CALLCHAINS", *wanted):
        leaves = source.rows("SAMPLING_CALLCHAINS", wanted, "stackDepth = 0")
    if leaves.width == 3:
        symbols = leaves.select(
            "id",
            pl.format("cpu: {}", strings.categorical(leaves["symbol"]).cast(pl.String)).alias(
                "name"
            ),
        ).unique("id", keep="first")
    else:
        symbols = pl.DataFrame(schema={"id": pl.Int64, "name": pl.String})
    symbols = symbols.with_columns(pl.col("name").cast(pl.Categorical))
    unknown = pl.Series("name", ["cpu: ?"], dtype=pl.Categorical)

    def convert(frame: pl.DataFrame, _: pl.DataFrame | None) -> pl.DataFrame:
        process, _thread = threads.split(frame["globalTid"])
        named_rows = frame.join(symbols, on="id", how="left", maintain_order="left")
        return pl.DataFrame(
            [
                process,
                frame["start"].alias("time"),
                named_rows["name"].fill_null(unknown[0]),
                constant("value", 1.0, pl.Float64, frame.height),
            ]
        )

    return pl.concat(source.scan(table, {"id": "int", "start": "int", "globalTid": "int"}, convert))


def read_allocations(source: Source, threads: Threads) -> pl.DataFrame | None:
    """Return the ``allocations`` table (``--cuda-memory-usage``): frees are negative, ``total`` is the
    running sum.

    Returns None if the export has no such table.
    """
    table = "CUDA_GPU_MEMORY_USAGE_EVENTS"
    if not source.has(table, "start", "bytes", "memoryOperationType"):
        return None
    freeing = [
        number for number, name in _operations(source).items() if "DEALLOC" in (name or "").upper()
    ]
    wanted: Mapping[str, Kind] = dict.fromkeys(
        ("start", "globalPid", "deviceId", "address", "bytes", "memoryOperationType"), "int"
    )

    def convert(frame: pl.DataFrame, _: pl.DataFrame | None) -> pl.DataFrame:
        return frame.select(
            threads.process(frame["globalPid"]),
            pl.col("deviceId").alias("device"),
            pl.col("start").alias("time"),
            pl.col("address"),
            pl.when(pl.col("memoryOperationType").is_in(freeing))
            .then(-pl.col("bytes"))
            .otherwise("bytes")
            .alias("bytes"),
        )

    frame = pl.concat(scan(source, table, wanted, convert)).sort("time", maintain_order=True)
    # sizes that no device has would overflow the 64-bit sum
    size = pl.when(pl.col("bytes").is_between(*CHANGE)).then("bytes")
    return frame.with_columns(size.cum_sum().over("process", "device").alias("total"))


def _operations(source: Source) -> dict[int, str]:
    frame = source.rows("ENUM_CUDA_DEV_MEM_EVENT_OPER", {"id": "int", "name": "text"})
    rows: dict[Any, Any] = dict(frame.iter_rows()) if frame.width == 2 else {}
    return rows or {0: "ALLOCATION", 1: "DEALLOCATION"}
