"""The difference of two jobs rank by rank: mean steps, single steps, and what explains each, exactly.

A step's time is split into ``SPLIT``, which add up to it; so the changes of the parts add up to the change of
the step. Ranks that synchronise have equally long steps, whichever rank is slow: the rank that became slower
is the one with more ``work``, which is the step time minus its waiting in collectives.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.analysis.diff.noise import Typical, noise, typical
from opscope.core.analysis.ranks.stragglers import work_by_step
from opscope.core.analysis.steps.step_times import PARTS as PARTS_OF_STEPS
from opscope.core.tables.narrow import Pieces

#: The parts of a step, and the columns of ``steps.step_table`` from which each is computed.
SPLIT: Final = {
    "compute": ("kernel_part", "overlap_time"),
    "exposed_communication": ("communication_part",),
    "copies": ("copy_part", "set_part"),
    "runtime": ("runtime_part",),
    "data_loader": ("loader_part",),
    "cpu_ops": ("op_part",),
}
#: The rest: time in which nothing was recorded.
REST: Final = "other"
PARTS: Final = (*SPLIT, REST)
TALKS: Final = "exposed_communication"
#: The cause if more than half of the change is waiting for other ranks.
WAITING: Final = "waiting"
#: The columns of ``ranked``: one row per step of a rank.
RANKED: Final = {
    "process": pl.Int32,
    "rank": pl.Int32,
    "step": pl.Int64,
    "time": pl.Int64,
    "work": pl.Int64,
    **dict.fromkeys(PARTS, pl.Int64),
}
#: The columns of the changes of the parts.
CHANGES: Final = tuple(f"{name}_change" for name in PARTS)
_CHANGES: Final = dict.fromkeys(CHANGES, pl.Int64)
RANKS: Final = {
    "rank": pl.Int32,
    "process_a": pl.Int32,
    "process_b": pl.Int32,
    "a": pl.Int64,
    "b": pl.Int64,
    "change": pl.Int64,
    "work_a": pl.Int64,
    "work_b": pl.Int64,
    "work_change": pl.Int64,
    "noise": pl.Int64,
    "verdict": pl.String,
    "cause": pl.String,
    **_CHANGES,
    "steps_a": pl.Int64,
    "steps_b": pl.Int64,
    "reason": pl.String,
}
RANK_STEPS: Final = {
    "rank": pl.Int32,
    "process_a": pl.Int32,
    "process_b": pl.Int32,
    "step_a": pl.Int64,
    "step_b": pl.Int64,
    "a": pl.Int64,
    "b": pl.Int64,
    "change": pl.Int64,
    "work_change": pl.Int64,
    "cause": pl.String,
    **_CHANGES,
    "reason": pl.String,
}
_ALONE: Final = "only {side} has {what}"
_FEW: Final = "too few steps to tell a change from chance"
_UNKNOWN: Final = "not known in {side}: {parts}"
#: Column that numbers the processes of a rank: two files may belong to one rank.
_KEY: Final = ["rank", "nth"]
_SIDES: Final = ("a", "b")
#: A rank has at least this many stretches, if it has as many steps.
FEWEST: Final = 3


def counted(table: pl.DataFrame) -> pl.DataFrame:
    """Return the steps of ``steps.step_table`` that are compared: without warm-up and incompletely
    captured steps, if there are others."""
    steps = table.filter(pl.col("step").is_not_null())
    kept = steps.filter(pl.col("seen") & ~pl.col("warm_up").fill_null(False))
    for otherwise in (pl.col("seen"), pl.lit(True)):
        kept = steps.filter(otherwise) if kept.is_empty() else kept
    return kept


def ranked(table: pl.DataFrame, exchanged: Pieces) -> pl.DataFrame:
    """Return the compared steps (``RANKED``; ns): warm-up and steps that were not captured whole are left out
    where there are others. ``table`` is ``steps.step_table``, ``exchanged`` ``timed.exchanged``. The parts
    add up to ``time``; an unknown part is null, and its time is in ``other``."""
    steps, kept = table.filter(pl.col("step").is_not_null()), counted(table)
    keys = ("process", "step", "start")
    work = work_by_step(steps, exchanged).select(*keys, "work").unique(keys)
    parts = {
        name: pl.sum_horizontal(pl.col(column).fill_null(0) for column in columns)
        for name, columns in SPLIT.items()
    }
    parts[TALKS] -= pl.col("overlap_time").fill_null(0)
    flags = {
        name: pl.any_horizontal(
            pl.col(column).is_not_null() for column in columns if column in PARTS_OF_STEPS
        )
        for name, columns in SPLIT.items()
    }
    kept = (
        kept.join(work, on=keys, how="left", nulls_equal=True, maintain_order="left")
        .with_columns(pl.when(flags[name]).then(parts[name]).alias(name) for name in SPLIT)
        .with_columns(
            (pl.col("time") - pl.sum_horizontal(pl.col(name).fill_null(0) for name in SPLIT)).alias(
                REST
            )
        )
    )
    return kept.select(pl.col(name).cast(kind) for name, kind in RANKED.items())


def in_stretches(steps: pl.DataFrame, rows: int) -> pl.DataFrame:
    """Return the steps (``RANKED``) as about ``rows`` stretches, each the mean of several steps; if there
    are few steps, they stay. Processes are numbered by rank, so that those of another run of the job have the
    same numbers."""
    keys = ["rank", "process"]
    process = steps.select(pl.struct(keys).rank("dense").cast(pl.Int32) - 1).to_series()
    steps = steps.with_columns(process.alias("process"))
    each = max(FEWEST, rows // max(process.n_unique(), 1))
    if len(steps) <= each * process.n_unique():
        return steps
    place = pl.int_range(pl.len()) * pl.min_horizontal(each, pl.len()) // pl.len()
    means = steps.group_by(*keys, place.over("process").alias("stretch"), maintain_order=True).agg(
        pl.col(name).sum() // pl.len() for name in RANKED if name not in (*keys, "step")
    )
    rest = pl.col("time") - pl.sum_horizontal(pl.col(name).fill_null(0) for name in SPLIT)
    unknown = {name: steps[name].null_count() for name in (*SPLIT, "work")}
    return (
        means.with_columns(
            pl.lit(None, pl.Int64).alias("step"),
            *(pl.lit(None, pl.Int64).alias(name) for name, count in unknown.items() if count),
        )
        .with_columns(rest.alias(REST))
        .select(RANKED.keys())
    )


def _key(table: pl.DataFrame) -> pl.DataFrame:
    """Return the steps with ``nth``: the number of the process among those of its rank."""
    return table.with_columns(
        pl.col("process").rank("dense").over("rank").cast(pl.Int64).alias("nth")
    )


def rank_table(a: pl.DataFrame, b: pl.DataFrame) -> pl.DataFrame:
    """Return one row per rank (``RANKS``; ns), the one whose work grew most first.

    ``a`` and ``b`` are ``ranked``. Times are means per step; those of the parts are rounded so that they
    add up. Ranks of both jobs are paired by number; processes whose rank is not known, by their order.
    """
    sides = [
        _rank_means(_key(side_rows), side) for side_rows, side in zip((a, b), _SIDES, strict=True)
    ]
    rows = sides[0].join(sides[1], on=_KEY, how="full", coalesce=True, nulls_equal=True)
    rows = _changed(rows.sort(*_KEY, nulls_last=True), "the rank")
    work = pl.col("work_b") - pl.col("work_a")
    rows = rows.with_columns(work.alias("work_change"))
    rows = _judge(rows, _key(a), _key(b))
    by = pl.coalesce("work_change", "change")
    return rows.sort(by, *_KEY, descending=[True, False, False], nulls_last=True).select(
        pl.col(name).cast(kind) for name, kind in RANKS.items()
    )


def step_table(a: pl.DataFrame, b: pl.DataFrame) -> pl.DataFrame:
    """Return one row per rank and step (``RANK_STEPS``; ns), by rank and time.

    ``a`` and ``b`` are ``ranked``. Steps are paired by number or, if a rank's two runs have no number in
    common, by their place. A step that only one job has gets no change. Stretches, which have no number, are
    left out.
    """
    both = [
        _key(side_rows).filter(pl.col("step").is_not_null()).with_row_index("row")
        for side_rows in (a, b)
    ]
    common = both[0].join(both[1], on=[*_KEY, "step"], how="semi", nulls_equal=True)
    common = common.select(_KEY).unique()
    tables = []
    for table, side in zip(both, _SIDES, strict=True):
        again = pl.int_range(pl.len()).over(*_KEY, "step")
        position = pl.int_range(pl.len()).over(*_KEY)
        table = table.join(
            common.with_columns(pl.lit(True).alias("numbered")),
            on=_KEY, how="left", nulls_equal=True, maintain_order="left",
        ).with_columns(
            pl.when("numbered").then("step").otherwise(position).alias("of"),
            pl.when("numbered").then(again).otherwise(0).alias("again"),
        )  # fmt: skip
        tables.append(
            table.select(
                *_KEY, "of", "again",
                pl.col("process").alias(f"process_{side}"),
                pl.col("step").alias(f"step_{side}"),
                pl.col("time").alias(side),
                pl.col("work").alias(f"work_{side}"),
                *(pl.col(name).alias(f"{name}_{side}") for name in PARTS),
            )
        )  # fmt: skip
    rows = tables[0].join(
        tables[1], on=[*_KEY, "of", "again"], how="full", coalesce=True, nulls_equal=True
    )
    rows = _changed(rows.sort(*_KEY, "of", "again", nulls_last=True), "the step")
    return rows.with_columns((pl.col("work_b") - pl.col("work_a")).alias("work_change")).select(
        pl.col(name).cast(kind) for name, kind in RANK_STEPS.items()
    )


def _rank_means(table: pl.DataFrame, side: str) -> pl.DataFrame:
    """Return per rank its process, steps, and means of time, work and parts, with ``side`` in the names."""
    sums = table.group_by(_KEY, maintain_order=True).agg(
        pl.col("process").first(),
        pl.len().cast(pl.Int64).alias("steps"),
        pl.col("time").sum(),
        pl.when(pl.col("work").is_not_null().all()).then(pl.col("work").sum()).alias("work"),
        *(
            pl.when(pl.col(name).is_not_null().any()).then(pl.col(name).sum()).alias(name)
            for name in PARTS
        ),
    )
    counts = sums["steps"].to_numpy()
    is_measured = sums.select(pl.col(name).is_not_null() for name in PARTS).to_numpy()
    total = sums.select(pl.col(name).fill_null(0) for name in PARTS).to_numpy().astype(np.int64)
    mean = rounded(total, counts)
    return sums.select(
        *_KEY,
        pl.col("process").alias(f"process_{side}"),
        pl.col("steps").alias(f"steps_{side}"),
        (pl.col("time") // pl.col("steps")).alias(side),
        (pl.col("work") // pl.col("steps")).alias(f"work_{side}"),
        *(
            pl.Series(f"{name}_{side}", mean[:, index]).set(pl.Series(~is_measured[:, index]), None)
            for index, name in enumerate(PARTS)
        ),
    )


def rounded(total: NDArray[np.int64], counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the mean of each row (the sums divided by ``counts``) as whole numbers that add up to the
    row's mean, rounded down. The largest remainders are rounded up."""
    each = counts[:, None]
    quotient, rest = np.divmod(total, each)
    short = total.sum(1) // counts - quotient.sum(1)
    order = np.argsort(-rest, axis=1, kind="stable")
    ranks = np.empty_like(order)
    np.put_along_axis(ranks, order, np.arange(total.shape[1])[None, :].repeat(len(total), 0), 1)
    rounded_parts: NDArray[np.int64] = quotient + (ranks < short[:, None])
    return rounded_parts


