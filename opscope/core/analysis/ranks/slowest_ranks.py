"""Which rank was slowest in each step, and how far apart the ranks were."""

from __future__ import annotations

from typing import Final

import polars as pl

from opscope.core.analysis.answers import Answers
from opscope.core.analysis.ops.exchanges import exchange_pieces
from opscope.core.analysis.ranks.stragglers import work_by_step
from opscope.core.analysis.steps.step_times import step_bounds
from opscope.core.question.column import Frame
from opscope.core.question.record import Question, Report
from opscope.core.question.words import columns
from opscope.core.tables.trace import UNRELATED

SLOWEST: Final = {
    "step": pl.Int64,
    "compared": pl.Int64,
    "process": pl.Int32,
    "rank": pl.Int32,
    "slowest_work": pl.Int64,
    "median_work": pl.Float64,
    "least_work": pl.Int64,
    "spread": pl.Int64,
    "relative_spread": pl.Float64,
    "over_median": pl.Float64,
    "reason": pl.String,
}
UNSURE: Final = "a rank has a collective in it of which no other rank's time is known"
TIED: Final = "several ranks have the most work"


def slowest_ranks(worked: pl.DataFrame) -> pl.DataFrame:
    """Return one row per step that several ranks have (``SLOWEST``; ns), in order.

    ``worked``: ``stragglers.work_by_step`` of the steps of all ranks. ``spread``: the largest work of a rank
    minus the smallest. A step's slowest rank is null, with a ``reason``, if work is unknown or several ranks
    are equally slow.
    """
    if worked.is_empty():
        return pl.DataFrame(schema=SLOWEST)
    work = pl.col("work")
    unsure = work.is_null().any()
    slowest = work == work.max()
    alone = slowest.sum() == 1
    steps_of_ranks = worked.group_by("step").agg(
        pl.len().alias("compared"),
        *(
            pl.when(alone).then(pl.col(name).filter(slowest).first()).alias(name)
            for name in ("process", "rank")
        ),
        work.max().alias("most"),
        work.median().alias("median_work"),
        work.min().alias("least_work"),
        pl.when(unsure).then(pl.lit(UNSURE)).when(~alone).then(pl.lit(TIED)).alias("reason"),
    )
    middle = pl.col("median_work")
    spread = pl.col("most") - pl.col("least_work")
    return (
        steps_of_ranks.with_columns(
            pl.col("most").alias("slowest_work"),
            spread.alias("spread"),
            pl.when(middle > 0).then(spread / middle).alias("relative_spread"),
            pl.when(middle > 0).then(pl.col("most") / middle).alias("over_median"),
        )
        .cast(dict(SLOWEST.items()))
        .sort("step")
        .select(*SLOWEST)
    )


def answer(profile: Answers) -> pl.DataFrame:
    """The rank with most work in each step, and how far apart the ranks' work was."""
    if profile.trace.origin.get(UNRELATED):  # steps of equal number need not be the same step
        return pl.DataFrame(schema=SLOWEST)
    return slowest_ranks(work_by_step(profile.of(step_bounds), profile.of(exchange_pieces)))


QUESTION = Question(
    answer=answer,
    frames=(
        Frame(
            "slowest_ranks()",
            "one row per step that several ranks have",
            columns(
                "step compared process rank slowest_work median_work least_work spread "
                "relative_spread over_median reason",
                """
                compared: count: ranks that have the step
                process: number: the process with most work in it
                rank: number: the rank with most work in it; null if several have, or work is not known
                slowest_work: ns: the rank's time in the step less its waiting in collectives; the most of
                    a rank
                median_work: ns: median work of the ranks in the step
                least_work: ns: the least work of a rank in the step
                spread: ns: slowest_work - least_work
                relative_spread: fraction: spread / median_work
                over_median: fraction: slowest_work / median_work
                reason: text: why no rank is named
                """,
            ),
        ),
    ),
    reports=(
        Report(
            name="slowest_ranks",
            title="Slowest rank by step",
            empty="no step that several ranks of one job have: load the traces of all ranks together",
        ),
    ),
)
