"""The CUDA graph that ran each batch size of a server's decode steps, and the work outside graphs."""

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


def graphs(steps: pl.DataFrame) -> pl.DataFrame:
    """Return a row per process, kind and graph (null: none was replayed). ``steps`` is ``step_sums``."""
    ran = steps.filter(pl.col("kernels") > 0)
    sums = ran.group_by(
        "process", "rank", "kind", "graph", (pl.col("replays") > 0).alias("replayed")
    ).agg(
        pl.len().cast(pl.Int64).alias("steps"),
        pl.col("requests").min().alias("requests_least"),
        pl.col("requests").max().alias("requests_most"),
        pl.col("padded").max(),
        pl.col("replays").sum(),
        pl.col("kernels", "graph_kernels", "device_time", "outside_time").sum(),
        pl.col("period").median().round().cast(pl.Int64).alias("step_time"),
    )
    return sums.with_columns((pl.col("graph_kernels") / pl.col("kernels")).alias("in_graphs")).sort(
        "process", "kind", "graph", nulls_last=True
    )


def answer(profile: Answers) -> pl.DataFrame:
    """The graph that ran the steps of each batch size, and the steps' part outside graphs."""
    return graphs(profile.of(step_sums)).select(*(column.name for column in _COLUMNS))


_COLUMNS = columns(
    "process rank kind graph steps requests_least requests_most padded replays kernels graph_kernels "
    "in_graphs device_time outside_time step_time",
    """
    kind: text: kind of the steps
    graph: number: the graph that the steps replayed; null if none, or if the trace does not number graphs
    steps: count: steps that ran kernels
    requests_least: count: fewest requests of such a step; null if not told
    requests_most: count: most requests of such a step
    padded: count: requests to which batches were padded, where the steps' names tell it
    replays: count: replays of graphs in these steps
    kernels: count: kernels that they launched
    graph_kernels: count: of these in replayed graphs
    in_graphs: fraction: graph_kernels of kernels
    outside_time: ns: durations of their kernels outside graphs
    step_time: ns: median time from a step's begin to the next one's
    """,
)

QUESTION = Question(
    answer=answer,
    frames=(
        Frame("serving_graphs()", "one row per process, kind of step and graph", tuple(_COLUMNS)),
    ),
    merged=lacking.PATTERNS,
    reports=(
        Report(
            name="serving_graphs",
            title="Graphs of engine steps",
            empty=EMPTY,
            shown=(
                "process kind graph steps requests_least requests_most padded kernels in_graphs "
                "device_time outside_time step_time"
            ),
            forms=[
                Column("requests_least", "requests from"),
                Column("requests_most", "to"),
                Column("in_graphs", "in graphs", units.share),
                Column("device_time", "device time", units.time),
                Column("outside_time", "outside graphs", units.time),
                Column("step_time", "a step", units.time),
            ],
            table=served_table,
            gpu_only=True,
            written=False,
        ),
    ),
)
