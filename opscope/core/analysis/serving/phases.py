"""The time of an inference server by phase (prefill, decode, mixed …), and by the work in each."""

from __future__ import annotations

import polars as pl

from opscope.core.analysis.answers import Answers
from opscope.core.analysis.serving.notes import served_table
from opscope.core.analysis.serving.step_sums import TIMES, step_sums
from opscope.core.question import lacking, units
from opscope.core.question.column import Frame
from opscope.core.question.layout import Column
from opscope.core.question.record import Question, Report
from opscope.core.question.words import columns
from opscope.core.tables.columns import known_sum

EMPTY = "no engine steps: nothing marks the steps of an inference server (docs/serving.md says what does)"


def phases(steps: pl.DataFrame) -> pl.DataFrame:
    """Return a row per process and kind of step, the most time first. ``steps`` is ``step_sums``."""
    counted = ("requests", "new_tokens", "output_tokens")
    sums = steps.group_by("process", "rank", "kind", maintain_order=True).agg(
        pl.len().cast(pl.Int64).alias("steps"),
        pl.col("time").sum(),
        *(known_sum(name) for name in ("device_time", *TIMES)),
        pl.col("period").median().round().cast(pl.Int64).alias("step_time"),
        # a sum over steps is unknown if any of them is unknown
        *(
            pl.when(pl.col(name).null_count() == 0).then(pl.col(name).sum()).alias(name)
            for name in counted
        ),
        pl.col("confidence").min(),
        pl.col("source").first(),
    )
    share = pl.col("time") / pl.col("time").sum().over("process")
    return sums.with_columns(share.alias("share")).sort(
        "process", "time", "kind", descending=[False, True, False]
    )


def answer(profile: Answers) -> pl.DataFrame:
    """The time of a server's engine by kind of step, and by its work: attention, experts, products … …"""
    return phases(profile.of(step_sums)).select(*(column.name for column in _COLUMNS))


_COLUMNS = columns(
    f"process rank kind steps time share step_time device_time {' '.join(TIMES)} requests "
    "new_tokens output_tokens source confidence",
    """
    kind: text: prefill, decode, mixed (both), verify (drafts are checked), draft, idle
    steps: count: engine steps
    time: ns: time of the engine that is these steps': a moment with device work belongs to the step that
        launched it, a moment without to the step in which the host was; the kinds add up to all of it
    share: fraction: of the engine's time
    step_time: ns: median time from a step's begin to the next one's
    attention_part: ns: attention ran, or wrote keys and values into the cache
    experts_part: ns: experts ran: routing and their products
    products_part: ns: other matrix products ran
    sampling_part: ns: tokens were chosen
    communication_part: ns: a collective ran
    copies_part: ns: copies and sets ran
    other_part: ns: other kernels ran
    host_part: ns: the device waited while the host was in the step
    between_part: ns: the device waited after the step's range: scheduling, detokenising, no requests
    requests: count: requests of all these steps, a request once for each step; null if one is not known
    new_tokens: count: tokens that were computed
    output_tokens: count: tokens that came out: one a decoding request; null where drafts were verified
    source: text: what tells the steps: the server, or how they were found
    confidence: fraction: how sure the kind of the least sure step is
    """,
)

QUESTION = Question(
    answer=answer,
    frames=(
        Frame("serving_phases()", "one row per process and kind of engine step", tuple(_COLUMNS)),
    ),
    merged=lacking.PATTERNS,
    reports=(
        Report(
            name="serving_phases",
            title="Engine steps by phase",
            empty=EMPTY,
            shown=f"process kind steps time share step_time {' '.join(TIMES)} new_tokens output_tokens",
            forms=[
                Column("time", "time", units.time),
                Column("share", "share", units.share),
                Column("step_time", "a step", units.time),
                *(Column(name, name.removesuffix("_part"), units.time) for name in TIMES),
                Column("new_tokens", "tokens in"),
                Column("output_tokens", "tokens out"),
            ],
            table=served_table,
            written=False,
        ),
    ),
)
