"""Make a reduced profile small by joining its steps to a few stretches; and join several runs of a
program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import polars as pl

from opscope.core.analysis.diff import rankwise
from opscope.core.analysis.diff.keys import COLUMNS, COSTS
from opscope.core.analysis.diff.noise import FEWEST
from opscope.core.analysis.diff.reduced import KERNELS, RUN, Reduced
from opscope.core.analysis.diff.samples import SAMPLED

#: Rows of ``spent`` and ``work`` that are kept at most, unless even the fewest stretches need more.
ROWS: Final = 30_000
#: Most rows of the steps by rank.
RANK_ROWS: Final = 1_000
#: Fewest stretches from which the noise of an op is known, and the most that are kept.
STRETCHES: Final = (FEWEST + 3, 120)
#: From this many runs on, the noise is that of runs: each run is one observation. With fewer runs each of
#: their stretches is one.
RUNS: Final = 5


def in_stretches(reduced: Reduced, rows: int = ROWS) -> Reduced:
    """Return the reduced profile with stretches of steps in place of steps, all processes together.

    Ops are numbered in order. Sums over all steps stay exact, and therefore means; the noise is computed from
    the stretches. Their number is the largest of ``STRETCHES`` that ``rows`` rows of ``spent`` and ``work``
    allow. Each rank has stretches of its own.
    """
    samples = reduced.units["sample"].n_unique()
    each = (len(reduced.spent) + len(reduced.work)) / max(samples, 1)
    fewest, most = STRETCHES
    count = (
        1 if reduced.unit == RUN else min(samples, max(fewest, min(most, int(rows / max(each, 1)))))
    )
    stretch = reduced.units["sample"].to_numpy() * count // max(samples, 1)
    units = (
        reduced.units.with_columns(pl.Series("sample", stretch, pl.Int64))
        .group_by("sample", maintain_order=True)
        .agg((pl.col("end") - pl.col("start")).sum().alias("end"), pl.col("steps").sum())
        .sort("sample")
        .select(
            pl.lit(None, pl.Int32).alias("process"),
            pl.lit(None, pl.Int64).alias("step"),
            pl.lit(0, pl.Int64).alias("start"),
            "end",
            *SAMPLED,
        )
    )
    spent, work = (
        table.with_columns(pl.Series("unit", stretch[table["unit"].to_numpy()], pl.Int64))
        .group_by(by)
        .agg(pl.col(sums).sum())
        .sort(by)
        for table, by, sums in (
            (reduced.spent, ["part", "key", "unit"], ["time"]),
            (reduced.work, ["key", "unit"], ["time", "calls"]),
        )
    )
    place_of = {key: number for number, key in enumerate(reduced.keys["key"].to_list())}
    kernels = _placed(reduced.kernels, place_of)
    return replace(
        reduced,
        units=units,
        keys=reduced.keys.with_columns(pl.int_range(pl.len(), dtype=pl.Int64).alias("key")),
        spent=_placed(spent.select(reduced.spent.columns), place_of),
        work=_placed(work.select(reduced.work.columns), place_of),
        # in a fixed order, so that equal runs give equal files
        kernels=kernels.sort("key", pl.col("name").cast(pl.String), "copy"),
        ranked=rankwise.in_stretches(reduced.ranked, RANK_ROWS),
        ranks=(),
    )


def joined(runs: Sequence[Reduced]) -> Reduced:
    """Return several runs, each ``in_stretches``, as one. Raises ValueError if they cannot be compared.

    From ``RUNS`` runs on, each run is one observation, so that the noise shows how runs differ, not how steps
    do; for ranks, the observations are their stretches.
    """
    first = runs[0]
    if len(runs) == 1:
        return first
    for other in runs[1:]:
        if (other.unit, other.parts, other.has_ops) != (first.unit, first.parts, first.has_ops):
            raise ValueError(
                "its runs are of different kinds (steps, iterations, whole runs or light mode)"
            )
    keys, places = _keys(runs)
    units, tables = [], {"spent": [first.spent.clear()], "work": [first.work.clear()]}
    kernels, count, observed = [], 0, 0
    for number, (run, numbers) in enumerate(zip(runs, places, strict=True)):
        sample = number if len(runs) >= RUNS else pl.col("sample") + observed
        sample = pl.lit(sample, pl.Int64) if isinstance(sample, int) else sample
        units.append(run.units.with_columns(sample.alias("sample")))
        for name, parts in tables.items():
            parts.append(_placed(getattr(run, name), numbers).with_columns(pl.col("unit") + count))
        kernels.append(_placed(run.kernels, numbers))
        count, observed = count + len(run.units), observed + run.units["sample"].n_unique()
    sums = pl.col("time", "calls", "unlaunched", "early").sum()
    return replace(
        first,
        units=pl.concat(units),
        left_out=sum(run.left_out for run in runs),
        keys=keys,
        spent=pl.concat(tables["spent"]),
        work=pl.concat(tables["work"]),
        kernels=pl.concat(kernels).group_by("key", "name", "copy").agg(sums).select(*KERNELS),
        waiting=pl.concat([run.waiting for run in runs])
        .group_by("late", "rank")
        .agg(pl.col("waiting").sum())
        .sort("waiting", "late", descending=[True, False]),
        ranked=pl.concat([run.ranked for run in runs]),
        known=tuple(all(flags) for flags in zip(*(run.known for run in runs), strict=True)),
        lacks=next((run.lacks for run in runs if run.lacks), None),
        lost=any(run.lost for run in runs),
        window=None,
        runs=len(runs),
    )


def _keys(runs: Sequence[Reduced]) -> tuple[pl.DataFrame, list[dict[int, int]]]:
    """Return the distinct keys of all runs, renumbered, and for each run the new number of each key."""
    both = pl.concat(
        [run.keys.with_columns(pl.lit(number).alias("run")) for number, run in enumerate(runs)]
    )
    distinct = both.unique(list(COLUMNS), keep="first", maintain_order=True).select(
        *COLUMNS, *COSTS
    )
    distinct = distinct.insert_column(0, pl.Series("new", np.arange(len(distinct)), pl.Int64))
    named = both.join(
        distinct.select("new", *COLUMNS), on=list(COLUMNS), how="left", nulls_equal=True
    )
    places = [
        dict(named.filter(pl.col("run") == number).select("key", "new").iter_rows())
        for number in range(len(runs))
    ]
    return distinct.rename({"new": "key"}), places


def _placed(table: pl.DataFrame, numbers: dict[int, int]) -> pl.DataFrame:
    """Return the table with renumbered keys; the key of the rest (-1) stays."""
    return table.with_columns(
        pl.col("key").replace_strict({**numbers, -1: -1}, return_dtype=pl.Int64)
    )
