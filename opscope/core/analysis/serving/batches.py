"""Decode steps by batch size: how the step time grows with the number of requests and the length of the
cache."""

from __future__ import annotations

import polars as pl

from opscope.core.analysis.answers import Answers
from opscope.core.analysis.serving.notes import served_table
from opscope.core.analysis.serving.phases import EMPTY
from opscope.core.analysis.serving.step_sums import step_sums
from opscope.core.question import lacking, units
from opscope.core.question.column import Frame
from opscope.core.question.layout import Column
from opscope.core.question.record import Question, Report
from opscope.core.question.words import columns


def batches(steps: pl.DataFrame) -> pl.DataFrame:
    """Return a row per process, kind and number of decoding requests, of decode and verify steps without
    warm-up. ``steps`` is ``step_sums``."""
    kept = steps.filter(
        pl.col("kind").is_in(["decode", "verify"])
        & pl.col("decode_requests").is_not_null()
        & ~pl.col("warm_up").fill_null(False)
    )
    sums = kept.group_by("process", "rank", "kind", "decode_requests").agg(
        pl.len().cast(pl.Int64).alias("steps"),
        pl.col("padded").max(),
        pl.col("cached_tokens").mean().round().cast(pl.Int64).alias("cached_mean"),
        pl.col("period").median().round().cast(pl.Int64).alias("step_time"),
        pl.col("period").quantile(0.99, "higher").round().cast(pl.Int64).alias("step_p99"),
        pl.col("device_time").median().round().cast(pl.Int64).alias("device_median"),
        pl.col("attention_part").median().round().cast(pl.Int64).alias("attention_median"),
        (pl.col("graph_kernels").sum() / pl.col("kernels").sum()).fill_nan(None).alias("in_graphs"),
    )
    rate = pl.col("decode_requests") / (pl.col("step_time") / 1e9)
    only_decode = pl.col("kind") == "decode"
    return sums.with_columns(
        pl.when(only_decode & (pl.col("step_time") > 0)).then(rate).alias("tokens_per_second"),
        (pl.col("device_median") / pl.col("decode_requests")).alias("device_per_token"),
    ).sort("process", "kind", "decode_requests")


def answer(profile: Answers) -> pl.DataFrame:
    """Decode steps of an inference server by batch size: time, device time, tokens a second."""
    return batches(profile.of(step_sums)).select(*(column.name for column in _COLUMNS))


_COLUMNS = columns(
    "process rank kind decode_requests steps padded cached_mean step_time step_p99 device_median "
    "attention_median tokens_per_second device_per_token in_graphs",
    """
    kind: text: decode, or verify where drafts are checked
    decode_requests: count: requests that decode in each of these steps
    steps: count: such steps, without warm-up
    padded: count: requests to which the batch was padded, where the steps' names tell it
    cached_mean: count: mean tokens in the cache of all requests together, rounded; null if not told
    step_time: ns: median time from a step's begin to the next one's
    step_p99: ns: 99th percentile of it
    device_median: ns: median of the durations of a step's kernels, copies and sets added up
    attention_median: ns: median of the time in which attention ran
    tokens_per_second: 1/s: decode_requests in step_time; null where drafts are verified
    device_per_token: ns: device_median for each request
    in_graphs: fraction: of their kernels, those in replayed graphs
    """,
)

QUESTION = Question(
    answer=answer,
    frames=(
        Frame(
            "serving_batches()",
            "one row per process, kind of step and number of decoding requests",
            tuple(_COLUMNS),
        ),
    ),
    merged=lacking.MEDIANS,
    reports=(
        Report(
            name="serving_batches",
            title="Decode steps by batch",
            empty=EMPTY,
            shown=(
                "process kind decode_requests steps cached_mean step_time step_p99 device_median "
                "attention_median tokens_per_second in_graphs"
            ),
            forms=[
                Column("decode_requests", "batch"),
                Column("cached_mean", "in the cache"),
                Column("step_time", "a step", units.time),
                Column("step_p99", "p99", units.time),
                Column("device_median", "device time", units.time),
                Column("attention_median", "attention", units.time),
                Column("tokens_per_second", "tokens a second", units.ratio),
                Column("in_graphs", "in graphs", units.share),
            ],
            table=served_table,
            sums="",
            written=False,
        ),
    ),
)
