"""The ops without known FLOPs or bytes, by time: what ``flops_share`` and ``bytes_share`` leave out."""

from __future__ import annotations

import re
from functools import cache
from typing import Final

import numpy as np
import polars as pl

from opscope.core.analysis.answers import Answers
from opscope.core.analysis.ops.executed import ALL_FLOPS, copy_executions, kernel_executions
from opscope.core.analysis.ops.list_sizes import CHUNK
from opscope.core.analysis.ops.ops import Ops, op_index
from opscope.core.analysis.summary.summary import FREE
from opscope.core.attribution.reasons import NO_LAUNCH, REASONS
from opscope.core.question.column import Frame
from opscope.core.question.record import Question, Report, Sums
from opscope.core.question.words import columns
from opscope.core.tables.columns import at, compact, extents, gather, pieces, spread
from opscope.core.tables.intervals import NONE, Ints
from opscope.core.tables.trace import Trace

_LISTS: Final = re.compile(
    r"multi_tensor_apply_kernel<.*?Metadata<(?:[\w: ]+, ?)?(?:\(int\))?([1-9])>"
)
_WIDE: Final = re.compile(r"\b(?:double|long)\b")
SCHEMA: Final = {"elements": pl.Int64, "moved": pl.Int64}


def at_most(kernels: pl.DataFrame) -> pl.DataFrame:
    """Return, per row of ``kernels`` (name, grid), upper bounds: ``elements`` of one list, ``moved`` bytes.

    It assumes that every list is read and written, with elements of 4 bytes (8 if the name contains a
    type of 8 bytes: states are as wide as f32, whatever the parameters are). Null for other kernels.
    """
    codes, names = compact(kernels["name"].cast(pl.Categorical))
    widths = pl.Series(
        [None if name is None else _bytes_an_element(name) for name in names], dtype=pl.Int64
    )
    width = gather(widths, codes)
    if width.null_count() == len(width):
        return pl.DataFrame(dict.fromkeys(SCHEMA, width), schema=SCHEMA)
    codes, grids = compact(kernels["grid"].cast(pl.Categorical))
    flat = [grid if grid and grid.endswith(",1,1") else None for grid in grids]
    blocks = gather(extents(flat), codes)
    return pl.select(
        pl.when(width.is_not_null()).then(blocks * CHUNK).alias("elements"),
        (blocks * CHUNK * width).alias("moved"),
    )


@cache
def _bytes_an_element(name: str) -> int | None:
    match = _LISTS.search(name)
    if match is None:
        return None
    template = name.partition("(int")[0]
    return 2 * int(match.group(1)) * (8 if _WIDE.search(template) else 4)


def bound(elements: int | None, moved: int | None) -> str:
    """Return the bound as text to append to a reason; empty if there is none."""
    if elements is None or moved is None:
        return ""
    return (
        f"; by its grids at most {elements / 1e6:,.1f} million elements and {moved / 1e9:,.2f} GB"
    )


BOTH, FLOPS, BYTES = "FLOPs, bytes", "FLOPs", "bytes"
#: The reason for a kernel whose op has a cost that does not count, because an op around it counts.
_INSIDE = "its cost counts in an op around it"


def missing_sums(ops: Ops, executed: pl.DataFrame, memops: pl.DataFrame) -> pl.DataFrame:
    """Return the sums by op, by what the op lacks, and by the reason. Of parts of a job they may be joined.

    If the trace has kernels, the rows are the kernels and copies that the summary's ``flops_share`` and
    ``bytes_share`` leave out: a compiled region under the region's name, a kernel that no op launched under
    its own name. Without kernels, time is the ops' self time. Rows without time are left out.
    """
    if not ops.on_device:
        return _sum(_of_ops(ops))
    rows = [_of_kernels(ops, executed), _of_memops(ops, memops)]
    return _sum(pl.concat(rows, how="diagonal_relaxed"))


def costs_of(profile: Answers) -> dict[str, int]:
    """Return the times (ns) to which the shares of ``missing_costs`` refer: ``launched`` (with a launch
    record) and ``all``. The times of parts of a job add up."""
    ops = profile.of(op_index)
    if not ops.on_device:
        times = ops.times
        alone = times.self_time if times.seen is None else times.self_time[times.seen]
        return dict.fromkeys(("launched", "all"), int(alone.sum()))
    tables = (profile.of(kernel_executions), profile.of(copy_executions))
    # other columns are not needed: filtering all of them would copy 70 bytes a kernel
    return {
        name: sum(int(table.select(counted.sum()).item()) for table in tables)
        for name, counted in (
            ("launched", pl.col("duration").filter("launched")),
            ("all", pl.col("duration")),
        )
    }


