"""Read the scheduler's events of an Nsight Systems export: when each thread ran and when it did not."""

from __future__ import annotations

from typing import Final

import polars as pl

from opscope.readers.sqlite import Kind

from .source import Source
from .strings import TID_BITS, Threads

_TABLE: Final = "SCHED_EVENTS"
RUNNING: Final = "running"
OFF: Final = "off the CPU"


def read_states(source: Source, threads: Threads) -> pl.DataFrame | None:
    """Return the ``thread_states`` table: a row from each event of a thread to its next event.

    The state is ``running`` after the thread was put on a CPU, and ``off the CPU``, with the reason if
    the export has it, after it was taken off. The states before a thread's first event and after its last
    are unknown. Only processes known so far are read. Returns None if the export has no such table.
    """
    if not source.has(_TABLE, "start", "isSchedIn", "globalTid"):
        return None
    states = _labels(source, "ENUM_SAMPLING_THREAD_STATE", ("Unknown", "Running"))
    blocks = _labels(source, "ENUM_SCHEDULING_THREAD_BLOCK", ("Unknown", "NonBlocked"))
    wanted: dict[str, Kind] = dict.fromkeys(
        ("start", "isSchedIn", "globalTid", "threadState", "threadBlock"), "int"
    )
    process_keys = pl.Series(threads.processes.keys, dtype=pl.Int64)

    def convert(frame: pl.DataFrame, _: pl.DataFrame | None) -> pl.DataFrame:
        rows = frame.filter((pl.col("globalTid") // (1 << TID_BITS)).is_in(process_keys.implode()))
        reasons = [
            pl.col(name).replace_strict(labels, default=None, return_dtype=pl.String)
            for name, labels in (("threadBlock", blocks), ("threadState", states))
            if name in rows.columns
        ]
        why = pl.coalesce(*reasons, pl.lit(None, pl.String)).str.to_lowercase()
        off = pl.when(why.is_null()).then(pl.lit(OFF)).otherwise(pl.format(OFF + ": {}", why))
        return rows.select(
            *threads.split(rows["globalTid"]),
            "start",
            pl.when(pl.col("isSchedIn") > 0)
            .then(pl.lit(RUNNING))
            .otherwise(off)
            .cast(pl.Categorical)
            .alias("state"),
        )

    found = pl.concat(source.scan(_TABLE, wanted, convert)).sort("process", "thread", "start")
    thread = ["process", "thread"]
    return found.with_columns(pl.col("start").shift(-1).over(thread).alias("end")).filter(
        pl.col("end") > pl.col("start")
    )


def _labels(source: Source, table: str, nothing: tuple[str, ...]) -> dict[int, str]:
    """The labels of an enumeration by number, without the meaningless labels in ``nothing``."""
    frame = source.rows(table, {"id": "int", "label": "text"})
    rows = frame.drop_nulls().rows() if {"id", "label"} <= set(frame.columns) else []
    return {number: label for number, label in rows if label not in nothing}
