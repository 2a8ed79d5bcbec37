"""Device time by kind of work (matrix products, attention, copies …), computed from totals, not per op."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.analysis.answers import Answers
from opscope.core.analysis.ops.ops import Ops, op_index
from opscope.core.analysis.ops.totals import summed_ops
from opscope.core.attribution.attribute import REASONS, Launched
from opscope.core.perf import kinds as perf_kinds
from opscope.core.question.column import Frame
from opscope.core.question.record import Job, Question, Sums
from opscope.core.question.words import columns
from opscope.core.schema import DIRECTIONS
from opscope.core.tables.columns import at, gather, known_sum, pieces, spread

#: The columns of ``op_kinds``.
SCHEMA: Final[dict[str, type[pl.DataType]]] = {
    "kind": pl.Categorical,
    "op": pl.Categorical,
    "direction": pl.Categorical,
    "name": pl.Categorical,
    "reason": pl.Categorical,
    "device_time": pl.Int64,
    "calls": pl.Int64,
}
_KEYS: Final = ("kind", "op", "direction", "name", "reason")
_CALL: Final = ("op", "op_type", "direction", "params")
#: Only a fusion's parameters are needed.
_PARAMS: Final = (
    pl.when(pl.col("op_type").cast(pl.String) == "fusion").then("params").alias("params")
)


def op_kinds(ops: Ops, totals: pl.DataFrame, gaps: pl.DataFrame) -> pl.DataFrame:
    """Return one row per kind of work, op and direction: device_time (ns), calls.

    ``calls`` counts kernels; without a GPU it counts calls of the op, and is null if there is no op. If
    the op does not determine the kind, each kernel's name does, and the row has that ``name``; a kernel
    without an op likewise, with the ``reason``. ``totals`` is ``totals.op_totals``, ``gaps`` is
    ``totals.unattributed``. The times add up to the device time; if that is not known there are no rows.
    """
    return kinds_of(totals, gaps, (lambda: kinds_of_kernels(ops)) if ops.on_device else None)


def kinds_of(
    totals: pl.DataFrame, gaps: pl.DataFrame, by_kernel: Callable[[], pl.DataFrame] | None
) -> pl.DataFrame:
    """Like ``op_kinds``. ``by_kernel`` returns ``kinds_of_kernels``, joined over the parts of a job; None
    without a GPU."""
    if totals["device_time"].null_count() == len(totals) and not len(gaps):
        return pl.DataFrame(schema=SCHEMA)
    by_op = _by_op(totals, by_kernel is None)
    parts = [by_op.filter(pl.col("kind").is_not_null())]
    if by_kernel is not None:
        parts.append(by_kernel())
    else:
        text = pl.lit(None, pl.String)
        parts.append(
            gaps.select(
                pl.lit(perf_kinds.NO_OP).alias("kind"),
                *(text.alias(name) for name in ("op", "direction", "name")),
                pl.col("reason").cast(pl.String),
                pl.col("time").alias("device_time"),
                pl.lit(None, pl.Int64).alias("calls"),
            )
        )
    return (
        pl.concat(parts)
        .group_by(_KEYS)
        .agg(pl.col("device_time").sum(), known_sum("calls"))
        .filter(pl.col("device_time") > 0)
        .sort("device_time", *_KEYS, descending=[True, *[False] * len(_KEYS)], nulls_last=True)
        .with_columns(pl.col(name).cast(kind) for name, kind in SCHEMA.items())
    )


def kinds_of_kernels(ops: Ops) -> pl.DataFrame:
    """Return the part of ``op_kinds`` that the names of kernels give, and the copies: texts as String."""
    return added_kinds(pl.concat([_by_kernel(ops, name) for name in ("kernels", "memops")]))


def added_kinds(sums: pl.DataFrame) -> pl.DataFrame:
    """Return the ``kinds_of_kernels`` of parts of a job, joined, with one row per kind."""
    return sums.group_by(_KEYS).agg(pl.col("device_time").sum(), known_sum("calls"))


def _by_op(totals: pl.DataFrame, is_op: bool) -> pl.DataFrame:
    """Return the totals by kind, op and direction; the kind is null if only kernels show it, but never null
    with ``is_op``."""
    calls = pl.col("calls" if is_op else "kernels").sum().alias("calls")
    sums = (
        totals.lazy()
        .with_columns(_PARAMS)
        .group_by(_CALL)
        .agg(pl.col("device_time").sum(), calls)
        .filter(pl.col("device_time") > 0)
        .with_columns(pl.col(_CALL).cast(pl.String))
        .collect()
    )
    kinds = [perf_kinds.of_op(*row) for row in sums.select(_CALL).rows()]
    if is_op:
        kinds_of_sums = zip(kinds, sums.select("op", "op_type").rows(), strict=True)
        kinds = [
            kind or perf_kinds.of_op_by_name(op, family) for kind, (op, family) in kinds_of_sums
        ]
    return sums.select(
        pl.Series("kind", kinds, pl.String),
        "op",
        "direction",
        *(pl.lit(None, pl.String).alias(name) for name in ("name", "reason")),
        "device_time",
        "calls",
    )


def _by_kernel(ops: Ops, table: str) -> pl.DataFrame:
    """Return the kinds, by name, of kernels without an op or whose op has no kind; copies have their own.

    A kernel whose name shows communication counts as communication, whatever launched it; if its op has
    another kind, its time is taken from that kind.
    """
    trace = ops.attribution.trace
    launched: Launched = getattr(ops.attribution, table)
    kind_of = _kinds_of_readings(ops)
    frame = trace[table]
    named = perf_kinds.communicates(frame["name"]) if table == "kernels" else None
    tables = []
    for part in pieces(len(frame)):
        rows = launched.op[part].astype(np.int64)
        owner = rows.copy()
        owner[rows >= 0] = ops.counted_ops(rows[rows >= 0])
        reading = at(ops.attribution.meaning.reading, owner)
        direction = ops.direction(owner).astype(np.int64)
        kind = kind_of[reading, direction]
        wrong = (kind != _COMMUNICATION) & (False if named is None else named[part])
        left = np.flatnonzero((kind < 0) | wrong)
        if not len(left):
            continue
        mine = frame[part].select(
            pl.col("name").cast(pl.Categorical) if table == "kernels" else _NO_NAME.alias("name"),
            (pl.col("end") - pl.col("start")).alias("device_time"),
        )[left]
        codes = launched.reason[part][left].astype(np.int16)
        tables.append(
            mine.lazy()
            .with_columns(
                gather(ops.readings["op"], reading[left]).alias("op"),
                spread("direction", DIRECTIONS, direction[left]),
                spread("reason", list(REASONS), np.where(owner[left] < 0, codes, -1)),
                spread("instead_of", _KINDS, kind[left]),
            )
            .group_by("op", "direction", "name", "reason", "instead_of")
            .agg(pl.col("device_time").sum(), pl.len().cast(pl.Int64).alias("calls"))
            .with_columns(pl.col(pl.Categorical).cast(pl.String))
            .collect()
        )
    if not tables:
        return pl.DataFrame(schema={**SCHEMA, **dict.fromkeys(_KEYS, pl.String)})
    sums = pl.concat(tables)
    if table == "memops":
        copies = sums.with_columns(pl.lit(0, pl.Int64).alias("calls"))
        return copies.select(pl.lit(perf_kinds.COPIES).alias("kind"), *list(SCHEMA)[1:])
    names = sums["name"].unique()
    texts = names.to_list()
    by_name = dict(zip(texts, perf_kinds.of_kernels([text or "" for text in texts]), strict=True))
    kind = pl.col("name").replace_strict(
        by_name, default=perf_kinds.UNKNOWN, return_dtype=pl.String
    )
    none = pl.lit(None, pl.String)
    less = sums.drop_nulls("instead_of").select(
        pl.col("instead_of").alias("kind"),
        *("op", "direction", none.alias("name"), none.alias("reason")),
        -pl.col("device_time"),
        -pl.col("calls"),
    )
    return pl.concat([sums.select(kind.alias("kind"), *list(SCHEMA)[1:]), less])


_KINDS: Final = list(perf_kinds.kinds())
_COMMUNICATION: Final = _KINDS.index(perf_kinds.COMMUNICATION)
_NO_NAME: Final = pl.lit(None, pl.Categorical)


def _kinds_of_readings(ops: Ops) -> NDArray[np.int8]:
    """Return the kind that an op determines, as its place among all kinds, by reading (row) and direction
    (column); -1: none. The last row is for ops without a reading, the last column for ops without a
    direction."""
    readings = ops.readings.select(pl.col("op", "op_type", "params").cast(pl.String))
    params = pl.when(pl.col("op_type") == "fusion").then("params").alias("params")
    op = pl.when(pl.col("op_type") == "fused").then("op").alias("op")
    rows = readings.select(op, "op_type", params)
    distinct = rows.unique(maintain_order=True)
    directions = [*DIRECTIONS, None]
    table = [
        [_place(perf_kinds.of_op(name, family, direction, has_kernels)) for direction in directions]
        for name, family, has_kernels in distinct.rows()
    ]
    index = (
        rows.join(
            distinct.with_row_index("place"), on=rows.columns, how="left", nulls_equal=True,
            maintain_order="left",
        )["place"]
        .to_numpy()
    )  # fmt: skip
    kinds = np.array(table, np.int8).reshape(len(distinct), len(directions))[index]
    return np.concatenate((kinds, np.full((1, len(directions)), -1, np.int8)))


def _place(kind: str | None) -> int:
    return -1 if kind is None else _KINDS.index(kind)


def answer(profile: Answers) -> pl.DataFrame:
    """Device time by kind of work (matrix products, attention …), op and direction.

    If an op does not give its kind, the names of its kernels do. The times add up to the device time.
    """
    return answer_of(profile, summed_ops(profile))


def answer_of(profile: Answers, sums: pl.DataFrame) -> pl.DataFrame:
    """Return ``kinds()`` of the rows of ``op_totals()``."""
    return op_kinds(profile.of(op_index), sums, profile.ask("unattributed", categories=True))


def _sums(profile: Answers) -> pl.DataFrame:
    """Return ``kinds_of_kernels``; no table without a GPU."""
    return pl.DataFrame() if profile.cpu_only else kinds_of_kernels(profile.of(op_index))


def _of_job(sums: pl.DataFrame, job: Job) -> pl.DataFrame:
    by_kernel = None if job.cpu_only else lambda: sums
    return kinds_of(job.answer("op_totals"), job.answer("unattributed"), by_kernel)


QUESTION = Question(
    answer=answer,
    merged=Sums(table="kinds_of_kernels", of=_sums, added=added_kinds, finished=_of_job),
    frames=(
        Frame(
            "kinds()",
            (
                "one row per kind of work, op and direction; per kernel name if the op does not "
                "give the kind"
            ),
            columns(
                "kind op direction name reason device_time calls",
                """
                name: text: the kernel's name if it decides the kind; else null
                calls: count: kernels; without a GPU, calls of the op
                """,
            ),
        ),
    ),
)
