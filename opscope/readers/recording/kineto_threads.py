"""Map Kineto's thread numbers to the system's thread ids, by the threads that the recorder saw.

CUPTI gives a thread as the low 32 bits of its pthread id, as a signed integer. Kineto replaces this number by
the system's id for threads that it knows; without CPU activities it knows none. Since October 2024 it writes
the absolute value of any number. So half of all threads have a number in the trace that is not part of their
pthread id, and two threads may share a number. On AMD's GPUs Kineto writes the system's id.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from opscope.core.tables.clockfit import ClockFit
from opscope.core.tables.intervals import Ints
from opscope.core.tables.trace import Trace

_LOW: Final = 1 << 32
_SIGN: Final = 1 << 31


def with_os_threads(
    calls: pl.DataFrame, ranges: Trace, clock: ClockFit, probe_threads: pl.DataFrame
) -> tuple[pl.DataFrame, int]:
    """Return ``calls`` with the system's thread ids, and how many calls have none because several fit.

    ``probe_threads`` (number, thread) are threads known from the probes. If several threads share a number,
    the call belongs to the one with ranges around it, by ``clock``: a thread may get the pthread id of a
    thread that has ended. If that does not decide either, the thread is null. A number that no thread has
    stays.
    """
    names = pl.concat(
        [numbers(ranges["threads"]), probe_threads.select("number", "thread")]
    ).unique()
    shared = names.filter(pl.len().over("number") > 1)
    single = names.filter(pl.len().over("number") == 1)
    thread = calls["thread"].replace(single["number"], single["thread"])
    unclear = 0
    spans = _spans(ranges, clock.error_ns)
    for (number,), part in shared.group_by("number"):
        rows = np.flatnonzero((calls["thread"] == number).fill_null(False).to_numpy())
        if len(rows):
            threads_found = _by_time(
                clock.apply(calls["start"].gather(rows).to_numpy()), part, spans
            )
            thread = thread.scatter(rows, threads_found)
            unclear += threads_found.null_count()
    return calls.with_columns(thread.alias("thread")), unclear


def numbers(threads: pl.DataFrame) -> pl.DataFrame:
    """Return every number that Kineto may have for a thread: number, thread."""
    numbered = threads.filter(pl.col("pthread_id").is_not_null()).select(
        pl.col("pthread_id").alias("whole"), "thread"
    )
    low = pl.col("whole") & (_LOW - 1)
    signed = low - pl.when(low >= _SIGN).then(_LOW).otherwise(0)
    # Kineto makes 0 of the only number that has no absolute value in 32 bits
    positive = pl.when(low == _SIGN).then(0).otherwise(signed.abs())
    forms = [
        numbered.select(form.cast(pl.Int64).alias("number"), "thread")
        for form in (pl.col("whole"), low, signed, positive)
    ]
    own = threads.select(pl.col("thread").alias("number"), "thread").drop_nulls()
    return pl.concat([own, *forms]).unique()


def unseen(calls: pl.DataFrame, threads: pl.DataFrame) -> pl.DataFrame:
    """Return rows of ``threads`` for threads that made calls and that the recorder did not see."""
    rows = calls.select(pl.col("thread").drop_nulls().unique().sort()).filter(
        ~pl.col("thread").is_in(threads["thread"].implode())
    )
    schema = dict(threads.schema)
    columns = {"process": pl.lit(0), "thread": pl.col("thread")}
    return rows.select(
        columns.get(name, pl.lit(None)).cast(dtype).alias(name) for name, dtype in schema.items()
    )


def _spans(ranges: Trace, error: int) -> pl.DataFrame:
    """First start and last end of each thread's ranges, widened by the clock's error: thread, first, last."""
    return (
        ranges["ranges"]
        .group_by("thread")
        .agg(
            (pl.col("start").min() - error).alias("first"),
            (pl.col("end").max() + error).alias("last"),
        )
    )


def _by_time(time: Ints, candidates: pl.DataFrame, spans: pl.DataFrame) -> pl.Series:
    """For each time, the only candidate with ranges around it; null if there is none or several."""
    part = candidates.join(spans, on="thread")
    count = len(part)
    if not count:
        return pl.Series([None] * len(time), dtype=pl.Int64)
    edges = np.concatenate((part["first"].to_numpy(), part["last"].to_numpy() + 1))
    order = np.argsort(edges, kind="stable")
    sign = np.repeat((1, -1), count)
    open_now = np.cumsum(sign[order])
    which = np.cumsum((sign * np.tile(np.arange(count), 2))[order])
    index = np.searchsorted(edges[order], time, side="right") - 1
    is_sure = (index >= 0) & (open_now[index] == 1)
    thread = part["thread"].to_numpy()[np.where(is_sure, which[index], 0)]
    return pl.Series(thread).set(pl.Series(~is_sure), None)
