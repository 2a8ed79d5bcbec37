"""Shared analysis of communication for detectors: its kernels, the part that nothing hides, its pattern."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.advice.finding import Answers, CannotTell
from opscope.core.perf import kinds
from opscope.core.perf.ops.communication import collective
from opscope.core.tables.columns import matching
from opscope.core.tables.intervals import Ints, merge

#: Texts of ops and ranges that show the way of training in parallel.
_PATTERNS: Final = {
    "ddp": r"DistributedDataParallel\.forward|distributed::reducer|distributed\.ddp\.reducer|DDP",
    "fsdp": r"(?i)FullyShardedDataParallel|\bFSDP|fsdp::|fully_shard",
    "tensor_parallel": r"symm_mem::|RowParallel|ColumnParallel|RowwiseParallel|ColwiseParallel",
}
ONLY_CALLS: Final = (
    "the calls of collectives were recorded, but not when they ran: capture with a GPU profiler, or train"
    " with the recorder's native observer"
)
NO_COMPUTATION: Final = (
    "the profile holds collectives and no computation, so that what ran beside them is not known"
)


def rates(answers: Answers) -> pl.DataFrame | CannotTell:
    """Return one row per process that communicated: the rows of ``communication()`` with ``exposed``
    and ``moving`` (ns).

    ``exposed``: the time within the window in which a collective ran and no computation. ``moving``: the same
    without the waiting for other ranks, which only evenly divided work shortens. If the waiting is not known,
    and ranks have equally many collectives, ``moving`` is at most the least communication of a rank. Empty if
    there was no communication.
    """
    reasons = answers.overlap()["reason"].drop_nulls()
    if len(reasons):
        return CannotTell(f"{reasons[0]}, so that what ran at once is not known")
    rates_of_steps = answers.communication()
    if rates_of_steps.is_empty() and answers.trace["ranges"].is_empty():
        return CannotTell(
            "the profile has neither kernels nor ops: capture with one of the backends"
        )
    talking = rates_of_steps.filter(
        (pl.col("collectives") > 0) | (pl.col("communication_time") > 0)
    )
    if len(talking) and talking["communication_time"].null_count() == len(talking):
        return CannotTell(ONLY_CALLS)
    timed = talking.filter(pl.col("communication_time").is_not_null() & (pl.col("window") > 0))
    beside = timed.filter(pl.col("computation_time") > 0)
    if len(timed) and beside.is_empty():
        return CannotTell(NO_COMPUTATION)
    exposed = pl.col("communication_time") - pl.col("overlap_time")
    # of ranks with equally many collectives, the one with the shortest time in them waits least
    alike = len(beside) > 1 and beside["collectives"].n_unique() == 1
    most = beside["communication_time"].min() if alike else None
    moving = (pl.col("exposed") - pl.col("waiting_time").fill_null(0)).clip(lower_bound=0)
    return beside.with_columns(exposed.alias("exposed")).with_columns(
        pl.when(pl.col("waiting_time").is_null())
        .then(pl.min_horizontal(moving, pl.lit(most, pl.Int64)))
        .otherwise(moving)
        .alias("moving")
    )


def collective_kernels(answers: Answers) -> pl.DataFrame:
    """Return the kernels of collectives: the columns of ``kernels()`` with ``row``, the row of the trace's
    table, ``collective``, its kind, and ``exposed`` (ns), the part during which its process computed nothing.

    While two collectives run at once, the time counts as exposed for both.
    """
    kernels = answers.kernels(categories=True)
    talks = communicates(answers, kernels)
    rows = np.flatnonzero(talks)
    exchanges = kernels[rows].with_columns(pl.Series("row", rows, pl.Int64))
    exposed = np.zeros(len(rows), np.int64)
    process = kernels["process"].fill_null(-1).to_numpy()
    for number in np.unique(process[rows]).tolist():
        mine = np.flatnonzero(process[rows] == number)
        others = kernels.select("start", "end").filter(
            pl.Series((process == number) & ~talks, dtype=pl.Boolean)
        )
        union = merge(*(others[name].to_numpy() for name in ("start", "end")))
        start, end = (exchanges[name].gather(mine).to_numpy() for name in ("start", "end"))
        exposed[mine] = end - start - (open_until(union, end) - open_until(union, start))
    # NCCL's SendRecv kernel does all-to-alls too: the kernel's record and its op say more than its name
    attrs = answers.trace["kernels"]["attrs"].gather(rows).cast(pl.String)
    stated = attrs.str.extract(r'"collective":\s*"([^"]{1,64})"').alias("told")
    kind = pl.coalesce(_kinds("told"), _kinds("op"), _kinds("name"))
    return exchanges.with_columns(pl.Series("exposed", exposed), stated).with_columns(
        kind.alias("collective")
    )


def _kinds(column: str) -> pl.Expr:
    def read(texts: pl.Series) -> pl.Series:
        written = texts.cast(pl.String)
        collectives = {name: collective(name) for name in written.drop_nulls().unique()}
        names: pl.Series = written.replace_strict(collectives, default=None, return_dtype=pl.String)
        return names

    return pl.col(column).map_batches(read, return_dtype=pl.String)


def communicates(answers: Answers, kernels: pl.DataFrame) -> NDArray[np.bool_]:
    """Return whether each row of ``kernels()`` is a kernel of a collective, as ``communication()`` has it."""
    return kinds.communicates(kernels["name"], kernels["direction"])


def open_until(union: tuple[Ints, Ints], time: Ints) -> Ints:
    """Return for how long (ns) a union of intervals was open before each time."""
    start, end = union
    if not len(start):
        return np.zeros(len(time), np.int64)
    index = np.searchsorted(start, time, side="right") - 1
    running_total = np.concatenate(([0], np.cumsum(end - start)))
    inside = np.minimum(time, end[index]) - start[index]
    until: Ints = np.where(index >= 0, running_total[index] + inside, 0)
    return until


def patterns(answers: Answers) -> set[str]:
    """Return the ways of training in parallel that names of ops and ranges show: ``ddp``, ``fsdp``,
    ``tensor_parallel``."""
    texts = answers.trace["ranges"]["text"].unique()
    return {
        name
        for name, patterns_of_texts in _PATTERNS.items()
        if matching(texts, patterns_of_texts).any()
    }


def on_computing_streams(answers: Answers, rows: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of ``collective_kernels`` on streams that run a tenth of their device's computation.

    A stream runs one kernel after the other, so no other kernel of the stream can run beside these.
    """
    place = ["process", "device", "stream"]
    kernels = answers.kernels(categories=True)
    computing = (
        kernels.filter(pl.Series(~communicates(answers, kernels), dtype=pl.Boolean))
        .group_by(place)
        .agg(pl.col("duration").sum())
        .filter(pl.col("duration") * 10 >= pl.col("duration").sum().over("process", "device"))
    )
    return rows.join(computing.select(place), on=place, how="semi", nulls_equal=True)


def by_kind(kernels: pl.DataFrame) -> pl.DataFrame:
    """Return kind, count, time and exposed time (ns) of the collectives, those with most exposed first."""
    return (
        kernels.group_by(pl.col("collective").fill_null("other").alias("kind"))
        .agg(pl.len().alias("count"), pl.col("duration").sum(), pl.col("exposed").sum())
        .sort("exposed", "kind", descending=[True, False])
    )


def as_int(value: Any) -> int:
    """Return a column's ``max`` or ``median`` as a whole number; 0 for a column without values."""
    return int(value or 0)


def rank_name(row: Mapping[str, Any]) -> str:
    """Return ``rank 3``, or ``process 0`` where the rank is not known."""
    return f"process {row['process']}" if row.get("rank") is None else f"rank {row['rank']}"