def missing_costs(sums: pl.DataFrame, base: str, total: int) -> pl.DataFrame:
    """Return one row per op name without known FLOPs or bytes: op, op_type, lacks, calls, time (ns), share,
    why.

    ``lacks`` is ``FLOPs, bytes``, ``FLOPs`` or ``bytes``. ``calls`` counts kernels. ``share`` is of the
    device time with a launch record, as in the summary (``total``; where the source records no launches, of
    all: ``base`` is ``shares_of``). Over the rows that lack FLOPs it adds up to 1 − ``flops_share``. Kernels
    without a launch record are listed too; they are no part of that time, so they have no share. For kernels
    over lists of tensors ``why`` ends with the bounds of their grids (``chunks``). ``sums`` is
    ``missing_sums``.
    """
    is_part = pl.col("why").ne_missing(REASONS[NO_LAUNCH]) if base == "launched" else pl.lit(True)
    ranked = (
        added_missing(sums)
        .with_columns(pl.when(is_part).then(pl.col("time") / (total or None)).alias("share"))
        .sort("time", "op", "lacks", "why", descending=[True, False, False, False])
    )
    limits = pl.Series([bound(*pair) for pair in ranked.select(*SCHEMA).rows()], dtype=pl.String)
    return ranked.with_columns(pl.col("why") + limits).select(
        "op", "op_type", "lacks", "calls", "time", "share", "why"
    )


def added_missing(sums: pl.DataFrame) -> pl.DataFrame:
    """Return the ``missing_sums`` of parts of a job, joined, with one row per op, lack and reason."""
    return sums.group_by(_SUMMED_BY).agg(pl.col("calls", "time").sum(), *map(_of_all, SCHEMA))


_SUMMED_BY: Final = ("op", "op_type", "lacks", "why")


def _of_kernels(ops: Ops, executed: pl.DataFrame) -> pl.DataFrame:
    lacking = pl.any_horizontal(ALL_FLOPS.is_null(), pl.col("bytes").is_null()) & (
        pl.col("duration") > 0
    )
    lacking_rows = np.flatnonzero(executed.select(lacking).to_series().to_numpy())
    kinds = pl.concat(
        _lacking(ops, executed, lacking_rows[part]) for part in pieces(len(lacking_rows))
    )
    gap = spread("gap", list(REASONS), kinds["gap"].to_numpy()).cast(pl.String)
    return _read(ops, kinds).with_columns(
        pl.coalesce(pl.col("op"), kinds["name"].cast(pl.String)).alias("op"),
        pl.coalesce(gap, pl.col("why")).alias("why"),
        # the reasons why a kernel has no op are a closed list: append no bound to them
        *(pl.when(gap.is_null()).then(kinds[name]).alias(name) for name in SCHEMA),
    )


def _lacking(ops: Ops, executed: pl.DataFrame, places: Ints) -> pl.DataFrame:
    """Return the kinds of the kernels at ``places``."""
    launched = ops.attribution.kernels
    rows = launched.op[places].astype(np.int64)
    name = executed["name"].gather(places)
    return _alike(
        ops,
        rows,
        executed[pl.Series(places)].select(ALL_FLOPS.is_not_null().alias("has_flops")).to_series(),
        executed["bytes"].gather(places).is_not_null().alias("has_bytes"),
        executed["duration"].gather(places).alias("time"),
        pl.Series("gap", launched.reason[places]),
        *at_most(ops.attribution.trace["kernels"].select("name", "grid")[places]).get_columns(),
        name.zip_with(pl.Series(rows < 0), name.clear(len(name))),
    )


def _of_memops(ops: Ops, memops: pl.DataFrame) -> pl.DataFrame:
    """Return a row per copy or set: its FLOPs are known to be 0, and its bytes are known if the trace has
    them."""
    table = ops.attribution.trace["memops"]
    bare = pl.lit(None, pl.String)
    return memops.select(
        table["kind"].cast(pl.String).alias("op"),
        pl.lit("copy").alias("op_type"),
        bare.alias("why"),
        pl.lit("the trace does not record its size").alias("bytes_why"),
        pl.lit(value=True).alias("has_flops"),
        table["bytes"].is_not_null().alias("has_bytes"),
        pl.lit(1, pl.Int64).alias("calls"),
        pl.col("duration").alias("time"),
    )


def _of_ops(ops: Ops) -> pl.DataFrame:
    times = ops.times
    busy = times.self_time > 0
    if times.seen is not None:
        busy &= times.seen
    rows = times.rows[busy]
    owners = ops.costs.sources(rows)
    kinds = _alike(
        ops,
        rows,
        pl.Series("has_flops", owners != NONE),
        ops.costs.sized(owners).alias("has_bytes"),
        pl.Series("time", times.self_time[busy]),
    )
    return _read(ops, kinds)


