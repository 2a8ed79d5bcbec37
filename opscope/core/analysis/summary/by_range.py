"""Add up device time by the user's own ranges, and the time outside all of them."""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from opscope.core.analysis.answers import Answers
from opscope.core.analysis.ops.executed import ALL_FLOPS, kernel_executions
from opscope.core.analysis.ops.kernels import launched_in
from opscope.core.analysis.ops.op_frame import op_rows
from opscope.core.analysis.ops.ops import Ops, first, op_index
from opscope.core.attribution.attribute import Launched
from opscope.core.dialects import serving
from opscope.core.question.column import Frame
from opscope.core.question.record import Question, Report, Sums
from opscope.core.question.words import columns
from opscope.core.tables.columns import cost_sum, gather, known_sum, pieces
from opscope.core.tables.intervals import NONE

_SUMS: Final = ("matrix_flops", "vector_flops", "flops", "bytes")


def range_sums(ops: Ops, executed: pl.DataFrame, frame: pl.DataFrame | None) -> pl.DataFrame:
    """Return the sums from which ``range_totals`` is made, with ``kernel`` (null without a GPU) and ``many``.
    ``frame``: without a GPU the profile's ops. The sums of parts of a job may be joined."""
    if frame is None:
        return _ran(ops, executed)
    return (
        frame.select(_steps_of_servers(frame["range"]), pl.col("self_time").alias("time"), *_SUMS)
        .group_by("range")
        .agg(
            pl.col("time").sum(),
            pl.len().cast(pl.Int64).alias("many"),
            *map(known_sum, _SUMS),
        )
        .with_columns(pl.lit(None, pl.Boolean).alias("kernel"))
    )


def added_ranges(sums: pl.DataFrame) -> pl.DataFrame:
    """Return the ``range_sums`` of parts of a job, joined, with one row per range and kind of work."""
    return sums.group_by("range", "kernel").agg(
        pl.col("time", "many").sum(), *_costs(pl.col("kernel").fill_null(False))
    )


def range_totals(sums: pl.DataFrame) -> pl.DataFrame:
    """Return one row per innermost user range (null: none), by time: range, device_time (ns), share, calls,
    kernels, copies, matrix_flops, vector_flops, flops, bytes.

    ``calls`` counts kernels, copies and sets; without a GPU it counts ops, and ``device_time`` is their self
    time. A sum is null if no value is known, or if the known values are 0 and the cost of another kernel is
    unknown. ``sums`` is ``range_sums``.
    """
    kernel, count = pl.col("kernel"), pl.col("many")
    return (
        sums.lazy()
        .group_by("range")
        .agg(
            pl.col("time").sum().alias("device_time"),
            count.sum().alias("calls"),
            *(
                pl.when(kernel.is_not_null().any()).then(count.filter(chosen).sum()).alias(name)
                for name, chosen in (("kernels", kernel), ("copies", ~kernel))
            ),
            *_costs(kernel.fill_null(False)),
        )
        .with_columns((pl.col("device_time") / _or_none("device_time")).alias("share"))
        .sort("device_time", "range", descending=[True, False], nulls_last=True)
        .select("range", "device_time", "share", "calls", "kernels", "copies", *_SUMS)
        .collect()
    )


def _ran(ops: Ops, executed: pl.DataFrame) -> pl.DataFrame:
    """Return the sums of kernels, copies and sets by range, computed a piece at a time; ``many`` is their
    number."""
    attribution = ops.attribution
    copies = attribution.trace["memops"].select((pl.col("end") - pl.col("start")).alias("duration"))
    executed = executed.select("duration", "matrix_flops", "vector_flops", ALL_FLOPS, "bytes")
    nothing = (pl.lit(None, executed.schema[name]).alias(name) for name in _SUMS)
    tables = (
        (executed, attribution.kernels, True),
        (copies.with_columns(nothing), attribution.memops, False),
    )
    return pl.concat(
        table[part]
        .with_columns(_range_of(ops, launched.part(part)))
        .group_by("range")
        .agg(
            pl.col("duration").sum().alias("time"),
            pl.len().cast(pl.Int64).alias("many"),
            *_costs(pl.lit(kernel)),
        )
        .with_columns(pl.lit(kernel).alias("kernel"))
        for table, launched, kernel in tables
        for part in pieces(len(table))
    )


def _costs(kernels: pl.Expr) -> list[pl.Expr]:
    """Return the sums of costs; ``kernels``: which rows are kernels. Copies have no costs here."""
    return [cost_sum(name, kernels) for name in _SUMS]


def _or_none(name: str) -> pl.Expr:
    total = pl.col(name).sum()
    return pl.when(total > 0).then(total)


def _range_of(ops: Ops, launched: Launched) -> pl.Series:
    """Return the user range around the launch, else around the op, of each row of a device's table."""
    rows = launched.op
    distinct = rows[rows >= 0]
    inside = launched_in(ops, launched.call)
    if not len(distinct):
        return _steps_of_servers(inside)
    each, index = np.unique(distinct.astype(np.int64), return_inverse=True)
    code = np.full(len(rows), NONE, np.int32)
    code[rows >= 0] = index
    found = first(inside, gather(ops.user_range(each, ops.forward_of(each)), code)).alias("range")
    return _steps_of_servers(found)


def _steps_of_servers(ranges: pl.Series) -> pl.Series:
    """Return the ranges, with one name for all prefill and one for all decode steps that a server names by
    their sizes."""
    names = {text: serving.label(text) for text in ranges.unique().cast(pl.String).drop_nulls()}
    known = {text: label for text, label in names.items() if label is not None}
    if not known:
        return ranges
    named: pl.Series = ranges.cast(pl.String).replace(known).cast(ranges.dtype)
    return named


def answer(profile: Answers) -> pl.DataFrame:
    """The user's ranges by device time; work counts for the innermost range in which it was launched."""
    return range_totals(_sums(profile))


def _sums(profile: Answers) -> pl.DataFrame:
    rows = profile.of(op_rows) if profile.cpu_only else None
    return range_sums(profile.of(op_index), profile.of(kernel_executions), rows)


QUESTION = Question(
    answer=answer,
    frames=(
        Frame(
            "range_totals()",
            (
                "one row per user range: what ran with this range as the innermost; range is null "
                "for what ran outside all ranges. Steps of an inference server, whose names differ by "
                "their sizes, are one row for prefill and one for decode"
            ),
            columns(
                "range device_time share calls kernels copies matrix_flops vector_flops "
                "flops bytes",
                """
                calls: count: kernels, copies and sets; without a GPU, ops
                """,
            ),
        ),
    ),
    merged=Sums(
        table="ranges",
        of=_sums,
        added=added_ranges,
        finished=lambda sums, _: range_totals(sums),
    ),
    reports=(
        Report(
            name="range",
            title="User ranges",
            empty="no work in this profile",
            shown="range device_time share calls kernels copies flops bytes",
            by="range",
            lean=True,
            aliases=("ranges",),
        ),
    ),
)
