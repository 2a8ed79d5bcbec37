"""Totals: kernels by name, ops by name, shapes, layer and source, unattributed time by reason."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.analysis.answers import Answers
from opscope.core.analysis.ops.executed import ALL_FLOPS, kernel_executions
from opscope.core.analysis.ops.identities import Identities
from opscope.core.analysis.ops.op_frame import COST_COLUMNS, identity_of
from opscope.core.analysis.ops.op_times import device_column, launched, self_time
from opscope.core.analysis.ops.ops import Ops, op_index
from opscope.core.analysis.ops.windows import reasons
from opscope.core.question.column import Frame
from opscope.core.question.layout import Table
from opscope.core.question.record import Question, Report, Sums, View
from opscope.core.question.tables import listed, running
from opscope.core.question.words import columns
from opscope.core.tables.columns import cost_sum, distinct_values, gather, pieces
from opscope.core.tables.intervals import Ints

#: Two op instances are the same op in a table of totals if these columns are equal.
SAME_OP: Final = (
    "op",
    "op_type",
    "direction",
    "layer",
    "source",
    "inputs",
    "outputs",
    "dtypes",
    "params",
)
#: Sums that are null if none of their values is known.
PARTIAL: Final = ("device_time", *COST_COLUMNS)
SUMMED: Final = ("calls", "kernels", "cpu_time", "self_time")


def kernel_sums(kernels: pl.DataFrame) -> pl.DataFrame:
    """Return one row per kernel name and op, in the order of their first kernels: calls, total, min, max
    (ns), tensor_core (null: not known), sums of FLOPs and bytes. ``added_kernels`` adds up those of parts.
    """
    duration = pl.col("duration")
    return (
        kernels.lazy()
        .with_columns(ALL_FLOPS)
        .group_by("name", "op", maintain_order=True)
        .agg(
            pl.len().cast(pl.Int64).alias("calls"),
            duration.sum().alias("total"),
            duration.min().alias("min"),
            duration.max().alias("max"),
            pl.col("tensor_core").any(ignore_nulls=False),
            cost_sum("flops"),
            cost_sum("bytes"),
        )
        .collect()
    )


def kernel_totals(sums: pl.DataFrame) -> pl.DataFrame:
    """Return one row per kernel name: calls, total/mean/min/max time (ns), share of all kernel time, the op
    it most often belongs to, whether it uses Tensor Cores (null: not known), sums of FLOPs and bytes.

    ``sums`` is ``kernel_sums``; where parts of a job were joined, one name and op may have several rows.
    """
    named = pl.col("op").is_not_null()
    each = added_kernels(sums).lazy()
    # among ops with equally many calls, the one with most time; if equal, the first by name
    often = pl.struct(-pl.col("calls"), -pl.col("total"), pl.col("op").cast(pl.String).alias("by"))
    most = pl.col("op").filter(named).sort_by(often.filter(named)).first()
    return (
        each.group_by("name", maintain_order=True)
        .agg(most.alias("op"), *_ADDED)
        .with_columns(
            (pl.col("total") / pl.col("calls")).alias("mean"),
            (pl.col("total") / sums["total"].sum()).alias("share"),
        )
        .sort("total", "name", descending=[True, False])
        .select(
            *("name", "calls", "total", "mean", "min", "max", "share", "op", "tensor_core"),
            *("flops", "bytes"),
        )
        .collect()
    )


def added_kernels(sums: pl.DataFrame) -> pl.DataFrame:
    """Return the ``kernel_sums`` of parts of a job, joined in order, with one row per name and op."""
    return sums.group_by("name", "op", maintain_order=True).agg(*_ADDED)


#: How rows of ``kernel_sums`` add up: integers alone, so that their order changes nothing.
_ADDED: Final = (
    pl.col("calls", "total").sum(),
    pl.col("min").min(),
    pl.col("max").max(),
    pl.col("tensor_core").any(ignore_nulls=False),
    cost_sum("flops"),
    cost_sum("bytes"),
)


def op_sums(ops: Ops) -> pl.DataFrame:
    """Return the rows that ``op_totals`` adds up: unordered, one op in one row or more.

    A caller that adds them up further uses these: for a million distinct ops, adding up equal ones and
    ordering them takes as long as all other work here. Ops are distinguished by numbers, and one op of
    each kind is described.
    """
    kinds = kinds_of_ops(ops, ops.identities)
    places = kinds["priced"].to_numpy()
    return kinds.select(
        *identity_of(ops, kinds["row"].to_numpy()).values(),
        *SUMMED,
        "device_time",
        *(costs_of_kinds(ops, name, places, kinds["calls"]) for name in COST_COLUMNS),
        "reason",
    )


def kinds_of_ops(ops: Ops, identities: Identities) -> pl.DataFrame:
    """Return one row per kind of op: the ``row`` of one such op, its place in the catalogue (``priced``),
    and the sums."""
    attribution = ops.attribution
    ranges, parent = attribution.trace["ranges"], attribution.parent
    kind, row, within = identities.number, identities.row, identities.captured
    count = len(row)

    def lasted(rows: slice) -> Ints:  # of a slice: the lengths of all ranges take 8 bytes each
        lengths: Ints = (ranges["end"][rows] - ranges["start"][rows]).fill_null(0).to_numpy()
        return lengths

    sums = {name: np.zeros(count, np.int64) for name in SUMMED}
    alone = self_time(lasted, parent)
    for part in pieces(len(parent)):
        rows = part.start + np.flatnonzero(attribution.is_op[part])
        length = lasted(part)
        of = kind[rows]
        np.add.at(sums["calls"], of, 1)
        np.add.at(sums["cpu_time"], of, length[rows - part.start])
        np.add.at(sums["self_time"], of, alone[rows])
    device = None
    if ops.on_device:
        device, sums["kernels"] = launched(attribution, kind, count, ops.counted_ops)
    elif not attribution.trace.used_gpu:
        device = np.zeros(count, np.int64)
        for part in pieces(len(ops.rows)):
            rows = ops.rows[part]
            np.add.at(device, kind[ops.counted_ops(rows)], alone[rows])
    device_time = device_column("device_time", device, len(row), within)
    return pl.DataFrame(
        {
            "row": row,
            "priced": ops.costs.priced(row),
            **sums,
            "device_time": device_time,
            "reason": reasons(attribution.trace, device_time, within),
        }
    )


def costs_of_kinds(
    ops: Ops, name: str, priced: NDArray[np.signedinteger[Any]], calls: pl.Series
) -> pl.Series:
    """Return one of COST_COLUMNS for kinds of ops: calls of one kind have equal costs."""
    return gather(ops.costs.catalogue[name], priced) * calls


def unattributed_sums(kernels: pl.DataFrame, memops: pl.DataFrame) -> pl.DataFrame:
    """Return one row per reason why kernels or copies have no op: reason, kernels, copies, kernel_time, time
    (ns, both); of parts of a job they may be joined."""
    duration, is_kernel = pl.col("duration"), pl.col("kernel")
    return (
        pl.concat(
            part.lazy().select("reason", "duration", pl.lit(kernel).alias("kernel"))
            for part, kernel in ((kernels, True), (memops, False))
        )
        .filter(pl.col("reason").is_not_null())
        .group_by("reason")
        .agg(
            is_kernel.sum().cast(pl.Int64).alias("kernels"),
            (~is_kernel).sum().cast(pl.Int64).alias("copies"),
            duration.filter(is_kernel).sum().alias("kernel_time"),
            duration.sum().alias("time"),
        )
        .collect()
    )


def added_unattributed(sums: pl.DataFrame) -> pl.DataFrame:
    """Return the ``unattributed_sums`` of parts of a job, joined, with one row per reason."""
    return sums.group_by("reason").agg(pl.all().sum())


def unattributed(sums: pl.DataFrame, total: int) -> pl.DataFrame:
    """Return one row per reason why kernels or copies have no op: reason, kernels, copies, kernel_time,
    time (ns, both), share of all device time.

    ``time`` adds up to the summary's ``device_unattributed_time``, ``kernel_time`` to its
    ``unattributed_time``. ``sums`` is ``unattributed_sums``, ``total`` (ns) all device time.
    """
    return (
        added_unattributed(sums)
        .with_columns((pl.col("time") / (total or None)).alias("share"))
        .sort("time", "reason", descending=[True, False])
    )


def distinct_op_sums(profile: Answers) -> pl.DataFrame:
    """The rows of ``op_totals()``, in no order."""
    return profile._frame("op_sums", lambda: op_sums(profile.of(op_index)))


def summed_ops(profile: Answers) -> pl.DataFrame:
    """The rows of ``op_totals()`` for further sums; in order only if ``op_totals`` was made or stored."""
    if profile._is_at_hand("op_totals"):
        return profile.ask("op_totals", categories=True)
    return distinct_op_sums(profile)


def distinct_texts(profile: Answers, column: str) -> list[str]:
    """Return the distinct texts of a column of ``op_totals()`` (``layer``, ``direction`` …), sorted."""
    return sorted(distinct_values(summed_ops(profile)[column]).drop_nulls().cast(pl.String))


def summed_columns(profile: Answers, columns: Collection[str]) -> pl.DataFrame:
    """Return ``summed_ops`` with at least ``columns``, released after use: all columns of a million ops
    with texts of their own take 0.12 GB."""
    for name in ("op_totals", "op_sums"):
        if profile._is_at_hand(name):
            return profile._columns_of(name, columns)
    return distinct_op_sums(profile)


def answer(profile: Answers) -> pl.DataFrame:
    """Kernels added up by name, the most time first."""
    return kernel_totals(kernel_sums(profile.of(kernel_executions)))


def kernel_table(report: Report, profile: Answers, view: View) -> Table:
    """Return the kernels, each with the share of its row and of all rows up to it."""
    frame = report.frame(profile).sort("total", descending=True, nulls_last=True)
    return listed(report, running(frame), view)


QUESTION = Question(
    answer=answer,
    frames=(
        Frame(
            "kernel_totals()",
            "one row per kernel name, by time",
            columns(
                "name calls total mean min max share op tensor_core flops bytes",
                """
                op: text: the op that the kernel most often belongs to
                """,
            ),
        ),
    ),
    merged=Sums(
        table="kernel_sums",
        of=lambda profile: kernel_sums(profile.of(kernel_executions)),
        added=added_kernels,
        finished=lambda sums, _: kernel_totals(sums),
    ),
    reports=(
        Report(
            name="kernel",
            title="Top kernels",
            empty="no kernels in this profile: no GPU was used, or kernels were not captured",
            shown="share running total calls mean name op tensor_core flops bytes",
            table=kernel_table,
            without_ops="by_op",
            by="kernel",
            gpu_only=True,
            lean=True,
            aliases=("kernels",),
        ),
    ),
)
