"""Tokens of an inference server: their rate, the time between two tokens of a request, device time."""

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
from opscope.core.tables.columns import known_sum

#: The kinds of steps from which tokens of decoding requests come.
DECODING = ("decode", "mixed", "verify")
NONE_DECODED = "no step decodes"
VERIFIED = (
    "a step computes several tokens of a request, as where drafts are verified: how many were accepted"
    " is not recorded"
)
#: Whether a step computes several tokens of a decoding request, as one that verifies drafts does.
VERIFIES = (pl.col("kind") == "verify") | (pl.col("decode_tokens") > pl.col("decode_requests"))
UNTOLD = "the names of some steps do not tell how many requests decoded"


def tokens(steps: pl.DataFrame) -> pl.DataFrame:
    """Return a row per process. ``steps`` is ``step_sums``.

    A decoding request gets a token in each decode step. The time between two of its tokens is the time from
    the begin of one such step to the begin of the next, including prefills in between.
    """
    decoding = steps.filter(pl.col("kind").is_in(DECODING)).with_columns(
        (pl.col("start").shift(-1) - pl.col("start")).over("process").alias("apart")
    )
    steady = pl.col("apart").filter(~pl.col("warm_up").fill_null(False))
    gaps = decoding.group_by("process").agg(
        pl.len().cast(pl.Int64).alias("decode_steps"),
        steady.mean().alias("token_mean"),
        *(
            steady.quantile(part / 100, "higher").round().cast(pl.Int64).alias(f"token_p{part}")
            for part in (50, 90, 99)
        ),
        _known("output_tokens").alias("output_tokens"),
        VERIFIES.any().alias("verified"),
        known_sum("device_time").alias("decode_device"),
    )
    every = steps.group_by("process", "rank", maintain_order=True).agg(
        pl.len().cast(pl.Int64).alias("steps"),
        pl.col("time").sum().alias("window"),
        _known("prefill_tokens").alias("prefill_tokens"),
        known_sum("device_time"),
    )
    per_second = pl.col("window") / 1e9
    # a step that verifies drafts may give a request several tokens
    token_times = pl.when(pl.col("verified").not_()).then(pl.col("^token_(mean|p[0-9]+)$"))
    table = every.join(gaps, on="process", how="left").with_columns(
        token_times,
        (pl.col("output_tokens") / per_second).alias("tokens_per_second"),
        (pl.col("prefill_tokens") / per_second).alias("prefill_per_second"),
        (pl.col("decode_device") / pl.col("output_tokens")).alias("device_per_token"),
        pl.when(pl.col("decode_steps").is_null())
        .then(pl.lit(NONE_DECODED))
        .when(pl.col("verified"))
        .then(pl.lit(VERIFIED))
        .when(pl.col("output_tokens").is_null())
        .then(pl.lit(UNTOLD))
        .alias("reason"),
    )
    return table.sort("process")


def _known(name: str) -> pl.Expr:
    """The sum of a column; null if any value is unknown."""
    return pl.when(pl.col(name).null_count() == 0).then(pl.col(name).sum())


def answer(profile: Answers) -> pl.DataFrame:
    """The tokens per second of a server, the time between a request's tokens, and the device time per
    token."""
    return tokens(profile.of(step_sums)).select(*(column.name for column in _COLUMNS))


_COLUMNS = columns(
    "process rank steps decode_steps window output_tokens tokens_per_second prefill_tokens "
    "prefill_per_second token_mean token_p50 token_p90 token_p99 device_time device_per_token reason",
    """
    steps: count: engine steps
    decode_steps: count: of these with requests that decode
    window: ns: time of the engine, from its first step to the end of its last
    output_tokens: count: tokens that came out of decoding requests; null if reason says why
    tokens_per_second: 1/s: output_tokens in the window
    prefill_tokens: count: prompt tokens that were computed; null if a step does not tell them
    prefill_per_second: 1/s: prefill_tokens in the window
    token_mean: ns: mean time between two tokens of a request: from a step that decodes to the next one; null
        where drafts were verified
    token_p50: ns: median of it, without warm-up
    token_p90: ns: 90th percentile of it, without warm-up
    token_p99: ns: 99th percentile of it, without warm-up
    device_time: ns: durations of kernels, copies and sets of all engine steps
    device_per_token: ns: device time of the steps that decode, for each token that came out of them
    reason: text: why tokens are not known
    """,
)

QUESTION = Question(
    answer=answer,
    frames=(Frame("serving_tokens()", "one row per process with engine steps", tuple(_COLUMNS)),),
    merged=lacking.MEDIANS,
    reports=(
        Report(
            name="serving_tokens",
            title="Tokens",
            empty=EMPTY,
            shown=(
                "process steps decode_steps window output_tokens tokens_per_second prefill_per_second "
                "token_mean token_p50 token_p99 device_per_token"
            ),
            forms=[
                Column("output_tokens", "tokens out"),
                Column("tokens_per_second", "a second", units.ratio),
                Column("prefill_per_second", "prompt a second", units.ratio),
                Column("token_mean", "a token (mean)", units.time),
                Column("token_p50", "p50", units.time),
                Column("token_p99", "p99", units.time),
                Column("device_per_token", "device time a token", units.time),
            ],
            table=served_table,
            sums="",
            written=False,
        ),
    ),
)
