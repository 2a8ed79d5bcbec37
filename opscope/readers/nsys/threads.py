"""When threads ran and when not: the scheduler's events of an Nsight Systems export."""

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
    """The ``thread_states`` table: each thread from one event to its next, of processes met so far.

    ``running`` after it was put on a CPU; ``off the CPU``, with the reason where the export has it,
    after it was taken off. What is before a thread's first event and after its last is not told. None
    where the export has no such table.
    """
    if not source.has(_TABLE, "start", "isSchedIn", "globalTid"):
        return None
    states = _labels(source, "ENUM_SAMPLING_THREAD_STATE", ("Unknown", "Running"))
    blocks = _labels(source, "ENUM_SCHEDULING_THREAD_BLOCK", ("Unknown", "NonBlocked"))
    wanted: dict[str, Kind] = dict.fromkeys(
        ("start", "isSchedIn", "globalTid", "threadState", "threadBlock"), "int"
    )
    known = pl.Series(threads.processes.keys, dtype=pl.Int64)

    def convert(frame: pl.DataFrame, _: pl.DataFrame | None) -> pl.DataFrame:
        kept = frame.filter((pl.col("globalTid") // (1 << TID_BITS)).is_in(known.implode()))
        told = [
            pl.col(name).replace_strict(labels, default=None, return_dtype=pl.String)
            for name, labels in (("threadBlock", blocks), ("threadState", states))
            if name in kept.columns
        ]
        why = pl.coalesce(*told, pl.lit(None, pl.String)).str.to_lowercase()
        off = pl.when(why.is_null()).then(pl.lit(OFF)).otherwise(pl.format(OFF + ": {}", why))
        return kept.select(
            *threads.split(kept["globalTid"]),
            "start",
            pl.when(pl.col("isSchedIn") > 0)
            .then(pl.lit(RUNNING))
            .otherwise(off)
            .cast(pl.Categorical)
            .alias("state"),
        )

    found = pl.concat(source.scan(_TABLE, wanted, convert)).sort("process", "thread", "start")
    place = ["process", "thread"]
    return found.with_columns(pl.col("start").shift(-1).over(place).alias("end")).filter(
        pl.col("end") > pl.col("start")
    )


def _labels(source: Source, table: str, nothing: tuple[str, ...]) -> dict[int, str]:
    """What the numbers of an enumeration mean; those that say nothing are left out."""
    frame = source.rows(table, {"id": "int", "label": "text"})
    rows = frame.drop_nulls().rows() if {"id", "label"} <= set(frame.columns) else []
    return {number: label for number, label in rows if label not in nothing}