def _changed(rows: pl.DataFrame, subject: str) -> pl.DataFrame:
    """Return the rows with the changes of the whole and of the parts, ``cause`` and ``reason``.

    If a part is unknown on one side, the change is the other side's time: on the first side this time is in
    ``other``, so the parts still add up.
    """
    change = pl.col("b") - pl.col("a")
    both = pl.col("a").is_not_null() & pl.col("b").is_not_null()
    rows = rows.with_columns(change.alias("change")).with_columns(
        pl.when(both & (pl.col(f"{name}_a").is_not_null() | pl.col(f"{name}_b").is_not_null()))
        .then(pl.col(f"{name}_b").fill_null(0) - pl.col(f"{name}_a").fill_null(0))
        .alias(f"{name}_change")
        for name in PARTS
    )
    worked = pl.col("work_b") - pl.col("work_a")
    grown = pl.coalesce(worked, "change")
    sign = pl.when(grown >= 0).then(1).otherwise(-1)
    # of the time in collectives, waiting for other ranks is not the rank's own work
    waited = (pl.col("change") - worked).fill_null(0)
    own = {name: pl.col(f"{name}_change") - (waited if name == TALKS else 0) for name in PARTS}
    largest = pl.max_horizontal(change * sign for change in own.values())
    most = pl.coalesce(
        pl.when(change * sign == largest).then(pl.lit(name)) for name, change in own.items()
    )
    waits = (worked.abs() * 2 < pl.col("change").abs()).fill_null(False)
    unlike = []
    for side, other in (("a", "b"), ("b", "a")):
        lost = pl.concat_str(
            *(
                pl.when(
                    pl.col(f"{name}_{side}").is_null() & pl.col(f"{name}_{other}").is_not_null()
                ).then(pl.lit(name.replace("_", " ")))
                for name in PARTS
            ),
            separator=", ",
            ignore_nulls=True,
        )
        text = pl.format(_UNKNOWN.format(side=side.upper(), parts="{}"), lost)
        unlike.append(pl.when(both & (lost != "")).then(text))
    return rows.with_columns(
        pl.when(waits)
        .then(pl.lit(WAITING))
        .when((pl.col("change") != 0) | (grown != 0))
        .then(most)
        .alias("cause"),
        pl.when(pl.col("b").is_null())
        .then(pl.lit(_ALONE.format(side="A", what=subject)))
        .when(pl.col("a").is_null())
        .then(pl.lit(_ALONE.format(side="B", what=subject)))
        .otherwise(pl.coalesce(*unlike))
        .alias("reason"),
    )


