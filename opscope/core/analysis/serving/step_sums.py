"""The sums of each engine step: its time by part, its device time, its work in graphs; warm-up marked."""

from __future__ import annotations

import polars as pl

from opscope.core.analysis.answers import Answers
from opscope.core.analysis.serving.engine_steps import engine_steps
from opscope.core.analysis.serving.parts import PARTS
from opscope.core.analysis.serving.step_work import BETWEEN, HOST, step_work, waits
from opscope.core.analysis.steps.warm_up import warm_up

#: The columns of the parts of a step's time (ns), which add up to ``time``.
TIMES: tuple[str, ...] = tuple(f"{part}_part" for part in (*PARTS, HOST, BETWEEN))


def step_sums(profile: Answers) -> pl.DataFrame:
    """The engine's steps with their sums: the columns of ``engine_steps``, and

    time: ns that count for the step: all moments of its own work, and those in which the device waited while
    the host was in the step; period: ns from its begin to the next step's begin; for the last step, to the
    end of its work; a column for each of ``TIMES``; device_time: durations of its kernels and copies added up
    (ns); kernels, graph_kernels: counts; graph: the graph that ran most of its kernels; replays: of graphs;
    outside_time: ns of kernels outside graphs; warm_up: among the steps of its kind. All device columns are
    null for a process whose kernels were not captured, and its time is the period.
    """
    steps, work = profile.of(engine_steps), profile.of(step_work)
    sums = _sums(work)
    waited = profile.of(waits).rename({name: f"{name}_part" for name in (HOST, BETWEEN)})
    table = steps.with_row_index("row").with_columns(pl.col("row").cast(pl.Int64))
    joined = table.join(sums, on="row", how="left").join(waited, on="row", how="left").sort("row")
    counts = ("device_time", "kernels", "graph_kernels", "replays", "outside_time", *TIMES)
    # without kernels in a process, nothing is known about the device, and no time counts as waiting for it
    ran = profile.trace["kernels"]["process"].unique()
    seen = pl.lit(True) if profile.cpu_only else pl.col("process").is_in(ran.implode())
    joined = joined.with_columns(pl.when(seen).then(pl.col(counts).fill_null(0)))
    is_last = pl.col("step") == pl.col("step").max().over("process")
    until = pl.when(is_last).then(pl.max_horizontal("next", "device_end")).otherwise("next")
    joined = joined.with_columns(
        pl.sum_horizontal(TIMES, ignore_nulls=False).alias("time"),
        (until - pl.col("start")).alias("period"),
    ).with_columns(pl.coalesce("time", "period").alias("time"))
    alike = joined.select(
        pl.struct("process", "kind").rank("dense").alias("process"),
        "step",
        "start",
        pl.col("period").alias("time"),
        pl.lit(True).alias("seen"),
    )
    return joined.with_columns(warm_up(alike))


def _sums(work: pl.DataFrame) -> pl.DataFrame:
    """Return the sums of each step's work (``step_work``), by ``row``."""
    inside = pl.col("replay") >= 0
    lasted = pl.col("end") - pl.col("start")
    return work.group_by("row").agg(
        *(
            pl.col("own").filter(pl.col("part") == number).sum().alias(f"{part}_part")
            for number, part in enumerate(PARTS)
        ),
        lasted.sum().alias("device_time"),
        pl.col("start").min().alias("device_begin"),
        pl.col("end").max().alias("device_end"),
        pl.col("is_kernel").sum().cast(pl.Int64).alias("kernels"),
        (pl.col("is_kernel") & inside).sum().cast(pl.Int64).alias("graph_kernels"),
        pl.col("graph").filter(inside).drop_nulls().mode().min().alias("graph"),
        pl.col("replay").filter(inside).n_unique().cast(pl.Int64).alias("replays"),
        lasted.filter(pl.col("is_kernel") & ~inside).sum().alias("outside_time"),
    )
