"""The delay that prefills cause to decoding requests: in mixed steps, and between two decode steps."""

from __future__ import annotations

import polars as pl

from opscope.core.analysis.answers import Answers
from opscope.core.analysis.serving.notes import served_table
from opscope.core.analysis.serving.step_sums import step_sums
from opscope.core.question import lacking, units
from opscope.core.question.column import Frame
from opscope.core.question.layout import Column
from opscope.core.question.record import Question, Report
from opscope.core.question.words import columns

#: Fewest decode steps from which the usual time is known.
FEWEST = 3


def stalls(steps: pl.DataFrame) -> pl.DataFrame:
    """Return a row per process and kind of step that delays decoding requests. ``steps`` is ``step_sums``.

    The usual time is the median of decode steps without warm-up. A mixed step delays each of its decoding
    requests by its time beyond the usual time. A prefill step delays, by all of its time, the requests that
    decode before and after it. Their number is at most the smaller of the numbers of the two neighbouring
    steps.
    """
    steady = steps.filter((pl.col("kind") == "decode") & ~pl.col("warm_up").fill_null(False))
    usual = steady.group_by("process").agg(
        pl.len().alias("seen"), pl.col("period").median().alias("usual")
    )
    table = _holding(steps)
    joined = table.join(usual.filter(pl.col("seen") >= FEWEST), on="process", how="left")
    beyond = pl.when(pl.col("kind") == "mixed").then(
        (pl.col("period") - pl.col("usual")).clip(lower_bound=0)
    ).otherwise("period")  # fmt: skip
    excess = beyond.round().cast(pl.Int64)
    return (
        joined.with_columns(excess.alias("excess"))
        .group_by("process", "rank", "kind")
        .agg(
            pl.len().cast(pl.Int64).alias("steps"),
            pl.col("held").mean().round().cast(pl.Int64).alias("held_mean"),
            pl.col("prefill_tokens").mean().round().cast(pl.Int64).alias("prefill_mean"),
            pl.col("period").median().round().cast(pl.Int64).alias("step_time"),
            pl.col("usual").first().round().cast(pl.Int64).alias("usual_time"),
            pl.col("excess").sum().alias("excess"),
            pl.col("excess").max().alias("excess_most"),
            (pl.col("excess") * pl.col("held")).sum().alias("request_time"),
            pl.col("excess").null_count().alias("untold"),
        )
        .with_columns(
            pl.when(pl.col("untold") == 0).then(name)
            for name in ("excess", "request_time", "excess_most")
        )
        .sort("process", "kind")
    )


def _holding(steps: pl.DataFrame) -> pl.DataFrame:
    """Return the mixed and prefill steps with the number of decoding requests that each delays."""
    decodes = pl.col("decode_requests").replace(0, None)
    before = decodes.forward_fill().shift(1).over("process")
    after = decodes.backward_fill().shift(-1).over("process")
    return steps.with_columns(
        pl.when(pl.col("kind") == "mixed")
        .then("decode_requests")
        .otherwise(pl.min_horizontal(before.fill_null(0), after.fill_null(0)))
        .alias("held")
    ).filter(pl.col("kind").is_in(["mixed", "prefill"]) & (pl.col("held") > 0))


def answer(profile: Answers) -> pl.DataFrame:
    """The cost of prefills for decoding requests: time of mixed and prefill steps beyond the usual
    time."""
    return stalls(profile.of(step_sums)).select(*(column.name for column in _COLUMNS))


_COLUMNS = columns(
    "process rank kind steps held_mean prefill_mean step_time usual_time excess excess_most request_time",
    """
    kind: text: mixed: a prefill in the step of decoding requests; prefill: a step between two that decode
    steps: count: such steps
    held_mean: count: decoding requests that a step holds up, on average, rounded
    prefill_mean: count: prompt tokens of a step, on average, rounded; null if not told
    step_time: ns: median time from such a step's begin to the next one's
    usual_time: ns: median of decode steps; null with fewer than three
    excess: ns: time of these steps beyond usual_time added up; of prefill steps all of it
    excess_most: ns: the most of one step
    request_time: ns: excess of each step for each request that it holds up, added up
    """,
)

QUESTION = Question(
    answer=answer,
    frames=(
        Frame(
            "serving_stalls()",
            "one row per process and kind of step that holds decoding requests up",
            tuple(_COLUMNS),
        ),
    ),
    merged=lacking.MEDIANS,
    reports=(
        Report(
            name="serving_stalls",
            title="What prefills cost decoding requests",
            empty="no step with a prefill holds decoding requests up, or nothing marks engine steps",
            shown=(
                "process kind steps held_mean prefill_mean step_time usual_time excess excess_most "
                "request_time"
            ),
            forms=[
                Column("held_mean", "held up"),
                Column("prefill_mean", "prompt tokens"),
                Column("step_time", "a step", units.time),
                Column("usual_time", "decode alone", units.time),
                Column("excess", "longer by", units.time),
                Column("excess_most", "at most", units.time),
                Column("request_time", "x requests", units.time),
            ],
            table=served_table,
            sums="",
            written=False,
        ),
    ),
)