def _judge(rows: pl.DataFrame, a: pl.DataFrame, b: pl.DataFrame) -> pl.DataFrame:
    """Return the rows with ``noise`` and ``verdict``: of the work if known, else of the step."""
    rows = rows.with_row_index("place")
    rows = rows.with_columns(
        pl.col("place").cast(pl.Int64), pl.col("work_change").is_not_null().alias("by_work")
    )
    width, verdict = np.full(len(rows), np.nan), np.full(len(rows), "", object)
    few = np.zeros(len(rows), bool)
    for (many_a, many_b), part in rows.filter(pl.col("change").is_not_null()).group_by(
        "steps_a", "steps_b", maintain_order=True
    ):
        sides = [
            _typical(side_rows, part, side_count)
            for side_rows, side_count in ((a, int(many_a)), (b, int(many_b)))
        ]
        limit = noise(sides[0], sides[1])
        if limit is None:
            continue
        place = part["place"].to_numpy()
        moved = sides[1].middle - sides[0].middle
        mean = part.select(pl.coalesce("work_change", "change")).to_series().to_numpy()
        width[place], few[place] = np.ceil(limit), np.isnan(limit)
        beyond = np.abs(moved) > limit
        slower, faster = beyond & (moved > 0) & (mean > 0), beyond & (moved < 0) & (mean < 0)
        verdict[place] = np.where(
            mean == 0,
            "same",
            np.where(
                np.isnan(limit),
                "",
                np.where(slower, "slower", np.where(faster, "faster", "within noise")),
            ),
        )
    return rows.with_columns(
        pl.Series("noise", width).fill_nan(None).cast(pl.Int64),
        pl.Series("verdict", [text or None for text in verdict.tolist()], pl.String),
        pl.coalesce("reason", pl.when(pl.Series(few)).then(pl.lit(_FEW))).alias("reason"),
    )


def _typical(table: pl.DataFrame, rows: pl.DataFrame, count: int) -> Typical:
    """Return the typical values of the steps of each of ``rows``, all of which have ``count`` steps."""
    named = rows.select(*_KEY, "by_work").with_row_index("group")
    value = pl.when("by_work").then("work").otherwise("time").alias("time")
    named_rows = table.join(named, on=_KEY, how="inner", nulls_equal=True, maintain_order="left")
    unit = pl.int_range(pl.len(), dtype=pl.Int64).over("group").alias("unit")
    return typical(named_rows.select(pl.col("group").cast(pl.Int64), unit, value), len(rows), count)
