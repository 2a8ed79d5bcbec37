"""The host's activities between the engine's steps (scheduling, taking results, detokenising) and their
share."""

from __future__ import annotations

import numpy as np
import polars as pl

from opscope.core.analysis.answers import Answers
from opscope.core.analysis.ops.ops import Ops, op_index
from opscope.core.analysis.serving.engine_steps import engine_steps
from opscope.core.analysis.serving.notes import served_table
from opscope.core.analysis.serving.step_sums import step_sums
from opscope.core.dialects import serving
from opscope.core.question import lacking, units
from opscope.core.question.column import Frame
from opscope.core.question.layout import Column
from opscope.core.question.record import Question, Report
from opscope.core.question.words import columns
from opscope.core.tables.columns import at, known_sum
from opscope.core.tables.interpret import ROLE
from opscope.core.tables.intervals import NONE

#: Name of time between steps without a recorded range or op.
NOTHING = "nothing that the trace shows"
_SEEN = ("user", "op", "source", "phase", "loader")


def between(ops: Ops, steps: pl.DataFrame, sums: pl.DataFrame) -> pl.DataFrame:
    """Return a row per process and activity between its steps, the most time first: time (ns), calls, and
    the sums of the process. ``steps`` is ``engine_steps``, ``sums`` ``step_sums``."""
    ran = _outer_ranges(ops, steps)
    names = ran.group_by("process", "what").agg(
        pl.col("time").sum(), pl.len().cast(pl.Int64).alias("calls")
    )
    sums_of_process = sums.group_by("process", "rank").agg(
        pl.len().cast(pl.Int64).alias("steps"),
        pl.col("time").sum().alias("window"),
        (pl.col("next") - pl.max_horizontal("end", "start"))
        .clip(lower_bound=0)
        .sum()
        .alias("between"),
        known_sum("between_part").alias("device_waits"),
        known_sum("host_part").alias("waits_inside"),
    )
    named = names.group_by("process").agg(pl.col("time").sum().alias("known"))
    rest = sums_of_process.join(named, on="process", how="left").select(
        "process",
        pl.lit(NOTHING).alias("what"),
        (pl.col("between") - pl.col("known").fill_null(0)).alias("time"),
        pl.lit(None, pl.Int64).alias("calls"),
    )
    rows = pl.concat([names, rest.filter(pl.col("time") > 0)])
    joined = rows.join(sums_of_process, on="process", how="left")
    return joined.with_columns(
        (pl.col("time") / pl.col("between")).alias("share"),
        (pl.col("between") / pl.col("window")).alias("between_share"),
    ).sort("process", "time", "what", descending=[False, True, False])


def _outer_ranges(ops: Ops, steps: pl.DataFrame) -> pl.DataFrame:
    """Return the outermost ranges that began between two steps on their threads: process, what, time (ns)."""
    meaning, ranges = ops.attribution.meaning, ops.attribution.trace["ranges"]
    parts = [pl.DataFrame(schema={"process": pl.Int32, "what": pl.String, "time": pl.Int64})]
    seen = np.isin(meaning.role, [ROLE[name] for name in _SEEN])
    process = ranges["process"].fill_null(NONE).to_numpy()
    thread = ranges["thread"].fill_null(NONE).to_numpy()
    for part in steps.partition_by("process"):
        mine, threads = part["process"][0], part["thread"].fill_null(NONE).unique().to_numpy()
        rows = np.flatnonzero(seen & (process == mine) & np.isin(thread, threads))
        start, end = (
            ranges[name].gather(rows).fill_null(0).to_numpy() for name in ("start", "end")
        )
        order = np.lexsort((-end, start))
        rows, start, end = rows[order], start[order], end[order]
        step = np.searchsorted(part["start"].to_numpy(), start, side="right") - 1
        after = at(part["next"].to_numpy(), step)
        begun = (step >= 0) & (start >= at(part["end"].to_numpy(), step)) & (start < after)
        rows, start, end = rows[begun], start[begun], np.minimum(end, after)[begun]
        reach = np.concatenate((np.zeros(1, np.int64), np.maximum.accumulate(end)))[: len(end)]
        outer = start >= reach
        texts = [serving.pattern(meaning.texts[code]) for code in meaning.reading[rows[outer]]]
        parts.append(
            pl.DataFrame(
                {"process": np.full(outer.sum(), mine), "what": texts,
                 "time": (end - start)[outer]},
                schema=parts[0].schema,
            )
        )  # fmt: skip
    return pl.concat(parts)


def answer(profile: Answers) -> pl.DataFrame:
    """The host's activities between a server's engine steps, and how long the device waits for them."""
    frame = between(profile.of(op_index), profile.of(engine_steps), profile.of(step_sums))
    return frame.select(*(column.name for column in _COLUMNS))


_COLUMNS = columns(
    "process rank what time share calls steps between between_share device_waits waits_inside window",
    """
    what: text: the outermost range or op that ran between two steps on their threads, with * for numbers;
        or that the trace shows nothing there
    time: ns: its time between steps
    share: fraction: of between
    calls: count: how often it ran there
    steps: count: engine steps of the process
    between: ns: time from the end of each step's range to the next one's begin, added up
    between_share: fraction: between of window
    device_waits: ns: part of between in which the device had no work of a step
    waits_inside: ns: time inside steps' ranges in which the device had no work of a step
    window: ns: time of the engine, from its first step to the end of its last
    """,
)

QUESTION = Question(
    answer=answer,
    frames=(
        Frame(
            "serving_host()",
            "one row per process and what ran between its engine steps, the most time first",
            tuple(_COLUMNS),
        ),
    ),
    merged=lacking.PATTERNS,
    reports=(
        Report(
            name="serving_host",
            title="The host between engine steps",
            empty="no time between engine steps, or nothing marks engine steps",
            shown=(
                "process what time share calls between between_share device_waits waits_inside window"
            ),
            forms=[
                Column("what", "what", units.text, flexible=True),
                Column("time", "time", units.time),
                Column("between", "between steps", units.time),
                Column("between_share", "of all", units.share),
                Column("device_waits", "device waits", units.time),
                Column("waits_inside", "waits in steps", units.time),
            ],
            table=served_table,
            sums="",
            written=False,
        ),
    ),
)
