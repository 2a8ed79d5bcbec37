"""A reader as another package would have it: kernels in CSV, one per line, times in µs."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from opscope.core.tables.trace import Trace
from opscope.readers import BadInput

HEAD = b"kernel,stream,begin_us,end_us\n"


def recognise(head: bytes, path: Path) -> bool:
    return head.startswith(HEAD)


def read(path: Path) -> Trace:
    try:
        rows = pl.read_csv(path)
        kernels = rows.select(
            pl.lit(0, pl.Int32).alias("process"),
            pl.lit(0, pl.Int32).alias("device"),
            pl.col("stream").cast(pl.Int64),
            (pl.col("begin_us") * 1000).cast(pl.Int64).alias("start"),
            (pl.col("end_us") * 1000).cast(pl.Int64).alias("end"),
            pl.col("kernel").cast(pl.Categorical).alias("name"),
        )
    except pl.exceptions.PolarsError as error:
        raise BadInput(path, f"not kernels: {error}") from error
    processes = pl.DataFrame({"process": [0]}, schema={"process": pl.Int32})
    return Trace.of({"processes": processes, "kernels": kernels}, {"format": "kernels-csv"})
