"""The stages of an input pipeline: the batches ready in their queues, and the processor time of their ops.

They are samples (``schema.PIPELINE``) reported by the framework. A queue gives batches to the program or to
the device; an op gives its output to the op above it. If a queue stays full, its consumer sets the pace; if
it stays empty, its producer does.
"""

from __future__ import annotations

from typing import Final

import polars as pl

from opscope.core.analysis.answers import Answers
from opscope.core.question import lacking, units
from opscope.core.question.column import Frame
from opscope.core.question.layout import Column
from opscope.core.question.record import Question, Report
from opscope.core.question.words import columns
from opscope.core.schema import (
    PIPELINE,
    PIPELINE_CAPACITY,
    PIPELINE_CPU,
    PIPELINE_GET,
    PIPELINE_PUSH,
    PIPELINE_READY,
    PIPELINE_WORKERS,
)
from opscope.core.tables.trace import Trace

STAGES: Final = {
    "process": pl.Int32,
    "stage": pl.String,
    "op_number": pl.Int64,
    "parent": pl.Int64,
    "workers": pl.Int64,
    "samples": pl.Int64,
    "ready": pl.Float64,
    "capacity": pl.Int64,
    "used": pl.Float64,
    "empty": pl.Int64,
    "full": pl.Int64,
    "op_cores": pl.Float64,
    "processor_time": pl.Int64,
    "get": pl.Int64,
    "push": pl.Int64,
}
_NAME: Final = (
    r"^(?<stage>.*?)(?: (?<op_number>[0-9]{1,18})(?: of (?<parent>[0-9]{1,18}))?)?: "
    r"(?<quantity>[^:]*)$"
)
_OF: Final = ("process", "stage", "op_number", "parent")


def stage_samples(trace: Trace) -> pl.DataFrame:
    """Return the samples of the pipeline's stages, by stage and time: process, stage, op_number, parent, time
    (ns), quantity, value. Queues have no number."""
    samples = trace["samples"]
    names = samples["name"].unique().cast(pl.String).drop_nulls()
    names = names.filter(names.str.starts_with(PIPELINE)).sort()
    fields = names.str.strip_prefix(PIPELINE).str.extract_groups(_NAME).struct.unnest()
    named = pl.concat([names.to_frame("name"), fields], how="horizontal").with_columns(
        pl.col("op_number", "parent").cast(pl.Int64)
    )
    rows = samples.select("process", "time", pl.col("name").cast(pl.String), "value")
    rows = rows.join(named.drop_nulls("quantity"), on="name", how="inner")
    return rows.sort("process", "op_number", "stage", "time", maintain_order=True).drop("name")


def input_pipeline(samples: pl.DataFrame) -> pl.DataFrame:
    """Return one row per process and stage (``stage_samples``): the queues, then the ops by their number.

    ``op_cores`` weights each sample by the time since the one before it, in which it holds.
    """
    if samples.is_empty():
        return pl.DataFrame(schema=STAGES)
    samples = samples.with_columns(
        (pl.col("time") - pl.col("time").shift().over(*_OF, "quantity")).alias("since")
    )
    sizes = samples.filter(pl.col("quantity") == PIPELINE_CAPACITY)
    capacity = sizes.group_by(_OF).agg(pl.col("value").max().cast(pl.Int64).alias("capacity"))
    samples = samples.join(capacity, on=_OF, how="left", nulls_equal=True)
    value = pl.col("value")

    def of(quantity: str) -> pl.Expr:
        return value.filter(pl.col("quantity") == quantity)

    ready = of(PIPELINE_READY)
    cpu = (pl.col("quantity") == PIPELINE_CPU) & value.is_not_null() & (pl.col("since") > 0)
    busy = (value * pl.col("since") / 100).filter(cpu)
    since = pl.col("since").filter(cpu)
    seen = pl.col("quantity") == PIPELINE_READY
    rows = samples.group_by(_OF, maintain_order=True).agg(
        of(PIPELINE_WORKERS).max().alias("workers"),
        seen.sum().alias("samples"),
        ready.mean().alias("ready"),
        pl.col("capacity").first(),
        (ready == 0).sum().alias("empty"),
        (seen & (value >= pl.col("capacity"))).sum().alias("full"),
        pl.when(since.sum() > 0).then(busy.sum() / since.sum()).alias("op_cores"),
        pl.when(since.sum() > 0).then(busy.sum().round()).alias("processor_time"),
        of(PIPELINE_GET).mean().round().alias("get"),
        of(PIPELINE_PUSH).mean().round().alias("push"),
    )
    has_queue = pl.col("samples") > 0
    sized = has_queue & (pl.col("capacity") > 0)
    rows = rows.with_columns(
        pl.when(has_queue).then("empty").alias("empty"),
        pl.when(sized).then("full").alias("full"),
        pl.when(sized).then(pl.col("ready") / pl.col("capacity")).alias("used"),
    )
    return rows.select(pl.col(name).cast(kind) for name, kind in STAGES.items())


def answer(profile: Answers) -> pl.DataFrame:
    """The stages of the input pipeline, as its framework reported them: queues, then ops.

    The queue of an op has the elements that the op has made and the op above has not yet taken. The
    table is empty if the framework reported nothing.
    """
    return input_pipeline(stage_samples(profile.trace))


QUESTION = Question(
    answer=answer,
    frames=(
        Frame(
            "input_pipeline()",
            "one row per process and stage of the input pipeline: queues of batches, then ops by number",
            columns(
                "process stage op_number parent workers samples ready capacity used empty full op_cores "
                "processor_time get push",
                """
                stage: text: the queue, or the op that prepares data
                op_number: number: the op's number; null for a queue of batches
                parent: number: number of the op that takes its output; null for the last one and for queues
                workers: count: threads or processes that do the op
                samples: count: how often its queue was looked at
                ready: value: mean number of elements (of a queue: batches) that were ready in its queue
                capacity: count: elements that the queue holds at most
                used: fraction: ready / capacity
                empty: count: how often nothing was ready; always: the op is slower than what takes from it
                full: count: how often no more fitted; always: the op is faster than what takes from it
                op_cores: fraction: processors that the op's workers used, mean; null if not sampled
                processor_time: ns: processor time of the op's workers while it was sampled
                get: ns: mean time in which a queue waited for the pipeline to give a batch
                push: ns: mean time in which it waited to hand a batch on
                """,
            ),
        ),
    ),
    merged=lacking.MOMENTS,
    reports=(
        Report(
            name="input_pipeline",
            title="Input pipeline: queues and ops",
            empty="no stage of an input pipeline was recorded: MindSpore's dataset reports them",
            written=False,
            forms=[
                Column("ready", "ready", units.ratio),
                Column("op_cores", "cores", units.ratio),
            ],
        ),
    ),
)