def _alike(ops: Ops, rows: Ints, *columns: pl.Series) -> pl.DataFrame:
    """Return one row per kind of op row (-1: none) and value of ``columns``: calls, the sum of ``time``.

    Grouping first means that texts are read once per kind, not once per kernel.
    """
    return (
        pl.DataFrame(
            {
                "reading": at(ops.attribution.meaning.reading, rows),
                "place": at(ops.costs.place, rows),
                "priced": at(ops.costs.place, ops.costs.cost_owners(rows)),
            }
        )
        .with_columns(columns)
        .group_by(pl.exclude("time", *SCHEMA))
        .agg(
            pl.len().cast(pl.Int64).alias("calls"),
            pl.col("time").sum(),
            *(_of_all(name) for name in SCHEMA if name in {column.name for column in columns}),
        )
    )


def _of_all(name: str) -> pl.Expr:
    """Return the sum of a bound; null if any kernel has no bound."""
    return pl.when(pl.col(name).is_not_null().all()).then(pl.col(name).sum()).alias(name)


def _read(ops: Ops, kinds: pl.DataFrame) -> pl.DataFrame:
    """Return op, op_type, and why the FLOPs and the bytes are not known, for each of the ``kinds``."""
    reading, cost_row, priced = (kinds[name].to_numpy() for name in ("reading", "place", "priced"))
    catalogue = ops.costs.catalogue
    return pl.DataFrame(
        {
            "op": gather(ops.readings["op"], reading).cast(pl.String),
            "op_type": gather(ops.readings["op_type"], reading).cast(pl.String),
            "why": gather(catalogue["reason"], cost_row),
            "bytes_why": gather(catalogue["bytes_reason"], priced),
            **{name: kinds[name] for name in ("has_flops", "has_bytes", "calls", "time")},
        }
    )


def _sum(table: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of ``missing_sums`` from one row per kind of kernel, copy or op."""
    if "elements" not in table.columns:
        table = table.with_columns(
            pl.lit(None, dtype).alias(name) for name, dtype in SCHEMA.items()
        )
    free = pl.col("op_type").is_in(FREE).fill_null(value=False)
    no_flops, no_bytes = ~pl.col("has_flops") & ~free, ~pl.col("has_bytes")
    return (
        table.lazy()
        .filter((no_flops | no_bytes) & (pl.col("time") > 0))
        .with_columns(
            pl.when(no_flops & no_bytes)
            .then(pl.lit(BOTH))
            .when(no_flops)
            .then(pl.lit(FLOPS))
            .otherwise(pl.lit(BYTES))
            .alias("lacks"),
            pl.when(no_flops)
            .then(pl.col("why"))
            .otherwise(pl.coalesce("bytes_why", "why"))
            .fill_null(_INSIDE)
            .alias("why"),
        )
        .group_by(_SUMMED_BY)
        .agg(pl.col("calls", "time").sum(), *map(_of_all, SCHEMA))
        .collect()
    )


def answer(profile: Answers) -> pl.DataFrame:
    """The ops whose FLOPs or bytes are not known, with the reason, by device time.

    The shares of ops without FLOPs add up to 1 − the summary's ``flops_share``. Kernels without a
    launch record are listed in addition.
    """
    base = shares_of(profile.attribution.trace)
    return missing_costs(_sums(profile), base, costs_of(profile)[base])


def shares_of(trace: Trace) -> str:
    """Return the time of ``costs_of`` that shares refer to: with launch records, else all device time."""
    return "launched" if trace.has("calls") else "all"


def _sums(profile: Answers) -> pl.DataFrame:
    return missing_sums(
        profile.of(op_index), profile.of(kernel_executions), profile.of(copy_executions)
    )


QUESTION = Question(
    answer=answer,
    frames=(
        Frame(
            "missing_costs()",
            "one row per op whose FLOPs or bytes are not known, by device time",
            columns(
                "op op_type lacks calls time share why",
                """
                op: text: the op; for a compiled region its name, for a kernel without an op the kernel's
                    name
                lacks: text: which part of the cost is not known: FLOPs, bytes, or both
                calls: count: kernels, copies and sets; without a GPU, calls of the op
                time: ns: their device time; without a GPU, self time
                share: fraction: time / device time that has a launch record, null for kernels without one;
                    without a GPU, time / self time of all ops
                why: text: why the cost is not known
                """,
            ),
        ),
    ),
    merged=Sums(
        table="missing",
        of=_sums,
        added=added_missing,
        finished=lambda sums, job: missing_costs(sums, *job.costs_of),
    ),
    reports=(
        Report(
            name="missing",
            title="Ops without known FLOPs or bytes",
            empty="none: the FLOPs and bytes of every op are known, or no op was recorded",
            aliases=("missing_costs",),
        ),
    ),
)
