"""The time of each op per step of two runs, over all shapes and layers, and the rate at which it works.

If an op's inputs change from step to step, or between the runs, single shapes are hard to compare; the sum
over all shapes, with its FLOPs and bytes, can be compared.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

import numpy as np
import polars as pl

from opscope.core.analysis.diff.judged import judged
from opscope.core.analysis.diff.matching import Matched
from opscope.core.analysis.diff.noise import Typical
from opscope.core.analysis.diff.opless import join_by_name, opless, with_opless
from opscope.core.analysis.diff.reduced import Reduced
from opscope.core.tables.columns import at, combinations
from opscope.core.tables.intervals import NONE

OP_SUMS: Final = {
    "op": pl.String,
    "direction": pl.String,
    "a": pl.Int64,
    "b": pl.Int64,
    "change": pl.Int64,
    "ratio": pl.Float64,
    "share": pl.Float64,
    "noise": pl.Int64,
    "verdict": pl.String,
    "calls_a": pl.Float64,
    "calls_b": pl.Float64,
    "shapes_a": pl.Int64,
    "shapes_b": pl.Int64,
    "flop_rate_a": pl.Float64,
    "flop_rate_b": pl.Float64,
    "byte_rate_a": pl.Float64,
    "byte_rate_b": pl.Float64,
    "reason": pl.String,
}
#: Function that returns the typical values of each run's values (group, unit, time), for the given number of
#: groups; None if the noise is unknown.
TypicalOf: TypeAlias = Callable[[Sequence[pl.DataFrame], int], list[Typical] | None]
_COSTS: Final = {"flops": "flop_rate", "bytes": "byte_rate"}


def _by_op(a: Reduced, b: Reduced) -> tuple[Matched, pl.DataFrame]:
    """Return the ops of two runs by name and direction as groups of their keys, and the groups' names."""
    both = pl.concat([a.keys, b.keys])
    texts = both.select(pl.col("op", "direction").cast(pl.String))
    ranks = [column.rank("dense").cast(pl.Int64).to_numpy() - 1 for column in texts.fill_null("")]
    count, number = combinations(*ranks) if len(both) else (0, np.empty(0, np.int64))
    first = np.zeros(count, np.int64)
    first[number[::-1]] = np.arange(len(number) - 1, -1, -1)
    number = number.astype(np.int64)
    matched = Matched(number[: len(a.keys)], number[len(a.keys) :], np.zeros(count, np.int64))
    return join_by_name(matched, a, b), texts[first]


def op_sums(a: Reduced, b: Reduced, typicals: TypicalOf, step_change: int | None) -> pl.DataFrame:
    """Return one row per op and direction (``OP_SUMS``), the largest change first.

    ``typicals`` returns the typical values of both runs (group, unit, time), or None.
    """
    matched, names = _by_op(a, b)
    sides, values = [], []
    for side, number in zip((a, b), (matched.a, matched.b), strict=True):
        keys = side.keys["key"].to_numpy()
        index = np.full(int(keys.max(initial=-1)) + 1, NONE, np.int64)
        index[keys] = number
        work = side.work.with_columns(pl.Series("group", at(index, side.work["key"].to_numpy())))
        values.append(work.group_by("group", "unit").agg(pl.col("time").sum()))
        sides.append(_side(side, work, matched.many))
    frame = pl.DataFrame({"group": np.arange(matched.many)}).with_columns(
        *(column.alias(f"{name}_{letter}")
          for letter, table in zip("ab", sides, strict=True)
          for name, column in table.items())
    )  # fmt: skip
    frame = frame.rename({"time_a": "a", "time_b": "b"})
    # where records are missing, an op without calls may have run
    ran = (frame["calls_a"] > 0) | a.lost, (frame["calls_b"] > 0) | b.lost
    frame = judged(frame, typicals(values, matched.many), ran, of_pieces=True)
    frame = with_opless(frame, opless(matched, a, b))
    share = pl.col("change") / (step_change or 1) + 0.0 if step_change else pl.lit(None, pl.Float64)
    return (
        pl.concat([frame, names], how="horizontal")
        .filter(pl.col("calls_a") + pl.col("calls_b") > 0)
        .with_columns(
            pl.when(pl.col("a") > 0).then(pl.col("change") / pl.col("a")).alias("ratio"),
            share.alias("share"),
        )
        .sort(pl.col("change").fill_null(0).abs(), "group", descending=[True, False])
        .select(pl.col(name).cast(kind) for name, kind in OP_SUMS.items())
    )


def _side(side: Reduced, work: pl.DataFrame, groups: int) -> dict[str, pl.Series]:
    """Return per group the mean time and calls per step, the shapes, and the rates of its work."""
    costs = side.keys.select("key", "flops", "bytes", pl.col("inputs").cast(pl.String))
    work = work.join(costs, on="key", how="left")
    sums = work.group_by("group").agg(
        pl.col("time", "calls").sum(),
        pl.col("inputs").n_unique().alias("shapes"),
        *(
            # a rate covers all of the op's work, or is unknown
            pl.when(pl.col(name).is_not_null().all())
            .then((pl.col(name) * pl.col("calls")).sum())
            .alias(name)
            for name in _COSTS
        ),
    )
    table = pl.DataFrame({"group": np.arange(groups)}).join(
        sums, on="group", how="left", maintain_order="left"
    )
    time = table["time"].fill_null(0)
    columns = {
        "time": (time + side.many // 2) // side.many,
        "calls": table["calls"].fill_null(0) / side.many,
        "shapes": table["shapes"],
    }
    spent = table.select(pl.when(pl.col("time") > 0).then(pl.col("time"))).to_series()
    for name, rate in _COSTS.items():
        columns[rate] = (
            table.select(pl.when(pl.col(name) > 0).then(pl.col(name))).to_series() * 1e9 / spent
        )
    return columns
